# SPDX-License-Identifier: MIT
"""Memory statistics under the names and with the meanings of torch.cuda, Paddle's two resets and
TensorFlow's two functions.

Without gpuprof in the process every function is harmless: numbers are 0, dictionaries are empty,
resets do nothing, exactly as torch.cuda behaves before CUDA is initialised.  `gpuprof.is_active()`
distinguishes the two.  Any thread may call these functions; all numbers of one dictionary are of
one instant.
"""
from __future__ import annotations

import ctypes
from collections import OrderedDict
from typing import Any, Dict, List, Optional, Tuple, Union

from . import _device, _library

Device = Union[int, str, None, Any]

_names: Dict[str, List[str]] = {}


def _stat_names(function: str) -> List[str]:
    if not _names.get(function):
        _names[function] = _library.names(function)
    return _names[function]


def _flat(device: Device) -> Optional[Dict[str, Optional[int]]]:
    """All statistics of one instant; None if not active.  An unused device has zeros, an unknown value is None."""
    number = _device.number(device)
    library = _library.needed()
    if library is None:
        return None
    names = _stat_names("gpuprof_stat_name")
    values = (ctypes.c_int64 * len(names))()
    if library.gpuprof_memory_stats(number, values, len(names)) == 0:
        return {
            name: None if value == -1 and name != "max_split_size" else value for name, value in zip(names, values)
        }
    return {name: -1 if name == "max_split_size" else 0 for name in names}


def _nested(flat: Dict[str, Optional[int]]) -> Dict[str, Any]:
    """
    >>> _nested({"a.all.peak": 1, "a.all.freed": 2, "n": 3})
    {'a': {'all': {'peak': 1, 'freed': 2}}, 'n': 3}
    """
    out: Dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        level = out
        for part in path:
            level = level.setdefault(part, {})
        level[last] = value
    return out


def memory_stats(device: Device = None) -> "OrderedDict[str, Optional[int]]":
    """The 122 statistics of `torch.cuda.memory_stats` by flattened name, and `asleep_bytes.*`, sorted; {} if not active.

    Where PyTorch's own allocator reports its blocks, it does not tell `requested_bytes.*` and
    `inactive_split*`: these are None.

    >>> len(memory_stats()) == (126 if _library.is_active() else 0)
    True
    """
    return OrderedDict(sorted((_flat(device) or {}).items()))


def memory_stats_as_nested_dict(device: Device = None) -> Dict[str, Any]:
    """The same as a nested dictionary: `stats["allocated_bytes"]["all"]["peak"]`."""
    return _nested(_flat(device) or {})


def _one(function: str, device: Device) -> int:
    number = _device.number(device)
    library = _library.needed()
    return max(0, getattr(library, function)(number)) if library is not None else 0


def memory_allocated(device: Device = None) -> int:
    """Bytes that the program has allocated now."""
    return _one("gpuprof_memory_allocated", device)


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes allocated at once since the start or the last reset.  Exact over all threads.

    >>> max_memory_allocated() >= memory_allocated()
    True
    """
    return _one("gpuprof_max_memory_allocated", device)


def memory_reserved(device: Device = None) -> int:
    """Bytes that the process holds from the driver."""
    return _one("gpuprof_memory_reserved", device)


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes held from the driver at once since the start or the last reset."""
    return _one("gpuprof_max_memory_reserved", device)


def _reset(function: str, device: Device) -> None:
    number = _device.number(device)
    library = _library.active()
    if library is not None:
        getattr(library, function)(number)


def reset_max_memory_allocated(device: Device = None) -> None:
    """Peak := current for allocated memory only (Paddle's meaning).

    PyTorch's deprecated alias of this name resets every peak: use `reset_peak_memory_stats`, or
    `gpuprof.compat.torch.reset_max_memory_allocated`."""
    _reset("gpuprof_reset_max_memory_allocated", device)


def reset_max_memory_reserved(device: Device = None) -> None:
    """Peak := current for reserved memory only (Paddle)."""
    _reset("gpuprof_reset_max_memory_reserved", device)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Peak := current for every statistic (PyTorch)."""
    _reset("gpuprof_reset_peak_memory_stats", device)


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """allocated := freed := 0 for every statistic, and the event counts (PyTorch)."""
    _reset("gpuprof_reset_accumulated_memory_stats", device)


def get_memory_info(device: Device = None) -> Dict[str, int]:
    """`{"current": bytes, "peak": bytes}` in use, as `tf.config.experimental.get_memory_info`.

    >>> sorted(get_memory_info("GPU:0"))
    ['current', 'peak']
    """
    stats = _flat(device) or {}
    return {"current": stats.get("allocated_bytes.all.current", 0), "peak": stats.get("allocated_bytes.all.peak", 0)}


def reset_memory_stats(device: Device = None) -> None:
    """As `tf.config.experimental.reset_memory_stats`: sets the peak of memory in use to the current
    value.  The peak of reserved memory is not changed, as TensorFlow does not change the peak of
    its pool."""
    reset_max_memory_allocated(device)


def mem_get_info(device: Device = None) -> Tuple[int, int]:
    """(free, total) bytes of the device as the driver reports them (`torch.cuda.mem_get_info`).

    (0, 0) without libgpuprof.so in the process or without a driver."""
    number = _device.number(device)
    library = _library.library()
    free, total = ctypes.c_int64(0), ctypes.c_int64(0)
    if library is None or library.gpuprof_mem_get_info(number, ctypes.byref(free), ctypes.byref(total)) != 0:
        return 0, 0
    return free.value, total.value


def empty_cache(device: Device = None) -> None:
    """Gives the idle memory of gpuprof's allocator back to the driver; None: on every device.

    Waits for the work that still uses freed memory.  `torch.cuda.empty_cache()` empties PyTorch's own
    cache, or gpuprof's where that is PyTorch's allocator; this function reaches gpuprof's cache
    wherever it serves: under `gpuprof run --allocator`, below a `torch.cuda.MemPool`, and beside other
    libraries' calls of cudaMalloc.  Without a cache, and without libgpuprof.so in the process, it does
    nothing.  Any thread."""
    library = _library.library()
    numbers = None if device is None else (_device.number(device),)
    if library is None or library.gpuprof_active() <= 0:
        return
    for number in range(library.gpuprof_device_count()) if numbers is None else numbers:
        library.gpuprof_empty_cache(number)


# ---- pinned host memory ----------------------------------------------------------------------------------------------


def _host() -> Dict[str, int]:
    library = _library.needed()
    if library is None:
        return {}
    names = _stat_names("gpuprof_host_stat_name")
    values = (ctypes.c_int64 * max(1, len(names)))()
    if library.gpuprof_host_memory_stats(values, len(names)) != 0:
        return dict.fromkeys(names, 0)
    return dict(zip(names, values))


def host_memory_stats() -> "OrderedDict[str, int]":
    """Pinned host memory under the names of `torch.cuda.host_memory_stats`; peaks are exact.  The
    times of that function (host_alloc_time, host_free_time) are not measured and therefore
    absent."""
    return OrderedDict(sorted(_host().items()))


def host_memory_stats_as_nested_dict() -> Dict[str, Any]:
    """The same as a nested dictionary: `stats["allocated_bytes"]["peak"]`."""
    return _nested(_host())


def _reset_host(what: int) -> None:
    library = _library.active()
    if library is not None:
        library.gpuprof_reset_host_memory_stats(what)


def reset_peak_host_memory_stats() -> None:
    """Peak := current for pinned host memory."""
    _reset_host(0)


def reset_accumulated_host_memory_stats() -> None:
    """allocated := freed := 0 for pinned host memory."""
    _reset_host(1)
