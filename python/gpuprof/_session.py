# SPDX-License-Identifier: MIT
"""Reads the event ring of this process's own session; include/gpuprof/wire.h defines the layout.

The writers never wait for a reader, so each chunk is copied and checked as
docs/understand/ring.md describes:
state, events, state again.  A copy is discarded if the chunk was reused for newer events meanwhile.
"""
from __future__ import annotations

import os
import struct
from typing import List, NamedTuple, Optional

_MAGIC, _ABI = 0x31464F5250555047, 1
_LINK = "/memfd:gpuprof-session (deleted)"
_HEADER = struct.Struct("<QII Q16sIIQ QII QII QII QII QII")
_OOM_OFFSET = struct.Struct("<QI")
_OOM_OFFSET_AT = 728  # wire.h: oom_offset, after the counts of lost events
_OOM = struct.Struct("<QQQQQ48sIIiIQQqq")
_EVENT = struct.Struct("<QQ32sIIBBBBI")
_PLACE = struct.Struct("<QQQQ")
_CHUNK_EVENTS_AT = 64
_TRIES = 3  # a ring is overwritten during a copy of some microseconds only if it is much too small

ALLOC, FREE, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM, SNAPSHOT, MARK = range(1, 10)


class Event(NamedTuple):
    """struct gp_wire_event; `name` for a mark, the four numbers for the rest."""

    time_ns: int
    seq: int
    type: int
    kind: int
    device: int
    address: int
    bytes: int
    requested_bytes: int
    stream: int
    name: str


class Oom(NamedTuple):
    """The last failed request, from struct gp_wire_oom; -1 is unknown."""

    time_ns: int
    device: int
    free_bytes: int


def _descriptor() -> Optional[int]:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == _LINK:
                return int(name)
        except OSError:  # the listing's own descriptor, or one that was closed meanwhile
            continue
    return None


def _event(data: bytes, at: int) -> Event:
    seq, time_ns, place, _tid, _site, kind_of_event, kind, device, _pad, _error = _EVENT.unpack_from(data, at)
    if kind_of_event == MARK:
        return Event(time_ns, seq, MARK, kind, device, 0, 0, 0, 0, place.split(b"\0", 1)[0].decode(errors="replace"))
    return Event(time_ns, seq, kind_of_event, kind, device, *_PLACE.unpack(place), name="")


def _chunk(fd: int, offset: int, size: int) -> List[Event]:
    for _ in range(_TRIES):
        (state,) = struct.unpack("<Q", os.pread(fd, 8, offset))
        data = os.pread(fd, size, offset)
        (again,) = struct.unpack("<Q", os.pread(fd, 8, offset))
        if state >> 9 == 0:  # never used
            return []
        if state >> 9 == again >> 9:  # one turn: events committed before the first read stay until the turn changes
            count = min(state & 0xFF, (size - _CHUNK_EVENTS_AT) // _EVENT.size)
            return [_event(data, _CHUNK_EVENTS_AT + i * _EVENT.size) for i in range(count)]
    return []


def _oom(fd: int) -> Optional[Oom]:
    offset, size = _OOM_OFFSET.unpack(os.pread(fd, _OOM_OFFSET.size, _OOM_OFFSET_AT))
    if offset == 0 or size < _OOM.size:
        return None
    for _ in range(_TRIES):
        first = _OOM.unpack(os.pread(fd, _OOM.size, offset))
        (again,) = struct.unpack("<Q", os.pread(fd, 8, offset))
        if first[0] == again and again % 2 == 0:
            return Oom(first[2], first[8], first[12]) if again else None
    return None


class Session:
    """Events in order of time, and the last out-of-memory report."""

    def __init__(self, events: List[Event], oom: Optional[Oom]) -> None:
        self.events = events
        self.oom = oom


def read() -> Session:
    """The events that the process still holds, about the last 32 thousand; empty without a session
    of this version."""
    fd = _descriptor()
    header = os.pread(fd, _HEADER.size, 0) if fd is not None else b""
    if fd is None or len(header) < _HEADER.size:
        return Session([], None)
    fields = _HEADER.unpack(header)
    if fields[0] != _MAGIC or fields[1] != _ABI or fields[5] != os.getpid():
        return Session([], None)  # of another version, or the parent's, inherited by a fork
    offset, chunk_bytes, chunks = fields[-3:]
    events: List[Event] = []
    for index in range(chunks):
        events += _chunk(fd, offset + index * chunk_bytes, chunk_bytes)
    events.sort(key=lambda event: (event.time_ns, event.seq))
    return Session(events, _oom(fd))
