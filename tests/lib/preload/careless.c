/* SPDX-License-Identifier: MIT
 *
 * careless.c: a caching allocator that does everything wrong. It is preloaded into the shim_* programs to show
 * that they detect it. The tests build it with cc and load it only into test programs.
 *
 *   GPUPROF_TEST_CARELESS=cache   the next request gets a freed block: without order between streams, and without
 *                                 regard to captures, contexts, forks, other kinds of memory and blocks that
 *                                 are freed twice; sizes are powers of two
 *   GPUPROF_TEST_CARELESS=slab    blocks of one mapping, at least 256 bytes apart, never released
 *   GPUPROF_TEST_CARELESS=short   as cache, but a block may be smaller than the request
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 65536
#define SLAB   ((size_t)512 << 20)

static pthread_mutex_t careless_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    CUdeviceptr at;
    size_t bytes;
    bool is_free;
} careless_blocks[BLOCKS];
static int careless_count;
static CUdeviceptr careless_slab;
static size_t careless_used;

/* It must not hang: a child that waits for the parent's lock would only delay the test. */
static void careless_child(void)
{
    pthread_mutex_init(&careless_lock, NULL);
}

__attribute__((constructor)) static void careless_init(void)
{
    pthread_atfork(NULL, NULL, careless_child);
}

static bool careless_is(const char *mode)
{
    const char *setting = getenv("GPUPROF_TEST_CARELESS");
    return setting != NULL && strcmp(setting, mode) == 0;
}

static CUresult careless_slab_make(void)
{
    CUmemAllocationProp shape;
    CUmemAccessDesc access;
    CUmemGenericAllocationHandle handle;
    CUresult result;
    memset(&shape, 0, sizeof(shape));
    shape.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    memset(&access, 0, sizeof(access));
    access.location = shape.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if ((result = cuMemCreate(&handle, SLAB, &shape, 0)) != CUDA_SUCCESS ||
        (result = cuMemAddressReserve(&careless_slab, SLAB, 0, 0, 0)) != CUDA_SUCCESS ||
        (result = cuMemMap(careless_slab, SLAB, 0, handle, 0)) != CUDA_SUCCESS)
        return result;
    return cuMemSetAccess(careless_slab, SLAB, &access, 1);
}

static CUresult careless_slab_take(CUdeviceptr *out, size_t bytes)
{
    CUresult result = careless_slab == 0 ? careless_slab_make() : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    if (bytes > SLAB - careless_used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = careless_slab + careless_used;
    careless_used += (bytes + 255) / 256 * 256;
    return CUDA_SUCCESS;
}

static CUresult careless_cache_take(CUdeviceptr *out, size_t bytes)
{
    CUresult (*real)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    size_t granted = 512, lack = careless_is("short") ? 4096 : 0;
    CUresult result;
    int i;
    while (granted < bytes && granted < (size_t)1 << 62)
        granted *= 2;
    granted = careless_is("short") ? bytes : granted;
    for (i = careless_count; i-- > 0;) {
        if (careless_blocks[i].is_free && careless_blocks[i].bytes + lack >= bytes &&
            careless_blocks[i].bytes <= 2 * granted) {
            careless_blocks[i].is_free = false;
            *out = careless_blocks[i].at;
            return CUDA_SUCCESS;
        }
    }
    result = real(out, granted);
    if (result == CUDA_SUCCESS && careless_count < BLOCKS) {
        careless_blocks[careless_count].bytes = granted;
        careless_blocks[careless_count++].at = *out;
    }
    return result;
}

__attribute__((visibility("default"))) CUresult cuMemAlloc(CUdeviceptr *dptr, size_t bytesize)
{
    CUresult result;
    if (dptr == NULL || bytesize == 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&careless_lock);
    result = careless_is("slab") ? careless_slab_take(dptr, bytesize) : careless_cache_take(dptr, bytesize);
    pthread_mutex_unlock(&careless_lock);
    return result;
}

__attribute__((visibility("default"))) CUresult cuMemFree(CUdeviceptr dptr)
{
    int i;
    pthread_mutex_lock(&careless_lock);
    for (i = 0; i < careless_count; i++)
        if (dptr == careless_blocks[i].at)
            careless_blocks[i].is_free = true;
    pthread_mutex_unlock(&careless_lock);
    return CUDA_SUCCESS;
}
