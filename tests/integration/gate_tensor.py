# SPDX-License-Identifier: MIT
"""Device memory for the programs that gate.py and gate_mutants.py record: each program gets a copy of this file.

It calls the driver through ctypes, so it needs no package.  It also keeps account of which line holds how much, by
itself, so that a test can compare what gpuprof says with it."""
import ctypes
import sys

MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0

half, single, double = 2, 4, 8
held, most = {}, {}  # bytes by line, now and at most


class Tensor:
    """Memory of so many MiB for elements of one byte."""

    def __init__(self, mib, dtype=1):
        self.pointer, self.bytes = ctypes.c_uint64(), int(mib * MIB) * dtype
        assert cuda.cuMemAlloc_v2(ctypes.byref(self.pointer), self.bytes) == 0
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__:
            frame = frame.f_back
        self.line = frame.f_lineno
        held[self.line] = held.get(self.line, 0) + self.bytes
        most[self.line] = max(most.get(self.line, 0), held[self.line])

    def __del__(self):
        cuda.cuMemFree_v2(self.pointer)
        held[self.line] -= self.bytes


def alloc(mib, dtype=1):
    return Tensor(mib, dtype)
