# SPDX-License-Identifier: MIT
"""torch_allocator, patch and unpatch, with a stand-in for PyTorch on the simulated GPU, and with the real one if it is installed."""
import ctypes
import importlib.util
import inspect
import os
import subprocess
import sys
import threading
import unittest

import fake_torch
import gpu
import gpuprof
from gpu import MIB

REAL = importlib.util.find_spec("torch") is not None
SHIM = os.path.join(os.environ["GPUPROF_TEST_BUILD"], "lib", "libgpuprof-shim.so")


class Case(unittest.TestCase):
    def setUp(self):
        gpu.use(0)
        self.torch = fake_torch.install()

    def tearDown(self):
        gpuprof.unpatch("torch")
        fake_torch.remove()

    def plug(self):
        self.torch.cuda.memory.change_current_allocator(gpuprof.torch_allocator())
        return self.torch.state["allocator"].allocator()


class Allocator(Case):
    def test_every_setter_gets_its_function(self):
        inner = gpuprof.torch_allocator().allocator()
        self.assertEqual(set(inner.functions), set(fake_torch.ALL_SETTERS))
        shim = ctypes.CDLL(SHIM)
        names = {
            "set_init_fn": "init",
            "set_reset_fn": "reset",
            "set_memory_fraction_fn": "set_memory_fraction",
            "set_base_alloc_fn": "base_alloc",
            "set_record_stream_fn": "record_stream",
            "set_begin_allocate_to_pool": "begin_allocate_to_pool",
            "set_end_allocate_to_pool_fn": "end_allocate_to_pool",
            "set_release_pool": "release_pool",
        }
        for setter, name in names.items():
            address = ctypes.cast(getattr(shim, "gpuprof_torch_" + name), ctypes.c_void_p).value
            self.assertEqual(inner.functions[setter], address, setter)

    def test_memory_comes_from_the_cache_and_is_counted(self):
        inner = gpuprof.torch_allocator(SHIM).allocator()
        before = gpuprof.memory_allocated()
        pointer = inner.alloc(3 * MIB, 0, None)
        self.assertTrue(pointer)
        self.assertEqual(gpuprof.memory_allocated(), before + 3 * MIB)
        self.assertGreaterEqual(gpuprof.memory_reserved(), gpuprof.memory_allocated())
        inner.free(pointer, 3 * MIB, 0, None)
        self.assertEqual(gpuprof.memory_allocated(), before)
        reserved = gpuprof.memory_reserved()
        ctypes.CFUNCTYPE(None)(inner.functions["set_reset_fn"])()  # torch.cuda.empty_cache()
        self.assertLess(gpuprof.memory_reserved(), reserved)

    def test_empty_cache(self):
        inner = gpuprof.torch_allocator(SHIM).allocator()
        for empty in (gpuprof.empty_cache, lambda: gpuprof.empty_cache("cuda:0"), gpuprof.compat.torch.empty_cache):
            pointer = inner.alloc(30 * MIB, 0, None)
            inner.free(pointer, 30 * MIB, 0, None)
            idle = gpuprof.memory_reserved() - gpuprof.memory_allocated()
            self.assertGreaterEqual(idle, 30 * MIB)
            gpuprof.empty_cache(1)
            self.assertEqual(gpuprof.memory_reserved() - gpuprof.memory_allocated(), idle)
            self.assertIsNone(empty())
            self.assertEqual(gpuprof.memory_reserved(), gpuprof.memory_allocated())
        self.assertEqual(gpuprof.memory_reserved(1), 0)
        with self.assertRaises(gpuprof.DeviceError):
            gpuprof.empty_cache("cpu:0")

    def test_an_older_version_has_fewer_setters(self):
        fake_torch.install(setters=("set_init_fn", "set_reset_fn", "set_record_stream_fn"))
        functions = gpuprof.torch_allocator().allocator().functions
        self.assertEqual(set(functions), {"set_init_fn", "set_reset_fn", "set_record_stream_fn"})

    def test_without_record_stream_it_warns(self):
        fake_torch.install(setters=("set_init_fn",))
        with self.assertWarnsRegex(RuntimeWarning, "reused too early"):
            gpuprof.torch_allocator()

    def test_a_torch_without_pluggable_allocators(self):
        fake_torch.install(pluggable=False)
        with self.assertRaisesRegex(RuntimeError, "2.0 or newer is needed"):
            gpuprof.torch_allocator()

    def test_no_torch(self):
        fake_torch.remove()
        sys.modules["torch"] = None  # importing it fails, installed or not
        try:
            for call in (gpuprof.torch_allocator, gpuprof.patch):
                with self.assertRaisesRegex(RuntimeError, "PyTorch cannot be imported"):
                    call()
        finally:
            del sys.modules["torch"]


    def test_without_injection_it_counts_from_its_first_allocation(self):
        code = (
            "import fake_torch, gpu, gpuprof\n"
            "cuda = fake_torch.install().cuda\n"
            "cuda.memory.change_current_allocator(gpuprof.torch_allocator())\n"
            "assert not gpuprof.is_active()\n"
            "gpuprof.patch(); gpu.use(0)\n"
            "inner = cuda.memory.memory_stats.__wrapped__ and gpuprof.torch_allocator().allocator()\n"
            "pointer = inner.alloc(3 << 20, 0, None)\n"
            "assert gpuprof.is_active() and cuda.memory_allocated() == 3 << 20 <= cuda.memory_summary().count('|') << 40\n"
            "inner.free(pointer, 3 << 20, 0, None)\n"
            "assert (cuda.memory_allocated(), cuda.max_memory_allocated()) == (0, 3 << 20)"
        )
        environment = {name: value for name, value in os.environ.items() if name != "CUDA_INJECTION64_PATH"}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)


class Patch(Case):
    def test_torch_s_own_answers_stay(self):
        gpuprof.patch("torch")
        cuda = self.torch.cuda
        self.assertEqual(cuda.memory_allocated(), 11)
        self.assertEqual(cuda.max_memory_allocated("cuda:0"), 22)
        self.assertEqual(cuda.memory_summary(), "torch's own")
        self.assertEqual(cuda.mem_get_info(), (1, 2))
        self.assertEqual(cuda.memory_snapshot(), [])

    def test_refused_ones_are_answered(self):
        self.plug()
        cuda = self.torch.cuda
        with self.assertRaisesRegex(RuntimeError, "does not yet support"):
            cuda.memory_stats()
        gpuprof.patch("torch")
        inner = self.torch.state["allocator"].allocator()
        cuda.reset_peak_memory_stats()
        base = gpuprof.memory_allocated()
        first, second = inner.alloc(2 * MIB, 0, None), inner.alloc(4 * MIB, 0, None)
        inner.free(second, 4 * MIB, 0, None)
        for module in (cuda, cuda.memory):
            self.assertEqual(module.memory_allocated(), base + 2 * MIB)
            self.assertEqual(module.max_memory_allocated(0), base + 6 * MIB)
            self.assertEqual(len(module.memory_stats()), 126)
            self.assertEqual(module.memory_stats_as_nested_dict(device="cuda:0")["allocated_bytes"]["all"]["current"], base + 2 * MIB)
            self.assertEqual(module.memory_summary(), gpuprof.memory_summary(0))
            self.assertEqual(len(module.memory_summary(None, True).splitlines()), 29)
            self.assertEqual(module.mem_get_info(), (1, 2))
            self.assertIsInstance(module.memory_snapshot(), list)
        with self.assertWarns(FutureWarning):
            cuda.reset_max_memory_allocated()
        self.assertEqual(cuda.max_memory_allocated(), base + 2 * MIB)
        cuda.reset_accumulated_memory_stats()
        self.assertEqual(cuda.memory_stats()["allocated_bytes.all.allocated"], 0)
        inner.free(first, 2 * MIB, 0, None)

    def test_refusals_are_not_asked_for_twice(self):
        self.plug()
        gpuprof.patch()
        for _ in range(5):
            self.torch.cuda.memory_stats_as_nested_dict()
        self.assertEqual(self.torch.state["asked"], 1)

    def test_device_arguments_and_errors_are_torch_s(self):
        self.plug()
        gpuprof.patch()
        cuda = self.torch.cuda
        for _ in range(2):  # before and after the first refusal
            self.assertEqual(cuda.memory_allocated(self.torch.device("cuda")), gpuprof.memory_allocated())
            with self.assertRaisesRegex(RuntimeError, "start of device string"):
                cuda.memory_stats("GPU:0")
            with self.assertRaisesRegex(ValueError, "Expected a cuda device"):
                cuda.memory_stats(device="cpu")
        self.torch.state["current"] = 1
        self.assertEqual(cuda.memory_allocated(), gpuprof.memory_allocated(1))

    def test_other_errors_are_not_hidden(self):
        self.torch.cuda.memory.memory_stats = self.torch.cuda.memory.empty_cache
        self.torch.cuda.memory_stats = self.torch.cuda.memory.empty_cache
        gpuprof.patch()
        with self.assertRaisesRegex(RuntimeError, "illegal memory access"):
            self.torch.cuda.memory_stats()

    def test_unpatch_restores_everything(self):
        cuda = self.torch.cuda
        before = (dict(cuda.memory.__dict__), dict(cuda.__dict__))
        names = gpuprof.patch()
        self.assertIn("memory_stats", names)
        self.assertNotIn("empty_cache", names)
        self.assertNotIn("memory_reserved", names)  # this torch has none
        self.assertIsNot(cuda.memory_stats, before[1]["memory_stats"])
        self.assertEqual(inspect.signature(cuda.memory_stats), inspect.signature(before[1]["memory_stats"]))
        self.assertEqual(gpuprof.patch(), names)  # again: nothing
        gpuprof.unpatch()
        self.assertEqual((cuda.memory.__dict__, cuda.__dict__), before)
        gpuprof.unpatch()

    def test_another_library_s_replacement_stays(self):
        gpuprof.patch()

        def theirs(device=None):
            return {}

        self.torch.cuda.memory_stats = theirs
        gpuprof.unpatch()
        self.assertIs(self.torch.cuda.memory_stats, theirs)

    def test_many_threads(self):
        self.plug()
        cuda, wrong = self.torch.cuda, []
        original = cuda.memory.memory_stats

        def work():
            try:
                for _ in range(100):
                    gpuprof.patch()
                    gpuprof.unpatch()
            except Exception as error:  # pylint: disable=broad-except
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertIs(cuda.memory.memory_stats, original)
        self.assertIs(cuda.memory_stats, original)

    def test_unknown_target(self):
        for call in (gpuprof.patch, gpuprof.unpatch):
            with self.assertRaisesRegex(ValueError, "'torch' is"):
                call("tensorflow")


@unittest.skipUnless(REAL, "PyTorch is not installed here")
class Real(unittest.TestCase):
    """Without a GPU that PyTorch can use: only the parts that need no GPU."""

    def test_allocator_takes_every_function(self):
        allocator = gpuprof.torch_allocator()
        self.assertTrue(allocator.allocator())

    def test_patch_and_unpatch(self):
        import torch

        before = torch.cuda.memory_stats
        self.assertIn("memory_stats", gpuprof.patch())
        self.assertIsNot(torch.cuda.memory_stats, before)
        gpuprof.unpatch()
        self.assertIs(torch.cuda.memory_stats, before)

    def test_summary_layout(self):
        import torch

        lines = {name: gpuprof.compat.torch.memory_stats().get(name, 0) for name in gpuprof.memory_stats(0)}
        saved, torch.cuda.memory.memory_stats = torch.cuda.memory.memory_stats, lambda device=None: lines
        try:
            self.assertEqual(torch.cuda.memory.memory_summary(0), gpuprof.memory_summary(0))
        finally:
            torch.cuda.memory.memory_stats = saved


if __name__ == "__main__":
    unittest.main()
