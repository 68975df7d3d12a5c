# SPDX-License-Identifier: MIT
"""gpuprof's allocator under a real PyTorch on the simulated GPU of 8 GiB: run by tests/real/test_torch_allocator.sh.

    torch_allocator.py current    as PyTorch's allocator
    torch_allocator.py pool       below PyTorch's own, in a torch.cuda.MemPool
    torch_allocator.py ends       as current; the program does not catch the error

Prints "ok WHAT" for each thing that holds.
"""
import gc
import sys

import gpuprof
import torch

MIB, GIB = 1 << 20, 1 << 30


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def expect(right, what):
    print("ok" if right else "FAILED", what)


def expect_oom(what):
    try:
        pointer = empty(100 * GIB).data_ptr()
        expect(False, f"{what}: pointer {pointer:#x}")
    except torch.OutOfMemoryError as error:
        expect("out of memory" in str(error) and "100.00 GiB" in str(error), what)


def current():
    torch.cuda.memory.change_current_allocator(gpuprof.torch_allocator())
    gpuprof.patch()
    first = empty(4 * MIB)
    expect_oom("a request that no GPU can serve raises OutOfMemoryError")
    try:
        empty(100 * GIB)
    except RuntimeError:  # as older programs catch it
        pass
    second = empty(4 * MIB)
    expect(first.data_ptr() and second.data_ptr() and torch.cuda.memory_allocated() == 8 * MIB, "the next request is served")
    del first, second
    gpuprof.empty_cache()
    expect(gpuprof.memory_reserved() == 0, "gpuprof.empty_cache gives everything back")


def pool():
    allocator = gpuprof.torch_allocator()
    kept = empty(4 * MIB)
    base = gpuprof.memory_reserved()
    first = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(first):
        blocks = [empty(600 * MIB) for _ in range(5)]
    expect(gpuprof.memory_reserved() - base == 3000 * MIB, "the pool's segments are driver allocations")
    del blocks, first
    gc.collect()
    torch.cuda.empty_cache()
    expect(gpuprof.memory_reserved() - base <= 0, "a pool that is gone keeps nothing")
    second = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(second):
        expect_oom("PyTorch raises its own error for a pool")
    whole = empty(7 * GIB)
    expect(kept.data_ptr() and whole.data_ptr(), "PyTorch has the whole device afterwards")


if __name__ == "__main__":
    if sys.argv[1] == "pool":
        pool()
    else:
        current()
    if sys.argv[1] == "ends":
        sys.stdout.flush()
        empty(100 * GIB)
