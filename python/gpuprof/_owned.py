# SPDX-License-Identifier: MIT
"""What this process owns of a GPU, by whose it is."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional

from . import _device, _library
from ._scope import scope

_ROW = ("allocated", "allocated_peak", "reserved", "reserved_peak", "asleep")
_ALL = _ROW + ("asleep_peak", "pools", "graphs", "context")


def _known(value: int) -> Optional[int]:
    return None if value < 0 else value


def owned(device: Any = None, since: Optional[scope] = None) -> Dict[str, Any]:
    """What this process owns of the device now, in bytes; None is unknown.  No other process changes it.

    `allocated`, `reserved`, `asleep` with their peaks; of `reserved`, what the driver's `pools` and CUDA
    `graphs` hold; `context`, which only NVML knows: None.  `owners` has the same for each library, the one
    with the most first; they add up to `allocated` and `reserved`.  {} if not active.

    With `since`, a `gpuprof.scope` that is open or has ended, the peaks of the whole are those since it began.

    >>> with scope("load") as load:
    ...     pass
    >>> sorted(owned(since=load)) == (sorted(_ALL + ("owners",)) if _library.is_active() else [])
    True
    """
    number = _device.number(device)
    library = _library.needed()
    out = _library.Owned()
    if library is None:
        return {}
    if library.gpuprof_owned(number, ctypes.byref(out), ctypes.sizeof(out)) != 0:  # a device that is not in use
        out.context = -1
    answer: Dict[str, Any] = {name: _known(getattr(out, name)) for name in _ALL}
    if since is not None:
        answer["allocated_peak"], answer["reserved_peak"] = since.peak_allocated(number), since.peak_reserved(number)
    rows = [(row.name.decode(errors="replace"), row) for row in out.owners[: out.count]]
    rows.sort(key=lambda one: (-one[1].reserved, one[0]))
    # What is shared may be less than nothing for an instant, while other threads allocate.
    answer["owners"] = {
        name: {key: _known(getattr(row, key)) if key.endswith("_peak") else getattr(row, key) for key in _ROW}
        for name, row in rows
    }
    return answer
