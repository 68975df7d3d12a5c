# SPDX-License-Identifier: MIT
"""python -m gpuprof."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import gpu
import gpuprof
from gpu import MIB
from gpuprof import _library, _parquet

COMMAND = os.path.join(os.environ["GPUPROF_TEST_BUILD"], "bin", "gpuprof")


def python(*arguments, plain=False):
    environment = dict(os.environ)
    if plain:
        environment.pop("CUDA_INJECTION64_PATH")
        environment.pop("LD_LIBRARY_PATH")
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False, timeout=120)


class Summary(unittest.TestCase):
    def test_of_another_process(self):
        gpu.use(0)
        pointer = gpu.alloc(5 * MIB)
        for option in (["-p", str(os.getpid())], [f"--pid={os.getpid()}"]):
            done = python("-m", "gpuprof", *option)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("\n".join(gpuprof.memory_summary(0).splitlines()), done.stdout)
        gpu.free(pointer)

    def test_of_the_interpreter_itself(self):
        code = (
            "import runpy, sys, gpu; gpu.use(1); p = gpu.alloc(3 << 20); sys.argv = ['gpuprof']\n"
            "try: runpy.run_module('gpuprof', run_name='__main__')\n"
            "finally: gpu.free(p)"
        )
        done = python("-c", code)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("device ID 1", done.stdout)
        self.assertIn("| Allocated memory      |   3072 KiB |   3072 KiB |   3072 KiB |      0 B   |", done.stdout)

    def test_not_profiled(self):
        done = python("-m", "gpuprof", plain=True)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("gpuprof: python: this interpreter is not profiled", done.stderr)

    def test_usage(self):
        self.assertEqual(python("-m", "gpuprof", "--help").returncode, 0)
        for arguments in (["nonsense"], ["-p"], ["-p", "x"], ["run"], ["--pid="]):
            done = python("-m", "gpuprof", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertTrue(done.stderr.startswith("gpuprof: "), done.stderr)


class Parquet(unittest.TestCase):
    """Without pyarrow; tests/real/fleet.sh has it."""

    def test_usage(self):
        self.assertIn("usage:", python("-m", "gpuprof", "parquet", "--help").stdout)
        for arguments, why in (([], "no recording given"), (["x"], "with -o"), (["x", "-o"], "a value is missing"),
                               (["x", "-o", "y", "--hard"], "no such option")):
            done = python("-m", "gpuprof", "parquet", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(why, done.stderr)

    def test_pyarrow_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "pyarrow.py"), "w", encoding="ascii") as file:
                file.write("raise ImportError('none here')")
            code = f"import sys; sys.path.insert(0, {folder!r}); from gpuprof import _parquet; sys.exit(_parquet.main(['x', '-o', {folder!r} + '/y']))"
            done = python("-c", code)
            self.assertEqual(done.returncode, 1)
            self.assertIn("Parquet needs pyarrow, which this Python lacks (pip install pyarrow): none here", done.stderr)
            self.assertEqual(os.listdir(folder), ["pyarrow.py"])

    def test_a_recording_that_is_named_twice_is_written_once(self):
        """Two threads wrote the same files."""
        with tempfile.TemporaryDirectory() as folder:
            written = []
            run = _parquet._Run(folder, False, COMMAND)
            run.write = lambda work, job, file: written.append((job, file)) or "written"
            run.all([("a", ["x", "y"]), ("a", ["x"]), ("b", ["x"])])
            self.assertEqual(sorted(written), [("a", "x"), ("a", "y"), ("b", "x")])
            self.assertEqual((run.made, run.written), (3, 3))


class Reset(unittest.TestCase):
    """The command resets the peaks that the package reads, and the other way round."""

    def command(self, *arguments):
        done = subprocess.run([COMMAND, *arguments, "-p", str(os.getpid()), "--json"], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["processes"][0]["devices"][0]

    def check(self, option, key, current, peak, reset, other_peak):
        gpu.use(0)
        gpuprof.reset_peak_memory_stats()
        base = current()
        gpu.free(gpu.alloc(8 * MIB))
        self.assertEqual(self.command("stat", "--device", "0")["stats"][key], base + 8 * MIB)
        other = other_peak()
        row = self.command("reset", option, "--device", "0")
        self.assertEqual((row["before"][key], row["after"][key]), (base + 8 * MIB, base))
        self.assertEqual((peak(), current(), other_peak()), (base, base, other))
        gpu.free(gpu.alloc(3 * MIB))
        self.assertEqual(peak(), base + 3 * MIB)
        reset()
        self.assertEqual(self.command("stat", "--device", "0")["stats"][key], base)

    def test_allocated(self):
        self.check(
            "--allocated",
            "allocated_bytes.all.peak",
            gpuprof.memory_allocated,
            gpuprof.max_memory_allocated,
            gpuprof.reset_max_memory_allocated,
            gpuprof.max_memory_reserved,
        )

    def test_reserved(self):
        self.check(
            "--reserved",
            "reserved_bytes.all.peak",
            gpuprof.memory_reserved,
            gpuprof.max_memory_reserved,
            gpuprof.reset_max_memory_reserved,
            gpuprof.max_memory_allocated,
        )

    def test_the_command_ends_a_scope(self):
        gpu.use(0)
        with gpuprof.scope("taken") as scope:
            subprocess.run([COMMAND, "scope", "end", "taken", "-p", str(os.getpid())], capture_output=True, check=True)
        self.assertEqual(scope.peak_allocated(), 0)  # unknown by now, and not an error
        with gpuprof.scope("taken"):
            pass


class Run(unittest.TestCase):
    def script(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_a_script_is_profiled_and_its_status_is_returned(self):
        path = self.script(
            "import sys, gpu, gpuprof\n"
            "gpu.use(0); p = gpu.alloc(7 << 20)\n"
            "print(gpuprof.is_active(), gpuprof.memory_allocated(), sys.argv[1:]); gpu.free(p); sys.exit(5)\n"
        )
        done = python("-m", "gpuprof", "run", "--sim", path, "--epochs", "3", plain=True)
        self.assertEqual((done.returncode, done.stdout), (5, "True 7340032 ['--epochs', '3']\n"), done.stderr)

    def test_options_modules_and_code(self):
        done = python("-m", "gpuprof", "run", "--sim", "--summary", "-c", "import gpu; gpu.use(0); gpu.alloc(9 << 20)", plain=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("PyTorch CUDA memory summary, device ID 0", done.stdout + done.stderr)
        done = python("-m", "gpuprof", "run", "--sim", "--", "-m", "platform", plain=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Linux", done.stdout)

    def test_without_the_command(self):
        saved = _library._prefixes
        _library._prefixes = lambda: iter(())
        try:
            self.assertIsNone(_library.find_command())
            self.assertIsNone(_library.find_file("lib", "libgpuprof-shim.so"))
            with self.assertRaises(FileNotFoundError):
                import fake_torch

                fake_torch.install()
                gpuprof.torch_allocator()
        finally:
            _library._prefixes = saved
            fake_torch.remove()

    def test_files_belong_to_the_loaded_library(self):
        gpu.use(0)
        self.assertEqual(_library.find_command(), os.path.realpath(COMMAND))


if __name__ == "__main__":
    unittest.main()
