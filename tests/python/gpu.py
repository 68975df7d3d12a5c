# SPDX-License-Identifier: MIT
"""The CUDA driver through ctypes, for the tests: contexts, memory, pinned memory, streams.  Must not import gpuprof."""
import ctypes

MIB = 1 << 20

_pointer = ctypes.c_uint64
_loaded = []


def driver():
    """libcuda.so.1, initialised; AssertionError if it is not installed."""
    if not _loaded:
        library = ctypes.CDLL("libcuda.so.1")
        library.cuMemAlloc_v2.argtypes = [ctypes.POINTER(_pointer), ctypes.c_size_t]
        library.cuMemFree_v2.argtypes = [_pointer]
        library.cuMemHostAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint]
        library.cuMemFreeHost.argtypes = [ctypes.c_void_p]
        library.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
        library.cuDevicePrimaryCtxRetain.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int]
        check(library.cuInit(0))
        _loaded.append(library)
    return _loaded[0]


def check(result):
    assert result == 0, f"CUDA driver: error {result}"


def use(device):
    """Makes the device's primary context current in this thread."""
    context = ctypes.c_void_p()
    check(driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(driver().cuCtxSetCurrent(context))


def alloc(size):
    pointer = _pointer()
    check(driver().cuMemAlloc_v2(ctypes.byref(pointer), size))
    return pointer.value


def alloc_fails(size):
    """True if the driver has no memory for it."""
    return driver().cuMemAlloc_v2(ctypes.byref(_pointer()), size) == 2


def free(pointer):
    check(driver().cuMemFree_v2(pointer))


def host_alloc(size):
    pointer = ctypes.c_void_p()
    check(driver().cuMemHostAlloc(ctypes.byref(pointer), size, 0))
    return pointer.value


def host_free(pointer):
    check(driver().cuMemFreeHost(pointer))


# ---- virtual memory management ---------------------------------------------------------------------------------------


class _Place(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Shape(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", _Place), ("win32", ctypes.c_void_p), ("flags", ctypes.c_uint8 * 8)]


def reserve(size):
    pointer = _pointer()
    check(driver().cuMemAddressReserve(ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_size_t(0), _pointer(0), ctypes.c_uint64(0)))
    return pointer.value


def unreserve(pointer, size):
    check(driver().cuMemAddressFree(_pointer(pointer), ctypes.c_size_t(size)))


def create(size, device=0):
    handle, shape = _pointer(), _Shape(type=1, location=_Place(1, device))
    check(driver().cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(shape), ctypes.c_uint64(0)))
    return handle.value


def release(handle):
    check(driver().cuMemRelease(_pointer(handle)))


def map_at(pointer, size, handle):
    check(driver().cuMemMap(_pointer(pointer), ctypes.c_size_t(size), ctypes.c_size_t(0), _pointer(handle), ctypes.c_uint64(0)))


def unmap(pointer, size):
    check(driver().cuMemUnmap(_pointer(pointer), ctypes.c_size_t(size)))
