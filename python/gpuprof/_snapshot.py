# SPDX-License-Identifier: MIT
"""A memory snapshot in PyTorch's format: for pytorch.org/memory_viz, torch's _memory_viz.py and
`gpuprof replay`.

The viewers require, and this file guarantees: pickle protocol 4 without its rarer opcodes, integers
of at most 8 bytes, blocks that cover their segment without a gap, one trace for every device index,
and every address of a trace inside a segment.
"""
from __future__ import annotations

import bisect
import os
import pickle
import time
import warnings
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from . import _files, _library, _session
from ._library import Piece

_DEVICES = 64  # GP_WIRE_GPUS: events of higher indices are of host memory, or have no device
# GP_KIND_*: linear, pitched, array, vmm and pool count as allocated.  Graph, managed, imported and
# virtual memory is not summed.
_KINDS = frozenset((1, 2, 3, 4, 5))
_LINEAR, _ARRAY, _VMM = 1, 3, 4
_PINS = frozenset((8, 9))  # pinned and registered memory of the host
_HOST, _HOST_EVENTS = -1, 64  # GPUPROF_HOST, and GP_WIRE_HOST in events; PyTorch has the former, too
_SMALL_BYTES = 1 << 20  # PyTorch's limit between its small and its large pool
_STATES = ("active_allocated", "active_pending_free", "inactive")
_UNMAPPED = 3
_GROWABLE, _SMALL, _CACHE = 1, 2, 4  # flags of a segment
_TORCH_POOL = 1 << 63  # pools of PyTorch's graphs; the others come from gpuprof_begin_pool

_Entry = Dict[str, Any]


# ---- segments and blocks ---------------------------------------------------------------------------------------------


def _walk(library: Any, device: int) -> List[Piece]:
    room = 256
    while True:
        pieces = (Piece * room)()
        there_are = library.gpuprof_walk(device, pieces, room)
        if there_are <= room:
            return list(pieces[: max(0, there_are)])
        room = there_are + there_are // 4  # the program allocates meanwhile


def _pool_id(pool: int) -> Any:
    if pool & _TORCH_POOL:
        return (pool >> 32 & 0x7FFFFFFF, pool & 0xFFFFFFFF)
    return (0, pool & (_TORCH_POOL - 1))


def _segment(device: int, head: Piece, address: int) -> _Entry:
    small = device == _HOST or bool(head.flags & _SMALL) or (not head.flags & _CACHE and head.bytes <= _SMALL_BYTES)
    return {
        "device": device,
        "address": address,
        "total_size": 0,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": head.stream,
        "segment_type": "small" if small else "large",
        "segment_pool_id": _pool_id(head.pool),
        "is_expandable": bool(head.flags & _GROWABLE),
        "frames": [],
        "blocks": [],
    }


def _add_block(segment: _Entry, piece: Piece) -> None:
    active = piece.state in (0, 1)
    requested = (piece.requested_bytes or piece.bytes) if active else 0
    segment["total_size"] += piece.bytes
    segment["allocated_size"] += piece.bytes if piece.state == 0 else 0
    segment["active_size"] += piece.bytes if active else 0
    segment["requested_size"] += requested
    segment["blocks"].append(
        {
            "address": piece.address,
            "size": piece.bytes,
            "requested_size": requested,
            "state": _STATES[piece.state],
            "frames": [],
        }
    )


def _mappings(device: int, pieces: Iterable[Piece], ranges: Sequence[Tuple[int, int]]) -> List[_Entry]:
    """The memory that the program maps itself: one segment for each run within a reservation."""
    out: List[_Entry] = []
    starts = [begin for begin, _ in ranges]
    end, last = -1, -1
    for piece in sorted(pieces, key=lambda piece: piece.address):
        at = bisect.bisect_right(starts, piece.address) - 1
        within = at if at >= 0 and piece.address < ranges[at][1] else -1
        if piece.address < end:
            continue  # an unmap was lost, or happened during the walk
        if piece.address != end or within != last:
            out.append(_segment(device, piece, piece.address))
        _add_block(out[-1], piece)  # its one block is live: state 0, as in the segment's own fields
        end, last = piece.address + piece.bytes, within
    return out


def _mapped_here(head: Piece) -> bool:
    return bool(head.flags & _GROWABLE) and not head.flags & _CACHE and head.kind == _VMM


def _segments(device: int, pieces: List[Piece], ranges: Sequence[Tuple[int, int]] = ()) -> List[_Entry]:
    """One segment for each run of mapped blocks, as PyTorch shows its expandable segments.  Memory of
    cuMemCreate that is not mapped has no address and is left out."""
    heads = [piece for piece in pieces if piece.what == 0]
    out = _mappings(device, (head for head in heads if _mapped_here(head)), ranges)
    head: Optional[Piece] = None
    run: Optional[_Entry] = None
    for piece in pieces:
        if piece.what == 0:
            head, run = piece, None
            if piece.kind == _VMM:
                head = None
        elif head is None or piece.state == _UNMAPPED:
            run = None
        else:
            if run is None:
                run = _segment(device, head, piece.address)
                out.append(run)
            _add_block(run, piece)
    return out


class _Places:
    """An array has a handle and no address, and handles lie closer together than arrays are large.  So an array
    gets an address above all real ones, always the same for the same handle and size."""

    def __init__(self) -> None:
        self._places: Dict[Tuple[int, int], int] = {}
        self._end = 1 << 52  # below 2^53, from which on JavaScript rounds

    def of(self, kind: int, address: int, size: int) -> int:
        if kind != _ARRAY:
            return address
        place = self._places.setdefault((address, size), self._end)
        if place == self._end:
            self._end += (size + 511) // 512 * 512
        return place

    def move(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            piece.address = self.of(piece.kind, piece.address, piece.bytes)


# ---- trace -----------------------------------------------------------------------------------------------------------


class _Known:
    """The cache's segments while a trace is read.  Memory outside them was allocated by the program
    itself."""

    def __init__(self, addresses: Dict[int, int], ranges: Iterable[Tuple[int, int]] = ()) -> None:
        self._bytes = dict(addresses)
        self._starts = sorted(addresses)
        self._ranges = list(ranges)  # (start, end) of addresses that belong to the cache all the time, mapped or not

    def add(self, address: int, size: int) -> None:
        if address not in self._bytes:
            bisect.insort(self._starts, address)
        self._bytes[address] = size

    def remove(self, address: int) -> None:
        if self._bytes.pop(address, None) is not None:
            del self._starts[bisect.bisect_left(self._starts, address)]

    def holds(self, address: int) -> bool:
        at = bisect.bisect_right(self._starts, address) - 1
        if at >= 0 and address < self._starts[at] + self._bytes[self._starts[at]]:
            return True
        return any(begin <= address < end for begin, end in self._ranges)


def _at_start(events: List[_session.Event], segments: List[Piece]) -> _Known:
    """The cache's segments at the start of the trace: the current ones that it does not create, and
    those that it frees without having created them."""
    begins, ends = (_session.SEGMENT_ALLOC, _session.SEGMENT_MAP), (_session.SEGMENT_FREE, _session.SEGMENT_UNMAP)
    begun: Dict[int, bool] = {}  # does the first event of an address create its segment?
    older: Dict[int, int] = {}
    for event in events:
        if event.kind != _LINEAR:
            continue
        if event.type in ends and event.address not in begun:
            older[event.address] = event.bytes
        if event.type in begins + ends:
            begun.setdefault(event.address, event.type in begins)
    old = [piece for piece in segments if not begun.get(piece.address, False)]
    for piece in old:
        if not piece.flags & _GROWABLE:
            older.setdefault(piece.address, piece.bytes)
    return _Known(older, [(piece.address, piece.address + piece.bytes) for piece in old if piece.flags & _GROWABLE])


class _Trace:
    def __init__(self, known: _Known, offset_ns: int, oom: Optional[_session.Oom]) -> None:
        self.entries: List[_Entry] = []
        self._known = known
        self._aliases: Set[int] = set()
        self._offset_ns = offset_ns
        self._oom = oom

    def _add(self, action: str, event: _session.Event, size: int) -> None:
        entry = {"action": action, "addr": event.address, "size": size, "stream": event.stream}
        entry["time_us"] = (event.time_ns + self._offset_ns) // 1000
        entry["frames"] = []
        self.entries.append(entry)

    def _block(self, event: _session.Event) -> None:
        size, own = event.requested_bytes or event.bytes, not self._known.holds(event.address)
        if event.type == _session.ALLOC:
            if own:
                self._add("segment_alloc", event, event.bytes)
            self._add("alloc", event, size)
        else:
            self._add("free_requested", event, size)
            self._add("free_completed", event, size)
            if own:
                self._add("segment_free", event, event.bytes)

    def _mapping(self, event: _session.Event) -> None:
        """A mapping of memory that is mapped elsewhere too asked for no bytes: each byte is shown once."""
        if event.type == _session.SEGMENT_MAP:
            self._aliases.discard(event.address)
            if event.requested_bytes == 0:
                self._aliases.add(event.address)
                return
            self._add("segment_map", event, event.bytes)
            self._add("alloc", event, event.bytes)
        elif event.address in self._aliases:
            self._aliases.remove(event.address)
        else:
            self._add("free_requested", event, event.bytes)
            self._add("free_completed", event, event.bytes)
            self._add("segment_unmap", event, event.bytes)

    def _failure(self, event: _session.Event) -> None:
        self._add("oom", event, event.requested_bytes or event.bytes)
        entry, oom = self.entries[-1], self._oom
        del entry["addr"]
        told = oom is not None and oom.device == event.device and oom.time_ns >= event.time_ns
        entry["device_free"] = oom.free_bytes if oom is not None and told else -1  # -1: unknown for earlier failures

    def add(self, event: _session.Event) -> None:
        names = {
            _session.SEGMENT_ALLOC: "segment_alloc",
            _session.SEGMENT_FREE: "segment_free",
            _session.SEGMENT_MAP: "segment_map",
            _session.SEGMENT_UNMAP: "segment_unmap",
        }
        if event.type in (_session.ALLOC, _session.FREE):
            if event.kind in _KINDS or event.kind in _PINS:
                self._block(event)
        elif event.type == _session.OOM:
            self._failure(event)
        elif event.type in names:
            if event.kind == _VMM and event.type in (_session.SEGMENT_MAP, _session.SEGMENT_UNMAP):
                self._mapping(event)
            if event.kind != _LINEAR:
                return  # a handle of cuMemCreate, or memory of another process
            self._add(names[event.type], event, event.bytes)
            if event.type in (_session.SEGMENT_ALLOC, _session.SEGMENT_MAP):
                self._known.add(event.address, event.bytes)
            else:
                self._known.remove(event.address)


def _annotations(events: Iterable[_session.Event], offset_ns: int) -> List[_Entry]:
    """Annotations from marks: NAME starts, /NAME ends."""
    out = []
    for event in events:
        if event.type == _session.MARK:
            ends = event.name.startswith("/")
            out.append(
                {
                    "stage": "END" if ends else "START",
                    "name": event.name[1:] if ends else event.name,
                    "device": 0,  # a mark belongs to the process; the viewers require a device
                    "time_us": (event.time_ns + offset_ns) // 1000,
                }
            )
    return out


# ---- the host --------------------------------------------------------------------------------------------------------


def _host_segments(pieces: Iterable[Piece]) -> List[_Entry]:
    """Each allocation of pinned memory, and each range that was registered, is a segment of one block."""
    out = []
    for piece in pieces:
        if piece.kind in _PINS and piece.what == 0:
            out.append(_segment(_HOST, piece, piece.address))
            _add_block(out[-1], piece)  # as of memory that is mapped
    return out


# ---- the whole -------------------------------------------------------------------------------------------------------


def _settings() -> _Entry:
    """Keys that torch's tools read, with the values of gpuprof's cache, whose settings have the
    same names."""
    conf = os.environ.get("GPUPROF_ALLOC_CONF", "")
    options = dict(part.split(":", 1) for part in conf.split(",") if ":" in part)
    megabytes = options.get("max_split_size_mb", "")
    return {
        "PYTORCH_CUDA_ALLOC_CONF": conf,
        "max_split_size": int(megabytes) << 20 if megabytes.isdigit() else -1,
        "max_cached_size": -1,
        "max_round_threshold": -1,
        "expandable_segments": options.get("expandable_segments", "False") == "True",
        "gpuprof_allocator": os.environ.get("GPUPROF_ALLOCATOR", ""),
    }


def build() -> Dict[str, Any]:
    """The snapshot as a dictionary (torch.cuda.memory._snapshot)."""
    library = _library.active()
    segments: List[_Entry] = []
    traces: List[List[_Entry]] = []
    if library is None:
        empty: _Entry = {"segments": [], "device_traces": [[]], "allocator_settings": _settings()}
        return {**empty, "external_annotations": [], "host_segments": [], "host_traces": []}
    offset_ns, start_ns = time.time_ns() - time.monotonic_ns(), time.monotonic_ns()
    pieces = [_walk(library, device) for device in range(library.gpuprof_device_count())]
    host = _Trace(_Known({}), offset_ns, None)
    host_segments = _host_segments(_walk(library, _HOST))
    ranges = sorted(
        (piece.address, piece.address + piece.bytes)
        for piece in (piece for its in pieces for piece in its)
        if piece.what == 0 and piece.kind not in _KINDS and piece.flags & _GROWABLE
    )
    places = _Places()
    for its in pieces:
        places.move(its)
    session = _session.read()
    events = [event for event in session.events if event.time_ns <= start_ns]  # the walk may have missed later ones
    devices = max([len(pieces), 1] + [event.device + 1 for event in events if event.device < _DEVICES])
    for device in range(devices):
        mine = pieces[device] if device < len(pieces) else []
        segments += _segments(device, mine, ranges)
        its_events = [event for event in events if event.device == device]
        cached = [piece for piece in mine if piece.what == 0 and piece.flags & _CACHE]
        trace = _Trace(_at_start(its_events, cached), offset_ns, session.oom)
        for event in its_events:
            trace.add(event._replace(address=places.of(event.kind, event.address, event.bytes)))
        traces.append(trace.entries)
    for event in events:
        if event.device == _HOST_EVENTS:
            host.add(event)
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": _settings(),
        "external_annotations": _annotations(events, offset_ns),
        "host_segments": host_segments,
        "host_traces": host.entries,
    }


def snapshot(path: Any) -> None:
    """Writes a snapshot of this process for pytorch.org/memory_viz: the segments and blocks of
    every device, pinned memory of the host, and the last events (about 32 thousand) with their
    times.  Marks appear as annotations.  Call sites (frames) are empty.

    If gpuprof is not active, writes a valid snapshot without memory and warns (RuntimeWarning).
    """
    if not _library.is_active():
        warnings.warn("gpuprof: snapshot: this process is not profiled: the snapshot is empty", RuntimeWarning, stacklevel=2)
    _files.write(path, pickle.dumps(build(), protocol=4))
