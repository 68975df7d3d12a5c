# SPDX-License-Identifier: MIT
"""What this process owns of a GPU, by whose it is."""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Dict, Optional

from . import _device, _library
from ._scope import scope

_ROW = ("allocated", "allocated_peak", "reserved", "reserved_peak", "asleep")
_ALL = _ROW + ("asleep_peak", "pools", "graphs", "context")


def _jax(number: int) -> Optional[Dict[str, Optional[int]]]:
    """What JAX's allocator says of itself.  A JAX that has no client yet must not get one by this question."""
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None) or {}
    for client in list(backends.values()):
        for device in client.local_devices() if client.platform in ("cuda", "gpu") else ():
            said = device.memory_stats() if device.local_hardware_id == number else None
            if said:
                return {
                    "allocated": said.get("bytes_in_use"),
                    "allocated_peak": said.get("peak_bytes_in_use"),
                    "reserved": said.get("pool_bytes"),
                    "reserved_peak": said.get("peak_pool_bytes"),
                }
    return None


def _tensorflow(number: int) -> Optional[Dict[str, Optional[int]]]:
    """The same of TensorFlow, which does not tell its pool."""
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    if context is None or not getattr(context, "_initialized", False):
        return None
    said = context.get_memory_info(f"GPU:{number}")
    return {"allocated": said["current"], "allocated_peak": said["peak"], "reserved": None, "reserved_peak": None}


def _polled(number: int) -> Dict[str, Dict[str, Optional[int]]]:
    out: Dict[str, Dict[str, Optional[int]]] = {}
    for name, ask in (("jax", _jax), ("tensorflow", _tensorflow)):
        try:
            said = ask(number)
        except Exception:  # another version of the framework: nothing is known of its pool
            said = None
        if said is not None:
            out[name] = said
    return out


def _known(value: int) -> Optional[int]:
    return None if value < 0 else value


def owned(device: Any = None, since: Optional[scope] = None) -> Dict[str, Any]:
    """What this process owns of the device now, in bytes; None is unknown.  No other process changes it.

    `allocated`, `reserved`, `asleep` with their peaks; of `reserved`, what the driver's `pools` and CUDA
    `graphs` hold; `context`, which only NVML knows: None.  `owners` has the same for each library, the one
    with the most first; they add up to `allocated` and `reserved`.  {} if not active.

    `polled` has what frameworks say of their own pools, which gpuprof does not see into: JAX and TensorFlow,
    if they are loaded and use a GPU.  It is part of what their owner has above, and not exact.

    With `since`, a `gpuprof.scope` that is open or has ended, the peaks of the whole are those since it began.

    >>> with scope("load") as load:
    ...     pass
    >>> sorted(owned(since=load)) == (sorted(_ALL + ("owners", "polled")) if _library.is_active() else [])
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
    answer["polled"] = _polled(number)
    rows = [(row.name.decode(errors="replace"), row) for row in out.owners[: out.count]]
    rows.sort(key=lambda one: (-one[1].reserved, one[0]))
    # What is shared may be less than nothing for an instant, while other threads allocate.
    answer["owners"] = {
        name: {key: _known(getattr(row, key)) if key.endswith("_peak") else getattr(row, key) for key in _ROW}
        for name, row in rows
    }
    return answer
