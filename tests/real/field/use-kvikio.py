# SPDX-License-Identifier: MIT
# KvikIO without GPUDirect: what it reads and writes goes through pinned buffers, which it keeps.
import ctypes
import os
import tempfile

import gpuprof
import kvikio
from common import done, equal, say, step

MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64 * MIB)) == 0


class Array:
    __cuda_array_interface__ = dict(shape=(64 * MIB,), typestr="|u1", data=(memory.value, False), version=3)


with tempfile.TemporaryDirectory() as folder:
    file = kvikio.CuFile(os.path.join(folder, "file"), "w+")
    say("written", file.write(Array()))
    step("written")
    say("read", file.read(Array()))
    file.close()
step("closed")
equal("two buffers stay", gpuprof.host_memory_stats().get("allocated_bytes.current"), 32 * MIB)
done()
