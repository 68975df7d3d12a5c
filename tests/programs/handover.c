/* SPDX-License-Identifier: MIT
 *
 * A program whose own profiler subscribes to CUPTI again and again, while its threads allocate and free memory of several
 * kinds, in contexts that come and go. Exit code 0; 9 if the profiler could not subscribe, or got no callback. Arguments:
 * the seed, and how often.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "finish.h"

#define HANDOVER_THREADS 3
#define HANDOVER_BLOCKS  16
#define DRIVER_API       1 /* CUPTI_CB_DOMAIN_DRIVER_API */
#define MEM_ALLOC        243

static CUdevice handover_device;
static volatile int handover_over;
static unsigned handover_calls;
/* A context that holds memory comes and goes alone: the hooks report what it held after the driver has freed it, when another
 * thread may have got the address. Those of every third seed hold none, and come and go at any time. */
static pthread_rwlock_t handover_lock = PTHREAD_RWLOCK_INITIALIZER;
static int handover_bare;

static void handover_pause(unsigned us)
{
    struct timespec time = {0, (long)us * 1000};
    nanosleep(&time, NULL);
}

static void handover_context(void)
{
    CUdeviceptr pointer = 0;
    CUcontext context = NULL, before = NULL;
    if (!handover_bare)
        pthread_rwlock_wrlock(&handover_lock);
    CHECK(cuCtxCreate(&context, NULL, 0, handover_device));
    if (!handover_bare)
        CHECK(cuMemAlloc(&pointer, 3 * MIB)); /* goes with its context */
    CHECK(cuCtxDestroy(context));
    if (!handover_bare)
        pthread_rwlock_unlock(&handover_lock);
    CHECK(cuCtxGetCurrent(&before));
}

static void *handover_thread(void *arg)
{
    uint32_t state = (uint32_t)(uintptr_t)arg * 2654435761u + 1;
    CUdeviceptr blocks[HANDOVER_BLOCKS] = {0};
    void *host = NULL;
    CUcontext context;
    CUstream stream;
    unsigned i;
    CHECK(cuDevicePrimaryCtxRetain(&context, handover_device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!handover_over) {
        state = state * 1664525 + 1013904223;
        i = (state >> 20) % HANDOVER_BLOCKS;
        pthread_rwlock_rdlock(&handover_lock);
        if (blocks[i] != 0) {
            CHECK(i % 2 ? cuMemFreeAsync(blocks[i], stream) : cuMemFree(blocks[i]));
            blocks[i] = 0;
        } else {
            CHECK(i % 2 ? cuMemAllocAsync(&blocks[i], (i + 1) * 64 * KIB, stream)
                        : cuMemAlloc(&blocks[i], (i + 1) * 64 * KIB));
        }
        pthread_rwlock_unlock(&handover_lock);
        if ((state >> 8 & 15) == 0) {
            CHECK(cuMemAllocHost(&host, MIB));
            CHECK(cuMemFreeHost(host));
        }
        if ((state >> 8 & 31) == 1) {
            handover_context();
            CHECK(cuCtxSetCurrent(context));
        }
    }
    return NULL;
}

static void handover_callback(void *user, int domain, uint32_t id, const void *data)
{
    (void)user, (void)domain, (void)id, (void)data;
    __atomic_fetch_add(&handover_calls, 1, __ATOMIC_RELAXED);
}

int main(int argc, char **argv)
{
    unsigned long seed = argc > 1 ? strtoul(argv[1], NULL, 10) : 1, times = argc > 2 ? strtoul(argv[2], NULL, 10) : 5;
    int (*subscribe)(void **, void (*)(void *, int, uint32_t, const void *), void *) = NULL;
    int (*enable)(uint32_t, void *, int, uint32_t) = NULL, (*unsubscribe)(void *) = NULL;
    pthread_t threads[HANDOVER_THREADS];
    void *cupti, *subscriber = NULL;
    unsigned i, before;
    int bad = 0, status;
    handover_bare = seed % 3 == 0;
    handover_device = program_start();
    cupti = dlopen("libcupti.so.13", RTLD_NOW);
    if (cupti != NULL) {
        *(void **)&subscribe = dlsym(cupti, "cuptiSubscribe");
        *(void **)&unsubscribe = dlsym(cupti, "cuptiUnsubscribe");
        *(void **)&enable = dlsym(cupti, "cuptiEnableCallback");
    }
    if (subscribe == NULL || unsubscribe == NULL || enable == NULL)
        return 9;
    for (i = 0; i < HANDOVER_THREADS; i++)
        pthread_create(&threads[i], NULL, handover_thread, (void *)(uintptr_t)(seed * HANDOVER_THREADS + i));
    for (i = 0; i < times; i++) {
        handover_pause((unsigned)(seed * 131 + i * 977) % 3000);
        status = subscribe(&subscriber, handover_callback, NULL);
        if (status != 0) {
            printf("subscribe: %d\n", status);
            bad = 1;
            continue;
        }
        before = __atomic_load_n(&handover_calls, __ATOMIC_RELAXED);
        bad |= enable(1, subscriber, DRIVER_API, MEM_ALLOC);
        for (unsigned tries = 0; tries < 5000 && __atomic_load_n(&handover_calls, __ATOMIC_RELAXED) == before; tries++)
            handover_pause(1000);
        if (__atomic_load_n(&handover_calls, __ATOMIC_RELAXED) == before) {
            printf("no callbacks\n");
            bad = 1;
        }
        bad |= unsubscribe(subscriber);
        /* gpuprof subscribes again, does not yet, or is about to: its poll thread looks every 100 ms. */
        handover_pause(i % 2 ? 90000 + (unsigned)(seed * 7919 + i * 104729) % 40000 : 1000);
    }
    handover_over = 1;
    for (i = 0; i < HANDOVER_THREADS; i++)
        pthread_join(threads[i], NULL);
    status = finish();
    return bad ? 9 : status;
}
