# SPDX-License-Identifier: MIT
"""The pytest plugin, on the simulated GPU: with the pytest of this interpreter and of the system's, and of those that
GPUPROF_TEST_PYTESTS names, separated by colons.  `make check-real NAME="pytest-7 pytest-8 pytest-9"` has three versions."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["GPUPROF_TEST_BUILD"]
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = '''
import unittest
import pytest
from gpu import Tensor, start

kept = []

@pytest.fixture(autouse=True, scope="session")
def cuda():
    start()

@pytest.fixture(scope="module")
def model(cuda):
    return Tensor(64)

@pytest.mark.limit_gpu_memory("8 MiB")
def test_within(model):
    Tensor(8)

@pytest.mark.limit_gpu_memory("8 MB")
def test_over(model):
    big = Tensor(9)
    assert big

@pytest.mark.limit_gpu_leaks("0 B", warmup=2)
def test_warm():
    if len(kept) < 2:
        kept.append(Tensor(1))

@pytest.mark.limit_gpu_leaks("0 B", warmups=1)
def test_leaks():
    kept.append(Tensor(1))

@pytest.mark.limit_gpu_leaks("1 MiB")
def test_leaks_little():
    kept.append(Tensor(1))

@pytest.mark.limit_gpu_memory("1 B")
def test_own_failure():
    held = Tensor(4)
    assert held is None, "its own"

@pytest.mark.xfail(strict=True)
@pytest.mark.limit_gpu_memory("1 B")
def test_expected():
    held = Tensor(4)

@pytest.mark.parametrize("mib", [1, 3])
@pytest.mark.limit_gpu_memory("2 MiB")
def test_each(mib):
    held = Tensor(mib)

class Old(unittest.TestCase):
    @pytest.mark.limit_gpu_memory("1 MiB")
    def test_method(self):
        held = Tensor(2)

@pytest.mark.limit_gpu_memory("2 parsecs")
def test_wrong_size():
    pass

@pytest.mark.limit_gpu_memory("2 GiB", current=True)
def test_wrong_argument():
    pass

def test_fixture(gpu_memory):
    first = Tensor(3)
    assert gpu_memory.added() == 3 << 20 and gpu_memory.left() == 3 << 20
    gpu_memory.mark()
    Tensor(5)
    assert gpu_memory.added() == 5 << 20 and gpu_memory.left() == 0
    assert gpu_memory.peak() == gpu_memory.allocated() + (5 << 20)

def test_plain():
    Tensor(2)
'''
PASS = {"test_within", "test_warm", "test_leaks_little", "test_each[1]", "test_fixture", "test_plain"}
FAIL = {"test_over", "test_leaks", "test_own_failure", "test_each[3]", "test_method", "test_wrong_size", "test_wrong_argument"}


def interpreters():
    """Those that have pytest, with its version; one for each version."""
    known = set()
    for python in [sys.executable, "/usr/bin/python3"] + os.environ.get("GPUPROF_TEST_PYTESTS", "").split(":"):
        if python:
            found = subprocess.run(
                [python, "-c", "import pytest; print(pytest.__version__)"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
            )
            if found.returncode == 0 and found.stdout not in known:
                known.add(found.stdout)
                yield python, found.stdout.strip()


@unittest.skipUnless(list(interpreters()), "pytest is not installed")
class Plugin(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write(CASES)

    def write(self, text):
        with open(os.path.join(self.folder, "test_case.py"), "w", encoding="utf-8") as file:
            file.write(text)

    def pytest(self, python, *arguments, run=("--sim", "--stacks=all"), cases=CASES):
        self.write(cases)
        command = [python, "-m", "pytest", "-p", "gpuprof.pytest_plugin", "-p", "no:cacheprovider", "-rA", "-v", *arguments, "test_case.py"]
        if run is not None:
            command = [os.path.join(BUILD, "bin", "gpuprof"), "run", *run, "--"] + command
        paths = os.path.join(TREE, "python") + ":" + os.path.join(TREE, "examples")
        environment = dict(os.environ, PYTHONPATH=paths, PYTHONDONTWRITEBYTECODE="1")
        if run is None:
            environment["LD_LIBRARY_PATH"] = os.path.join(BUILD, "lib", "gpuprof", "sim")
        environment.pop("PYTEST_ADDOPTS", None)
        return subprocess.run(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200, check=False
        )

    def outcomes(self, text):
        """{test: outcome} of -v; with xdist the lines have another order."""
        found = {}
        for name, outcome in re.findall(r"test_case\.py::(?:\w+::)?([\w\[\]]+) (PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR)", text):
            found[name] = outcome
        for outcome, name in re.findall(r"(PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR) test_case\.py::(?:\w+::)?([\w\[\]]+)", text):
            found[name] = outcome
        return found

    def check(self, result):
        found = self.outcomes(result.stdout)
        self.assertEqual({name for name, outcome in found.items() if outcome == "PASSED"}, PASS, result.stdout)
        self.assertEqual({name for name, outcome in found.items() if outcome == "FAILED"}, FAIL, result.stdout)
        self.assertEqual(found["test_expected"], "XFAIL", result.stdout)
        self.assertEqual(result.returncode, 1)

    def test_limits(self):
        for python, version in interpreters():
            with self.subTest(pytest=version):
                result = self.pytest(python)
                self.check(result)
                self.assertIn("the test needed 9.0 MiB, 1.0 MiB over its limit of 8.0 MiB", result.stdout)
                self.assertIn("the test left behind 1.0 MiB, 1.0 MiB over its limit of 0 B", result.stdout)
                self.assertIn("model (test_case.py:14)", result.stdout)  # by line: what the peak was made of
                self.assertRegex(result.stdout, r"9\.0 MiB  test_over \(test_case\.py:22\)")
                self.assertRegex(result.stdout, r"over its limit of 0 B\n +1\.0 MiB  test_leaks \(test_case\.py:32\)\n___")
                self.assertIn("AssertionError: its own", result.stdout)
                self.assertNotIn("Tensor(4) is None, GPU", result.stdout)
                self.assertIn("'2 parsecs' is no size", result.stdout)
                self.assertIn("limit_gpu_memory: no such argument: current", result.stdout)

    def test_report(self):
        for python, version in interpreters():
            with self.subTest(pytest=version):
                result = self.pytest(python, "--gpuprof-report")
                self.assertRegex(result.stdout, r"9\.0 MiB +73\.0 MiB +0 B +test_case\.py::test_over", result.stdout[-3000:])
                path = os.path.join(self.folder, "report.json")
                self.pytest(python, f"--gpuprof-json={path}")
                with open(path, encoding="utf-8") as file:
                    report = json.load(file)
                rows = {row["test"].split("::")[-1]: row for row in report["tests"]}
                self.assertEqual(report["schema"], "gpuprof.pytest/1")
                self.assertEqual(rows["test_plain"]["added_bytes"], 2 << 20)
                self.assertEqual(rows["test_leaks_little"]["left_bytes"], 1 << 20)
                self.pytest(python, f"--gpuprof-json={path}")  # its own file is replaced
                with open(path, "w", encoding="utf-8") as file:
                    file.write("import mine\n")
                refused = self.pytest(python, f"--gpuprof-json={path}")
                self.assertEqual(refused.returncode, 4, refused.stdout)
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(file.read(), "import mine\n")
                os.unlink(path)

    def test_without_gpuprof(self):
        """The tests run, and the summary says once what was not checked; nothing of gpuprof was loaded for it."""
        for python, version in interpreters():
            with self.subTest(pytest=version):
                cases = CASES + "\n\ndef test_light():\n    import sys\n    assert 'ctypes' in sys.modules and 'gpuprof._library' not in sys.modules\n"
                cases = cases.replace("def test_fixture(gpu_memory):", "def test_later(gpu_memory):")
                result = self.pytest(python, "--deselect=test_case.py::test_later", run=None, cases=cases)
                found = self.outcomes(result.stdout)
                self.assertEqual(found["test_over"], "PASSED", result.stdout)
                self.assertEqual(result.stdout.count("ran without gpuprof"), 1)
                self.assertIn("gpuprof run --sim -- pytest", result.stdout)
                result = self.pytest(python, "-k", "test_fixture", run=None)
                self.assertIn("1 skipped", result.stdout)
                self.assertIn("not profiled", result.stdout)

    def test_xdist(self):
        tried = 0
        for python, version in interpreters():
            if subprocess.run([python, "-c", "import xdist"], stderr=subprocess.DEVNULL, check=False).returncode:
                continue
            tried += 1
            with self.subTest(pytest=version):
                result = self.pytest(python, "-n", "2", "--gpuprof-report")
                # The tests that keep memory share a process only by chance.
                found = self.outcomes(result.stdout)
                self.assertEqual({name: found[name] for name in FAIL}, dict.fromkeys(FAIL, "FAILED"), result.stdout)
                self.assertRegex(result.stdout, r"9\.0 MiB +73\.0 MiB +0 B +test_case\.py::test_over", result.stdout[-3000:])
        if not tried:
            self.skipTest("pytest-xdist is not installed")


class EntryPoint(unittest.TestCase):
    def test_wheel_names_the_plugin(self):
        """pytest finds it where the package is installed."""
        import runpy

        backend = runpy.run_path(os.path.join(TREE, "python", "backend.py"))
        self.assertEqual(backend["entry_points"](), b"[pytest11]\ngpuprof = gpuprof.pytest_plugin\n")
