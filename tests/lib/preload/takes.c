/* SPDX-License-Identifier: MIT
 *
 * takes.c: a library that asks the driver for memory. tests/integration/test_owners.c copies it under the names of
 * others.
 */
#include <cuda.h>

#include <dlfcn.h>
#include <stddef.h>

CUdeviceptr takes_memory(size_t bytes);
CUdeviceptr takes_memory(size_t bytes)
{
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    CUdeviceptr pointer = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library != NULL)
        *(void **)&alloc = dlsym(library, "cuMemAlloc_v2");
    if (alloc == NULL || alloc(&pointer, bytes) != CUDA_SUCCESS) /* not a tail call: the caller's frame must be here */
        pointer = 0;
    return pointer;
}
