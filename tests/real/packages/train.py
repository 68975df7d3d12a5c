# SPDX-License-Identifier: MIT
"""Takes memory of the GPU for some seconds, with the driver's own functions alone."""
import ctypes
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    error = getattr(cuda, name)(*arguments)
    if error:
        sys.exit(f"{name}: {error}")


device, context, held = ctypes.c_int(), ctypes.c_void_p(), []
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
    block = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(64 << 20))
    held.append(block)
    if step % 4 == 3:
        call("cuMemFree_v2", held.pop(0))
    time.sleep(0.1)
