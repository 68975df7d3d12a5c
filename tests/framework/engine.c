/* SPDX-License-Identifier: MIT
 *
 * engine.c: a library that has the static CUDA runtime inside, as NVIDIA's compiler links it by default: libengine.so
 * owns what it allocates.
 */
#include <cuda_runtime_api.h>
#include <stddef.h>

void *engine_alloc(size_t bytes);
void *engine_alloc(size_t bytes)
{
    void *pointer = NULL;
    return cudaMalloc(&pointer, bytes) == cudaSuccess ? pointer : NULL;
}
