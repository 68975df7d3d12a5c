# SPDX-License-Identifier: MIT
"""snapshot(): the file meets the requirements of PyTorch's viewers, and its numbers are the process's."""
import ctypes
import json
import os
import pickle
import pickletools
import subprocess
import sys
import tempfile
import time
import unittest

import gpu
import gpuprof
import vmm_layout
from gpu import MIB
from gpuprof import _library, _session, _snapshot

# The opcodes that the viewer's unpickler supports.
OPCODES = set(
    "PROTO FRAME MARK STOP EMPTY_DICT EMPTY_LIST EMPTY_TUPLE DICT LIST TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS BININT "
    "BININT1 BININT2 LONG1 BINFLOAT NONE NEWTRUE NEWFALSE BINUNICODE SHORT_BINUNICODE BINPUT LONG_BINPUT BINGET LONG_BINGET MEMOIZE".split()
)
ACTIONS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom"}


class Case(unittest.TestCase):
    def setUp(self):
        gpu.use(0)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "s.pickle")

    def take(self):
        gpuprof.snapshot(self.path)
        with open(self.path, "rb") as file:
            return pickle.load(file)

    def check(self, snapshot):
        """The constraints of the format; every test calls it."""
        keys = {"segments", "device_traces", "allocator_settings", "external_annotations", "host_segments", "host_traces"}
        self.assertEqual(set(snapshot), keys)  # those of PyTorch 2.15
        for segment in snapshot["host_segments"]:
            self.check_segment(segment)
            self.assertEqual(segment["device"], -1)
        self.check_trace(snapshot["host_traces"], snapshot["host_segments"])
        for segment in snapshot["segments"]:
            self.check_segment(segment)
            self.assertLess(segment["device"], len(snapshot["device_traces"]))
        for device, trace in enumerate(snapshot["device_traces"]):
            self.check_trace(trace, [s for s in snapshot["segments"] if s["device"] == device])
        for note in snapshot["external_annotations"]:
            self.assertEqual(set(note), {"stage", "name", "device", "time_us"})
            self.assertIn(note["stage"], ("START", "END"))

    def check_segment(self, segment):
        at = segment["address"]
        for block in segment["blocks"]:
            self.assertEqual(block["address"], at)
            self.assertLessEqual(block["requested_size"], block["size"])
            self.assertIn(block["state"], ("active_allocated", "active_pending_free", "inactive"))
            at += block["size"]
        self.assertEqual(at, segment["address"] + segment["total_size"])
        active = [block for block in segment["blocks"] if block["state"] != "inactive"]
        self.assertEqual(segment["active_size"], sum(block["size"] for block in active))
        self.assertIn(segment["segment_type"], ("small", "large"))
        self.assertEqual(len(segment["segment_pool_id"]), 2)

    def check_trace(self, trace, segments):
        """Times rise, and every allocation lies in a segment of the trace or of the end."""
        open_ones = {(s["address"], s["total_size"]) for s in segments}
        freed = {(e["addr"], e["size"]) for e in trace if e["action"] in ("segment_free", "segment_unmap")}
        open_ones |= freed
        last = 0
        for entry in trace:
            self.assertIn(entry["action"], ACTIONS)
            self.assertGreaterEqual(entry["time_us"], last)
            last = entry["time_us"]
            if entry["action"] in ("segment_alloc", "segment_map"):
                open_ones.add((entry["addr"], entry["size"]))
            if entry["action"] == "alloc":
                self.assertTrue(any(a <= entry["addr"] < a + size for a, size in open_ones), entry)
            self.assertEqual("device_free" in entry, entry["action"] == "oom")


class Host(Case):
    def test_pinned_memory_is_of_the_host(self):
        pointer = gpu.host_alloc(3 * MIB)
        snapshot = self.take()
        self.check(snapshot)
        (segment,) = [one for one in snapshot["host_segments"] if one["address"] == pointer]
        self.assertEqual((segment["total_size"], segment["blocks"][0]["state"]), (3 * MIB, "active_allocated"))
        self.assertFalse([one for one in snapshot["segments"] if one["address"] == pointer])
        gpu.host_free(pointer)
        snapshot = self.take()
        self.check(snapshot)
        self.assertFalse([one for one in snapshot["host_segments"] if one["address"] == pointer])
        mine = [entry["action"] for entry in snapshot["host_traces"] if entry["addr"] == pointer]
        self.assertEqual(mine[-5:], ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"])


class Format(Case):
    def test_opcodes_batches_and_integers(self):
        pointers = [gpu.alloc(4096) for _ in range(1500)]
        self.check(self.take())
        for pointer in pointers:
            gpu.free(pointer)
        with open(self.path, "rb") as file:
            data = file.read()
        depth, counts = [], []
        for opcode, argument, _ in pickletools.genops(data):
            self.assertIn(opcode.name, OPCODES)
            if opcode.name == "PROTO":
                self.assertIn(argument, (2, 3, 4))
            if isinstance(argument, int) and opcode.name == "LONG1":
                self.assertLessEqual(argument.bit_length(), 63)
            if opcode.name == "MARK":
                depth.append(0)
            elif opcode.name in ("APPENDS", "SETITEMS"):
                counts.append(depth.pop())
            elif opcode.name in ("EMPTY_DICT", "NONE") and depth:
                depth[-1] += 1
        self.assertLessEqual(max(counts), 1000)
        self.assertGreater(max(counts), 500)  # the trace was long enough to need several

    def test_replay_reads_it(self):
        pointers = [gpu.alloc(MIB) for _ in range(3)]
        self.take()
        for pointer in pointers:
            gpu.free(pointer)
        command = os.path.join(os.environ["GPUPROF_TEST_BUILD"], "bin", "gpuprof")
        done = subprocess.run([command, "replay", self.path, "--allocator=caching", "--json"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"schema"', done.stdout)


class Content(Case):
    def test_trace_of_the_program_s_own_memory(self):
        pointer = gpu.alloc(5 * MIB)
        gpu.free(pointer)
        kept = gpu.alloc(3 * MIB)
        snapshot = self.take()
        self.check(snapshot)
        trace = [entry for entry in snapshot["device_traces"][0] if entry["action"] != "oom"]
        mine = [(entry["action"], entry["size"]) for entry in trace if entry["addr"] == pointer][-5:]
        size = 5 * MIB
        whole = [("segment_alloc", size), ("alloc", size), ("free_requested", size), ("free_completed", size), ("segment_free", size)]
        if kept != pointer:
            self.assertEqual(mine, whole)
        self.assertEqual([(e["action"], e["addr"]) for e in trace[-2:]], [("segment_alloc", kept), ("alloc", kept)])
        gpu.free(kept)

    def test_devices_marks_and_oom(self):
        gpuprof.mark("begin")
        gpu.use(1)
        pointer = gpu.alloc(MIB)
        with gpuprof.mark("step"):
            self.assertTrue(gpu.alloc_fails(1 << 40))
        snapshot = self.take()
        gpu.free(pointer)
        self.check(snapshot)
        self.assertEqual(len(snapshot["device_traces"]), 2)
        self.assertIn(("alloc", pointer), [(e["action"], e.get("addr")) for e in snapshot["device_traces"][1]])
        oom = [entry for entry in snapshot["device_traces"][1] if entry["action"] == "oom"][-1]
        self.assertEqual(oom["size"], 1 << 40)
        notes = [(note["name"], note["stage"]) for note in snapshot["external_annotations"]]
        self.assertEqual(notes[-3:], [("begin", "START"), ("step", "START"), ("step", "END")])

    def test_segments_are_what_is_allocated(self):
        pointers = [gpu.alloc(size) for size in (1000, 3 * MIB)]
        segments = [s for s in self.take()["segments"] if s["device"] == 0]
        self.assertEqual(sum(s["allocated_size"] for s in segments), gpuprof.memory_allocated(0))
        self.assertEqual(sum(s["total_size"] for s in segments), gpuprof.memory_reserved(0))
        blocks = {b["address"]: b["size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"}
        self.assertEqual([blocks[pointer] for pointer in pointers], [1000, 3 * MIB])
        for pointer in pointers:
            gpu.free(pointer)

    def test_segments_of_the_cache(self):
        library = _library.library()
        pointers = [ctypes.c_void_p() for _ in range(3)]
        for pointer in pointers:
            self.assertEqual(library.gpuprof_alloc(ctypes.byref(pointer), ctypes.c_size_t(700), 0, None), 0)
        library.gpuprof_free(pointers[1])
        snapshot = self.take()
        self.check(snapshot)
        blocks = {b["address"]: b for s in snapshot["segments"] for b in s["blocks"]}
        for pointer in (pointers[0], pointers[2]):
            self.assertEqual(blocks[pointer.value]["state"], "active_allocated")
            self.assertEqual(blocks[pointer.value]["requested_size"], 700)
        trace = snapshot["device_traces"][0]
        self.assertIn(("alloc", pointers[0].value, 700), [(e["action"], e.get("addr"), e["size"]) for e in trace])
        self.assertNotIn(("segment_alloc", 1024), [(e["action"], e["size"]) for e in trace])  # reported as the program's own
        mine = [s for s in snapshot["segments"] if s["device"] == 0]
        self.assertEqual(sum(s["allocated_size"] for s in mine), gpuprof.memory_allocated(0))
        self.assertEqual(sum(s["total_size"] for s in mine), gpuprof.memory_reserved(0))
        self.assertEqual(sum(s["requested_size"] for s in mine), gpuprof.memory_stats(0)["requested_bytes.all.current"])
        for pointer in (pointers[0], pointers[2]):
            library.gpuprof_free(pointer)


def piece(what, address, size, state=0, flags=4, requested=0, pool=0):
    return _library.Piece(address=address, bytes=size, requested_bytes=requested, pool=pool, what=what, state=state, flags=flags, kind=1)


class Parts(unittest.TestCase):
    """From extents and events that the simulated GPU rarely produces."""

    def test_unmapped_blocks_part_a_segment(self):
        pieces = [piece(0, 0, 64, flags=5, pool=1 << 63 | 7 << 32 | 2)]
        pieces += [piece(1, 0, 16, 0, requested=10), piece(1, 16, 16, 2), piece(1, 32, 16, 3), piece(1, 48, 16, 1, requested=16)]
        first, second = _snapshot._segments(0, pieces)
        self.assertEqual((first["address"], first["total_size"], second["address"], second["total_size"]), (0, 32, 48, 16))
        self.assertEqual((first["allocated_size"], first["requested_size"], second["allocated_size"], second["active_size"]), (16, 10, 0, 16))
        self.assertTrue(first["is_expandable"])
        self.assertEqual(first["segment_pool_id"], (7, 2))
        self.assertEqual([b["state"] for b in first["blocks"] + second["blocks"]], ["active_allocated", "inactive", "active_pending_free"])

    def test_segments_from_before_the_trace(self):
        def event(kind, address, size):
            return _session.Event(1000, 0, kind, 1, 0, address, size, size, 0, "")

        # The trace starts in the middle: one segment is freed in it, one stays live, and memory in neither is the program's own.
        events = [event(_session.ALLOC, 110, 10), event(_session.SEGMENT_FREE, 100, 50), event(_session.ALLOC, 210, 10)]
        events += [event(_session.ALLOC, 120, 10), event(_session.SEGMENT_ALLOC, 300, 50), event(_session.ALLOC, 300, 10)]
        known = _snapshot._at_start(events, [piece(0, 200, 50), piece(0, 300, 50)])
        trace = _snapshot._Trace(known, 0, None)
        for one in events:
            trace.add(one)
        actions = [(entry["action"], entry["addr"]) for entry in trace.entries]
        own = [("segment_alloc", 120), ("alloc", 120)]
        self.assertEqual(
            actions, [("alloc", 110), ("segment_free", 100), ("alloc", 210)] + own + [("segment_alloc", 300), ("alloc", 300)]
        )

    def test_growable_segments_from_before_the_trace(self):
        def event(kind, address, size):
            return _session.Event(1000, 0, kind, 1, 0, address, size, size, 0, "")

        events = [event(_session.SEGMENT_UNMAP, 1000, 20), event(_session.SEGMENT_MAP, 1000, 20), event(_session.SEGMENT_MAP, 1040, 20)]
        known = _snapshot._at_start(events, [piece(0, 1000, 500, flags=5)])
        trace = _snapshot._Trace(known, 0, None)
        for one in events:
            trace.add(one)
        self.assertTrue(all(known.holds(address) for address in (1000, 1030, 1050, 1100, 1499)))
        self.assertFalse(known.holds(999) or known.holds(1500))

    def test_device_free_is_the_report_s_or_unknown(self):
        event = _session.Event(5000, 0, _session.OOM, 0, 1, 0, 77, 77, 0, "")
        for oom, free in ((_session.Oom(5000, 1, 42), 42), (_session.Oom(5000, 0, 42), -1), (None, -1)):
            trace = _snapshot._Trace(_snapshot._Known({}), 0, oom)
            trace.add(event)
            self.assertEqual((trace.entries[0]["device_free"], trace.entries[0]["size"]), (free, 77))


class Mapped(Case):
    """Memory of cuMemCreate is where it is mapped, in segments as PyTorch's own expandable ones."""

    def commanded(self, *arguments):
        command = os.path.join(os.environ["GPUPROF_TEST_BUILD"], "bin", "gpuprof")
        done = subprocess.run([command, "snapshot", *arguments, "-o", self.path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        checker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_snapshot.py")
        done = subprocess.run([sys.executable, checker, self.path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path, "rb") as file:
            return pickle.load(file)

    def expect(self, snapshot, layout, since=0):
        """Exactly these expandable segments, and traces that count what they show."""
        self.check(snapshot)
        found = {s["address"]: [b["size"] for b in s["blocks"]] for s in snapshot["segments"] if layout.holds(s["address"])}
        self.assertEqual(found, layout.segments)
        mine = [s for s in snapshot["segments"] if layout.holds(s["address"])]
        self.assertTrue(all(s["is_expandable"] and s["allocated_size"] == s["total_size"] for s in mine))
        self.assertFalse([s for s in snapshot["segments"] if s["address"] in layout.handles])
        mapped = {}
        for entry in snapshot["device_traces"][0]:
            if "addr" in entry and entry["time_us"] >= since and layout.holds(entry["addr"]):
                step = {"segment_map": 1, "alloc": 1, "free_completed": -1, "segment_unmap": -1, "free_requested": 0}[entry["action"]]
                mapped[entry["addr"]] = mapped.get(entry["addr"], 0) + step * entry["size"]
            self.assertFalse(entry["time_us"] >= since and entry.get("addr") in layout.handles, entry)
        blocks = {b["address"]: 2 * b["size"] for s in mine for b in s["blocks"]}
        self.assertEqual({address: size for address, size in mapped.items() if size}, blocks)

    def test_now(self):
        since = time.time_ns() // 1000  # the addresses had other memory before
        layout = vmm_layout.Layout()
        try:
            self.expect(self.take(), layout, since)
            self.expect(self.commanded("-p", str(os.getpid()), "--trace", "1"), layout, since)
        finally:
            layout.end()
        self.assertFalse([s for s in self.take()["segments"] if layout.holds(s["address"])])

    def test_a_recording(self):
        recording = self.path + ".gpuprof"
        here = os.path.dirname(os.path.abspath(__file__))
        done = subprocess.run(
            [sys.executable, os.path.join(here, "vmm_layout.py")],
            check=True,
            capture_output=True,
            env={**os.environ, "GPUPROF_RECORD": recording},
        )
        layout = vmm_layout.Told(**json.loads(done.stdout))
        self.expect(self.commanded(recording), layout)


if __name__ == "__main__":
    unittest.main()
