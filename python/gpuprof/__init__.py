# SPDX-License-Identifier: MIT
"""Exact GPU memory statistics of this process, named as in PyTorch, Paddle, TensorFlow and RMM.

Run the program under gpuprof (`gpuprof run python train.py`, or
CUDA_INJECTION64_PATH=.../libgpuprof.so) and ask:

>>> import gpuprof
>>> gpuprof.reset_peak_memory_stats()
>>> with gpuprof.scope("step") as step:
...     pass                                   # work
>>> gpuprof.max_memory_allocated() >= gpuprof.memory_allocated()
True
>>> step.peak_allocated() <= gpuprof.max_memory_allocated()
True

Without gpuprof in the process every function is harmless: numbers are 0, dictionaries are empty,
resets do nothing (`is_active()` is False).  The package is pure Python, needs only the standard
library, and starts no thread.  Where systems disagree about a name (Paddle's
reset_max_memory_allocated resets one peak, PyTorch's resets all), the functions here document their
meaning, and `gpuprof.compat.torch`, `.paddle`, `.tensorflow` and `.rmm` have each system's own.
"""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import compat
    from ._device import DeviceError
    from ._library import is_active
    from ._owned import owned
    from ._scope import mark, scope
    from ._snapshot import snapshot
    from ._stats import (
        empty_cache,
        get_memory_info,
        host_memory_stats,
        host_memory_stats_as_nested_dict,
        max_memory_allocated,
        max_memory_reserved,
        mem_get_info,
        memory_allocated,
        memory_reserved,
        memory_stats,
        memory_stats_as_nested_dict,
        reset_accumulated_host_memory_stats,
        reset_accumulated_memory_stats,
        reset_max_memory_allocated,
        reset_max_memory_reserved,
        reset_memory_stats,
        reset_peak_host_memory_stats,
        reset_peak_memory_stats,
    )
    from ._summary import memory_summary
    from ._torch import patch, torch_allocator, unpatch
    from ._version import version

# Modules are imported when something of them is first used: pytest imports this package in every run.
_HOMES = {
    "_device": ["DeviceError"],
    "_library": ["is_active"],
    "_owned": ["owned"],
    "_scope": ["mark", "scope"],
    "_snapshot": ["snapshot"],
    "_stats": [
        "empty_cache",
        "get_memory_info",
        "host_memory_stats",
        "host_memory_stats_as_nested_dict",
        "max_memory_allocated",
        "max_memory_reserved",
        "mem_get_info",
        "memory_allocated",
        "memory_reserved",
        "memory_stats",
        "memory_stats_as_nested_dict",
        "reset_accumulated_host_memory_stats",
        "reset_accumulated_memory_stats",
        "reset_max_memory_allocated",
        "reset_max_memory_reserved",
        "reset_memory_stats",
        "reset_peak_host_memory_stats",
        "reset_peak_memory_stats",
    ],
    "_summary": ["memory_summary"],
    "_torch": ["patch", "torch_allocator", "unpatch"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name):
    from importlib import import_module

    if name == "compat":
        found = import_module(__name__ + ".compat")
    elif name == "__version__":
        found = import_module(__name__ + "._version").version()
    elif name in _HOME:
        found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__():
    return sorted(set(globals()) | set(__all__))


def load_ipython_extension(shell):
    """`%load_ext gpuprof`: the magic `%%gpuprof`, which shows the GPU memory of a cell."""
    from ._ipython import load

    load(shell)


__all__ = [
    "DeviceError",
    "compat",
    "empty_cache",
    "get_memory_info",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "is_active",
    "mark",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "owned",
    "patch",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_reserved",
    "reset_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "scope",
    "snapshot",
    "torch_allocator",
    "unpatch",
]
