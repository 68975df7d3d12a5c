# SPDX-License-Identifier: MIT
"""Device memory for the examples in Python: what a framework's tensor is, without its arithmetic.  It needs no package,
because it calls the CUDA driver through ctypes, so the examples run on the simulated GPU too."""
import ctypes
import os

MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]


class OutOfMemoryError(RuntimeError):
    """The driver has no memory left."""


def check(result, what):
    if result == 2:
        raise OutOfMemoryError(f"{what}: CUDA out of memory")
    if result:
        raise RuntimeError(f"{what}: CUDA error {result}")


class Tensor:
    """Device memory that lives as long as the object."""

    def __init__(self, mib):
        self.pointer = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(self.pointer), mib * MIB), f"{mib} MiB")

    def __del__(self):
        if self.pointer.value:
            cuda.cuMemFree_v2(self.pointer)


def start():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
    check(cuda.cuCtxSetCurrent(context), "context")


def mark(name):
    """Tells gpuprof that a step begins; without gpuprof, nothing."""
    try:
        library = ctypes.CDLL("libgpuprof.so", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return
    library.gpuprof_mark(name.encode())
