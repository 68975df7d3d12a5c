# SPDX-License-Identifier: MIT
"""PyCUDA's ways to get memory.  The oracle is the driver: how much less it has free, where blocks are
whole pages; and the statistics of PyCUDA's own pool."""
import sys

import gpuprof
import pycuda.autoinit  # creates a context
import pycuda.driver as cuda
from pycuda.tools import DeviceMemoryPool, PageLockedMemoryPool

MIB = 1 << 20
checked, wrong = 0, 0
before = cuda.mem_get_info()[0]


def step(name, allocated, pooled=None):
    global checked, wrong
    reserved = before - cuda.mem_get_info()[0] if pooled is None else allocated + pooled
    allocated += pooled or 0
    print(f"out: {name}: {allocated} allocated, {cuda.mem_get_info()[0]} free")
    if not gpuprof.is_active():
        return
    for what, ours, theirs in (
        ("reserved", gpuprof.memory_reserved(), reserved),
        ("allocated", gpuprof.memory_allocated(), allocated),
    ):
        checked += 1
        if ours != theirs:
            wrong += 1
            print(f"{name}: {what}: gpuprof {ours}, expected {theirs}")


step("nothing", 0)
one, two = cuda.mem_alloc(64 * MIB), cuda.mem_alloc(6 * MIB)
step("mem_alloc", 70 * MIB)
cuda.memset_d8(one, 7, 64 * MIB)
two.free()
step("freed", 64 * MIB)
plane, pitch = cuda.mem_alloc_pitch(4096, 1024, 4)
step("mem_alloc_pitch", 64 * MIB + pitch * 1024)
plane.free()
pool = DeviceMemoryPool()
blocks = [pool.allocate((at + 1) * 4 * MIB) for at in range(8)]
step("a pool", 64 * MIB, pool.managed_bytes)
del blocks[::2]
step("the pool holds what is freed", 64 * MIB, pool.managed_bytes)
pool.free_held()
step("the pool gives it back", 64 * MIB, pool.managed_bytes)
del blocks
pool.stop_holding()
step("the pool is empty", 64 * MIB)
host = PageLockedMemoryPool().allocate((MIB,), "b")
step("pinned memory", 64 * MIB)
managed = cuda.managed_empty(4 * MIB, "b", mem_flags=cuda.mem_attach_flags.GLOBAL)
stream = cuda.Stream()
cuda.memcpy_htod_async(one, host, stream)
cuda.memcpy_dtoh_async(host, one, stream)
stream.synchronize()
del managed, host
step("after a managed block", 64 * MIB)
code = cuda.module_from_buffer(
    b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry work(.param .u64 p) { ret; }\n"
)
code.get_function("work")
checked += 1
if gpuprof.is_active() and gpuprof.memory_allocated() != 64 * MIB:
    wrong += 1
    print("a module changes what is allocated")
one.free()
print(f"{checked - wrong} of {checked} agree")
sys.exit(1 if wrong else 0)
