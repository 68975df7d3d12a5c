# SPDX-License-Identifier: MIT
"""gpuprof.owned(): what the process owns, by owner.  A neighbour on the same simulated GPU moves what the driver says is free, and
nothing of this."""
import subprocess
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

import gpu
import gpuprof
from gpu import MIB

# Takes 1 GiB of the same device, says so, and gives it back when it is told to.
NEIGHBOUR = """
import sys, gpu
gpu.use(0)
held = gpu.alloc(1024 * gpu.MIB)
print("held", flush=True)
sys.stdin.readline()
gpu.free(held)
print("free", flush=True)
sys.stdin.readline()
"""


class Owned(unittest.TestCase):
    def setUp(self):
        gpu.use(0)

    def sums(self, all_of_it):
        for key in ("allocated", "reserved"):
            self.assertEqual(sum(row[key] for row in all_of_it["owners"].values()), all_of_it[key], key)

    def test_is_what_the_process_holds(self):
        before = gpuprof.owned(0)
        held = gpu.alloc(8 * MIB)
        now = gpuprof.owned("cuda:0")
        self.sums(before)
        self.sums(now)
        self.assertEqual(now["allocated"] - before["allocated"], 8 * MIB)
        self.assertEqual(now["reserved"], gpuprof.memory_reserved(0))
        self.assertEqual(now["allocated_peak"], gpuprof.max_memory_allocated(0))
        self.assertIsNone(now["context"], "only NVML knows")
        self.assertEqual((now["asleep"], now["asleep_peak"]), (0, 0))
        self.assertEqual(len(now["owners"]), 1)
        (owner,) = now["owners"].values()
        self.assertEqual((owner["allocated"], owner["asleep"]), (now["allocated"], 0))
        gpu.free(held)
        self.assertEqual(gpuprof.owned()["allocated"], before["allocated"])

    def test_the_peak_since_a_mark(self):
        first = gpu.alloc(64 * MIB)
        gpu.free(first)
        base = gpuprof.owned()["allocated"]
        with gpuprof.scope("load") as load:
            second = gpu.alloc(4 * MIB)
            self.assertEqual(gpuprof.owned(since=load)["allocated_peak"], base + 4 * MIB)
            gpu.free(second)
        self.assertEqual(gpuprof.owned(since=load)["allocated_peak"], base + 4 * MIB)
        self.assertEqual(gpuprof.owned(since=load)["allocated"], base)
        self.assertGreaterEqual(gpuprof.owned()["allocated_peak"], base + 64 * MIB)

    def test_a_device_that_is_not_in_use(self):
        answer = gpuprof.owned(1)
        self.assertEqual((answer["allocated"], answer["reserved"], answer["owners"]), (0, 0, {}))
        self.assertIsNone(answer["context"])

    def test_what_frameworks_say_is_asked_of_those_that_run(self):
        def answer(**modules):
            with mock.patch.dict(sys.modules, modules):
                return gpuprof.owned(0)["polled"]

        class Device:
            local_hardware_id = 0

            def memory_stats(self):
                return {"bytes_in_use": 3, "peak_bytes_in_use": 5, "pool_bytes": 8}

        def jax(platform, devices):
            client = SimpleNamespace(platform=platform, local_devices=devices)
            return SimpleNamespace(_backends={platform: client})

        said = {"allocated": 3, "allocated_peak": 5, "reserved": 8, "reserved_peak": None}
        self.assertEqual(answer(), {})
        name = "jax._src.xla_bridge"
        for module, expected in (
            (SimpleNamespace(_backends={}), {}),
            (SimpleNamespace(), {}),
            (jax("cpu", lambda: [Device()]), {}),
            (jax("cuda", lambda: [Device()]), {"jax": said}),
            (jax("cuda", lambda: 1 / 0), {}),
        ):
            self.assertEqual(answer(**{name: module}), expected)
        name, idle = "tensorflow.python.eager.context", SimpleNamespace(_context=SimpleNamespace(_initialized=False))
        self.assertEqual(answer(**{name: idle}), {})
        context = SimpleNamespace(_initialized=True, get_memory_info=lambda device: {"current": 1, "peak": len(device)})
        said = {"allocated": 1, "allocated_peak": 5, "reserved": None, "reserved_peak": None}
        self.assertEqual(answer(**{name: SimpleNamespace(_context=context)}), {"tensorflow": said})

    def test_a_neighbour_changes_nothing(self):
        held = gpu.alloc(16 * MIB)
        own, free = gpuprof.owned(0), gpuprof.mem_get_info(0)[0]
        command = [sys.executable, "-c", NEIGHBOUR]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            self.assertEqual(other.stdout.readline(), "held\n")
            self.assertEqual(gpuprof.owned(0), own)
            moved = free - gpuprof.mem_get_info(0)[0]
            other.stdin.write("\n")
            other.stdin.flush()
            self.assertEqual(other.stdout.readline(), "free\n")
            self.assertEqual(gpuprof.owned(0), own)
            other.communicate("\n")
        self.assertGreaterEqual(moved, 1024 * MIB, "the neighbour is on the same device")
        gpu.free(held)


if __name__ == "__main__":
    unittest.main()
