/* SPDX-License-Identifier: MIT
 * The kernels that a program has got by handle.  Called by launch.c and symbol.c, and by register.c when a library
 * goes. */
#include "cudart/runtime.h"

#include <pthread.h>
#include <stdlib.h>

/* Kernels handed out and not unloaded since.  A program has few: a linear search is enough. */
static struct {
    pthread_mutex_t lock;
    struct rt_kernel {
        CUkernel kernel;
        CUlibrary library;
    } * known;
    size_t count, capacity;
} rt_kernels = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool rt_kernel_known(CUkernel kernel)
{
    bool found = false;

    pthread_mutex_lock(&rt_kernels.lock);
    for (size_t i = 0; i < rt_kernels.count && !found; i++)
        found = rt_kernels.known[i].kernel == kernel;
    pthread_mutex_unlock(&rt_kernels.lock);
    return found;
}

cudaError_t rt_kernel_add(CUkernel kernel, CUlibrary library)
{
    struct rt_kernel *grown;
    bool room;

    if (rt_kernel_known(kernel))
        return cudaSuccess;
    pthread_mutex_lock(&rt_kernels.lock);
    if (rt_kernels.count == rt_kernels.capacity) {
        size_t capacity = rt_kernels.capacity ? 2 * rt_kernels.capacity : 16;

        grown = realloc(rt_kernels.known, capacity * sizeof *grown);
        if (grown) {
            rt_kernels.known = grown;
            rt_kernels.capacity = capacity;
        }
    }
    room = rt_kernels.count < rt_kernels.capacity;
    if (room)
        rt_kernels.known[rt_kernels.count++] = (struct rt_kernel){kernel, library};
    pthread_mutex_unlock(&rt_kernels.lock);
    return room ? cudaSuccess : cudaErrorMemoryAllocation;
}

void rt_kernel_forget(CUlibrary library)
{
    size_t kept = 0;

    pthread_mutex_lock(&rt_kernels.lock);
    for (size_t i = 0; i < rt_kernels.count; i++)
        if (rt_kernels.known[i].library != library)
            rt_kernels.known[kept++] = rt_kernels.known[i];
    rt_kernels.count = kept;
    pthread_mutex_unlock(&rt_kernels.lock);
}
