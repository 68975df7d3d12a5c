/* SPDX-License-Identifier: MIT
 * Uses gpuprof's caching allocator from C (driver API): a solver whose scratch arrays change size
 * from step to step and are used on two streams.  Blocks are ordered by stream: a freed block is
 * available again at once on the stream for which it was allocated; its use on another stream is
 * recorded before the free.  In steady state no memory comes from the driver: the last line counts
 * driver calls, which are then the events after the one recorded stream, at most two per step.
 *
 * The library is opened at run time, so that the program also starts on machines without it and
 * then allocates from the driver.  (Linking with -lgpuprof and calling gpuprof_alloc directly works
 * as well.)
 *
 * alloc_c [--steps STEPS] [--seconds S] [--pace MILLISECONDS] */
#include <cuda.h>
#include <dlfcn.h>
#include <gpuprof/gpuprof.h>

#include "example.h"

#define ARRAYS 12

static struct allocator {
    int (*alloc)(void **pointer, size_t bytes, int device, void *stream);
    int (*free)(void *pointer);
    int (*record_stream)(void *pointer, void *stream);
    int (*set_memory_fraction)(double fraction, int device);
    int64_t (*max_memory_allocated)(int device);
    int64_t (*driver_calls)(int device);
} allocator;

static void allocator_open(void)
{
    static const char *const names[] = {"gpuprof_alloc",
                                        "gpuprof_free",
                                        "gpuprof_record_stream",
                                        "gpuprof_set_memory_fraction",
                                        "gpuprof_max_memory_allocated",
                                        "gpuprof_driver_calls"};
    const char *path = getenv("CUDA_INJECTION64_PATH"); /* set by `gpuprof run` */
    void *library = dlopen(path ? path : "libgpuprof.so", RTLD_NOW);

    for (size_t i = 0; library && i < sizeof(names) / sizeof(names[0]); i++)
        *((void **)&allocator + i) = dlsym(library, names[i]);
}

static CUdeviceptr array_take(size_t bytes, CUstream stream)
{
    CUdeviceptr array = 0;

    if (!allocator.alloc)
        CHECK_CU(cuMemAlloc(&array, bytes));
    else
        CHECK_CU((CUresult)allocator.alloc((void **)&array, bytes, 0, stream));
    return array;
}

static void array_give(CUdeviceptr array, CUstream other_user)
{
    if (!allocator.free) {
        CHECK_CU(cuMemFree(array));
        return;
    }
    if (other_user)
        CHECK_CU((CUresult)allocator.record_stream((void *)array, other_user));
    CHECK_CU((CUresult)allocator.free((void *)array));
}

/* One step: clears every array on the compute stream and reads the last one on the copy stream. */
static void step(uint64_t *random, CUstream compute, CUstream copy, void *answer)
{
    CUdeviceptr arrays[ARRAYS];
    CUevent ready;

    for (int i = 0; i < ARRAYS; i++) {
        size_t bytes = (size_t)1 << (10 + example_random(random) % 12); /* 1 KiB to 2 MiB */

        arrays[i] = array_take(bytes, compute);
        CHECK_CU(cuMemsetD8Async(arrays[i], 0, bytes, compute));
    }
    CHECK_CU(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING));
    CHECK_CU(cuEventRecord(ready, compute));
    CHECK_CU(cuStreamWaitEvent(copy, ready, 0));
    CHECK_CU(cuMemcpyDtoHAsync(answer, arrays[ARRAYS - 1], 1024, copy));
    CHECK_CU(cuEventDestroy(ready));
    for (int i = 0; i < ARRAYS; i++)
        array_give(arrays[i], i == ARRAYS - 1 ? copy : NULL);
}

int main(int count, char **arguments)
{
    struct example_limits limits = example_arguments(count, arguments, 10, 5);
    CUstream compute, copy;
    CUcontext context;
    CUdevice device;
    void *answer;
    uint64_t random = 1;
    int64_t calls_half = 0;
    long steps;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuStreamCreate(&copy, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuMemAllocHost(&answer, 1024));
    allocator_open();
    if (allocator.set_memory_fraction)
        CHECK_CU((CUresult)allocator.set_memory_fraction(0.9, 0));
    for (steps = 0; example_goes_on(&limits, steps); steps++) {
        step(&random, compute, copy, answer);
        if (allocator.driver_calls && steps == limits.steps / 2)
            calls_half = allocator.driver_calls(0);
        example_pause(&limits);
    }
    CHECK_CU(cuCtxSynchronize());
    printf("alloc_c: %ld steps", steps);
    if (allocator.driver_calls)
        printf(", peak %.1f MiB, the cache's driver calls: %lld before the middle, %lld after it",
               (double)allocator.max_memory_allocated(0) / 1048576, (long long)calls_half,
               (long long)(allocator.driver_calls(0) - calls_half));
    printf("\n");
    return 0;
}
