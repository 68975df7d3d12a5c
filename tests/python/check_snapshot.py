#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the structure of a memory snapshot: everything that PyTorch's viewers and torch's own tools rely on.

    check_snapshot.py FILE [--json] [--viewer]

Prints one error per line and fails, or summarizes the contents (with --json as an object, for tests).  Needs only Python: every opcode is
checked before anything is loaded, and no opcode that could call code is allowed.  --viewer: also undoes the trace from its end, as the viewer does; not for a process that allocated
while it was walked, whose segments may be newer than the trace.
"""
from __future__ import annotations

import bisect
import json
import pickle
import pickletools
import sys
from typing import Any, Dict, List, Set, Tuple

# The opcodes of protocol 2 that the viewer's own unpickler supports.
OPCODES = set(
    "PROTO MARK STOP EMPTY_DICT EMPTY_LIST EMPTY_TUPLE DICT LIST TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS BININT "
    "BININT1 BININT2 LONG1 BINFLOAT NONE NEWTRUE NEWFALSE BINUNICODE BINPUT LONG_BINPUT BINGET LONG_BINGET".split()
)
BATCH = 1000  # items of one APPENDS or SETITEMS
VALUES = set("EMPTY_DICT EMPTY_LIST EMPTY_TUPLE BININT BININT1 BININT2 LONG1 BINFLOAT NONE NEWTRUE NEWFALSE BINUNICODE BINGET LONG_BINGET".split())

ACTIONS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom"}
TOP = {"segments", "device_traces", "allocator_settings", "external_annotations", "host_segments", "host_traces"}
SEGMENT = {
    "device": int,
    "address": int,
    "total_size": int,
    "allocated_size": int,
    "active_size": int,
    "requested_size": int,
    "stream": int,
    "segment_type": str,
    "segment_pool_id": tuple,
    "is_expandable": bool,
    "frames": list,
    "blocks": list,
}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
ENTRY = {"action": str, "size": int, "stream": int, "time_us": int, "frames": list}
FRAME = {"name": str, "filename": str, "line": int}
NOTE = {"name": str, "stage": str, "device": int, "time_us": int}
SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": str,
    "max_split_size": int,
    "max_cached_size": int,
    "max_round_threshold": int,
    "garbage_collection_threshold": float,
    "expandable_segments": bool,
    "pinned_num_register_threads": int,
    "release_lock_on_cudamalloc": bool,
    "pinned_use_cuda_host_register": bool,
    "graph_capture_record_stream_reuse": bool,
    "roundup_power2_divisions": dict,
    "gpuprof_allocator": str,
}


class Findings:
    def __init__(self) -> None:
        self.lines: List[str] = []
        self.count = 0

    def expect(self, right: bool, text: str) -> bool:
        if not right:
            self.count += 1
            if len(self.lines) < 40:
                self.lines.append(text)
        return right

    def shape(self, value: Any, shape: Dict[str, type], where: str) -> bool:
        if not self.expect(isinstance(value, dict) and set(value) == set(shape), f"{where}: keys {sorted(value)}"):
            return False
        wrong = [key for key, kind in shape.items() if type(value[key]) is not kind]
        return self.expect(not wrong, f"{where}: of the wrong type: {wrong}")


# ---- bytes -----------------------------------------------------------------------------------------------------------


def check_opcodes(data: bytes, found: Findings) -> Dict[str, int]:
    """Every opcode, every integer's width, every batch."""
    marks: List[int] = []  # values since each open mark
    most, longs, memos = 0, 0, 0
    last = ""
    for opcode, argument, position in pickletools.genops(data):
        name = opcode.name
        found.expect(name in OPCODES, f"byte {position}: opcode {name}")
        if position == 0:
            found.expect(name == "PROTO" and argument == 2, f"begins with {name} {argument}")
        if name == "LONG1":
            longs += 1
            found.expect(-(1 << 63) <= argument < 1 << 63 and data[position + 1] <= 8, f"byte {position}: {argument} is wider than 8 bytes")
        if name in ("BINPUT", "LONG_BINPUT"):
            found.expect(argument == memos, f"byte {position}: memo {argument} instead of {memos}")
            memos += 1
        if name in ("BINGET", "LONG_BINGET"):
            found.expect(argument < memos, f"byte {position}: memo {argument} of {memos}")
        if name == "MARK":
            marks.append(0)
        elif name in ("APPENDS", "SETITEMS"):
            count = marks.pop()
            most = max(most, count)
            found.expect(0 < count <= BATCH, f"byte {position}: a batch of {count}")
        elif name == "TUPLE2" and marks:
            marks[-1] -= 1
        elif name in VALUES and marks:
            marks[-1] += 1
        last = name
    found.expect(last == "STOP" and not marks, f"ends with {last}, {len(marks)} marks open")
    return {"longest_batch": most, "long_integers": longs, "memos": memos}


# ---- content ---------------------------------------------------------------------------------------------------------


def check_frames(frames: List[Any], where: str, found: Findings, known: Set[int]) -> None:
    if id(frames) in known:  # shared lists are checked once
        return
    known.add(id(frames))
    for frame in frames:
        found.shape(frame, FRAME, f"{where}: frame")


def check_segment(segment: Any, where: str, found: Findings, known: Set[int]) -> None:
    if not found.shape(segment, SEGMENT, where):
        return
    found.expect(segment["segment_type"] in ("large", "small"), f"{where}: {segment['segment_type']}")
    pool = segment["segment_pool_id"]
    found.expect(len(pool) == 2 and all(type(part) is int for part in pool), f"{where}: pool {pool}")
    check_frames(segment["frames"], where, found, known)
    at, sums = segment["address"], {"total_size": 0, "allocated_size": 0, "active_size": 0, "requested_size": 0}
    found.expect(bool(segment["blocks"]), f"{where}: has no block")
    for block in segment["blocks"]:
        if not found.shape(block, BLOCK, f"{where}: block"):
            continue
        found.expect(block["address"] == at, f"{where}: a block at {block['address']:#x} instead of {at:#x}")
        found.expect(block["size"] > 0, f"{where}: a block of {block['size']} bytes")
        found.expect(0 <= block["requested_size"] <= block["size"], f"{where}: {block['requested_size']} of {block['size']} requested")
        found.expect(block["state"] in ("active_allocated", "active_pending_free", "inactive"), f"{where}: state {block['state']}")
        check_frames(block["frames"], where, found, known)
        at = block["address"] + block["size"]
        active = block["state"] != "inactive"
        found.expect(active or block["requested_size"] == 0, f"{where}: an idle block with requested bytes")
        sums["total_size"] += block["size"]
        sums["allocated_size"] += block["size"] if block["state"] == "active_allocated" else 0
        sums["active_size"] += block["size"] if active else 0
        sums["requested_size"] += block["requested_size"]
    for key, value in sums.items():
        found.expect(segment[key] == value, f"{where}: {key} {segment[key]}, its blocks {value}")


class Ranges:
    """Address ranges that can be looked up by an address."""

    SHIFT = 12

    def __init__(self) -> None:
        self._known: Set[Tuple[int, int]] = set()  # a trace repeats the same addresses
        self._pages: Dict[int, List[Tuple[int, int]]] = {}
        self._large: List[Tuple[int, int]] = []

    def add(self, address: int, size: int) -> None:
        if (address, size) in self._known:
            return
        self._known.add((address, size))
        first, last = address >> self.SHIFT, (address + max(size, 1) - 1) >> self.SHIFT
        if last - first > 1 << 14:
            self._large.append((address, size))
            return
        for page in range(first, last + 1):
            self._pages.setdefault(page, []).append((address, size))

    def hold(self, address: int) -> bool:
        ranges = self._pages.get(address >> self.SHIFT, [])
        return any(a <= address < a + size for a, size in ranges) or any(a <= address < a + size for a, size in self._large)


def check_trace(trace: List[Any], segments: List[Any], where: str, found: Findings, known: Set[int]) -> None:
    """Times rise, frees come in pairs, and every allocation lies in a segment of the end or of the trace."""
    places = Ranges()
    for segment in segments:
        places.add(segment["address"], segment["total_size"])
    for entry in trace:  # including segments that the trace frees: they existed when it started
        if entry.get("action") in ("segment_free", "segment_unmap"):
            places.add(entry["addr"], entry["size"])
    last, freed = -1, None
    for number, entry in enumerate(trace):
        at = f"{where}[{number}]"
        address = "device_free" if entry.get("action") == "oom" else "addr"
        granted = {"gpuprof_bytes": int} if "gpuprof_bytes" in entry and entry.get("action") == "alloc" else {}
        if not found.shape(entry, {**ENTRY, address: int, **granted}, at):
            continue
        action = entry["action"]
        found.expect(action in ACTIONS, f"{at}: action {action}")
        found.expect(entry["time_us"] >= last, f"{at}: time runs backwards")
        found.expect(entry["size"] >= 0 and entry.get("addr", 0) >= 0, f"{at}: a negative number")
        last = entry["time_us"]
        check_frames(entry["frames"], at, found, known)
        if action in ("segment_alloc", "segment_map"):
            places.add(entry["addr"], entry["size"])
        if action == "alloc":
            found.expect(places.hold(entry["addr"]), f"{at}: {entry['addr']:#x} is outside all segments")
        completes = action == "free_completed"
        found.expect(completes == (freed is not None), f"{at}: {action} after free_requested of {freed}")
        found.expect(not completes or entry["addr"] == freed, f"{at}: completes another free")
        freed = entry["addr"] if action == "free_requested" else None
    found.expect(freed is None, f"{where}: ends with a free that is not completed")


def check_overlaps(segments: List[Any], found: Findings) -> None:
    """No byte is in two segments: addresses of all devices are in one space."""
    end, before = 0, ""
    for segment in sorted(segments, key=lambda segment: segment["address"]):
        name = f"the segment at {segment['address']:#x} of {segment['total_size']} bytes"
        found.expect(segment["address"] >= end, f"{name} overlaps {before}")
        if segment["address"] + segment["total_size"] > end:
            end, before = segment["address"] + segment["total_size"], name


class Held:
    """Ranges of a trace that exist at one moment, sorted by address."""

    def __init__(self) -> None:
        self._starts: List[int] = []
        self._ends: Dict[int, int] = {}

    def overlaps(self, address: int, size: int) -> bool:
        at = bisect.bisect_left(self._starts, address + size)
        return at > 0 and self._ends[self._starts[at - 1]] > address

    def covers(self, address: int, size: int) -> bool:
        """Neighbouring ranges count as one: a run of mappings."""
        end = address + max(size, 1)
        at = bisect.bisect_right(self._starts, address) - 1
        while address < end and 0 <= at < len(self._starts) and self._starts[at] <= address < self._ends[self._starts[at]]:
            address = self._ends[self._starts[at]]
            at += 1
        return address >= end

    def add(self, address: int, size: int) -> None:
        bisect.insort(self._starts, address)
        self._ends[address] = address + size

    def remove(self, address: int, size: int) -> None:
        """Any part of the ranges may go: a run of mappings is unmapped in pieces."""
        at = max(0, bisect.bisect_right(self._starts, address) - 1)
        while at < len(self._starts) and self._starts[at] < address + size:
            begin = self._starts[at]
            end = self._ends[begin]
            if end <= address:
                at += 1
                continue
            del self._starts[at], self._ends[begin]
            if begin < address:
                self.add(begin, address - begin)
                at += 1
            if end > address + size:
                self.add(address + size, end - address - size)


def check_once(trace: List[Any], where: str, found: Findings) -> None:
    """No segment and no block is made over another one that is still there, and no segment ends before its blocks."""
    segments, blocks = Held(), Held()
    for number, entry in enumerate(trace):
        action, held = entry["action"], segments if entry["action"].startswith("segment") else blocks
        if action in ("segment_alloc", "segment_map", "alloc") and entry["size"]:
            new = not held.overlaps(entry["addr"], entry["size"])
            found.expect(new, f"{where}[{number}]: {action} of {entry['size']} bytes at {entry['addr']:#x}, where another one is")
            if new:
                held.add(entry["addr"], entry["size"])
        elif action in ("segment_free", "segment_unmap", "free_completed") and entry["size"]:
            ended = action == "free_completed" or not blocks.overlaps(entry["addr"], entry["size"])
            found.expect(ended, f"{where}[{number}]: {action} at {entry['addr']:#x}, where a block is")
            held.remove(entry["addr"], entry["size"])


def check_causes(trace: List[Any], where: str, found: Findings) -> None:
    """A segment that was taken for a block has frames if the block has."""
    for number, (entry, after) in enumerate(zip(trace, trace[1:])):
        if entry["action"] in ("segment_alloc", "segment_map") and after["action"] == "alloc" and after["frames"]:
            inside = entry["addr"] <= after["addr"] < entry["addr"] + entry["size"]
            found.expect(not inside or entry["frames"], f"{where}[{number}]: {entry['action']} has no frames, its block has")


class Drawn:
    """The segments that the viewer draws, as it keeps them while it goes backwards: each with its stream, neighbours of one stream
    as one after segment_unmap. They are in order at first."""

    def __init__(self, segments: List[Any]) -> None:
        self._list = sorted([s["address"], s["total_size"], s["stream"]] for s in segments)

    def came(self, address: int, size: int, stream: int, mapped: bool) -> None:
        at = next((i for i, one in enumerate(self._list) if one[0] > address), -1)
        if not mapped:  # above all others it comes before the last one, which is out of order then
            self._list.insert(at if at >= 0 else max(0, len(self._list) - 1), [address, size, stream])
            return
        at = at if at >= 0 else len(self._list)
        self._list.insert(at, [address, size, stream])
        for low in (at, at - 1):
            if 0 <= low < len(self._list) - 1:
                one, after = self._list[low : low + 2]
                if one[0] + one[1] == after[0] and one[2] == after[2]:
                    one[1] += after[1]
                    del self._list[low + 1]

    def went(self, address: int, size: int, stream: int, mapped: bool) -> bool:
        """False: the viewer does not find it, and stops with an error or takes another one away."""
        if not mapped:
            at = next((i for i, one in enumerate(self._list) if one[0] == address), -1)
            if at >= 0:
                del self._list[at]
            return at >= 0
        at = next((i for i, one in enumerate(self._list) if one[0] <= address and address + size <= one[0] + one[1]), -1)
        if at < 0:
            return False
        one = self._list[at]
        parts = [[one[0], address - one[0], one[2]], [address + size, one[0] + one[1] - address - size, one[2]]]
        self._list[at : at + 1] = [part for part in parts if part[1]]
        return True


def check_streams(trace: List[Any], segments: List[Any], where: str, found: Findings) -> None:
    """A segment has the stream of the event that made it."""
    left = {segment["address"]: segment["stream"] for segment in segments}
    for number in range(len(trace) - 1, -1, -1):
        entry = trace[number]
        stream = left.pop(entry["addr"], None) if entry["action"].startswith("segment") else None
        if entry["action"] in ("segment_alloc", "segment_map") and stream is not None:
            found.expect(stream == entry["stream"], f"{where}[{number}]: {entry['action']} in stream {entry['stream']}, its segment in {stream}")


def check_backwards(trace: List[Any], segments: List[Any], where: str, found: Findings) -> None:
    """The viewer goes from the end of a trace to its start: an event that made something must find it, and an allocation
    and a free must find all of their memory in segments that are there at that moment, or the viewer stops with an error."""
    held, blocks, drawn = Held(), set(), Drawn(segments)
    # With both kinds, the viewer can lose the order, or join a plain segment with a mapped neighbour (docs/snapshot.md).
    alike = len({entry["action"].split("_")[1] in ("map", "unmap") for entry in trace if entry["action"].startswith("segment")}) < 2
    for segment in segments:
        held.add(segment["address"], segment["total_size"])
        blocks.update(block["address"] for block in segment["blocks"] if block["state"] != "inactive")
    for number in range(len(trace) - 1, -1, -1):
        entry, at = trace[number], f"{where}[{number}]"
        action, address, size = entry["action"], entry.get("addr"), entry["size"]
        if action in ("alloc", "free_completed"):
            inside = held.covers(address, size)
            found.expect(inside, f"{at}: {action} of {size} bytes at {address:#x}, which are not in a segment then")
        if action == "alloc":
            blocks.discard(address)
        elif action == "free_completed":
            blocks.add(address)
        elif action == "free_requested":
            found.expect(address in blocks, f"{at}: no block at {address:#x} to free")
        elif action in ("segment_alloc", "segment_map") and size:
            found.expect(held.overlaps(address, 1), f"{at}: {action} at {address:#x}, where no segment is afterwards")
            there = drawn.went(address, size, entry["stream"], action == "segment_map") or not alike
            found.expect(there, f"{at}: {action} of {size} bytes at {address:#x}, which the viewer does not find as one")
            held.remove(address, size)
        elif action in ("segment_free", "segment_unmap") and size:
            drawn.came(address, size, entry["stream"], action == "segment_unmap")
            held.remove(address, size)
            held.add(address, size)
        if found.count:
            return


def check_notes(notes: List[Any], devices: int, found: Findings) -> None:
    open_ones: Dict[Tuple[str, int], int] = {}
    for note in notes:
        if not found.shape(note, NOTE, "annotation"):
            continue
        key = (note["name"], note["device"])
        found.expect(note["stage"] in ("START", "END"), f"annotation {note['name']}: stage {note['stage']}")
        found.expect(0 <= note["device"] < devices, f"annotation {note['name']}: device {note['device']}")
        open_ones[key] = open_ones.get(key, 0) + (1 if note["stage"] == "START" else -1)
        found.expect(open_ones[key] >= 0, f"annotation {note['name']}: ends before it starts")
    found.expect(not any(open_ones.values()), f"annotations without an end: {[k for k, v in open_ones.items() if v]}")


def check_content(snapshot: Any, found: Findings, viewer: bool) -> None:
    if not found.expect(isinstance(snapshot, dict) and set(snapshot) == TOP, "top: keys"):
        return
    known: Set[int] = set()
    traces = snapshot["device_traces"]
    found.expect(len(traces) > 0, "no device trace")
    for number, segment in enumerate(snapshot["segments"]):
        check_segment(segment, f"segment {number}", found, known)
        found.expect(0 <= segment["device"] < len(traces), f"segment {number}: device {segment['device']} has no trace")
    check_overlaps(snapshot["segments"], found)
    for device, trace in enumerate(traces):
        mine = [segment for segment in snapshot["segments"] if segment["device"] == device]
        check_trace(trace, mine, f"trace {device}", found, known)
        if found.count == 0:
            check_once(trace, f"trace {device}", found)
            check_causes(trace, f"trace {device}", found)
            if viewer:
                check_backwards(trace, mine, f"trace {device}", found)
                check_streams(trace, mine, f"trace {device}", found)
    settings = snapshot["allocator_settings"]
    if found.shape(settings, SETTINGS, "settings"):
        divisions = settings["roundup_power2_divisions"]
        found.expect(list(divisions) == [str(1 << i) for i in range(16)], f"settings: divisions {divisions}")
    check_notes(snapshot["external_annotations"], len(traces), found)
    host = snapshot["host_segments"]
    for number, segment in enumerate(host):
        check_segment(segment, f"host segment {number}", found, known)
        found.expect(segment["device"] == -1, f"host segment {number}: device {segment['device']}")
    check_overlaps(host, found)
    check_trace(snapshot["host_traces"], host, "host trace", found, known)
    if found.count == 0:
        check_once(snapshot["host_traces"], "host trace", found)


def summary(snapshot: Any, sizes: Dict[str, int]) -> Dict[str, Any]:
    segments, entries = snapshot["segments"], [entry for trace in snapshot["device_traces"] for entry in trace]
    blocks = [block for segment in segments for block in segment["blocks"]]
    frames = [frame for block in blocks for frame in block["frames"]] + [frame for entry in entries for frame in entry["frames"]]
    actions: Dict[str, int] = {}
    for entry in entries:
        actions[entry["action"]] = actions.get(entry["action"], 0) + 1
    return {
        **sizes,
        "segments": len(segments),
        "expandable": sum(segment["is_expandable"] for segment in segments),
        "blocks": len(blocks),
        "live": sum(block["state"] == "active_allocated" for block in blocks),
        "live_bytes": sum(segment["allocated_size"] for segment in segments),
        "total_bytes": sum(segment["total_size"] for segment in segments),
        "requested_bytes": sum(segment["requested_size"] for segment in segments),
        "devices": len(snapshot["device_traces"]),
        "entries": len(entries),
        "actions": actions,
        "annotations": [f"{note['stage']} {note['name']}" for note in snapshot["external_annotations"] if note["device"] == 0],
        "frame_names": sorted({frame["name"] for frame in frames}),
        "allocator": snapshot["allocator_settings"].get("gpuprof_allocator"),
    }


def main(arguments: List[str]) -> int:
    as_json = "--json" in arguments
    paths = [argument for argument in arguments if argument not in ("--json", "--viewer")]
    if len(paths) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    with open(paths[0], "rb") as file:
        data = file.read()
    found = Findings()
    sizes = {"bytes": len(data), **check_opcodes(data, found)}
    if found.count == 0:
        snapshot = pickle.loads(data)
        check_content(snapshot, found, "--viewer" in arguments)
    for line in found.lines:
        print(f"check_snapshot: {line}", file=sys.stderr)
    if found.count:
        print(f"check_snapshot: {found.count} findings", file=sys.stderr)
        return 1
    print(json.dumps(summary(snapshot, sizes)) if as_json else f"check_snapshot: {len(snapshot['segments'])} segments: sound")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
