# SPDX-License-Identifier: MIT
"""A stand-in for PyTorch: the parts of torch.cuda.memory that gpuprof uses, with the errors of its pluggable allocator.

`install(setters)` puts it into sys.modules; `setters` are the optional setters that this "version" has.  With the allocator changed, tensors are
bytes from the allocator's functions, called through the addresses that were passed in, as torch does.
"""
import ctypes
import sys
import types
import warnings

ALL_SETTERS = (
    "set_init_fn",
    "set_reset_fn",
    "set_memory_fraction_fn",
    "set_base_alloc_fn",
    "set_record_stream_fn",
    "set_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn",
    "set_release_pool",
)
_ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


class Device:
    def __init__(self, type, index=None):
        self.type, self.index = type, index


def _setter(name):
    def setter(self, address):
        assert isinstance(address, int) and address
        self.functions[name] = address

    return setter


def _inner(setters):
    def __init__(self, alloc, free):
        self.alloc, self.free, self.functions = _ALLOC(alloc), _FREE(free), {}

    return type("Inner", (), dict({"__init__": __init__}, **{name: _setter(name) for name in setters}))


def _refuse(what):
    raise RuntimeError(f"CUDAPluggableAllocator does not yet support {what}. If you need it, please file an issue describing your use case.")


def _statistics(memory, state):
    """The functions of torch/cuda/memory.py: all are based on one C++ function, looked up in the module at each call."""

    def _get_device_index(device, optional=False):
        if isinstance(device, str):
            kind, _, index = device.partition(":")
            if kind not in ("cuda", "cpu"):
                raise RuntimeError(f"Expected one of cpu, cuda, device type at start of device string: {device}")
            device = Device(kind, int(index) if index else None)
        if isinstance(device, Device):
            if device.type != "cuda":
                raise ValueError(f"Expected a cuda device, but got: {device.type}")
            device = device.index
        return state["current"] if device is None else device

    def memory_stats_as_nested_dict(device=None):
        _get_device_index(device, optional=True)
        state["asked"] += 1
        if state["allocator"] is not None:
            _refuse("getDeviceStats")
        return {"allocated_bytes": {"all": {"current": 11, "peak": 22}}, "num_ooms": 0}

    def memory_stats(device=None):
        flat, rest = {}, [("", memory.memory_stats_as_nested_dict(device=device))]
        for prefix, level in rest:
            for key, value in level.items():
                if isinstance(value, dict):
                    rest.append((prefix + key + ".", value))
                else:
                    flat[prefix + key] = value
        return flat

    def memory_allocated(device=None):
        return memory.memory_stats(device=device).get("allocated_bytes.all.current", 0)

    def max_memory_allocated(device=None):
        return memory.memory_stats(device=device).get("allocated_bytes.all.peak", 0)

    def memory_summary(device=None, abbreviated=False):
        return _refuse("getDeviceStats") if state["allocator"] is not None else "torch's own"

    def reset_peak_memory_stats(device=None):
        _get_device_index(device, optional=True)
        state["resets"] += 1
        if state["allocator"] is not None:
            _refuse("resetPeakStats")

    def reset_max_memory_allocated(device=None):
        warnings.warn("resets all peaks", FutureWarning, stacklevel=2)
        return memory.reset_peak_memory_stats(device=device)

    def reset_accumulated_memory_stats(device=None):
        if state["allocator"] is not None:
            _refuse("resetAccumulatedStats")

    def memory_snapshot():
        return _refuse("snapshot") if state["allocator"] is not None else []

    def mem_get_info(device=None):
        return (1, 2)  # from the runtime: never an error

    def empty_cache():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    return {name: value for name, value in locals().items() if callable(value) and value is not memory}


def install(setters=ALL_SETTERS, pluggable=True):
    torch, cuda, memory = (types.ModuleType(name) for name in ("torch", "torch.cuda", "torch.cuda.memory"))
    state = {"allocator": None, "current": 0, "asked": 0, "resets": 0}
    inner = _inner(setters)

    class CUDAPluggableAllocator:
        def __init__(self, path_to_so_file, alloc_fn_name, free_fn_name):
            library = ctypes.CDLL(path_to_so_file)
            addresses = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (alloc_fn_name, free_fn_name)]
            self._allocator = inner(*addresses)

        def allocator(self):
            return self._allocator

    def change_current_allocator(allocator):
        state["allocator"] = allocator

    functions = _statistics(memory, state)
    memory.__dict__.update(functions)
    cuda.__dict__.update({name: value for name, value in functions.items() if not name.startswith("_")})  # from .memory import *
    memory.change_current_allocator = change_current_allocator
    if pluggable:
        memory.CUDAPluggableAllocator = CUDAPluggableAllocator
    torch.__version__, torch.device, torch.cuda, cuda.memory = "2.0.fake", Device, cuda, memory
    sys.modules.update({"torch": torch, "torch.cuda": cuda, "torch.cuda.memory": memory})
    torch.state = state
    return torch


def remove():
    for name in ("torch", "torch.cuda", "torch.cuda.memory"):
        sys.modules.pop(name, None)
