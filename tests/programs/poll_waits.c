/* SPDX-License-Identifier: MIT
 *
 * Random calls around which gpuprof waits for its poll thread, on three threads: pools that are destroyed with live
 * blocks, failed requests, contexts that end, captures, first launches of modules, resets. With a driver that answers only
 * after a second (GPUPROF_SIM_FAULTS) no call may take half of that, but for those that make and end contexts, for which a
 * real driver may need longer; and where tests/lib/preload/waits.c measures it, none may wait for gpuprof longer than 20 ms. Exit code 0; 9 if one did. Argument: the seed.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "finish.h"

static const char waits_image[] =
    ".version 8.0\n.target sm_50\n.address_size 64\n.visible .entry touch()\n{\nret;\n}\n";

#define WAITS_MOST    500000000ll
#define WAITS_CONTEXT 5000000000ll
#define WAITS_OURS    20000000ll

struct waits { /* of tests/lib/preload/waits.c */
    long long asleep_ns, locked_ns;
};
static struct waits (*waits_take)(void);
static long long waits_calls, waits_asleep, waits_locked; /* the longest, in nanoseconds */

static CUdevice waits_device;
static int waits_long;

static long long waits_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void waits_most(long long *most, long long is)
{
    long long old = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (is > old && !__atomic_compare_exchange_n(most, &old, is, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static void waits_judge(const char *what, long long begin, long long most)
{
    long long took = waits_now() - begin;
    struct waits ours = {0};
    __atomic_fetch_add(&waits_calls, 1, __ATOMIC_RELAXED);
    if (waits_take != NULL)
        ours = waits_take();
    waits_most(&waits_asleep, ours.asleep_ns);
    waits_most(&waits_locked, ours.locked_ns);
    if (ours.asleep_ns > WAITS_OURS) {
        printf("%s waited %lld us for gpuprof\n", what, ours.asleep_ns / 1000);
        __atomic_store_n(&waits_long, 1, __ATOMIC_RELAXED);
    }
    if (took > most) {
        printf("%s took %lld ms\n", what, took / 1000000);
        __atomic_store_n(&waits_long, 1, __ATOMIC_RELAXED);
    }
}

#define WAITS_AT_MOST(_most, ...)                                                                                      \
    do {                                                                                                               \
        long long begin_ = waits_now();                                                                                \
        (void)(__VA_ARGS__);                                                                                           \
        waits_judge(#__VA_ARGS__, begin_, _most);                                                                      \
    } while (0)
#define WAITS(...) WAITS_AT_MOST(WAITS_MOST, __VA_ARGS__)

static void waits_pool(CUstream stream)
{
    CUdeviceptr pointer = 0;
    CUmemPoolProps shape;
    CUmemoryPool pool = NULL;
    memset(&shape, 0, sizeof(shape));
    shape.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shape.location.id = waits_device;
    WAITS(cuMemPoolCreate(&pool, &shape));
    WAITS(cuMemAllocFromPoolAsync(&pointer, MIB, pool, stream));
    WAITS(cuMemPoolDestroy(pool));
    WAITS(cuMemFreeAsync(pointer, stream));
}

static void waits_capture(CUstream stream)
{
    CUgraph graph = NULL;
    WAITS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    WAITS(cuStreamEndCapture(stream, &graph));
    if (graph != NULL)
        WAITS(cuGraphDestroy(graph));
}

static void waits_context(void)
{
    CUdeviceptr pointer = 0;
    CUcontext context = NULL;
    WAITS_AT_MOST(WAITS_CONTEXT, cuCtxCreate(&context, NULL, 0, waits_device));
    WAITS(cuMemAlloc(&pointer, 1ul << 40)); /* fails, and gpuprof asks in this context */
    WAITS_AT_MOST(WAITS_CONTEXT, cuCtxDestroy(context));
}

static void waits_module(void)
{
    CUmodule module = NULL;
    CUfunction kernel = NULL;
    WAITS(cuModuleLoadData(&module, waits_image));
    if (module != NULL && cuModuleGetFunction(&kernel, module, "touch") == 0)
        WAITS(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    if (module != NULL)
        WAITS(cuModuleUnload(module));
}

static void *waits_thread(void *arg)
{
    uint32_t state = (uint32_t)(uintptr_t)arg * 2654435761u + 1;
    CUcontext context;
    CUstream stream;
    int i;
    CHECK(cuDevicePrimaryCtxRetain(&context, waits_device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (i = 0; i < 30; i++) {
        state = state * 1664525 + 1013904223;
        switch (state >> 24 & 7) {
        case 0:
            waits_capture(stream);
            break;
        case 1:
            waits_context();
            break;
        case 2:
            waits_module();
            break;
        default:
            waits_pool(stream);
        }
    }
    WAITS(cuStreamDestroy(stream));
    WAITS_AT_MOST(WAITS_CONTEXT, cuDevicePrimaryCtxRelease(waits_device));
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned long seed = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    pthread_t threads[3];
    int i;
    waits_device = program_start();
    void (*start)(void) = NULL;
    *(void **)&start = dlsym(RTLD_DEFAULT, "waits_start");
    *(void **)&waits_take = dlsym(RTLD_DEFAULT, "waits_take");
    if (start != NULL)
        start();
    for (i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, waits_thread, (void *)(uintptr_t)(seed * 3 + (unsigned)i));
    for (i = seed % 4 == 0 ? 2 : 0; i > 0; i--) { /* the calls of the others fail then, and gpuprof's questions too */
        struct timespec pause = {0, (long)(seed * 7919 % 20) * 1000000};

        nanosleep(&pause, NULL);
        WAITS_AT_MOST(WAITS_CONTEXT, cuDevicePrimaryCtxReset(waits_device));
    }
    for (i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    WAITS_AT_MOST(WAITS_CONTEXT, cuDevicePrimaryCtxReset(waits_device));
    if (waits_take != NULL)
        printf("calls %lld, asleep %lld us, locked %lld us\n", waits_calls, waits_asleep / 1000, waits_locked / 1000);
    i = finish();
    return waits_long ? 9 : seed % 4 == 0 ? 0 : i;
}
