# SPDX-License-Identifier: MIT
"""Scopes, which track a peak of their own, and marks."""
from __future__ import annotations

import ctypes
import functools
import os
from contextlib import ContextDecorator
from typing import Any, Callable, Dict, Optional, Tuple, TypeVar, Union, overload

from . import _device, _library

_EBUSY = -16
_SCOPES = 16  # GP_WIRE_SCOPES: slots for all scopes of a process
_NAME_BYTES = 39  # of a scope, without the NUL

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _encoded(name: str, limit: int) -> bytes:
    """At most `limit` bytes of UTF-8, cut at a character.

    >>> _encoded("epoch", 39), _encoded("\u00e9" * 30, 39) == ("\u00e9" * 19).encode()
    (b'epoch', True)
    """
    return name.replace("\0", " ").encode()[:limit].decode(errors="ignore").encode()


class scope(ContextDecorator):
    """The peaks of a part of the code, independently of resets and of other scopes, nested or not.

    >>> with scope("forward") as forward:
    ...     pass
    >>> forward.peak_allocated() >= 0      # bytes, exact, on the current device
    True
    >>> forward.peak >= forward.peak_allocated()     # on the device with the most
    True

    A scope is also a decorator.  Up to 16 can be open in a process (`gpuprof scope list` shows
    them); one more raises RuntimeError.  Several may have the same name (recursion, threads).  A
    scope that starts before the process first uses CUDA reports the peaks since the process
    started, which a reset in between can lower.  If gpuprof is not active, peaks are 0.
    """

    def __init__(self, name: str = "scope") -> None:
        self.name = str(name) or "scope"
        self._slot = -1
        self._early = False  # started before the process was profiled
        self._final: Optional[Dict[int, Tuple[int, int]]] = None

    def _recreate_cm(self) -> "scope":  # a decorated function may be running several times at once
        return type(self)(self.name)

    def __enter__(self) -> "scope":
        if self._slot >= 0 or self._early:
            raise RuntimeError(f"gpuprof: scope {self.name!r} is open already: use a second scope object")
        self._final = None
        library = _library.active()
        self._early = library is None
        if library is None:
            return self
        result = library.gpuprof_scope_begin(_encoded(self.name, _NAME_BYTES))
        if result == _EBUSY:
            raise RuntimeError(f"gpuprof: scope {self.name!r}: {_SCOPES} scopes are open already: end one first")
        if result < 0:
            raise RuntimeError(f"gpuprof: scope {self.name!r}: {os.strerror(-result)}")
        self._slot = result
        return self

    def _read(self, device: int) -> Tuple[int, int]:
        allocated, reserved = ctypes.c_int64(0), ctypes.c_int64(0)
        library = _library.active()
        if library is None:
            return 0, 0
        if self._early:
            peaks = (library.gpuprof_max_memory_allocated(device), library.gpuprof_max_memory_reserved(device))
            return max(0, peaks[0]), max(0, peaks[1])
        if library.gpuprof_scope_read(self._slot, device, ctypes.byref(allocated), ctypes.byref(reserved)) < 0:
            return 0, 0
        return allocated.value, reserved.value

    def __exit__(self, *exception: Any) -> None:
        library = _library.active()
        self._final = {}
        if library is not None:
            self._final = {device: self._read(device) for device in range(library.gpuprof_device_count())}
            if self._slot >= 0:
                library.gpuprof_scope_end(self._slot)
        self._slot, self._early = -1, False

    def _peaks(self, device: Any) -> Tuple[int, int]:
        number = _device.number(device)
        return self._read(number) if self._final is None else self._final.get(number, (0, 0))

    @property
    def peak(self) -> int:
        """The most bytes allocated at once inside the scope, on the device with the most; while it is
        open: until now."""
        library = _library.active()
        count = library.gpuprof_device_count() if library is not None else 0
        devices = range(count) if self._final is None else self._final
        return max((self.peak_allocated(device) for device in devices), default=0)

    def peak_allocated(self, device: Any = None) -> int:
        """The most bytes allocated at once inside the scope; while it is open: until now."""
        return self._peaks(device)[0]

    def peak_reserved(self, device: Any = None) -> int:
        """The most bytes reserved at once inside the scope."""
        return self._peaks(device)[1]


# ---- marks -----------------------------------------------------------------------------------------------------------


def _write(name: str) -> None:
    library = _library.active()
    if library is not None:
        library.gpuprof_mark(_encoded(name, 31))  # the room in an event


def _marked(function: Any, name: str) -> Any:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        _write(name)
        try:
            return function(*arguments, **keywords)
        finally:
            _write("/" + name)

    return wrapper


class _Mark:
    def __init__(self, name: str) -> None:
        self.name = name
        _write(name)

    def __enter__(self) -> "_Mark":
        return self

    def __exit__(self, *exception: Any) -> None:
        _write("/" + self.name)

    def __call__(self, function: _Function) -> _Function:
        _write("/" + self.name)  # closes what __init__ opened: it could not know that it decorates
        return _marked(function, self.name)


@overload
def mark(name: str) -> _Mark: ...
@overload
def mark(name: _Function) -> _Function: ...


def mark(name: Union[str, Callable[..., Any]]) -> Any:
    """Adds a named point to the event stream: `gpuprof.mark("step 17")`.  At most 31 bytes of the
    name are kept.

    >>> with mark("step"):                 # marks "step" here and "/step" at the end
    ...     pass
    >>> @mark                              # marks "forward" and "/forward" at each call
    ... def forward(): return 1
    >>> forward()
    1

    `@mark("name")` sets the name; it adds one empty pair when the function is defined.
    """
    return _marked(name, getattr(name, "__qualname__", repr(name))) if callable(name) else _Mark(str(name))
