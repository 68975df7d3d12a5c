# SPDX-License-Identifier: MIT
# What lies under PyTorch's blocks: memory that goes to sleep and wakes below live tensors, memory of others as a MemPool,
# and its allocator switched off. After each step: reserved is what the device has of this process beside the context,
# allocated is what its tensors have of that, and what PyTorch counts besides is asleep, or not the device's own.
# sim: memory=16GiB
import ctypes
import os

import gpuprof
import torch
from common import compare, done, expect

GIB = 1 << 30
MAPPED, HEAP, MANAGED, ASYNC = range(4)
path = os.environ["GPUPROF_SLEEPER"]
sleeper = ctypes.CDLL(path)
torch.zeros(1, device="cuda")
free, total = torch.cuda.mem_get_info()
context = total - free - torch.cuda.memory_reserved()
peaks = {"allocated_bytes.all": 512, "reserved_bytes.all": 0, "asleep_bytes": 0}


def look(name, asleep=0, beside=0, idle=None):
    """asleep: bytes of tensors without memory. beside: bytes of tensors in memory that is not the device's own.
    idle: bytes reserved and not allocated, if that is known."""
    ours = gpuprof.memory_stats(0)
    theirs = torch.cuda.memory_stats(0)
    free, total = torch.cuda.mem_get_info()
    now = {key: ours[key + ".current"] for key in peaks}
    compare(name, 0, "reserved", now["reserved_bytes.all"], total - free - context)
    compare(name, 0, "asleep", now["asleep_bytes"], asleep)
    compare(name, 0, "allocated", now["allocated_bytes.all"], theirs["allocated_bytes.all.current"] - asleep - beside)
    if idle is not None:
        compare(name, 0, "idle", now["reserved_bytes.all"] - now["allocated_bytes.all"], idle)
    expect(f"{name}: allocated <= reserved", now["allocated_bytes.all"] <= now["reserved_bytes.all"])
    for key, value in now.items():
        peaks[key] = max(peaks[key], value)
        compare(name, 0, key + ".peak", ours[key + ".peak"], peaks[key])


def pool(kind, heap_bytes=0):
    expect("the allocator", sleeper.sleeper_kind(kind, ctypes.c_size_t(heap_bytes)))
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "sleeper_malloc", "sleeper_free")
    return allocator, torch.cuda.MemPool(allocator.allocator())


def tensors(where, count, size=GIB):
    with torch.cuda.use_mem_pool(where):
        return [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(count)]


look("before")
allocator, mapped = pool(MAPPED)
held = tensors(mapped, 4)
look("awake", idle=2 << 20)
sleeper.sleeper_sleep(0, 256)
look("asleep", asleep=4 * GIB)
sleeper.sleeper_wake(0, 256)
look("woken", idle=2 << 20)
held += tensors(mapped, 1, GIB // 2)
look("woken, and more")
for turn in range(3):
    sleeper.sleeper_sleep(turn, 2)
    look(f"two of five asleep, {turn}", asleep=2 * GIB if turn < 3 else 0)
    sleeper.sleeper_wake(0, 256)
    look(f"all awake, {turn}")
del held[1]
look("a tensor is gone", idle=GIB + (2 << 20))
sleeper.sleeper_sleep(0, 256)
look("asleep with idle memory", asleep=3 * GIB + GIB // 2)
del held[0]
look("a sleeping tensor is gone", asleep=2 * GIB + GIB // 2)
sleeper.sleeper_wake(0, 256)
look("woken with idle memory", idle=2 * GIB + (2 << 20))
small = tensors(mapped, 40, 1 << 19)
look("many in a segment")
sleeper.sleeper_sleep(0, 256)
look("and these asleep", asleep=2 * GIB + GIB // 2 + 40 * (1 << 19))
sleeper.sleeper_wake(0, 256)
look("and these awake")
del held, small, mapped
torch.cuda.empty_cache()
look("without the pool")

before = torch.cuda.memory_stats(0)["allocated_bytes.all.current"]
torch.cuda.memory.caching_allocator_enable(False)
uncached = [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
look("uncached", beside=-3 * GIB)
del uncached[0]
look("one less", beside=-2 * GIB)
torch.cuda.memory.caching_allocator_enable(True)
cached = torch.empty(GIB, dtype=torch.uint8, device="cuda")
look("one cached", beside=-2 * GIB)
del uncached, cached
torch.cuda.empty_cache()
look("without these")

allocator, heap = pool(HEAP, 4 * GIB)
peaks["allocated_bytes.all"] = max(peaks["allocated_bytes.all"], 4 * GIB + 512)
look("a heap", beside=-4 * GIB)
held = tensors(heap, 3)
look("tensors in it", idle=GIB)
more = torch.empty(GIB, dtype=torch.uint8, device="cuda")
look("and elsewhere")
del held, more, heap
torch.cuda.empty_cache()
look("none in the heap")

allocator, managed = pool(MANAGED)
held = tensors(managed, 3)
look("managed", beside=3 * GIB)
del held, managed
torch.cuda.empty_cache()
look("none managed")

allocator, pooled = pool(ASYNC)
held = tensors(pooled, 3)
theirs = torch.cuda.memory_stats(0)["allocated_bytes.all.current"]
compare("pooled", 0, "allocated", gpuprof.memory_stats(0)["allocated_bytes.all.current"], theirs)
del held, pooled
torch.cuda.empty_cache()
look("none pooled")
done()
