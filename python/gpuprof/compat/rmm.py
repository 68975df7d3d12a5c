# SPDX-License-Identifier: MIT
"""rmm.statistics on gpuprof's scopes: counters that start at zero with each push.

As with RMM, a value may be negative inside a push (if memory from before the push is freed), the
peak is never below zero, and a pop needs a push.  Unlike with RMM, every allocation of the device
counts, not only RMM's own.  The peak number of allocations is not kept inside a push, so peak_count
is None there.  Up to 16 pushes can be open.  Any thread may call these functions; the counters
belong to the device and are shared by all threads, as RMM's belong to the resource.
"""
from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from .. import _device, _library, _stats
from .._scope import scope


class Statistics(NamedTuple):
    """rmm.statistics.Statistics: bytes and numbers of allocations."""

    current_bytes: int
    current_count: int
    peak_bytes: int
    peak_count: Optional[int]
    total_bytes: int
    total_count: int


_lock = threading.RLock()
_pushed: Dict[int, List[Tuple[scope, Statistics]]] = {}  # by device


def _now(device: int) -> Statistics:
    stats = _stats.memory_stats(device)
    return Statistics(
        stats.get("allocated_bytes.all.current", 0),
        stats.get("allocation.all.current", 0),
        stats.get("allocated_bytes.all.peak", 0),
        stats.get("allocation.all.peak", 0),
        stats.get("allocated_bytes.all.allocated", 0),
        stats.get("allocation.all.allocated", 0),
    )


def _since(device: int) -> Statistics:
    """The counters of the innermost push, or of the process."""
    now, stack = _now(device), _pushed.get(device)
    if not stack:
        return now
    inner, start = stack[-1]
    return Statistics(
        now.current_bytes - start.current_bytes,
        now.current_count - start.current_count,
        max(0, inner.peak_allocated(device) - start.current_bytes),
        None,
        now.total_bytes - start.total_bytes,
        now.total_count - start.total_count,
    )


def get_statistics() -> Optional[Statistics]:
    """rmm.statistics.get_statistics: counters of the current device since the last push; None if
    gpuprof is not active."""
    with _lock:
        return _since(_device.current()) if _library.is_active() else None


def push_statistics() -> Optional[Statistics]:
    """rmm.statistics.push_statistics: returns the counters so far and starts new ones at zero."""
    device = _device.current()
    with _lock:
        if not _library.is_active():
            return None
        before = _since(device)
        inner = scope("rmm").__enter__()
        _pushed.setdefault(device, []).append((inner, _now(device)))
        return before


def pop_statistics() -> Optional[Statistics]:
    """rmm.statistics.pop_statistics: ends the counters of the last push and returns them.  Raises
    RuntimeError without a push."""
    device = _device.current()
    with _lock:
        if not _library.is_active():
            return None
        if not _pushed.get(device):
            raise RuntimeError("gpuprof: pop_statistics: no push_statistics is open on this device")
        last = _since(device)
        _pushed[device].pop()[0].__exit__()
        return last


@contextmanager
def statistics() -> Iterator[None]:
    """rmm.statistics.statistics: a push and a pop around a block; call get_statistics() inside."""
    push_statistics()
    try:
        yield
    finally:
        pop_statistics()
