/* SPDX-License-Identifier: MIT
 * Selftest: stream-ordered pools: growth, thresholds and trimming, the reuse rules, attributes, deferred destruction,
 * access, and sharing with another process.  latency=typical, so that work is unfinished until a thread waits. */
#include <sys/socket.h>
#include <sys/wait.h>

#include "core_check.h"

#define CHUNK (32 * CHECK_MIB) /* the simulator's step of growth */
#define BULK  (256 * CHECK_MIB)

static CUstream a, b;
static CUmemoryPool pool;
static CUdeviceptr bulk;

static long long number(CUmemoryPool p, CUmemPool_attribute which)
{
    cuuint64_t value = 0;

    CHECK_OK(cuMemPoolGetAttribute(p, which, &value));
    return (long long)value;
}

static void check_pool(long long reserved, long long used)
{
    CHECK_EQ(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), reserved);
    CHECK_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), used);
    CHECK_EQ(check_reserved(0, "\"current\":"), reserved + BULK);
    CHECK_EQ(check_allocated(0, "\"current\":"), used + BULK);
    CHECK_EQ(check_kind(0, "pool", "current_bytes"), used);
}

static CUmemPoolProps device_props(int device)
{
    return (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static CUmemoryPool make_pool(cuuint64_t threshold)
{
    CUmemPoolProps props = device_props(0);
    CUmemoryPool made = NULL;

    CHECK_OK(cuMemPoolCreate(&made, &props));
    CHECK_OK(cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    return made;
}

static CUdeviceptr take(size_t bytes, CUstream stream)
{
    CUdeviceptr p = 0;

    CHECK_OK(cuMemAllocFromPoolAsync(&p, bytes, pool, stream));
    return p;
}

/* The current pool, and handles that are not pools. */
static void currency(void)
{
    CUmemoryPool standard, current, made, foreign;
    CUmemPoolProps props = device_props(0), other = device_props(1);
    CUdeviceptr p;

    CHECK_OK(cuDeviceGetDefaultMemPool(&standard, 0));
    CHECK_OK(cuDeviceGetMemPool(&current, 0));
    CHECK(standard && current == standard);
    CHECK_EQ(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuDeviceGetMemPool(&current, 9), CUDA_ERROR_INVALID_DEVICE);
    CHECK_OK(cuMemPoolCreate(&made, &props));
    CHECK_OK(cuMemPoolCreate(&foreign, &other));
    CHECK_EQ(cuDeviceSetMemPool(0, foreign), CUDA_ERROR_INVALID_VALUE); /* not this device's */
    CHECK_OK(cuDeviceSetMemPool(0, made));
    CHECK_OK(cuDeviceGetMemPool(&current, 0));
    CHECK(current == made);
    CHECK_OK(cuMemAllocAsync(&p, 1000, a));
    CHECK_EQ(number(made, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1000);
    CHECK_EQ(number(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    CHECK_OK(cuMemFreeAsync(p, a));
    CHECK_OK(cuStreamSynchronize(a));
    CHECK_OK(cuMemPoolDestroy(made));
    CHECK_OK(cuDeviceGetMemPool(&current, 0)); /* the default one steps in */
    CHECK(current == standard);
    CHECK_EQ(cuMemPoolDestroy(made), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemAllocFromPoolAsync(&p, 1000, foreign, a)); /* a stream may use another device's pool */
    CHECK_EQ(check_kind(1, "pool", "current_bytes"), 1000);
    CHECK_EQ(check_kind(0, "pool", "current_bytes"), 0);
    CHECK_OK(cuMemFreeAsync(p, a));
    CHECK_OK(cuStreamSynchronize(a));
    CHECK_OK(cuMemPoolDestroy(foreign));
    props.allocType = (CUmemAllocationType)77;
    CHECK_EQ(cuMemPoolCreate(&made, &props), CUDA_ERROR_INVALID_VALUE);
    props = device_props(9);
    CHECK_EQ(cuMemPoolCreate(&made, &props), CUDA_ERROR_INVALID_VALUE);
}

static void growth(void)
{
    CUdeviceptr p, q, r;
    size_t before, after, total;

    pool = make_pool(0);
    CHECK_OK(cuMemGetInfo(&before, &total));
    p = 77;
    CHECK_OK(cuMemAllocFromPoolAsync(&p, 0, pool, a)); /* nothing, and no call of the kind */
    CHECK_EQ(p, 0);
    CHECK_EQ(cuMemAllocFromPoolAsync(NULL, 1, pool, a), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAllocFromPoolAsync(&p, 8ull << 30, pool, a), CUDA_ERROR_OUT_OF_MEMORY);
    check_pool(0, 0);
    p = take(1, a);
    check_pool(CHUNK, 1);
    q = take(5 * CHECK_MIB, a);
    CHECK_EQ(p % 512, 0);
    CHECK(q >= p + 512 || p >= q + 5 * CHECK_MIB);
    check_pool(CHUNK, 5 * CHECK_MIB + 1);
    r = take(40 * CHECK_MIB + 1, a);
    check_pool(CHUNK + 42 * CHECK_MIB, 45 * CHECK_MIB + 2); /* pages of 2 MiB */
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(before - after, CHUNK + 42 * CHECK_MIB);
    CHECK_EQ(cuMemFreeAsync(p + 1, a), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFreeAsync(0, a));
    CHECK_OK(cuMemFreeAsync(r, a));
    CHECK_EQ(cuMemFreeAsync(r, a), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemFree(r), CUDA_ERROR_INVALID_VALUE);
    check_pool(CHUNK + 42 * CHECK_MIB, 5 * CHECK_MIB + 1); /* used at the call, backing when the host knows */
    CHECK_OK(cuStreamSynchronize(a));
    check_pool(CHUNK, 5 * CHECK_MIB + 1);
    CHECK_OK(cuMemFree(p)); /* the other free call does for pools too */
    CHECK_OK(cuMemFreeAsync(q, a));
    CHECK_OK(cuStreamSynchronize(a));
    check_pool(0, 0);
    CHECK_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 45 * CHECK_MIB + 2);
    CHECK_EQ(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), CHUNK + 42 * CHECK_MIB);
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(before, after);
    CHECK_OK(cuMemPoolDestroy(pool));
}

static void thresholds(void)
{
    CUdeviceptr small, large;
    CUevent event;

    pool = make_pool(50 * CHECK_MIB);
    CHECK_OK(cuEventCreate(&event, 0));
    small = take(CHECK_MIB, a);
    large = take(40 * CHECK_MIB, a);
    CHECK_OK(cuMemFreeAsync(large, a));
    CHECK_OK(cuMemFreeAsync(small, a));
    CHECK_OK(cuMemPoolTrimTo(pool, 0)); /* the host has not seen these frees happen */
    check_pool(72 * CHECK_MIB, 0);
    CHECK_OK(cuEventRecord(event, a));
    CHECK_OK(cuEventSynchronize(event));
    CHECK(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 50 * CHECK_MIB);
    CHECK(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) > 0);
    CHECK_OK(cuMemPoolTrimTo(pool, 0));
    check_pool(0, 0);
    CHECK_OK(cuMemPoolDestroy(pool));
    pool = make_pool(UINT64_MAX);
    small = take(CHECK_MIB, a);
    large = take(40 * CHECK_MIB, a);
    CHECK_OK(cuMemFreeAsync(large, a));
    CHECK_OK(cuCtxSynchronize());
    check_pool(72 * CHECK_MIB, CHECK_MIB);
    CHECK_OK(cuMemPoolTrimTo(pool, 33 * CHECK_MIB)); /* at least that much stays */
    check_pool(72 * CHECK_MIB, CHECK_MIB);
    CHECK_OK(cuMemPoolTrimTo(pool, 32 * CHECK_MIB));
    check_pool(CHUNK, CHECK_MIB);
    CHECK_OK(cuMemPoolTrimTo(pool, 0)); /* holds an allocation */
    check_pool(CHUNK, CHECK_MIB);
    CHECK_OK(cuMemFreeAsync(small, a));
    CHECK_OK(cuStreamSynchronize(a));
    check_pool(CHUNK, 0);
    CHECK_OK(cuMemPoolTrimTo(pool, 0));
    check_pool(0, 0);
    CHECK_OK(cuMemPoolDestroy(pool));
    CHECK_OK(cuEventDestroy(event));
}

/* A device that is full takes back what pools keep without use. */
static void reclaim(void)
{
    size_t free_bytes, total;
    CUdeviceptr p, q;

    pool = make_pool(UINT64_MAX);
    p = take(512 * CHECK_MIB, a);
    CHECK_OK(cuMemGetInfo(&free_bytes, &total));
    CHECK_EQ(cuMemAlloc(&q, free_bytes + 64 * CHECK_MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_OK(cuMemFreeAsync(p, a));
    CHECK_OK(cuStreamSynchronize(a));
    check_pool(512 * CHECK_MIB, 0);
    CHECK_OK(cuMemAlloc(&q, free_bytes + 64 * CHECK_MIB));
    CHECK_EQ(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    CHECK_OK(cuMemFree(q));
    CHECK_OK(cuMemPoolDestroy(pool));
}

static void attributes(void)
{
    cuuint64_t value = 1, zero = 0;
    CUdeviceptr p;
    int flag = 9;

    pool = make_pool(0);
    for (CUmemPool_attribute i = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
         i <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES; i++) {
        CHECK_OK(cuMemPoolGetAttribute(pool, i, &flag));
        CHECK_EQ(flag, 1);
    }
    p = take(3000, a);
    CHECK_OK(cuMemFreeAsync(p, a));
    p = take(1000, a);
    CHECK_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 3000);
    CHECK_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    CHECK_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1000);
    CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    CHECK_EQ(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), CHUNK);
    CHECK_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)99, &value), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFreeAsync(p, a));
    CHECK_OK(cuStreamSynchronize(a));
    CHECK_OK(cuMemPoolDestroy(pool));
}

/* ---- reuse ------------------------------------------------------------------------------------------------------- */
enum { EVENTS = 1, CHANCE = 2, INTERNAL = 4 };

/* Frees a block on a behind work and asks for one on b: does b get the same block under these rules? */
static int reused(int rules, int with_event, int finished)
{
    CUdeviceptr p, q, first;
    CUevent event;

    pool = make_pool(UINT64_MAX);
    for (int i = 0; i < 3; i++) {
        int on = rules >> i & 1;
        CHECK_OK(cuMemPoolSetAttribute(pool, (CUmemPool_attribute)(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES + i),
                                       &on));
    }
    CHECK_OK(cuEventCreate(&event, 0));
    first = p = take(CHUNK, a);
    CHECK_OK(cuMemsetD8Async(bulk, 0, BULK, a));
    CHECK_OK(cuMemFreeAsync(p, a));
    if (with_event) {
        CHECK_OK(cuEventRecord(event, a));
        CHECK_OK(cuStreamWaitEvent(b, event, 0));
    }
    for (int i = 0; finished && i < 400; i++) /* time passes, the host asks nothing of the pool's streams */
        CHECK_OK(cuStreamQuery(CU_STREAM_PER_THREAD));
    q = take(CHUNK, b);
    CHECK_EQ(cuStreamQuery(b), with_event || (q == first && rules == INTERNAL) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
    CHECK_OK(cuMemFreeAsync(q, b));
    CHECK_OK(cuCtxSynchronize());
    CHECK_OK(cuEventDestroy(event));
    CHECK_OK(cuMemPoolDestroy(pool));
    return q == first;
}

static void reuse(void)
{
    CUdeviceptr p, q;

    pool = make_pool(UINT64_MAX);
    p = take(CHUNK, a);
    CHECK_OK(cuMemsetD8Async(p, 0, CHUNK, a));
    CHECK_OK(cuMemFreeAsync(p, a));
    q = take(CHUNK, a); /* the same stream's order is enough, always */
    CHECK_EQ(p, q);
    CHECK_OK(cuMemFreeAsync(q, a));
    CHECK_OK(cuCtxSynchronize());
    q = take(CHUNK, b); /* the host has seen it freed */
    CHECK_EQ(p, q);
    CHECK_OK(cuMemFreeAsync(q, b));
    CHECK_OK(cuCtxSynchronize());
    CHECK_OK(cuMemPoolDestroy(pool));
    CHECK(!reused(0, 0, 0));
    CHECK(!reused(0, 1, 0));
    CHECK(reused(EVENTS, 1, 0));
    CHECK(!reused(EVENTS, 0, 0));
    CHECK(!reused(CHANCE, 0, 0));
    CHECK(reused(CHANCE, 0, 1));
    CHECK(!reused(EVENTS, 0, 1));
    CHECK(reused(INTERNAL, 0, 0));
}

/* ---- the end of a pool ------------------------------------------------------------------------------------------- */
static void deferred(void)
{
    CUdeviceptr p, q;
    cuuint64_t value;
    int word = 7, seen = 0;

    pool = make_pool(UINT64_MAX);
    p = take(3 * CHECK_MIB, a);
    CHECK_OK(cuMemPoolDestroy(pool));
    CHECK_EQ(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAllocFromPoolAsync(&q, 512, pool, a), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(check_reserved(0, "\"current\":"), BULK + CHUNK);
    CHECK_OK(cuStreamSynchronize(a)); /* what follows is on another stream */
    CHECK_OK(cuMemcpyHtoD(p, &word, sizeof word));
    CHECK_OK(cuMemcpyDtoH(&seen, p, sizeof seen));
    CHECK_EQ(seen, 7);
    CHECK_OK(cuMemsetD8Async(bulk, 0, BULK, a));
    CHECK_OK(cuMemFreeAsync(p, a));
    CHECK_EQ(check_reserved(0, "\"current\":"), BULK + CHUNK); /* not before the stream is there */
    CHECK_EQ(check_allocated(0, "\"current\":"), BULK);
    CHECK_OK(cuStreamSynchronize(a));
    CHECK_EQ(check_reserved(0, "\"current\":"), BULK);
}

static void limits(void)
{
    CUmemPoolProps props = device_props(0);
    CUdeviceptr p, q;

    props.maxSize = 40 * CHECK_MIB;
    CHECK_OK(cuMemPoolCreate(&pool, &props));
    p = take(30 * CHECK_MIB, a);
    CHECK_EQ(cuMemAllocFromPoolAsync(&q, 16 * CHECK_MIB, pool, a), CUDA_ERROR_OUT_OF_MEMORY);
    q = take(8 * CHECK_MIB, a); /* the rest */
    check_pool(40 * CHECK_MIB, 38 * CHECK_MIB);
    CHECK_OK(cuMemFreeAsync(p, a));
    CHECK_OK(cuMemFreeAsync(q, a));
    CHECK_OK(cuCtxSynchronize());
    CHECK_OK(cuMemPoolDestroy(pool));
}

static void access_rights(void)
{
    CUmemLocation here = device_props(0).location, there = device_props(1).location;
    CUmemAccessDesc desc = {.location = there, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    CUmemAccess_flags flags;
    CUcontext first, second;
    CUdeviceptr p;
    char byte;

    pool = make_pool(0);
    p = take(4096, a);
    CHECK_OK(cuStreamSynchronize(a));
    CHECK_OK(cuMemPoolGetAccess(&flags, pool, &here));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_OK(cuMemPoolGetAccess(&flags, pool, &there));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_OK(cuCtxGetCurrent(&first));
    second = check_begin(1);
    CHECK(second != first);
    CHECK_EQ(cuMemcpyDtoH(&byte, p, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemPoolSetAccess(pool, &desc, 1));
    CHECK_OK(cuMemcpyDtoH(&byte, p, 1)); /* allocations that exist already, too */
    CHECK_EQ(cuMemsetD8(p, 1, 1), CUDA_ERROR_INVALID_VALUE);
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_OK(cuMemPoolSetAccess(pool, &desc, 1));
    CHECK_OK(cuMemsetD8(p, 1, 1));
    desc = (CUmemAccessDesc){.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CHECK_EQ(cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuCtxSetCurrent(first));
    CHECK_OK(cuMemFreeAsync(p, a));
    CHECK_OK(cuCtxSynchronize());
    CHECK_OK(cuMemPoolDestroy(pool));
    CHECK_OK(cuDevicePrimaryCtxRelease(1));
}

/* Linear memory may be freed in stream order as well. */
static void linear(void)
{
    CUdeviceptr p;

    CHECK_OK(cuMemAlloc(&p, CHECK_MIB));
    CHECK_OK(cuMemFreeAsync(p, a));
    CHECK_EQ(check_kind(0, "linear", "current_bytes"), BULK);
    CHECK_EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQ(cuMemFreeAsync(p, a), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFree(p));
}

/* ---- two processes ----------------------------------------------------------------------------------------------- */
static int importer(int line)
{
    int fd = check_receive(line), seen = 0, value = 22;
    CUmemPoolPtrExportData data;
    CUmemoryPool shared = NULL;
    CUdeviceptr p, q;

    check_begin(0);
    CHECK_EQ(cuMemPoolImportFromShareableHandle(&shared, (void *)(intptr_t)line,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(
        cuMemPoolImportFromShareableHandle(&shared, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    CHECK_EQ(cuMemAllocFromPoolAsync(&p, 512, shared, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuDeviceSetMemPool(0, shared), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK(read(line, &data, sizeof data) == sizeof data);
    CHECK_OK(cuMemPoolImportPointer(&p, shared, &data));
    CHECK_EQ(check_kind(0, "imported", "current_bytes"), CHECK_MIB);
    CHECK_EQ(check_reserved(0, "\"current\":"), 0);
    CHECK_OK(cuMemcpyDtoH(&seen, p + 1024, sizeof seen));
    CHECK_EQ(seen, 11);
    CHECK_OK(cuMemcpyHtoD(p + 2048, &value, sizeof value));
    CHECK_OK(cuMemPoolImportPointer(&q, shared, &data));
    CHECK_OK(cuMemFree(q));
    CHECK_OK(cuMemPoolDestroy(shared)); /* goes with its last pointer */
    CHECK_OK(cuMemFreeAsync(p, NULL));
    CHECK_EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(check_kind(0, "imported", "current_bytes"), 0);
    check_tell(line);
    return check_failed != 0;
}

static void exporter(int line)
{
    CUmemPoolProps props = device_props(0);
    CUmemPoolPtrExportData data;
    CUdeviceptr p, first;
    int fd = -1, value = 11, seen = 0;

    pool = make_pool(0);
    p = take(512, a);
    CHECK_EQ(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPoolExportPointer(&data, p), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFreeAsync(p, a));
    CHECK_OK(cuStreamSynchronize(a));
    CHECK_OK(cuMemPoolDestroy(pool));
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK_OK(cuMemPoolCreate(&pool, &props));
    CHECK_OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    check_send(line, fd);
    close(fd);
    first = take(512, a);
    p = take(CHECK_MIB, a); /* not at the beginning of a page of the pool */
    CHECK_OK(cuStreamSynchronize(a));
    CHECK_OK(cuMemcpyHtoD(p + 1024, &value, sizeof value));
    CHECK_EQ(cuMemPoolExportPointer(&data, p + 512), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemPoolExportPointer(&data, p));
    CHECK(write(line, &data, sizeof data) == sizeof data);
    check_wait(line);
    CHECK_OK(cuMemcpyDtoH(&seen, p + 2048, sizeof seen));
    CHECK_EQ(seen, 22);
    CHECK_OK(cuMemFreeAsync(p, a));
    CHECK_OK(cuMemFreeAsync(first, a));
    CHECK_OK(cuStreamSynchronize(a));
    check_pool(0, 0);
    CHECK_OK(cuMemPoolDestroy(pool));
}

int main(void)
{
    int line[2], status = 1;

    setenv("GPUPROF_SIM", "devices=2,memory=2GiB,latency=typical", 1);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, line) == 0);
    pid_t child = fork(); /* before any CUDA call */
    if (child == 0) {
        close(line[0]);
        exit(importer(line[1]));
    }
    close(line[1]);
    check_begin(0);
    CHECK_OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuMemAlloc(&bulk, BULK));
    currency();
    growth();
    thresholds();
    reclaim();
    attributes();
    reuse();
    deferred();
    limits();
    access_rights();
    linear();
    exporter(line[0]);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    CHECK_EQ(check_reserved(0, "\"current\":"), BULK);
    CHECK_EQ(check_number(0, "\"hazards\"", "\"hazards\":"), 0);
    return check_done();
}
