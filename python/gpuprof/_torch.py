# SPDX-License-Identifier: MIT
"""gpuprof's cache as PyTorch's allocator, and torch.cuda's statistics, which torch refuses with a
pluggable allocator."""
from __future__ import annotations

import ctypes
import functools
import importlib
import threading
import warnings
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import _library, _snapshot, _stats, _summary

_SHIM = "libgpuprof-shim.so"
# src/allocator/torch.def; each version of torch has some of these setters.
_SETTERS = (
    ("set_init_fn", "gpuprof_torch_init"),
    ("set_reset_fn", "gpuprof_torch_reset"),
    ("set_memory_fraction_fn", "gpuprof_torch_set_memory_fraction"),
    ("set_base_alloc_fn", "gpuprof_torch_base_alloc"),
    ("set_record_stream_fn", "gpuprof_torch_record_stream"),
    ("set_begin_allocate_to_pool", "gpuprof_torch_begin_allocate_to_pool"),
    ("set_end_allocate_to_pool_fn", "gpuprof_torch_end_allocate_to_pool"),
    ("set_release_pool", "gpuprof_torch_release_pool"),
)


def _import_torch(what: str) -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise RuntimeError(f"gpuprof: {what}: PyTorch cannot be imported ({error}): install it, or use gpuprof without it") from error


# PyTorch keeps the address of an allocator, and no reference to it.
_allocators: List[Any] = []


def torch_allocator(library: Optional[str] = None) -> Any:
    """gpuprof's caching allocator as a `torch.cuda.memory.CUDAPluggableAllocator`.

    Every function that this version of torch accepts is set.  Install it before the program uses
    CUDA:

        torch.cuda.memory.change_current_allocator(gpuprof.torch_allocator())
        gpuprof.patch("torch")        # torch.cuda.memory_stats() and friends work again

    The result lives until the process ends, since PyTorch uses it without a reference to it:
    `torch.cuda.MemPool(gpuprof.torch_allocator().allocator())` works.

    `library` is the path of libgpuprof-shim.so if this package does not find it.  GPUPROF_ALLOCATOR names the policy
    (default: caching), GPUPROF_ALLOC_CONF and GPUPROF_MEMORY_LIMIT its settings.  Raises
    RuntimeError without PyTorch or with a version that has no pluggable allocators (before 2.0),
    FileNotFoundError without the library.
    """
    torch = _import_torch("torch_allocator")
    kind = getattr(getattr(torch.cuda, "memory", None), "CUDAPluggableAllocator", None)
    if kind is None:
        version = getattr(torch, "__version__", "of unknown version")
        raise RuntimeError(f"gpuprof: torch_allocator: PyTorch {version} has no CUDAPluggableAllocator: 2.0 or newer is needed")
    path = library or _library.find_file("lib", _SHIM)
    if path is None:
        raise FileNotFoundError(
            f"gpuprof: torch_allocator: {_SHIM} was not found beside libgpuprof.so, the gpuprof command or this package: build it with "
            "`make`, or name it: torch_allocator('/path/to/" + _SHIM + "')"
        )
    allocator = kind(path, "gpuprof_torch_alloc", "gpuprof_torch_free")
    functions, inner = ctypes.CDLL(path), allocator.allocator()
    for setter, name in _SETTERS:
        if hasattr(inner, setter):
            getattr(inner, setter)(ctypes.cast(getattr(functions, name), ctypes.c_void_p).value)
        elif setter == "set_record_stream_fn":
            warnings.warn(
                "gpuprof: torch_allocator: this PyTorch cannot tell its allocator about record_stream: memory that is used on several streams "
                "may be reused too early; use a newer one",
                RuntimeWarning,
                stacklevel=2,
            )
    _allocators.append(allocator)
    return allocator


# ---- patch -----------------------------------------------------------------------------------------------------------

_Function = Callable[..., Any]


def _memory_snapshot(*_arguments: Any, **_keywords: Any) -> Any:
    return _snapshot.build()["segments"]


def _whole_snapshot(*_arguments: Any, **_keywords: Any) -> Any:
    return _snapshot.build()


# By name in torch.cuda: our function, and whether its first argument is a device.
_ANSWERS: Dict[str, Tuple[_Function, bool]] = {
    "memory_stats": (_stats.memory_stats, True),
    "memory_stats_as_nested_dict": (_stats.memory_stats_as_nested_dict, True),
    "memory_summary": (_summary.memory_summary, True),
    "memory_allocated": (_stats.memory_allocated, True),
    "max_memory_allocated": (_stats.max_memory_allocated, True),
    "memory_reserved": (_stats.memory_reserved, True),
    "max_memory_reserved": (_stats.max_memory_reserved, True),
    "memory_cached": (_stats.memory_reserved, True),
    "max_memory_cached": (_stats.max_memory_reserved, True),
    "reset_peak_memory_stats": (_stats.reset_peak_memory_stats, True),
    "reset_accumulated_memory_stats": (_stats.reset_accumulated_memory_stats, True),
    "reset_max_memory_allocated": (_stats.reset_peak_memory_stats, True),  # torch's meaning: every peak
    "reset_max_memory_cached": (_stats.reset_peak_memory_stats, True),
    "mem_get_info": (_stats.mem_get_info, True),
    "memory_snapshot": (_memory_snapshot, False),
    "_snapshot": (_whole_snapshot, False),
}


class _Replaced(NamedTuple):
    module: Any
    name: str
    original: _Function
    replacement: _Function


_lock = threading.Lock()
_replaced: List[_Replaced] = []


def _is_refusal(error: RuntimeError) -> bool:
    return "does not yet support" in str(error)


def _device_of(memory: Any, device: Any) -> Any:
    """The device as torch itself interprets it, with torch's errors."""
    index = getattr(memory, "_get_device_index", None)
    return index(device, optional=True) if index is not None else device


def _wrapper(memory: Any, original: _Function, answer: _Function, takes_device: bool) -> _Function:
    """Calls torch's own function until torch refuses once, then gpuprof's.  Torch's allocator
    cannot change any more, and a C++ exception costs more than the answer."""
    refused = False

    @functools.wraps(original)
    def function(*arguments: Any, **keywords: Any) -> Any:
        nonlocal refused
        if not refused or not _library.is_active():
            try:
                return original(*arguments, **keywords)
            except RuntimeError as error:
                if not _is_refusal(error) or not _library.is_active():
                    raise
                refused = True
        if takes_device and arguments:
            arguments = (_device_of(memory, arguments[0]),) + arguments[1:]
        elif takes_device:
            keywords["device"] = _device_of(memory, keywords.get("device"))
        return answer(*arguments, **keywords)

    return function


def patch(target: str = "torch") -> Tuple[str, ...]:
    """Makes `torch.cuda.memory_stats()` and related functions return gpuprof's numbers.

    They do so where torch refuses ("CUDAPluggableAllocator does not yet support ..."); with torch's
    own allocator they stay torch's.  Returns the names of the functions; a second call changes
    nothing.  `unpatch` restores them.  Any thread.

    Patched: memory_stats, memory_stats_as_nested_dict, memory_summary, memory_allocated,
    max_memory_allocated, memory_reserved, max_memory_reserved, reset_peak_memory_stats,
    reset_accumulated_memory_stats, mem_get_info, memory_snapshot, _snapshot (and with it
    _dump_snapshot), and the deprecated names of these.  Not possible: _record_memory_history
    (gpuprof records anyway), IPC of tensors, torch.backends.cudnn.benchmark.
    """
    if target != "torch":
        raise ValueError(f"gpuprof: patch: {target!r} is not known: 'torch' is")
    torch = _import_torch("patch")
    memory = torch.cuda.memory
    with _lock:
        if not _replaced:
            for name, (answer, takes_device) in _ANSWERS.items():
                original = getattr(memory, name, None)
                if original is None:
                    continue
                replacement = _wrapper(memory, original, answer, takes_device)
                for module in (memory, torch.cuda):
                    if getattr(module, name, None) is original:
                        _replaced.append(_Replaced(module, name, original, replacement))
                        setattr(module, name, replacement)
        return tuple(dict.fromkeys(one.name for one in _replaced))


def unpatch(target: str = "torch") -> None:
    """Undoes `patch`, if it was called.  A function that other code has replaced meanwhile is not
    changed."""
    if target != "torch":
        raise ValueError(f"gpuprof: unpatch: {target!r} is not known: 'torch' is")
    with _lock:
        for module, name, original, replacement in _replaced:
            if getattr(module, name, None) is replacement:
                setattr(module, name, original)
        _replaced.clear()
