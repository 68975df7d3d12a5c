/* SPDX-License-Identifier: MIT
 * bench_cub.cc: cub::CachingDeviceAllocator as a contender of bench_cache, which loads this library.  The header comes
 * with NVIDIA's toolkit and is not part of this project; without it nothing is built.
 *
 * The CUDA runtime below is ours: an address counter and events that cost nothing, which flatters cub, whose every free
 * records an event.  No bound on cached bytes: with the default of 6 MiB - 1 it would measure the driver. */
#include <cub/util_allocator.cuh>

#include "../cache_load.h"

static uint64_t bench_next = 1ull << 40, bench_calls;

extern "C" {
cudaError_t cudaMalloc(void **address, size_t bytes)
{
    uint64_t step = (bytes + 511) / 512 * 512;
    *address = reinterpret_cast<void *>(__atomic_fetch_add(&bench_next, step, __ATOMIC_RELAXED));
    __atomic_fetch_add(&bench_calls, 1, __ATOMIC_RELAXED);
    return cudaSuccess;
}
cudaError_t cudaFree(void *)
{
    __atomic_fetch_add(&bench_calls, 1, __ATOMIC_RELAXED);
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}
cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}
cudaError_t cudaPeekAtLastError()
{
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t)
{
    return "";
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = nullptr;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t)
{
    return cudaSuccess;
}
}

using bench_cub = cub::CachingDeviceAllocator;

static cudaStream_t bench_stream(uint64_t stream)
{
    return reinterpret_cast<cudaStream_t>(stream);
}

static void *bench_cub_create()
{
    return new bench_cub(8, 3, 7, bench_cub::INVALID_SIZE);
}

static void bench_cub_destroy(void *cache)
{
    delete static_cast<bench_cub *>(cache);
}

static uint64_t bench_cub_alloc(void *cache, uint64_t bytes, uint64_t stream, unsigned)
{
    void *address = nullptr;
    if (static_cast<bench_cub *>(cache)->DeviceAllocate(0, &address, bytes, bench_stream(stream)) != cudaSuccess)
        abort();
    return reinterpret_cast<uint64_t>(address);
}

static void bench_cub_free(void *cache, uint64_t address, uint64_t, unsigned)
{
    if (static_cast<bench_cub *>(cache)->DeviceFree(0, reinterpret_cast<void *>(address)) != cudaSuccess)
        abort();
}

static uint64_t bench_cub_calls(void *)
{
    return __atomic_load_n(&bench_calls, __ATOMIC_RELAXED);
}

extern "C" const struct bench_cache_api bench_cache_peer = {"cub",          bench_cub_create, bench_cub_destroy,
                                                            bench_cub_alloc, bench_cub_free,   bench_cub_calls};
