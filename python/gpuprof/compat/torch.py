# SPDX-License-Identifier: MIT
"""torch.cuda's memory functions with torch's meanings, device arguments and errors.

A device is None, an int, "cuda", "cuda:N" or an object with `type` and `index`.  A string that does
not name a device and a number that the process does not have raise RuntimeError; a device of
another type raises ValueError.
"""
from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from typing import Any, Callable, Dict, Tuple

from .. import _device, _stats, _summary

_TEXT = re.compile(r"([a-z]+)(?::(0|[1-9]\d*))?", re.ASCII)
_TYPES = ("cpu", "cuda", "mps", "xpu", "hip", "meta", "xla", "hpu", "mtia", "ipu", "vulkan", "maia", "lazy", "privateuseone")


def _index(device: Any) -> int:
    """
    >>> _index("cuda:0")
    0
    >>> _index("GPU:0")
    Traceback (most recent call last):
        ...
    RuntimeError: gpuprof: expected a device like 'cuda' or 'cuda:0', but got: 'GPU:0'
    >>> _index("cpu")
    Traceback (most recent call last):
        ...
    ValueError: gpuprof: expected a cuda device, but got: cpu
    """
    if isinstance(device, str):
        match = _TEXT.fullmatch(device)
        if match is None or match.group(1) not in _TYPES:
            raise RuntimeError(f"gpuprof: expected a device like 'cuda' or 'cuda:0', but got: {device!r}")
        if match.group(1) != "cuda":
            raise ValueError(f"gpuprof: expected a cuda device, but got: {device}")
        found = int(match.group(2)) if match.group(2) else -1
    else:
        try:
            found = _device._raw(device)
        except _device.DeviceError as error:
            kind = getattr(device, "type", None)
            raise (RuntimeError if kind is None else ValueError)(str(error)) from None
    try:
        return _device.checked(found)
    except _device.DeviceError as error:
        raise RuntimeError(f"gpuprof: invalid device argument {found}: {error}") from None


def empty_cache() -> None:
    """torch.cuda.empty_cache"""
    _stats.empty_cache()


def memory_stats(device: Any = None) -> "OrderedDict[str, int]":
    """torch.cuda.memory_stats"""
    return _stats.memory_stats(_index(device))


def memory_stats_as_nested_dict(device: Any = None) -> Dict[str, Any]:
    """torch.cuda.memory_stats_as_nested_dict"""
    return _stats.memory_stats_as_nested_dict(_index(device))


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """torch.cuda.memory_summary"""
    return _summary.memory_summary(_index(device), abbreviated)


def memory_allocated(device: Any = None) -> int:
    """torch.cuda.memory_allocated"""
    return _stats.memory_allocated(_index(device))


def max_memory_allocated(device: Any = None) -> int:
    """torch.cuda.max_memory_allocated"""
    return _stats.max_memory_allocated(_index(device))


def memory_reserved(device: Any = None) -> int:
    """torch.cuda.memory_reserved"""
    return _stats.memory_reserved(_index(device))


def max_memory_reserved(device: Any = None) -> int:
    """torch.cuda.max_memory_reserved"""
    return _stats.max_memory_reserved(_index(device))


def mem_get_info(device: Any = None) -> Tuple[int, int]:
    """torch.cuda.mem_get_info"""
    return _stats.mem_get_info(_index(device))


def reset_peak_memory_stats(device: Any = None) -> None:
    """torch.cuda.reset_peak_memory_stats: every peak."""
    _stats.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """torch.cuda.reset_accumulated_memory_stats"""
    _stats.reset_accumulated_memory_stats(_index(device))


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"gpuprof: {name} is deprecated in torch.cuda; {instead}", FutureWarning, stacklevel=3)


def reset_max_memory_allocated(device: Any = None) -> None:
    """torch.cuda.reset_max_memory_allocated: deprecated there, and an alias that resets *every*
    peak."""
    _deprecated("reset_max_memory_allocated", "it resets every peak, as reset_peak_memory_stats does")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    """torch.cuda.reset_max_memory_cached: likewise."""
    _deprecated("reset_max_memory_cached", "it resets every peak, as reset_peak_memory_stats does")
    reset_peak_memory_stats(device)


def memory_cached(device: Any = None) -> int:
    """torch.cuda.memory_cached, now memory_reserved."""
    _deprecated("memory_cached", "memory_reserved is its new name")
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """torch.cuda.max_memory_cached, now max_memory_reserved."""
    _deprecated("max_memory_cached", "max_memory_reserved is its new name")
    return max_memory_reserved(device)


host_memory_stats: Callable[[], "OrderedDict[str, int]"] = _stats.host_memory_stats
host_memory_stats_as_nested_dict: Callable[[], Dict[str, Any]] = _stats.host_memory_stats_as_nested_dict
reset_peak_host_memory_stats: Callable[[], None] = _stats.reset_peak_host_memory_stats
reset_accumulated_host_memory_stats: Callable[[], None] = _stats.reset_accumulated_host_memory_stats
