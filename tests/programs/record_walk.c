/* SPDX-License-Identifier: MIT
 *
 * record_walk FIRST COUNT [THREADS [pools | all]]: COUNT small random programs, one after the other. Each is given by
 * its number alone. Every third one, or every one if THREADS says so, runs on several threads, which free each other's
 * memory. At each moment at which no call is under way the program prints what the statistics say, makes a mark of
 * the same number, and resets the peaks:
 *
 *      MOMENT DEVICE ALLOCATED ALLOCATED_PEAK RESERVED RESERVED_PEAK [the same four of the ledger, with "all"]
 *
 * "pools" adds stream-ordered pools, whose reserved bytes are polled; "all" also pools that are created and destroyed,
 * graphs with memory, contexts that end with their memory while other threads allocate, and resets of the primary
 * contexts between two programs. Calls may fail: memory is short on purpose.
 */
#include <cuda.h>

#include "api.h"
#include "threads.h"
#include "vmm.h"

#define DEVICES 2
#define STREAMS 2
#define THREADS 4
#define ROOM    24
#define LIVE    (640 * MIB) /* of each thread */

enum what {
    NOTHING,
    LINEAR,
    PITCHED,
    ARRAY,
    PINNED,
    PHYSICAL, /* mapped once or twice, or not at all */
    CACHED,   /* gpuprof_alloc */
    POOL,
    MADE_POOL, /* a pool, and one block of it */
    GRAPH,     /* launched, with its memory in use or freed */
    CONTEXT,   /* and memory in it */
    WHATS
};

struct thing {
    enum what what;
    unsigned device;
    CUdeviceptr address;
    CUarray array;
    void *host;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr maps[2];
    CUmemoryPool pool;
    CUgraph graph;
    CUgraphExec run;
    CUcontext context;
    size_t bytes;
};

struct worker {
    uint64_t random;
    struct thing things[ROOM];
    size_t live;
    unsigned steps;
};

static struct worker workers[THREADS];
static struct thing *x_handed[ROOM]; /* blocks that any thread may take and free */
static CUcontext contexts[DEVICES];
static CUstream streams[DEVICES][STREAMS];
static int device_count, want_pools, want_all, is_alone;
static unsigned moments;
static void (*ledger_levels)(int device, int64_t out[4]);

static uint64_t draw(struct worker *me)
{
    me->random ^= me->random << 13;
    me->random ^= me->random >> 7;
    me->random ^= me->random << 17;
    return me->random * 0x2545f4914f6cdd1dull >> 16;
}

static unsigned choose(struct worker *me, unsigned count)
{
    return (unsigned)(draw(me) % count);
}

/* Around every boundary of an allocator, or anything. */
static size_t some_bytes(struct worker *me)
{
    static const size_t edges[] = {1,       256,     512,      4 * KIB,  512 * KIB, MIB,      2 * MIB,
                                   4 * MIB, 8 * MIB, 10 * MIB, 12 * MIB, 20 * MIB,  24 * MIB, 40 * MIB};
    size_t bytes = edges[choose(me, sizeof(edges) / sizeof(edges[0]))];
    switch (choose(me, 8)) {
    case 0:
        return bytes + 1;
    case 1:
        return bytes > 1 ? bytes - 1 : 1;
    case 2:
        return 1 + draw(me) % bytes;
    case 3:
        return 1 + draw(me) % (64 * KIB);
    case 4:
        return 1 + draw(me) % (3 * MIB);
    default:
        return bytes;
    }
}

static void thing_map(struct thing *thing, unsigned at)
{
    if (cuMemAddressReserve(&thing->maps[at], thing->bytes, 0, 0, 0) == 0 &&
        cuMemMap(thing->maps[at], thing->bytes, 0, thing->handle, 0) != 0) {
        cuMemAddressFree(thing->maps[at], thing->bytes);
        thing->maps[at] = 0;
    }
}

static int thing_physical(struct worker *me, struct thing *thing)
{
    CUmemAllocationProp shape;
    unsigned i, maps = choose(me, 3);
    memset(&shape, 0, sizeof(shape));
    shape.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shape.location.id = (int)thing->device;
    thing->bytes = (thing->bytes + STEP - 1) / STEP * STEP;
    if (cuMemCreate(&thing->handle, thing->bytes, &shape, 0) != 0)
        return 1;
    for (i = 0; i < maps; i++)
        thing_map(thing, i);
    return 0;
}

static int thing_array(struct thing *thing)
{
    CUDA_ARRAY_DESCRIPTOR shape;
    memset(&shape, 0, sizeof(shape));
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    shape.Width = 64;
    shape.Height = 1 + thing->bytes / 256 % 1000;
    return (int)cuArrayCreate(&thing->array, &shape);
}

static int thing_made_pool(struct thing *thing, CUstream stream)
{
    CUmemPoolProps shape;
    memset(&shape, 0, sizeof(shape));
    shape.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shape.location.id = (int)thing->device;
    if (cuMemPoolCreate(&thing->pool, &shape) != 0)
        return 1;
    cuMemAllocFromPoolAsync(&thing->address, thing->bytes, thing->pool, stream);
    return 0;
}

/* By a capture, or node by node. Some graphs free what they allocate. */
static int thing_graph_nodes(struct worker *me, struct thing *thing, CUstream stream)
{
    CUDA_MEM_ALLOC_NODE_PARAMS shape;
    CUgraphNode node = NULL;
    CUdeviceptr second = 0;
    int frees = choose(me, 2) != 0;
    if (choose(me, 2)) {
        if (cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) != 0)
            return 1;
        cuMemAllocAsync(&thing->address, thing->bytes, stream);
        if (frees)
            cuMemFreeAsync(thing->address, stream);
        if (choose(me, 2) && cuMemAllocAsync(&second, some_bytes(me), stream) == 0)
            cuMemFreeAsync(second, stream);
        if (cuStreamEndCapture(stream, &thing->graph) != 0)
            return 1;
    } else {
        memset(&shape, 0, sizeof(shape));
        shape.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        shape.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        shape.poolProps.location.id = (int)thing->device;
        shape.bytesize = thing->bytes;
        if (cuGraphCreate(&thing->graph, 0) != 0 || cuGraphAddMemAllocNode(&node, thing->graph, NULL, 0, &shape) != 0)
            return 1;
        thing->address = shape.dptr;
        if (frees)
            cuGraphAddMemFreeNode(&node, thing->graph, &node, 1, shape.dptr);
        if (choose(me, 8) == 0 && cuGraphAddMemAllocNode(&node, thing->graph, &node, 1, &shape) == 0)
            cuGraphDestroyNode(node);
    }
    if (frees)
        thing->address = 0;
    return 0;
}

static int thing_graph(struct worker *me, struct thing *thing)
{
    CUstream stream = NULL;
    int error = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != 0 || thing_graph_nodes(me, thing, stream) != 0 ||
                cuGraphInstantiate(&thing->run, thing->graph, 0) != 0;
    if (!error && choose(me, 4) && cuGraphLaunch(thing->run, stream) != 0)
        thing->address = 0;
    if (error && thing->graph != NULL)
        cuGraphDestroy(thing->graph);
    cuStreamSynchronize(stream);
    cuStreamDestroy(stream);
    return error;
}

static int thing_context(struct worker *me, struct thing *thing)
{
    CUdeviceptr block = 0;
    void *pinned = NULL;
    unsigned i;
    if (cuCtxCreate(&thing->context, NULL, 0, (CUdevice)thing->device) != 0)
        return 1;
    for (i = choose(me, 4); i > 0; i--)
        cuMemAlloc(&block, 1 + draw(me) % thing->bytes);
    if (choose(me, 2))
        cuMemHostAlloc(&pinned, some_bytes(me), 0);
    thing->bytes *= 2;
    return 0;
}

static int thing_make(struct worker *me, struct thing *thing)
{
    size_t pitch;
    CUstream stream = streams[thing->device][choose(me, STREAMS)];
    switch (thing->what) {
    case LINEAR:
        return (int)cuMemAlloc(&thing->address, thing->bytes);
    case PITCHED:
        return (int)cuMemAllocPitch(&thing->address, &pitch, thing->bytes / 64 + 1, 64, 4);
    case ARRAY:
        return thing_array(thing);
    case PINNED:
        return (int)cuMemHostAlloc(&thing->host, thing->bytes, 0);
    case PHYSICAL:
        return thing_physical(me, thing);
    case CACHED:
        return api_gpuprof_alloc(&thing->host, thing->bytes, (int)thing->device, choose(me, 3) ? stream : NULL);
    case POOL:
        return (int)cuMemAllocAsync(&thing->address, thing->bytes, stream);
    case MADE_POOL:
        return thing_made_pool(thing, stream);
    case GRAPH:
        return thing_graph(me, thing);
    case CONTEXT:
        return thing_context(me, thing);
    default:
        return 1;
    }
}

static void thing_unmap(struct thing *thing)
{
    unsigned i;
    for (i = 0; i < 2; i++) {
        if (thing->maps[i] != 0) {
            CHECK(cuMemUnmap(thing->maps[i], thing->bytes));
            CHECK(cuMemAddressFree(thing->maps[i], thing->bytes));
            thing->maps[i] = 0;
        }
    }
}

static void thing_drop_graph(struct worker *me, struct thing *thing, CUstream stream)
{
    if (thing->address != 0 && choose(me, 8)) /* else its memory stays */
        choose(me, 2) ? cuMemFreeAsync(thing->address, stream) : cuMemFree(thing->address);
    if (choose(me, 2)) {
        cuGraphExecDestroy(thing->run);
        cuGraphDestroy(thing->graph);
    } else {
        cuGraphDestroy(thing->graph);
        cuGraphExecDestroy(thing->run);
    }
    if (choose(me, 2))
        cuDeviceGraphMemTrim((CUdevice)thing->device);
}

static void thing_drop(struct worker *me, struct thing *thing)
{
    CUstream stream = streams[thing->device][choose(me, STREAMS)];
    int early;
    CHECK(cuCtxSetCurrent(contexts[thing->device]));
    switch (thing->what) {
    case LINEAR:
    case PITCHED:
        if (choose(me, 8) == 0)
            cuMemFreeAsync(thing->address, stream);
        else
            cuMemFree(thing->address);
        break;
    case ARRAY:
        cuArrayDestroy(thing->array);
        break;
    case PINNED:
        cuMemFreeHost(thing->host);
        break;
    case PHYSICAL:
        early = choose(me, 2) != 0;
        if (early)
            CHECK(cuMemRelease(thing->handle));
        thing_unmap(thing);
        if (!early)
            CHECK(cuMemRelease(thing->handle));
        break;
    case CACHED:
        api_gpuprof_free(thing->host);
        break;
    case POOL:
        cuMemFreeAsync(thing->address, stream);
        if (want_all && choose(me, 4) == 0 && cuDeviceGetDefaultMemPool(&thing->pool, (CUdevice)thing->device) == 0)
            cuMemPoolTrimTo(thing->pool, 0);
        break;
    case MADE_POOL:
        early = choose(me, 2) != 0;
        if (early)
            cuMemPoolDestroy(thing->pool);
        if (thing->address != 0)
            cuMemFreeAsync(thing->address, stream);
        if (!early)
            cuMemPoolDestroy(thing->pool);
        break;
    case GRAPH:
        thing_drop_graph(me, thing, stream);
        break;
    case CONTEXT:
        cuCtxDestroy(thing->context);
        break;
    default:
        break;
    }
    memset(thing, 0, sizeof(*thing));
}

static void step_make(struct worker *me, struct thing *thing)
{
    static const enum what often[] = {LINEAR, LINEAR, LINEAR, CACHED, CACHED, PITCHED, ARRAY, PINNED, PHYSICAL};
    thing->what = often[choose(me, sizeof(often) / sizeof(often[0]))];
    if (want_pools && choose(me, 4) == 0)
        thing->what = POOL;
    if (want_all && (thing->what == CACHED || choose(me, 3) == 0)) /* the ledger knows no blocks of caches */
        thing->what = MADE_POOL + choose(me, 3);
    thing->device = choose(me, (unsigned)device_count);
    thing->bytes = some_bytes(me);
    CHECK(cuCtxSetCurrent(contexts[thing->device]));
    if (me->live + thing->bytes > LIVE || thing_make(me, thing) != 0)
        memset(thing, 0, sizeof(*thing));
    else
        me->live += thing->bytes;
}

static void step_free(struct worker *me, struct thing *thing)
{
    me->live -= thing->bytes < me->live ? thing->bytes : me->live;
    thing_drop(me, thing);
}

/* Leaves a block for any thread, and frees the one that was there. */
static void step_hand(struct worker *me, struct thing *thing)
{
    struct thing *mine = malloc(sizeof(*mine)), *theirs;
    if (mine == NULL)
        return;
    *mine = *thing;
    memset(thing, 0, sizeof(*thing));
    me->live -= mine->bytes < me->live ? mine->bytes : me->live;
    theirs = __atomic_exchange_n(&x_handed[choose(me, ROOM)], mine, __ATOMIC_ACQ_REL);
    if (theirs != NULL)
        thing_drop(me, theirs);
    free(theirs);
}

/* Memory that ends with its context. Not while other threads allocate: the driver may give them the
 * memory before it returns to the cache, which only then learns that the memory is gone. */
static void step_context(struct worker *me, unsigned device)
{
    CUcontext context = NULL;
    CUdeviceptr block = 0;
    unsigned i;
    if (!is_alone || cuCtxCreate(&context, NULL, 0, (CUdevice)device) != 0)
        return;
    for (i = choose(me, 4); i > 0; i--)
        if (cuMemAlloc(&block, some_bytes(me)) == 0 && choose(me, 2))
            cuMemFree(block);
    cuCtxDestroy(context);
}

static void step_rare(struct worker *me)
{
    CUdeviceptr huge = 0;
    unsigned device = choose(me, (unsigned)device_count);
    CHECK(cuCtxSetCurrent(contexts[device]));
    switch (choose(me, 5)) {
    case 0:
        api_gpuprof_empty_cache((int)device);
        break;
    case 1:
        if (cuMemAlloc(&huge, 64ul * 1024 * MIB) == 0) /* more than there is: idle memory is given back first */
            cuMemFree(huge);
        break;
    case 2:
        cuMemFree(0x1234500); /* an error */
        break;
    case 3:
        step_context(me, device);
        break;
    default:
        cuStreamSynchronize(streams[device][0]);
        break;
    }
}

static void step(struct worker *me)
{
    struct thing *thing = &me->things[choose(me, ROOM)];
    unsigned way = choose(me, 16);
    if (way == 0)
        step_rare(me);
    else if (thing->what == NOTHING)
        step_make(me, thing);
    else if (way < 4)
        step_hand(me, thing);
    else
        step_free(me, thing);
}

static void thread_work(unsigned number)
{
    struct worker *me = &workers[number];
    unsigned i;
    for (i = 0; i < me->steps; i++)
        step(me);
}

/* The host's statistics have no reserved bytes of their own. */
static void moment(void)
{
    char name[32];
    int64_t truth[4] = {0};
    int device;
    for (device = 0; want_all && device < device_count; device++) { /* a pool may give memory back there */
        CHECK(cuCtxSetCurrent(contexts[device]));
        CHECK(cuCtxSynchronize());
    }
    for (device = 0; device < device_count; device++) {
        printf("%u %d %lld %lld %lld %lld", moments, device, (long long)api_gpuprof_memory_allocated(device),
               (long long)api_gpuprof_max_memory_allocated(device), (long long)api_gpuprof_memory_reserved(device),
               (long long)api_gpuprof_max_memory_reserved(device));
        if (want_all) {
            ledger_levels(device, truth);
            printf(" %lld %lld %lld %lld", (long long)truth[0], (long long)truth[1], (long long)truth[2],
                   (long long)truth[3]);
        }
        printf("\n");
    }
    snprintf(name, sizeof(name), "moment %u", moments++);
    api_gpuprof_mark(name);
    for (device = 0; device < device_count; device++)
        api_gpuprof_reset_peak_memory_stats(device);
}

/* What the driver frees with the primary context is gone, and everything else is dropped before. */
static void thing_reset(struct worker *me, struct thing *thing)
{
    if (thing->what == LINEAR || thing->what == PITCHED || thing->what == ARRAY || thing->what == PINNED)
        memset(thing, 0, sizeof(*thing));
    else
        thing_drop(me, thing);
}

static void streams_make(int device)
{
    int k;
    CHECK(cuDevicePrimaryCtxRetain(&contexts[device], device));
    CHECK(cuCtxSetCurrent(contexts[device]));
    for (k = 0; k < STREAMS; k++)
        CHECK(cuStreamCreate(&streams[device][k], CU_STREAM_NON_BLOCKING));
}

static void primary_ends(unsigned number)
{
    int device = (int)(number / 4) % device_count, release = (int)(number / 8) % 2;
    unsigned i, k;
    for (k = 0; k < THREADS; k++)
        for (i = 0; i < ROOM; i++)
            if (workers[k].things[i].what != NOTHING && (int)workers[k].things[i].device == device)
                thing_reset(&workers[0], &workers[k].things[i]);
    if (release)
        CHECK(cuDevicePrimaryCtxRelease(device));
    else
        CHECK(cuDevicePrimaryCtxReset(device));
    streams_make(device);
}

/* Some of the memory stays for the next program. */
static void program_end(unsigned number)
{
    struct worker *me = &workers[0];
    unsigned i, k;
    for (k = 0; k < THREADS; k++)
        for (i = 0; i < ROOM; i++)
            if (number % 8 == 0 || i % 8 != 0)
                thing_drop(me, &workers[k].things[i]);
    for (i = 0; i < ROOM; i++) {
        if (x_handed[i] != NULL)
            thing_drop(me, x_handed[i]);
        free(x_handed[i]);
        x_handed[i] = NULL;
    }
    if (want_all && number % 4 == 3)
        primary_ends(number);
    for (k = 0; k < THREADS; k++) {
        workers[k].live = 0;
        for (i = 0; i < ROOM; i++)
            workers[k].live += workers[k].things[i].bytes;
    }
    if (number % 16 == 0)
        api_gpuprof_empty_cache((int)(number / 16) % device_count);
    moment();
}

static void program_run(unsigned number, unsigned count)
{
    struct thread_arg threads[THREADS];
    unsigned i, rounds = 1;
    for (i = 0; i < THREADS; i++) {
        workers[i].random = (number + 1) * 0x9e3779b97f4a7c15ull + i * 0xbf58476d1ce4e5b9ull;
        workers[i].steps = 20 + choose(&workers[i], 40);
    }
    is_alone = count == 1;
    if (count > 1) {
        CHECK(cuCtxSetCurrent(contexts[0]));
        threads_start(threads, count, thread_work);
        threads_join(threads, count);
    } else {
        for (rounds = 0; rounds < 2; rounds++) {
            thread_work(0);
            moment();
        }
    }
    program_end(number);
}

int main(int argc, char **argv)
{
    unsigned first = argc > 1 ? (unsigned)atoi(argv[1]) : 0, count = argc > 2 ? (unsigned)atoi(argv[2]) : 10, i;
    unsigned threads = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
    int device;
    want_pools = argc > 4;
    want_all = argc > 4 && strcmp(argv[4], "all") == 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&device_count));
    device_count = device_count < DEVICES ? device_count : DEVICES;
    for (device = 0; device < device_count; device++)
        streams_make(device);
    *(void **)&ledger_levels = dlsym(RTLD_DEFAULT, "sim_ledger_levels");
    if (!api_load() || (want_all && ledger_levels == NULL))
        return 3;
    moment();
    for (i = first; i < first + count; i++)
        program_run(i, threads != 0 && threads <= THREADS ? threads : i % 3 == 2 ? THREADS : 1);
    return finish();
}
