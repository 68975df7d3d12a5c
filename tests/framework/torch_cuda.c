/* SPDX-License-Identifier: MIT
 *
 * torch_cuda.c: stands in for PyTorch's libtorch_cuda.so, which has the pluggable allocator, whose table and functions have
 * names, and captures graphs; and, built with PYTHON, for libtorch_python.so, which has MemPools. Both begin and end a
 * pool by the table of the allocator in force (c10_cuda.c), with a filter (std::function).
 */
#include "framework/c10.h"

extern struct c10_allocator *c10_allocator __asm__(C10_ALLOCATOR);

static bool filter(const void *captured, void *const *stream)
{
    (void)captured;
    (void)stream;
    return true;
}

void torch_pool_begin(int device, uint64_t first, uint64_t second);
void torch_pool_begin(int device, uint64_t first, uint64_t second)
{
    uint64_t function[4] = {0, 0, 1, (uint64_t)(uintptr_t)filter};
    c10_allocator->methods[C10_POOL_BEGIN].begin(c10_allocator, (int8_t)device, first, second, function);
}

void torch_pool_end(int device, uint64_t first, uint64_t second);
void torch_pool_end(int device, uint64_t first, uint64_t second)
{
    c10_allocator->methods[C10_POOL_END].end(c10_allocator, (int8_t)device, first, second);
}

#ifndef PYTHON
#define PLUGGABLE "N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"

static void other(void)
{
}

void plugged_begin(struct c10_allocator *self, int8_t device, uint64_t first, uint64_t second,
                   void *function) __asm__("_Z" PLUGGABLE
                                           "19beginAllocateToPoolEaSt4pairIyyESt8functionIFbP11CUstream_stEE");
void plugged_begin(struct c10_allocator *self, int8_t device, uint64_t first, uint64_t second, void *function)
{
    (void)self, (void)device, (void)first, (void)second, (void)function;
}

void plugged_end(struct c10_allocator *self, int8_t device, uint64_t first,
                 uint64_t second) __asm__("_Z" PLUGGABLE "17endAllocateToPoolEaSt4pairIyyE");
void plugged_end(struct c10_allocator *self, int8_t device, uint64_t first, uint64_t second)
{
    (void)self, (void)device, (void)first, (void)second;
}

extern const union c10_method plugged_table[] __asm__("_ZTV" PLUGGABLE "E");
const union c10_method plugged_table[2 + C10_METHODS + 1] = {
    [1] = {other}, /* the type */
    [2] = {other},
    [3] = {other},
    [2 + C10_POOL_BEGIN] = {.begin = plugged_begin},
    [2 + 3] = {other},
    [2 + C10_POOL_END] = {.end = plugged_end},
};
#endif
