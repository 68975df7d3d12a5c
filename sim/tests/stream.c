/* SPDX-License-Identifier: MIT
 * Selftest: streams and events: waiting, queries, time between events, host functions.  With
 * latency=typical device work takes virtual time that only waits and calls move on, so "not ready" is
 * deterministic.
 */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "core_check.h"

#define BULK (256 * CHECK_MIB) /* a set of this takes 268 us of virtual time; a call 1 to 3 us */

static CUcontext context;
static CUstream blocking, free_stream, other;
static CUdeviceptr bulk;

static void busy(CUstream stream)
{
    CHECK_OK(cuMemsetD8Async(bulk, 1, BULK, stream));
}

static CUresult ready(CUevent event, CUstream stream)
{
    CHECK_OK(cuEventRecord(event, stream));
    return cuEventQuery(event);
}

static void life(void)
{
    CUstream stream, legacy = CU_STREAM_LEGACY;
    unsigned long long id, again;
    unsigned int flags;
    int least, greatest, priority;
    CUcontext owner;
    CUdevice device;

    CHECK_EQ(cuStreamCreate(&stream, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(greatest < least);
    CHECK_OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 10));
    CHECK_OK(cuStreamGetPriority(stream, &priority));
    CHECK_EQ(priority, greatest);
    CHECK_OK(cuStreamGetFlags(stream, &flags));
    CHECK_EQ(flags, CU_STREAM_NON_BLOCKING);
    CHECK_OK(cuStreamGetCtx(stream, &owner));
    CHECK(owner == context);
    CHECK_OK(cuStreamGetDevice(stream, &device));
    CHECK_EQ(device, 0);
    CHECK_OK(cuStreamGetId(stream, &id));
    CHECK_OK(cuStreamGetId(other, &again));
    CHECK(id != again);
    CHECK_OK(cuStreamGetId(NULL, &id));
    CHECK_OK(cuStreamGetId(legacy, &again));
    CHECK_EQ(id, again);
    CHECK_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
    CHECK(id != again);
    CHECK_OK(cuStreamDestroy(stream));
    CHECK_EQ(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuStreamDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuStreamDestroy(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
}

static void queries(void)
{
    CHECK_OK(cuStreamQuery(other));
    busy(other);
    CHECK_EQ(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuStreamQuery(free_stream));
    CHECK_OK(cuStreamSynchronize(free_stream));
    CHECK_EQ(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuStreamSynchronize(other));
    CHECK_OK(cuStreamQuery(other));
    busy(other);
    CHECK_OK(cuCtxSynchronize());
    CHECK_OK(cuStreamQuery(other));
    busy(other);
    int polls = 0;
    while (cuStreamQuery(other) == CUDA_ERROR_NOT_READY) /* each question costs time, so this ends */
        polls++;
    CHECK(polls > 10 && polls < 1000);
}

/* The legacy stream waits for blocking streams and they for it; non-blocking ones stand aside. */
static void default_stream(void)
{
    CUevent event;

    CHECK_OK(cuEventCreate(&event, 0));
    busy(blocking);
    CHECK_EQ(ready(event, NULL), CUDA_ERROR_NOT_READY);
    CHECK_OK(ready(event, free_stream));
    CHECK_OK(cuCtxSynchronize());
    busy(NULL);
    CHECK_EQ(ready(event, blocking), CUDA_ERROR_NOT_READY);
    CHECK_OK(ready(event, free_stream));
    CHECK_EQ(ready(event, CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuCtxSynchronize());
    busy(free_stream);
    CHECK_OK(ready(event, NULL));
    CHECK_OK(ready(event, blocking));
    CHECK_OK(cuCtxSynchronize());
    busy(CU_STREAM_PER_THREAD);
    CHECK_EQ(ready(event, NULL), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuCtxSynchronize());
    CHECK_OK(cuEventDestroy(event));
}

static void events(void)
{
    CUevent first, second, third;

    CHECK_EQ(cuEventCreate(&first, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuEventCreate(&first, 64), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuEventCreate(&second, 0));
    CHECK_OK(cuEventCreate(&third, 0));
    CHECK_OK(cuEventQuery(first)); /* never recorded: nothing to wait for */
    CHECK_OK(cuEventSynchronize(first));
    CHECK_OK(cuStreamWaitEvent(other, first, 0));
    busy(other);
    CHECK_EQ(ready(first, other), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuStreamWaitEvent(free_stream, first, 0));
    /* The wait was for the event as it stood: recording it again on idle streams changes nothing. */
    CHECK_OK(ready(first, blocking));
    CHECK_EQ(ready(second, free_stream), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuStreamQuery(free_stream), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuStreamWaitEvent(blocking, second, 0)); /* order is carried on */
    CHECK_EQ(ready(third, blocking), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuEventSynchronize(third));
    CHECK_OK(cuStreamQuery(other));
    CHECK_OK(cuStreamQuery(free_stream));
    CHECK_EQ(cuStreamWaitEvent(other, first, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamWaitEvent(other, NULL, 0), CUDA_ERROR_INVALID_HANDLE);
    busy(other);
    CHECK_OK(cuEventRecord(third, other));
    CHECK_OK(cuStreamWaitEvent(free_stream, third, 0));
    CHECK_OK(cuEventDestroy(third)); /* a thread that waits already goes on waiting */
    CHECK_EQ(cuEventQuery(third), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuEventDestroy(third), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuStreamQuery(free_stream), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuCtxSynchronize());
    CHECK_OK(cuEventDestroy(first));
    CHECK_OK(cuEventDestroy(second));
}

static void elapsed(void)
{
    CUevent start, end, untimed;
    float ms = -1;

    CHECK_OK(cuEventCreate(&start, 0));
    CHECK_OK(cuEventCreate(&end, 0));
    CHECK_OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    CHECK_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuEventRecord(start, other));
    busy(other);
    busy(other);
    CHECK_OK(cuEventRecord(end, other));
    CHECK_OK(cuEventRecord(untimed, other));
    CHECK_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuEventSynchronize(end));
    CHECK_OK(cuEventElapsedTime(&ms, start, end));
    CHECK(ms > 0.53f && ms < 0.6f); /* two sets at 1 TB/s */
    CHECK_OK(cuEventElapsedTime(&ms, end, start));
    CHECK(ms < -0.53f);
    CHECK_OK(cuEventElapsedTime(&ms, start, start));
    CHECK(ms == 0);
    CHECK_OK(cuEventRecord(start, other));
    CHECK_OK(cuEventRecord(end, other));
    CHECK_OK(cuEventSynchronize(end));
    CHECK_OK(cuEventElapsedTime(&ms, start, end));
    CHECK(ms > 0 && ms < 0.01f);
    CHECK_EQ(cuEventElapsedTime(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuEventElapsedTime(NULL, start, end), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuEventDestroy(start));
    CHECK_OK(cuEventDestroy(end));
    CHECK_OK(cuEventDestroy(untimed));
}

/* An event of all streams of a context, and all of its streams waiting for one. */
static void whole_context(void)
{
    CUevent all, one;
    CUgraph graph;

    CHECK_OK(cuEventCreate(&all, 0));
    CHECK_OK(cuEventCreate(&one, 0));
    busy(free_stream);
    CHECK_OK(cuCtxRecordEvent(context, all));
    CHECK_EQ(cuEventQuery(all), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuCtxWaitEvent(context, all));
    CHECK_EQ(ready(one, other), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuEventSynchronize(all));
    CHECK_OK(cuStreamQuery(free_stream));
    busy(free_stream);
    CHECK_OK(cuEventRecord(all, free_stream));
    CHECK_OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_EQ(cuCtxRecordEvent(context, all), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(cuEventQuery(all), CUDA_ERROR_NOT_READY); /* a call that fails changes nothing */
    (void)cuStreamEndCapture(other, &graph);
    CHECK_OK(cuCtxSynchronize());
    CHECK_OK(cuEventDestroy(all));
    CHECK_OK(cuEventDestroy(one));
}

/* ---- host functions ---------------------------------------------------------------------------------------------- */
static sem_t gate;
static int order[16], ordered;

static void wait_gate(void *unused)
{
    (void)unused;
    sem_wait(&gate);
}

static void note(void *which)
{
    order[__atomic_fetch_add(&ordered, 1, __ATOMIC_SEQ_CST)] = (int)(intptr_t)which;
}

static void called_back(CUstream stream, CUresult status, void *which)
{
    CHECK(stream == free_stream);
    CHECK_OK(status);
    note(which);
}

static void slow_write(void *to)
{
    usleep(5000);
    *(int *)to = 4711;
}

static void host_functions(void)
{
    CUevent event;

    CHECK_OK(cuEventCreate(&event, 0));
    CHECK_EQ(cuLaunchHostFunc(other, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamAddCallback(free_stream, called_back, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuLaunchHostFunc(other, wait_gate, NULL));
    CHECK_OK(cuLaunchHostFunc(other, note, (void *)1));
    CHECK_EQ(ready(event, other), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuStreamWaitEvent(free_stream, event, 0));
    CHECK_OK(cuStreamAddCallback(free_stream, called_back, (void *)2, 0));
    CHECK_EQ(cuStreamQuery(free_stream), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuStreamSynchronize(blocking)); /* has nothing to do with it */
    usleep(2000);
    CHECK_EQ(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    CHECK_EQ(__atomic_load_n(&ordered, __ATOMIC_SEQ_CST), 0);
    sem_post(&gate);
    CHECK_OK(cuStreamSynchronize(free_stream));
    CHECK_OK(cuStreamQuery(other));
    CHECK_OK(cuEventQuery(event));
    CHECK_EQ(ordered, 2);
    CHECK_EQ(order[0], 1);
    CHECK_EQ(order[1], 2);
    CHECK_OK(cuEventDestroy(event));
}

/* Copies do not overtake the host function that fills their source; a destroyed stream's functions still run. */
static void host_function_order(void)
{
    CUstream stream;
    int *from, seen = 0;

    CHECK_OK(cuMemAllocHost((void **)&from, 4096));
    *from = 0;
    CHECK_OK(cuLaunchHostFunc(other, slow_write, from));
    CHECK_OK(cuMemcpyHtoDAsync(bulk, from, sizeof *from, other));
    CHECK_OK(cuStreamSynchronize(other));
    CHECK_OK(cuMemcpyDtoH(&seen, bulk, sizeof seen));
    CHECK_EQ(seen, 4711);
    *from = 0;
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuLaunchHostFunc(stream, slow_write, from));
    CHECK_OK(cuStreamDestroy(stream));
    CHECK_OK(cuCtxSynchronize());
    CHECK_EQ(*from, 4711);
    CHECK_OK(cuMemFreeHost(from));
}

static void *thread_stream(void *id)
{
    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuStreamGetId(CU_STREAM_PER_THREAD, id));
    busy(CU_STREAM_PER_THREAD);
    CHECK_EQ(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    return NULL;
}

static void per_thread(void)
{
    unsigned long long mine, theirs = 0;
    pthread_t thread;

    CHECK_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
    CHECK_EQ(pthread_create(&thread, NULL, thread_stream, &theirs), 0);
    pthread_join(thread, NULL);
    CHECK(theirs && theirs != mine);
    CHECK_OK(cuStreamQuery(CU_STREAM_PER_THREAD)); /* this thread's is idle */
    CHECK_EQ(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CHECK_OK(cuCtxSynchronize());
    CHECK_OK(cuStreamQuery(NULL));
}

int main(void)
{
    setenv("GPUPROF_SIM", "latency=typical", 1);
    sem_init(&gate, 0, 0);
    context = check_begin(0);
    CHECK_OK(cuStreamCreate(&blocking, 0));
    CHECK_OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuMemAlloc(&bulk, BULK));
    life();
    queries();
    default_stream();
    events();
    elapsed();
    whole_context();
    host_functions();
    host_function_order();
    per_thread();
    CHECK_OK(cuMemFree(bulk));
    return check_done();
}
