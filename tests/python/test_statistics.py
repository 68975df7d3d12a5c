# SPDX-License-Identifier: MIT
"""Numbers, peaks and resets on the simulated GPU, through the package: the two feature requests for resettable peaks, devices, threads,
scopes, marks, pinned memory."""
import doctest
import gc
import os
import subprocess
import sys
import threading
import unittest

import gpu
import gpuprof
from gpu import MIB
from gpuprof import _session


class Case(unittest.TestCase):
    def setUp(self):
        gpu.use(0)
        self.held = []
        gpuprof.reset_peak_memory_stats()

    def tearDown(self):
        gpu.use(0)
        for pointer in self.held:
            gpu.free(pointer)
        gc.collect()

    def alloc(self, size):
        self.held.append(gpu.alloc(size))

    def free(self):
        gpu.free(self.held.pop())


class Peaks(Case):
    """Allocate, read the peak, reset: the peak equals the current value; allocate again: the peak counts from the reset."""

    def check(self, current, peak, reset, other_peak):
        base = current()
        self.alloc(8 * MIB)
        self.free()
        self.alloc(3 * MIB)
        self.assertEqual((current(), peak()), (base + 3 * MIB, base + 8 * MIB))
        other = other_peak()
        reset()
        self.assertEqual((current(), peak()), (base + 3 * MIB, base + 3 * MIB))
        self.assertEqual(other_peak(), other)  # the two are independent
        self.alloc(2 * MIB)
        self.free()
        self.assertEqual((current(), peak()), (base + 3 * MIB, base + 5 * MIB))

    def test_allocated(self):
        self.check(
            gpuprof.memory_allocated,
            gpuprof.max_memory_allocated,
            gpuprof.reset_max_memory_allocated,
            gpuprof.max_memory_reserved,
        )

    def test_reserved(self):
        self.check(
            gpuprof.memory_reserved,
            gpuprof.max_memory_reserved,
            gpuprof.reset_max_memory_reserved,
            gpuprof.max_memory_allocated,
        )

    def test_paddle_resets_one(self):
        paddle = gpuprof.compat.paddle
        self.check(
            lambda: paddle.memory_allocated("gpu:0"),
            lambda: paddle.max_memory_allocated(0),
            lambda: paddle.reset_max_memory_allocated("gpu:0"),
            lambda: paddle.max_memory_reserved("gpu:0"),
        )
        self.check(
            paddle.memory_reserved,
            paddle.max_memory_reserved,
            paddle.reset_max_memory_reserved,
            paddle.max_memory_allocated,
        )

    def test_torch_resets_all(self):
        torch = gpuprof.compat.torch
        for reset in (torch.reset_max_memory_allocated, torch.reset_max_memory_cached):
            self.alloc(8 * MIB)
            self.free()
            self.assertGreater(torch.max_memory_allocated(), torch.memory_allocated())
            with self.assertWarns(FutureWarning):
                reset("cuda:0")
            self.assertEqual(torch.max_memory_allocated(), torch.memory_allocated())
            self.assertEqual(torch.max_memory_reserved(), torch.memory_reserved())
            stats = torch.memory_stats()
            for name in stats:
                if name.endswith(".peak"):
                    self.assertEqual(stats[name], stats[name[:-4] + "current"], name)

    def test_tensorflow_resets_what_is_in_use(self):
        tensorflow = gpuprof.compat.tensorflow
        self.alloc(8 * MIB)
        self.free()
        reserved = gpuprof.max_memory_reserved()
        info = tensorflow.get_memory_info("GPU:0")
        self.assertEqual(info["peak"] - info["current"], 8 * MIB)
        self.assertEqual(info, gpuprof.get_memory_info("GPU:0"))
        for reset in (tensorflow.reset_memory_stats, gpuprof.reset_memory_stats):
            reset("GPU:0")
            info = tensorflow.get_memory_info("GPU:0")
            self.assertEqual(info["peak"], info["current"])
            self.assertEqual(tensorflow.get_memory_usage("/device:GPU:0"), info["current"])
        self.assertEqual(gpuprof.max_memory_reserved(), reserved)

    def test_accumulated(self):
        gpuprof.reset_accumulated_memory_stats()
        self.alloc(2 * MIB)
        self.free()
        self.alloc(MIB)
        stats = gpuprof.memory_stats()
        self.assertEqual(stats["allocated_bytes.all.allocated"], 3 * MIB)
        self.assertEqual(stats["allocated_bytes.all.freed"], 2 * MIB)
        self.assertEqual((stats["allocation.all.allocated"], stats["allocation.all.freed"]), (2, 1))
        peak = stats["allocated_bytes.all.peak"]
        gpuprof.reset_accumulated_memory_stats()
        stats = gpuprof.memory_stats()
        for name in stats:
            if name.endswith((".allocated", ".freed")) or name.startswith("num_"):
                self.assertEqual(stats[name], 0, name)
        self.assertEqual(stats["allocated_bytes.all.peak"], peak)
        self.assertGreaterEqual(stats["allocated_bytes.all.current"], MIB)


class Shapes(Case):
    def test_names(self):
        stats = gpuprof.memory_stats()
        self.assertEqual(list(stats), sorted(stats))
        expected = {"num_alloc_retries", "num_ooms", "max_split_size", "num_sync_all_streams", "num_device_alloc", "num_device_free"}
        moments = ("current", "peak", "allocated", "freed")
        for stat in ("allocation", "segment", "active", "inactive_split"):
            for pool in ("all", "small_pool", "large_pool"):
                expected |= {f"{stat}.{pool}.{moment}" for moment in moments}
        for stat in ("allocated", "reserved", "active", "inactive_split", "requested"):
            for pool in ("all", "small_pool", "large_pool"):
                expected |= {f"{stat}_bytes.{pool}.{moment}" for moment in moments}
        for stat in ("oversize_allocations", "oversize_segments", "asleep_bytes"):
            expected |= {f"{stat}.{moment}" for moment in moments}
        self.assertEqual(set(stats), expected)
        self.assertEqual(len(expected), 126)

    def test_nested(self):
        self.alloc(MIB)
        flat, nested = gpuprof.memory_stats(), gpuprof.memory_stats_as_nested_dict()
        for name, value in flat.items():
            level = nested
            for part in name.split("."):
                level = level[part]
            self.assertEqual(level, value, name)
        self.assertIsInstance(nested["num_ooms"], int)

    def test_summary_is_the_command_s(self):
        self.alloc(700 * 1024)
        self.alloc(900 * MIB)
        text = gpuprof.memory_summary()
        lines = text.splitlines()
        self.assertTrue(text.endswith("|\n"))
        self.assertEqual(len(lines), 47)
        self.assertEqual({len(line) for line in lines}, {77})
        command = os.path.join(os.environ["GPUPROF_TEST_BUILD"], "bin", "gpuprof")
        arguments = [command, "stat", "--summary", "--device", "0", "-p", str(os.getpid())]
        printed = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
        self.assertEqual([line for line in printed.splitlines() if line.startswith("|")], lines)
        self.assertEqual(len(gpuprof.memory_summary(abbreviated=True).splitlines()), 29)

    def test_mem_get_info(self):
        free, total = gpuprof.mem_get_info()
        self.assertEqual(total, 16 << 30)
        self.alloc(64 * MIB)
        self.assertEqual(gpuprof.mem_get_info("cuda:0"), (free - 64 * MIB, total))

    def test_oom_is_counted(self):
        before = gpuprof.memory_stats()["num_ooms"]
        self.assertTrue(gpu.alloc_fails(1 << 40))
        self.assertEqual(gpuprof.memory_stats()["num_ooms"], before + 1)

    def test_pinned(self):
        before = gpuprof.host_memory_stats()
        pointer = gpu.host_alloc(5 * MIB)
        gpu.host_free(pointer)
        gpuprof.reset_accumulated_host_memory_stats()
        pointer = gpu.host_alloc(2 * MIB)
        stats = gpuprof.host_memory_stats()
        self.assertEqual(stats["allocated_bytes.peak"], before["allocated_bytes.current"] + 5 * MIB)
        self.assertEqual(stats["active_bytes.allocated"], 2 * MIB)
        self.assertEqual(stats["num_host_alloc"], 1)
        gpuprof.reset_peak_host_memory_stats()
        stats = gpuprof.host_memory_stats_as_nested_dict()
        self.assertEqual(stats["allocated_bytes"]["peak"], stats["allocated_bytes"]["current"])
        self.assertFalse([name for name in gpuprof.host_memory_stats() if "time" in name])
        gpu.host_free(pointer)


class Devices(Case):
    def test_each_has_its_own(self):
        gpu.use(1)
        gpuprof.reset_peak_memory_stats("cuda:1")
        zero, one = gpuprof.memory_allocated(0), gpuprof.memory_allocated(1)
        pointer = gpu.alloc(6 * MIB)
        self.assertEqual(gpuprof.memory_allocated(), one + 6 * MIB)  # the current one
        self.assertEqual(gpuprof.memory_allocated("cuda:1"), one + 6 * MIB)
        self.assertEqual(gpuprof.memory_allocated("GPU:0"), zero)
        gpu.free(pointer)
        gpuprof.reset_max_memory_allocated(0)
        self.assertEqual(gpuprof.max_memory_allocated("gpu:1"), one + 6 * MIB)
        gpuprof.reset_max_memory_allocated(1)
        self.assertEqual(gpuprof.max_memory_allocated(1), one)

    def test_no_such_device(self):
        compat = gpuprof.compat
        for call, device, kind in (
            (gpuprof.memory_stats, 2, gpuprof.DeviceError),
            (gpuprof.reset_peak_memory_stats, "cuda:2", gpuprof.DeviceError),
            (compat.torch.memory_stats, 2, RuntimeError),
            (compat.torch.max_memory_allocated, "cuda:7", RuntimeError),
            (compat.paddle.max_memory_allocated, 2, AssertionError),
            (compat.paddle.reset_max_memory_reserved, "gpu:9", AssertionError),
            (compat.tensorflow.get_memory_info, "GPU:2", ValueError),
            (compat.tensorflow.reset_memory_stats, "GPU:2", ValueError),
        ):
            with self.assertRaises(kind) as caught:
                call(device)
            self.assertIs(type(caught.exception), kind)

    def test_untouched_device_has_zeros(self):
        code = (
            "import gpu, gpuprof; gpu.use(0); p = gpu.alloc(1 << 20); s = gpuprof.memory_stats(1); assert len(s) == 126, s; "
            "assert s.pop('max_split_size') == -1; assert not any(s.values()); assert gpuprof.memory_allocated(1) == 0; gpu.free(p)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


class Threads(Case):
    def test_peak_over_threads_is_the_sum(self):
        count, size = 4, 2 * MIB
        base, barrier = gpuprof.memory_allocated(), threading.Barrier(count)
        seen = []

        def work():
            gpu.use(0)
            for _ in range(50):
                gpu.free(gpu.alloc(size // 2))
            barrier.wait()  # no other thread holds memory
            pointer = gpu.alloc(size)
            barrier.wait()  # all threads hold their memory
            seen.append(gpuprof.memory_allocated())
            barrier.wait()
            gpu.free(pointer)

        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(seen, [base + count * size] * count)
        self.assertEqual(gpuprof.max_memory_allocated(), base + count * size)
        self.assertEqual(gpuprof.memory_allocated(), base)

    def test_resets_under_load_keep_the_invariant(self):
        stop, wrong = threading.Event(), []

        def work():
            gpu.use(0)
            while not stop.is_set():
                gpu.free(gpu.alloc(MIB))

        def reset():
            for i in range(200):
                (gpuprof.reset_max_memory_allocated, gpuprof.reset_peak_memory_stats)[i % 2]()
                stats = gpuprof.memory_stats()
                for name in stats:
                    if name.endswith(".peak") and stats[name] < stats[name[:-4] + "current"]:
                        wrong.append(name)

        base = gpuprof.memory_allocated()
        threads = [threading.Thread(target=work) for _ in range(2)]
        resetter = threading.Thread(target=reset)
        for thread in threads + [resetter]:
            thread.start()
        resetter.join()
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(gpuprof.memory_allocated(), base)


class Scopes(Case):
    def test_peaks_are_of_the_scope(self):
        self.alloc(16 * MIB)
        self.free()
        base = gpuprof.memory_allocated()
        with gpuprof.scope("outer") as outer:
            self.alloc(4 * MIB)
            self.free()
            with gpuprof.scope("inner") as inner:
                self.alloc(MIB)
                gpuprof.reset_peak_memory_stats()
                self.free()
                self.assertEqual(inner.peak_allocated(), base + MIB)
            self.assertEqual(outer.peak_allocated("cuda:0"), base + 4 * MIB)
        self.alloc(32 * MIB)
        self.assertEqual(outer.peak_allocated(), base + 4 * MIB)
        self.assertEqual(inner.peak_allocated(), base + MIB)
        self.assertEqual(inner.peak_reserved(), base + MIB)

    def test_decorator_recursion_and_threads(self):
        peaks = []

        @gpuprof.scope("f")
        def function(depth):
            if depth:
                function(depth - 1)
            else:
                peaks.append(gpuprof.memory_allocated())

        threads = [threading.Thread(target=function, args=(3,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        function(2)
        self.assertEqual(len(peaks), 4)
        self.assertEqual(function.__name__, "function")

    def test_seventeenth(self):
        scopes = [gpuprof.scope(f"s{i}") for i in range(17)]
        opened = []
        try:
            for scope in scopes[:16]:
                opened.append(scope.__enter__())
            with self.assertRaisesRegex(RuntimeError, "16 scopes are open"):
                scopes[16].__enter__()
        finally:
            for scope in opened:
                scope.__exit__(None, None, None)
        with gpuprof.scope("again"):
            pass

    def test_begun_before_cuda(self):
        code = (
            "import gpu, gpuprof\n"
            "with gpuprof.scope('all') as scope:\n"
            "    assert not gpuprof.is_active()\n"
            "    gpu.use(1); pointer = gpu.alloc(5 << 20); gpu.free(pointer); pointer = gpu.alloc(1 << 20)\n"
            "    assert scope.peak_allocated() == 5 << 20\n"
            "kept = gpu.alloc(9 << 20)\n"
            "assert scope.peak_allocated('cuda:1') == scope.peak_reserved(1) == 5 << 20 and scope.peak_allocated(0) == 0\n"
            "gpu.free(pointer); gpu.free(kept)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_one_object_is_one_scope_at_a_time(self):
        scope = gpuprof.scope("twice")
        with scope:
            with self.assertRaisesRegex(RuntimeError, "open already"):
                scope.__enter__()
        with scope:
            self.alloc(MIB)
            self.assertGreaterEqual(scope.peak_allocated(), MIB)

    def test_the_command_lists_them(self):
        command = os.path.join(os.environ["GPUPROF_TEST_BUILD"], "bin", "gpuprof")
        with gpuprof.scope("visible\u00e9"):
            arguments = [command, "scope", "list", "-p", str(os.getpid())]
            listed = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
        self.assertIn("visible\u00e9", listed)

    def test_ends_by_an_exception(self):
        scope = gpuprof.scope("failing")
        with self.assertRaises(KeyError), scope:
            self.alloc(2 * MIB)
            raise KeyError
        self.assertGreaterEqual(scope.peak_allocated(), 2 * MIB)


class Marks(Case):
    def marks(self):
        return [event.name for event in _session.read().events if event.type == _session.MARK]

    def test_all_forms(self):
        begin = len(self.marks())
        gpuprof.mark("step 1")
        with gpuprof.mark("epoch"):
            pass

        @gpuprof.mark("forward")
        def one():
            pass

        @gpuprof.mark
        def two():
            raise KeyError

        one()
        with self.assertRaises(KeyError):
            two()
        gpuprof.mark("x" * 50)
        name = two.__qualname__.encode()[:31].decode()
        end = ("/" + two.__qualname__).encode()[:31].decode()
        expected = ["step 1", "epoch", "/epoch", "forward", "/forward", "forward", "/forward", name, end, "x" * 31]
        self.assertEqual(self.marks()[begin:], expected)


class Rmm(Case):
    def test_counters_are_relative_to_the_push(self):
        rmm = gpuprof.compat.rmm
        self.alloc(4 * MIB)
        before = rmm.push_statistics()
        self.assertEqual(before.current_bytes, gpuprof.memory_allocated())
        self.assertEqual(rmm.get_statistics()[:3], (0, 0, 0))
        self.alloc(3 * MIB)
        self.free()
        self.alloc(MIB)
        rmm.push_statistics()
        self.free()
        inner = rmm.pop_statistics()
        self.assertEqual((inner.current_bytes, inner.current_count, inner.peak_bytes, inner.total_bytes), (-MIB, -1, 0, 0))
        outer = rmm.pop_statistics()
        self.assertEqual((outer.current_bytes, outer.peak_bytes, outer.total_bytes, outer.total_count), (0, 3 * MIB, 4 * MIB, 2))
        with self.assertRaises(RuntimeError):
            rmm.pop_statistics()
        with rmm.statistics():
            self.alloc(MIB)
            self.assertEqual(rmm.get_statistics().current_bytes, MIB)


class Fork(Case):
    def test_a_child_is_not_profiled(self):
        self.alloc(MIB)
        pid = os.fork()
        if pid == 0:
            quiet = not gpuprof.is_active() and gpuprof.memory_allocated() == 0 and gpuprof.memory_stats() == {}
            quiet = quiet and _session.read().events == []
            gpuprof.reset_peak_memory_stats()
            with gpuprof.scope("child"):
                gpuprof.mark("child")
            os._exit(0 if quiet else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertTrue(gpuprof.is_active())


class Doctests(Case):
    def test_they_hold_when_active_too(self):
        from test_plain_harmless import modules

        self.assertTrue(gpuprof.is_active())
        self.assertEqual(sum(doctest.testmod(module).failed for module in modules()), 0)


if __name__ == "__main__":
    unittest.main()
