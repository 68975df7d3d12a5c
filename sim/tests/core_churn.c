/* SPDX-License-Identifier: MIT
 * Selftest: threads that make and destroy contexts with memory, modules and arrays in them, while others allocate in
 * contexts that may go at any moment: nothing is lost, and the devices end as they began. */
#include <pthread.h>
#include <time.h>

#include "core_check.h"

static CUcontext shared_[2];
static int wrong_, stop_;

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void wrong(int condition)
{
    if (condition)
        __atomic_add_fetch(&wrong_, 1, __ATOMIC_RELAXED);
}

static void *make_and_destroy(void *argument)
{
    int device = *(int *)argument;
    while (!__atomic_load_n(&stop_, __ATOMIC_RELAXED)) {
        CUcontext context;
        CUdeviceptr p;
        CUmodule module;
        void *h;
        wrong(cuCtxCreate(&context, NULL, 0, device) != CUDA_SUCCESS);
        __atomic_store_n(&shared_[device], context, __ATOMIC_RELAXED);
        for (int i = 1; i < 20; i++)
            wrong(cuMemAlloc(&p, (size_t)i * 300000) != CUDA_SUCCESS);
        wrong(cuModuleLoadData(&module, "blob") != CUDA_SUCCESS);
        wrong(cuMemHostAlloc(&h, 100, 0) != CUDA_SUCCESS);
        wrong(cuMemAllocManaged(&p, 100, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS);
        wrong(cuCtxDestroy(context) != CUDA_SUCCESS);
    }
    return NULL;
}

static int expected(CUresult result)
{
    return result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Allocates in whatever context lives: every answer but success and "that context is gone" is wrong. */
static void *intrude(void *argument)
{
    int device = *(int *)argument;
    CUdeviceptr p;
    while (!__atomic_load_n(&stop_, __ATOMIC_RELAXED)) {
        CUresult result = cuCtxSetCurrent(__atomic_load_n(&shared_[device], __ATOMIC_RELAXED));
        if (result == CUDA_SUCCESS)
            result = cuMemAlloc(&p, 5000000);
        wrong(!expected(result));
        /* The context may have gone in between, and the address be a block of the next one: so the makers free none. */
        if (result == CUDA_SUCCESS)
            result = cuMemFree(p);
        wrong(!expected(result) && result != CUDA_ERROR_INVALID_VALUE);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    int device[2] = {0, 1};
    size_t before[2], after, total;
    setenv("GPUPROF_SIM", "devices=2", 1);
    for (int i = 0; i < 2; i++) {
        check_begin(i);
        CHECK_OK(cuMemGetInfo(&before[i], &total));
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, make_and_destroy, &device[i]) == 0);
        CHECK(pthread_create(&threads[2 + i], NULL, i ? make_and_destroy : intrude, &device[i]) == 0);
    }
    double end = seconds() + 1;
    while (seconds() < end)
        usleep(10000);
    __atomic_store_n(&stop_, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(wrong_, 0);
    for (int i = 0; i < 2; i++) {
        check_begin(i);
        CHECK_OK(cuMemGetInfo(&after, &total));
        CHECK_EQ(after, before[i]);
        CHECK_EQ(check_reserved(i, "\"current\":"), 0);
        CHECK_EQ(check_kind(i, "managed", "current_bytes"), 0);
    }
    CHECK_EQ(check_kind(-1, "pinned", "current_bytes"), 0);
    CHECK(check_kind(-1, "pinned", "calls") > 10);
    return check_done();
}
