/* SPDX-License-Identifier: MIT
 * Selftest: virtual time.  What allocation costs grows with the pages it takes, a piece of a block that is there costs
 * next to nothing, and the ledger shows the clock. */
#include "core_check.h"

static long long now(void)
{
    const char *at = strstr(check_ledger(), "\"simulated_ns\":");

    CHECK(at != NULL);
    return at ? atoll(at + strlen("\"simulated_ns\":")) : -1;
}

/* Virtual ns of an allocation and of its free. */
static void pair(size_t bytes, long long *alloc, long long *release)
{
    CUdeviceptr p = 0;
    long long start = now();

    CHECK_OK(cuMemAlloc(&p, bytes));
    *alloc = now() - start;
    start = now();
    CHECK_OK(cuMemFree(p));
    *release = now() - start;
}

static void linear(void)
{
    long long small, page, large, release;
    CUdeviceptr holder;

    pair(512, &small, &release); /* alone in its block: takes a page and gives it back */
    CHECK(small > 50000 && release > 50000);
    CHECK_OK(cuMemAlloc(&holder, 512));
    pair(512, &small, &release);
    CHECK(small > 0 && small < 5000 && release < 5000);
    pair(2 * CHECK_MIB, &page, &release);
    CHECK(page > 10 * small && release > 50000);
    pair(1024 * CHECK_MIB, &large, &release);
    CHECK(large > 2 * page && large < 1200000);
    CHECK_OK(cuMemFree(holder));
}

static void mapped(void)
{
    const CUmemAllocationProp shape = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle one, many;
    long long start = now(), first;

    CHECK_OK(cuMemCreate(&one, 2 * CHECK_MIB, &shape, 0));
    first = now() - start;
    CHECK_EQ(first, 29000);
    CHECK_OK(cuMemCreate(&many, 64 * CHECK_MIB, &shape, 0));
    CHECK(now() - start - first > first && now() - start - first < 32 * first);
    CHECK_OK(cuMemRelease(one));
    CHECK_OK(cuMemRelease(many));
}

/* Work is unfinished until the host has waited, and waiting moves the clock. */
static void unfinished(void)
{
    CUdeviceptr p;
    CUstream stream;
    CUevent event;
    long long start;

    CHECK_OK(cuMemAlloc(&p, 256 * CHECK_MIB));
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuMemsetD8Async(p, 1, 256 * CHECK_MIB, stream));
    CHECK_OK(cuEventRecord(event, stream));
    CHECK_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    start = now();
    CHECK_OK(cuEventSynchronize(event));
    CHECK(now() - start > 200000);
    CHECK_OK(cuEventQuery(event));
    CHECK_OK(cuMemsetD8Async(p, 1, 256 * CHECK_MIB, stream));
    start = now();
    CHECK_OK(cuMemFree(p)); /* waits */
    CHECK(now() - start > 200000);
    CHECK_OK(cuStreamQuery(stream));
}

/* The first call pays for the start of the driver, a repeated one does not. */
static void initialised_again(void)
{
    long long start = now();
    CHECK(start >= 100000000);
    CHECK_OK(cuInit(0));
    CHECK(now() - start < 10000);
}

int main(void)
{
    setenv("GPUPROF_SIM", "latency=typical", 1);
    check_begin(0);
    initialised_again();
    linear();
    mapped();
    unfinished();
    return check_done();
}
