# SPDX-License-Identifier: MIT
"""paddle.device.cuda's memory functions with Paddle's meanings, device arguments and errors.

A device is None, an int, "gpu:N" or a CUDAPlace.  Another string or type raises ValueError, a
number that the process does not have raises AssertionError.  Paddle rounds sizes up to 256 bytes
and its peaks can be wrong with several threads; these peaks are exact, of the requested bytes.
"""
from __future__ import annotations

from typing import Any

from .. import _device, _stats


def _index(device: Any, name: str) -> int:
    """
    >>> _index("gpu:0", "memory_allocated")
    0
    >>> _index("gpu", "memory_allocated")
    Traceback (most recent call last):
        ...
    ValueError: gpuprof: memory_allocated: expected a string like 'gpu:0', but got: 'gpu'
    """
    if device is None:
        return _device.current()
    if isinstance(device, int):
        found = int(device)
    elif callable(getattr(device, "get_device_id", None)):
        found = device.get_device_id()
    elif isinstance(device, str):
        digits = device[4:]
        if not device.startswith("gpu:") or not (digits.isascii() and digits.lstrip("-").isdigit()):
            raise ValueError(f"gpuprof: {name}: expected a string like 'gpu:0', but got: {device!r}")
        found = int(digits)
    else:
        raise ValueError(f"gpuprof: {name}: expected an int, a string like 'gpu:0' or a CUDAPlace, but got: {device!r}")
    if found < 0:
        raise AssertionError(f"gpuprof: {name}: a device number is at least 0, but got: {found}")
    try:
        return _device.checked(found)
    except _device.DeviceError as error:
        raise AssertionError(str(error)) from None


def memory_allocated(device: Any = None) -> int:
    """paddle.device.cuda.memory_allocated"""
    return _stats.memory_allocated(_index(device, "memory_allocated"))


def max_memory_allocated(device: Any = None) -> int:
    """paddle.device.cuda.max_memory_allocated"""
    return _stats.max_memory_allocated(_index(device, "max_memory_allocated"))


def memory_reserved(device: Any = None) -> int:
    """paddle.device.cuda.memory_reserved"""
    return _stats.memory_reserved(_index(device, "memory_reserved"))


def max_memory_reserved(device: Any = None) -> int:
    """paddle.device.cuda.max_memory_reserved"""
    return _stats.max_memory_reserved(_index(device, "max_memory_reserved"))


def reset_max_memory_allocated(device: Any = None) -> None:
    """paddle.device.cuda.reset_max_memory_allocated: resets only the peak of allocated memory."""
    _stats.reset_max_memory_allocated(_index(device, "reset_max_memory_allocated"))


def reset_max_memory_reserved(device: Any = None) -> None:
    """paddle.device.cuda.reset_max_memory_reserved: resets only the peak of reserved memory."""
    _stats.reset_max_memory_reserved(_index(device, "reset_max_memory_reserved"))
