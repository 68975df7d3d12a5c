# SPDX-License-Identifier: MIT
"""tf.config.experimental's memory functions with TensorFlow's meanings and errors.

A device is a string with a number, "GPU:0" or longer forms of it.  A string that does not name a
device of this process, has no number, or names a CPU raises ValueError.  reset_memory_stats resets
only the peak of bytes in use, not that of reserved bytes.
"""
from __future__ import annotations

from typing import Any, Dict

from .. import _device, _stats


def _index(device: Any) -> int:
    """
    >>> _index("GPU:0"), _index("/device:GPU:0")
    (0, 0)
    >>> _index("GPU")
    Traceback (most recent call last):
        ...
    ValueError: gpuprof: expected the name of one GPU like 'GPU:0', but got: 'GPU'
    """
    found = _device.parse(device) if isinstance(device, str) and "cuda" not in device.lower() else None
    if found is None or found < 0:
        raise ValueError(f"gpuprof: expected the name of one GPU like 'GPU:0', but got: {device!r}")
    try:
        return _device.checked(found)
    except _device.DeviceError as error:
        raise ValueError(str(error)) from None


def get_memory_info(device: str) -> Dict[str, int]:
    """tf.config.experimental.get_memory_info: {"current": bytes, "peak": bytes} in use."""
    return _stats.get_memory_info(_index(device))


def get_memory_usage(device: str) -> int:
    """tf.config.experimental.get_memory_usage: bytes in use; deprecated there."""
    return get_memory_info(device)["current"]


def reset_memory_stats(device: str) -> None:
    """tf.config.experimental.reset_memory_stats: sets the peak in use to the current value; the
    reserved peak is not changed."""
    _stats.reset_max_memory_allocated(_index(device))
