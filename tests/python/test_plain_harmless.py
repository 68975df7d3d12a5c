# SPDX-License-Identifier: MIT
"""Without gpuprof in the process: every call is harmless, and queries load nothing."""
import doctest
import importlib
import importlib.util
import os
import pickle
import pkgutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings

import gpuprof
from gpuprof import _library


def modules():
    yield gpuprof
    for module in pkgutil.walk_packages(gpuprof.__path__, "gpuprof."):
        needs = {"pytest_plugin": "pytest"}.get(module.name.rsplit(".", 1)[-1])
        if not module.name.endswith("__main__") and (needs is None or importlib.util.find_spec(needs)):
            yield importlib.import_module(module.name)


class Harmless(unittest.TestCase):
    def test_nothing_is_loaded(self):
        gpuprof.memory_stats()
        with open("/proc/self/maps", encoding="utf-8") as maps:
            text = maps.read()
        self.assertNotIn("libgpuprof", text)
        self.assertNotIn("libcuda", text)

    def test_import_is_light(self):
        """Importing starts no thread and loads no heavy module, nor any system that gpuprof has a namespace for."""
        code = (
            "import sys, threading; before = set(sys.modules); import gpuprof; "
            "assert threading.active_count() == 1; new = set(sys.modules) - before; "
            "assert not new & {'torch', 'paddle', 'tensorflow', 'rmm', 'numpy', 'subprocess', 'multiprocessing'}, new"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_numbers_are_zero(self):
        self.assertFalse(gpuprof.is_active())
        for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
            self.assertEqual(getattr(gpuprof, name)(), 0, name)
        self.assertEqual(gpuprof.memory_stats(), {})
        self.assertEqual(gpuprof.memory_stats_as_nested_dict("cuda:1"), {})
        self.assertEqual(gpuprof.host_memory_stats(), {})
        self.assertEqual(gpuprof.host_memory_stats_as_nested_dict(), {})
        self.assertEqual(gpuprof.get_memory_info("GPU:0"), {"current": 0, "peak": 0})
        self.assertEqual(gpuprof.mem_get_info(), (0, 0))
        self.assertEqual(len(gpuprof.memory_summary().splitlines()), 47)

    def test_resets_do_nothing(self):
        for name in gpuprof.__all__:
            if name.startswith("reset_"):
                self.assertIsNone(getattr(gpuprof, name)(), name)

    def test_empty_cache_does_nothing(self):
        self.assertIsNone(gpuprof.empty_cache())
        self.assertIsNone(gpuprof.empty_cache("cuda:0"))

    def test_scope_and_mark(self):
        with gpuprof.scope("a") as scope:
            self.assertEqual(scope.peak_allocated(), 0)
        self.assertEqual((scope.peak_allocated(), scope.peak_reserved("cuda:3")), (0, 0))

        @gpuprof.scope("b")
        @gpuprof.mark("c")
        @gpuprof.mark
        def function(value):
            "Its text."
            return value + 1

        self.assertEqual(function(1), 2)
        self.assertEqual(function.__doc__, "Its text.")
        with self.assertRaises(ZeroDivisionError), gpuprof.mark("d"), gpuprof.scope():
            1 / 0

    def test_snapshot_is_valid_and_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s.pickle")
            with self.assertWarnsRegex(RuntimeWarning, "this process is not profiled"):
                gpuprof.snapshot(path)
            with open(path, "rb") as file:
                snapshot = pickle.load(file)
        self.assertEqual(snapshot["segments"], [])
        self.assertEqual(snapshot["device_traces"], [[]])
        self.assertEqual(snapshot["external_annotations"], [])

    def test_rmm_answers_none_as_disabled_statistics(self):
        rmm = gpuprof.compat.rmm
        self.assertIsNone(rmm.get_statistics())
        self.assertIsNone(rmm.push_statistics())
        self.assertIsNone(rmm.pop_statistics())

    def test_a_program_that_is_not_profiled_is_warned_once(self):
        with unittest.mock.patch.dict(os.environ), unittest.mock.patch.object(_library, "_warned", False):
            os.environ["CUDA_INJECTION64_PATH"] = "/x"  # the driver has not loaded the library yet
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertEqual(gpuprof.memory_allocated(), 0)
            del os.environ["CUDA_INJECTION64_PATH"]
            with self.assertWarnsRegex(RuntimeWarning, "not profiled.*gpuprof run"):
                self.assertEqual(gpuprof.memory_allocated(), 0)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertEqual(gpuprof.max_memory_reserved(), 0)
                self.assertEqual(gpuprof.memory_stats(), {})

    def test_a_library_without_the_functions_is_reported_once(self):
        class Old:  # a library of another version: a few names are missing
            gpuprof_version = gpuprof_active = None

        saved, _library.open_loaded = _library.open_loaded, lambda name: Old() if "gpuprof" in name else None
        try:
            with self.assertWarnsRegex(RuntimeWarning, "older than this package"):
                self.assertEqual(gpuprof.memory_allocated(), 0)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertFalse(gpuprof.is_active())
        finally:
            _library.open_loaded, _library._refused = saved, False


class Package(unittest.TestCase):
    def test_everything_public_is_documented_and_exists(self):
        for name in gpuprof.__all__:
            self.assertTrue(getattr(gpuprof, name).__doc__, name)

    def test_doctests(self):
        tried = 0
        for module in modules():
            result = doctest.testmod(module)
            self.assertEqual(result.failed, 0, module.__name__)
            tried += result.attempted
        self.assertGreater(tried, 20)

    def test_readme(self):
        path = os.path.join(os.path.dirname(gpuprof.__path__[0]), "README.md")
        result = doctest.testfile(path, module_relative=False)
        self.assertEqual(result.failed, 0)
        self.assertGreater(result.attempted, 5)

    def test_version_is_the_library_s(self):
        header = os.path.join(os.path.dirname(os.path.dirname(gpuprof.__path__[0])), "include", "gpuprof", "gpuprof.h")
        with open(header, encoding="utf-8") as file:
            words = [line.split() for line in file if line.startswith("#define GPUPROF_VERSION_")]
        self.assertEqual(gpuprof.__version__, ".".join(word[2] for word in words))

    def test_pyproject_agrees(self):
        path = os.path.join(os.path.dirname(gpuprof.__path__[0]), "pyproject.toml")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.assertIn('dynamic = ["version"]', text)  # backend.py reads the header
        self.assertIn("dependencies = []", text)


if __name__ == "__main__":
    unittest.main()
