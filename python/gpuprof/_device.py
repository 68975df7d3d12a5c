# SPDX-License-Identifier: MIT
"""Converts a device argument of any of the systems to a device number.

Accepted: None (the current device), int, "cuda" and "cuda:1" (PyTorch), "gpu:1" (Paddle), "GPU:1"
and "/device:GPU:1" (TensorFlow), and any object with an `index` (torch.device), `idx`
(torch.cuda.device), `id` (jax.Device, cupy.cuda.Device), `get_device_id()` (Paddle's CUDAPlace) or
a `name` and a `device_type` (TensorFlow's devices).
"""
from __future__ import annotations

import ctypes
import operator
import re
from typing import Any, Optional

from . import _library

_TEXT = re.compile(r"(?:(?:/job:\w+)?(?:/replica:\d+)?(?:/task:\d+)?/(?:physical_)?device:)?(?:cuda|gpu)(?::(\d+))?", re.IGNORECASE | re.ASCII)
_GPU_TYPES = ("cuda", "gpu", "rocm")

_driver: Optional[ctypes.CDLL] = None


class DeviceError(RuntimeError, ValueError):
    """The argument does not name a GPU of this process.

    PyTorch raises RuntimeError for some of these mistakes and ValueError for others, Paddle and
    TensorFlow raise ValueError.  This class is both, so that code written for any of them catches
    it.  The functions of `gpuprof.compat` raise the same errors as the original.
    """


def _loaded_driver() -> Optional[ctypes.CDLL]:
    global _driver
    if _driver is None:
        _driver = _library.open_loaded("libcuda.so.1")
    return _driver


def current() -> int:
    """The device of this thread's CUDA context; 0 before it has one, as the runtime chooses."""
    driver = _loaded_driver()
    device = ctypes.c_int(0)
    if driver is None or driver.cuCtxGetDevice(ctypes.byref(device)) != 0:
        return 0
    return device.value


def count() -> Optional[int]:
    """The number of devices that the driver shows to this process; None if not initialised."""
    driver = _loaded_driver()
    devices = ctypes.c_int(0)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(devices)) != 0:
        return None
    return devices.value


def parse(text: str) -> Optional[int]:
    """The number in a device's name, -1 for a GPU without a number; None if it names no GPU.

    >>> parse("cuda:1"), parse("gpu"), parse("/job:localhost/replica:0/task:0/device:GPU:2"), parse("cpu:0")
    (1, -1, 2, None)
    """
    match = _TEXT.fullmatch(text)
    if not match:
        return None
    return int(match.group(1)) if match.group(1) else -1


def _of_object(device: Any) -> Optional[int]:
    """The number in a device object, -1 for the current one; None if it is another object."""
    for name in ("type", "platform"):
        kind = getattr(device, name, None)
        if isinstance(kind, str) and kind.lower() not in _GPU_TYPES:
            raise DeviceError(f"gpuprof: expected a CUDA device, but got: {device}")
    if isinstance(getattr(device, "device_type", None), str) and isinstance(getattr(device, "name", None), str):
        return _of_text(device.name)
    for name in ("index", "idx", "id"):
        index = getattr(device, name, None)
        if index is None and name == "index" and isinstance(getattr(device, "type", None), str):
            return -1  # torch.device("cuda")
        if index is not None and not callable(index):
            return operator.index(index)
    if callable(getattr(device, "get_device_id", None)):
        return operator.index(device.get_device_id())
    return None


def _of_text(text: str) -> int:
    found = parse(text)
    if found is None:
        raise DeviceError(f"gpuprof: expected a GPU like 'cuda:0', 'gpu:0' or 'GPU:0', but got: {text!r}")
    return found


def _raw(device: Any) -> int:
    if device is None:
        return -1
    if isinstance(device, str):
        return _of_text(device)
    if isinstance(device, bool):
        raise TypeError("gpuprof: a device is a number, a name or a device object, not a bool")
    try:
        number_ = operator.index(device)
    except TypeError:
        found = _of_object(device)
        if found is None:
            raise TypeError(f"gpuprof: expected a device number, name or object, not {type(device).__name__}") from None
        return found
    if number_ < 0:
        raise DeviceError(f"gpuprof: expected a device number of at least 0, but got: {number_}")
    return number_


def checked(found: int) -> int:
    """`found`, or the current device for -1.  DeviceError if the driver lacks it."""
    if found < 0:
        return current()
    devices = count()
    if devices is not None and found >= devices:
        raise DeviceError(f"gpuprof: device {found} of {devices}: this process sees no such device")
    return min(found, 2**31 - 1)  # the C functions take an int, and return "unknown" for this one


def number(device: Any = None) -> int:
    """The driver's ordinal of `device`.

    >>> number(0), number("cuda:0"), number("GPU:0"), number("/device:GPU:0")
    (0, 0, 0, 0)
    >>> number("cpu")
    Traceback (most recent call last):
        ...
    gpuprof._device.DeviceError: gpuprof: expected a GPU like 'cuda:0', 'gpu:0' or 'GPU:0', but got: 'cpu'

    Raises DeviceError if it does not name a GPU of this process, TypeError if its type cannot be a
    device.
    """
    return checked(_raw(device))
