# SPDX-License-Identifier: MIT
"""Finds the libgpuprof.so of this process, if it has one, and gpuprof's files.

The search loads nothing: a process that was started without gpuprof is not changed, and every
number is then unknown.
"""
from __future__ import annotations

import ctypes
import os
import shutil
import warnings
from typing import Any, Iterator, List, Optional

_INT64 = ctypes.c_int64
_INT64S = ctypes.POINTER(_INT64)


class Piece(ctypes.Structure):
    """struct gpuprof_piece of gpuprof.h: a segment, or a block of the segment before it."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("address", "bytes", "requested_bytes", "stream", "pool")] + [
        (name, ctypes.c_uint32) for name in ("what", "state", "kind", "flags")
    ]


class Owner(ctypes.Structure):
    """struct gpuprof_owner of gpuprof.h."""

    _fields_ = [("name", ctypes.c_char * 24)] + [
        (name, _INT64) for name in ("allocated", "allocated_peak", "reserved", "reserved_peak", "asleep")
    ]


class Owned(ctypes.Structure):
    """struct gpuprof_owned of gpuprof.h."""

    _fields_ = [
        (name, _INT64)
        for name in (
            "allocated", "allocated_peak", "reserved", "reserved_peak", "asleep", "asleep_peak", "pools", "graphs", "context"
        )
    ] + [("count", ctypes.c_uint64), ("owners", Owner * 21)]  # fmt: skip


_SIGNATURES = {
    "gpuprof_version": (ctypes.c_char_p, []),
    "gpuprof_active": (ctypes.c_int, []),
    "gpuprof_device_count": (ctypes.c_int, []),
    "gpuprof_stat_name": (ctypes.c_char_p, [ctypes.c_uint]),
    "gpuprof_memory_stats": (ctypes.c_int, [ctypes.c_int, _INT64S, ctypes.c_uint]),
    "gpuprof_memory_allocated": (_INT64, [ctypes.c_int]),
    "gpuprof_max_memory_allocated": (_INT64, [ctypes.c_int]),
    "gpuprof_memory_reserved": (_INT64, [ctypes.c_int]),
    "gpuprof_max_memory_reserved": (_INT64, [ctypes.c_int]),
    "gpuprof_owned": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(Owned), ctypes.c_size_t]),
    "gpuprof_host_stat_name": (ctypes.c_char_p, [ctypes.c_uint]),
    "gpuprof_host_memory_stats": (ctypes.c_int, [_INT64S, ctypes.c_uint]),
    "gpuprof_reset_max_memory_allocated": (ctypes.c_int, [ctypes.c_int]),
    "gpuprof_reset_max_memory_reserved": (ctypes.c_int, [ctypes.c_int]),
    "gpuprof_reset_peak_memory_stats": (ctypes.c_int, [ctypes.c_int]),
    "gpuprof_reset_accumulated_memory_stats": (ctypes.c_int, [ctypes.c_int]),
    "gpuprof_reset_host_memory_stats": (ctypes.c_int, [ctypes.c_int]),
    "gpuprof_mem_get_info": (ctypes.c_int, [ctypes.c_int, _INT64S, _INT64S]),
    "gpuprof_empty_cache": (ctypes.c_int, [ctypes.c_int]),
    "gpuprof_scope_begin": (ctypes.c_int, [ctypes.c_char_p]),
    "gpuprof_scope_read": (ctypes.c_int, [ctypes.c_int, ctypes.c_int, _INT64S, _INT64S]),
    "gpuprof_scope_end": (ctypes.c_int, [ctypes.c_int]),
    "gpuprof_mark": (ctypes.c_int, [ctypes.c_char_p]),
    "gpuprof_walk": (_INT64, [ctypes.c_int, ctypes.POINTER(Piece), ctypes.c_uint64]),
}

_found: Optional[Any] = None
_refused = False  # a library without our functions was found, and the user was warned once


def open_loaded(soname: str) -> Optional[ctypes.CDLL]:
    """The library of that name if the process has it already."""
    try:
        return ctypes.CDLL(soname, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except (OSError, AttributeError):  # not loaded, or a system without RTLD_NOLOAD, thus without CUDA
        return None


def library() -> Optional[Any]:
    """The library that was injected into this process or loaded for its allocator; None if it has
    neither."""
    global _found, _refused
    if _found is None and not _refused:
        found = open_loaded("libgpuprof.so")
        if found is None:
            return None
        missing = [name for name in _SIGNATURES if not hasattr(found, name)]
        if missing:
            _refused = True
            warnings.warn(
                f"gpuprof: the libgpuprof.so of this process has no {missing[0]}: it is older than this package, and no "
                "numbers are available; install both from one version",
                RuntimeWarning,
                stacklevel=3,
            )
            return None
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
        _found = found
    return _found


def active() -> Optional[Any]:
    """The library if this process is profiled, else None."""
    found = library()
    return found if found is not None and found.gpuprof_active() > 0 else None


_warned = False  # that this process is not profiled


def needed() -> Optional[Any]:
    """As active(), for callers that ask for a number: warns once where nothing will ever count one, because a log of
    zeros looks like a program that needs no memory.  Under `gpuprof run`, the driver loads the library when it starts."""
    global _warned
    found = active()
    if found is None and not _warned and not _refused and library() is None and not os.environ.get("CUDA_INJECTION64_PATH"):
        _warned = True
        warnings.warn(
            "gpuprof: this process is not profiled, so all numbers are 0: start it with 'gpuprof run -- python ...', or "
            "attach to it with 'gpuprof attach PID'",
            RuntimeWarning,
            stacklevel=4,
        )
    return found


def is_active() -> bool:
    """True if gpuprof profiles this process.

    False without gpuprof, if it is switched off, and in a forked child (which cannot use CUDA
    either).  May be called at any time.
    """
    return active() is not None


def names(function_name: str) -> List[str]:
    """All names that a `*_stat_name` function of the library returns, in order."""
    found = library()
    out: List[str] = []
    while found is not None:
        name = getattr(found, function_name)(len(out))
        if name is None:
            break
        out.append(name.decode())
    return out


# ---- files -----------------------------------------------------------------------------------------------------------


def _loaded_path(soname: str) -> Optional[str]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                path = line.split(maxsplit=5)[5].rstrip("\n") if line.count("/") else ""
                if os.path.basename(path) == soname:
                    return path
    except OSError:
        pass
    return None


def _prefixes() -> Iterator[str]:
    """Directories with bin/ and lib/ of gpuprof, the likeliest first: those of the loaded library,
    of the environment, of the wheel that contains this package, of the command on PATH, of the
    source tree and of the installation that contains this package."""
    loaded, injected = _loaded_path("libgpuprof.so"), os.environ.get("CUDA_INJECTION64_PATH")
    for path in (loaded, injected):
        if path:
            yield os.path.dirname(os.path.dirname(os.path.realpath(path)))
    yield os.path.join(os.path.dirname(os.path.abspath(__file__)), "_native")
    command = shutil.which("gpuprof")
    if command:
        yield os.path.dirname(os.path.dirname(os.path.realpath(command)))
    above = os.path.dirname(os.path.abspath(__file__))
    for _ in range(4):  # PREFIX/lib/pythonX/site-packages/gpuprof is the deepest place
        above = os.path.dirname(above)
        yield os.path.join(above, "build")
        yield above


def find_file(*below_prefix: str) -> Optional[str]:
    """`find_file("lib", "libgpuprof-shim.so")`: the path of a file of gpuprof's installation; None
    if it is missing."""
    for prefix in _prefixes():
        path = os.path.join(prefix, *below_prefix)
        if os.path.isfile(path):
            return path
    return None


def find_command() -> Optional[str]:
    """The `gpuprof` command that belongs to this package, or the one on PATH."""
    for prefix in _prefixes():
        path = os.path.join(prefix, "bin", "gpuprof")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None
