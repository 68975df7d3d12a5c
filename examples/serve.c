/* SPDX-License-Identifier: MIT
 * Makes the allocations of an inference server (driver API).  Worker threads with a stream each
 * take requests of mixed lengths.  Scratch memory is stream-ordered, from a pool of the server's
 * own; small per-request tables come from cuMemAlloc.  Each worker's KV cache is a large reserved
 * address range: physical pages are mapped into it as a request grows, and return to a shared list
 * at the end of the request.
 *
 * serve [--steps REQUESTS] [--seconds S] [--pace MILLISECONDS] prints one line with the result */
#include <cuda.h>
#include <pthread.h>

#include "example.h"

#define WORKERS     4
#define CACHE_PAGES 64 /* per worker: the longest request */
#define SPARE_PAGES 96 /* kept for later requests; further pages return to the device */
#define TOUCHED     4096u

struct server {
    struct example_limits limits;
    CUdevice device;
    CUcontext context;
    CUmemoryPool pool;
    CUmemAllocationProp page_kind;
    size_t page_bytes;
    pthread_mutex_t lock;
    /* Under the lock. */
    CUmemGenericAllocationHandle spare[SPARE_PAGES];
    int spares;
    long taken, pages_now, pages_peak;
};

struct worker {
    struct server *server;
    pthread_t thread;
    CUstream stream;
    CUdeviceptr cache;
    CUmemGenericAllocationHandle pages[CACHE_PAGES];
    void *answer;
    uint64_t random;
};

static CUmemGenericAllocationHandle page_take(struct server *server)
{
    CUmemGenericAllocationHandle page = 0;
    int found;

    pthread_mutex_lock(&server->lock);
    found = server->spares > 0;
    if (found)
        page = server->spare[--server->spares];
    if (++server->pages_now > server->pages_peak)
        server->pages_peak = server->pages_now;
    pthread_mutex_unlock(&server->lock);
    if (!found)
        CHECK_CU(cuMemCreate(&page, server->page_bytes, &server->page_kind, 0));
    return page;
}

static void page_give(struct server *server, CUmemGenericAllocationHandle page)
{
    int kept;

    pthread_mutex_lock(&server->lock);
    kept = server->spares < SPARE_PAGES;
    if (kept)
        server->spare[server->spares++] = page;
    server->pages_now--;
    pthread_mutex_unlock(&server->lock);
    if (!kept)
        CHECK_CU(cuMemRelease(page));
}

/* Maps one more page after those of the request, and makes it accessible to the device. */
static void cache_grow(struct worker *worker, int page)
{
    struct server *server = worker->server;
    CUdeviceptr at = worker->cache + (size_t)page * server->page_bytes;
    CUmemAccessDesc access = {.location = server->page_kind.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    worker->pages[page] = page_take(server);
    CHECK_CU(cuMemMap(at, server->page_bytes, 0, worker->pages[page], 0));
    CHECK_CU(cuMemSetAccess(at, server->page_bytes, &access, 1));
    CHECK_CU(cuMemsetD8Async(at, (unsigned char)page, TOUCHED, worker->stream));
}

static void cache_clear(struct worker *worker, int pages)
{
    struct server *server = worker->server;

    CHECK_CU(cuMemUnmap(worker->cache, (size_t)pages * server->page_bytes));
    while (pages-- > 0)
        page_give(server, worker->pages[pages]);
}

static void request_serve(struct worker *worker)
{
    /* The smaller of two random numbers: mostly short requests, sometimes a long one. */
    int first = (int)(example_random(&worker->random) % CACHE_PAGES);
    int second = (int)(example_random(&worker->random) % CACHE_PAGES);
    int pages = 1 + (first < second ? first : second);
    CUdeviceptr table;

    CHECK_CU(cuMemAlloc(&table, 1024 + example_random(&worker->random) % 65536));
    CHECK_CU(cuMemsetD8(table, 0, 256));
    for (int page = 0; page < pages; page++) {
        size_t bytes = TOUCHED + (size_t)(example_random(&worker->random) % (16u << 20));
        CUdeviceptr scratch;

        cache_grow(worker, page);
        CHECK_CU(cuMemAllocFromPoolAsync(&scratch, bytes, worker->server->pool, worker->stream));
        CHECK_CU(cuMemcpyDtoDAsync(scratch, worker->cache, TOUCHED, worker->stream));
        CHECK_CU(cuMemcpyDtoHAsync(worker->answer, scratch, TOUCHED, worker->stream));
        CHECK_CU(cuMemFreeAsync(scratch, worker->stream));
    }
    CHECK_CU(cuStreamSynchronize(worker->stream));
    CHECK_CU(cuMemFree(table));
    cache_clear(worker, pages);
}

static int request_next(struct server *server)
{
    int more;

    pthread_mutex_lock(&server->lock);
    more = example_goes_on(&server->limits, server->taken);
    server->taken += more;
    pthread_mutex_unlock(&server->lock);
    return more;
}

static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    struct server *server = worker->server;
    size_t cache_bytes = CACHE_PAGES * server->page_bytes;

    CHECK_CU(cuCtxSetCurrent(server->context));
    CHECK_CU(cuStreamCreate(&worker->stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuMemHostAlloc(&worker->answer, TOUCHED, CU_MEMHOSTALLOC_PORTABLE));
    CHECK_CU(cuMemAddressReserve(&worker->cache, cache_bytes, 0, 0, 0));
    while (request_next(server)) {
        request_serve(worker);
        example_pause(&server->limits);
    }
    CHECK_CU(cuMemAddressFree(worker->cache, cache_bytes));
    CHECK_CU(cuMemFreeHost(worker->answer));
    CHECK_CU(cuStreamDestroy(worker->stream));
    return NULL;
}

static void server_create(struct server *server)
{
    CUmemPoolProps kind = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    cuuint64_t keep = 64u << 20;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&server->device, 0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&server->context, server->device));
    CHECK_CU(cuCtxSetCurrent(server->context));
    kind.location.id = server->device;
    CHECK_CU(cuMemPoolCreate(&server->pool, &kind));
    /* Up to 64 MiB of idle scratch memory stay with the pool; each synchronize releases the rest. */
    CHECK_CU(cuMemPoolSetAttribute(server->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    server->page_kind = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, server->device}};
    CHECK_CU(cuMemGetAllocationGranularity(&server->page_bytes, &server->page_kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

static void server_destroy(struct server *server)
{
    while (server->spares > 0)
        CHECK_CU(cuMemRelease(server->spare[--server->spares]));
    CHECK_CU(cuMemPoolDestroy(server->pool));
    CHECK_CU(cuDevicePrimaryCtxRelease(server->device));
}

int main(int count, char **arguments)
{
    struct server server = {.limits = example_arguments(count, arguments, 10, 10), .lock = PTHREAD_MUTEX_INITIALIZER};
    struct worker workers[WORKERS] = {0};

    server_create(&server);
    for (int i = 0; i < WORKERS; i++) {
        workers[i].server = &server;
        workers[i].random = (uint64_t)i + 1;
        if (pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]))
            example_fail("pthread_create", "no thread");
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    server_destroy(&server);
    printf("serve: %ld requests by %d workers, at most %ld cache pages at once\n", server.taken, WORKERS,
           server.pages_peak);
    return 0;
}
