/* SPDX-License-Identifier: MIT
 *
 * What a GPU shows of the profiler on the first day, one part a run: `first PART [ARGUMENT]`. Needs the driver alone. first.py
 * runs the parts with and without the profiler. A part prints what it saw; where the profiler is to be asked meanwhile it
 * prints "hold" and waits for a line. Exit code 0, 1 something is wrong, 77 the part is not possible here.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dlmopen */
#endif
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "../programs/finish.h"

#define NOT_HERE 77

static CUdevice device;

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void hold(void)
{
    char line[16];

    printf("hold\n");
    fflush(stdout);
    if (fgets(line, sizeof(line), stdin) == NULL) {
        exit(2);
    }
}

/* ---- calls of the poll thread: do they change a program? ------------------------------------------------------------- */

static CUcontext poll_context;
static CUmemoryPool poll_own, poll_default;
static CUdeviceptr poll_pointer;

static int poll_exchange(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    int result = cuThreadExchangeStreamCaptureMode(&mode);

    return result != 0 ? result : (int)cuThreadExchangeStreamCaptureMode(&mode);
}

static int poll_count(void)
{
    int count;

    return cuDeviceGetCount(&count);
}

static int poll_get(void)
{
    CUdevice is;

    return cuDeviceGet(&is, 0);
}

static int poll_uuid(void)
{
    CUuuid uuid;

    return cuDeviceGetUuid(&uuid, device);
}

static int poll_name(void)
{
    char name[64];

    return cuDeviceGetName(name, sizeof(name), device);
}

static int poll_total(void)
{
    size_t total;

    return cuDeviceTotalMem(&total, device);
}

static int poll_pool_default(void)
{
    return cuDeviceGetDefaultMemPool(&poll_default, device);
}

static int poll_pool(void)
{
    uint64_t value;
    CUmemoryPool pool = poll_own != NULL ? poll_own : poll_default;

    return pool != NULL ? (int)cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value) : -1;
}

static int poll_graph(void)
{
    uint64_t value;

    return cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value);
}

static int poll_pointer_size(void)
{
    size_t bytes;

    return cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, poll_pointer);
}

static int poll_pointer_all(void)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_CONTEXT};
    CUdeviceptr start;
    CUcontext context;
    void *answers[] = {&start, &context};

    return cuPointerGetAttributes(2, which, answers, poll_pointer);
}

static int poll_memory(void)
{
    size_t unused, total;
    CUcontext popped;
    int result = poll_context != NULL ? (int)cuCtxPushCurrent(poll_context) : -1;

    if (result == 0) {
        result = cuMemGetInfo(&unused, &total);
        cuCtxPopCurrent(&popped);
    }
    return result;
}

static const struct {
    const char *name;
    int (*call)(void);
} poll_calls[] = {
    {"cuThreadExchangeStreamCaptureMode", poll_exchange},
    {"cuDeviceGetCount", poll_count},
    {"cuDeviceGet", poll_get},
    {"cuDeviceGetUuid", poll_uuid},
    {"cuDeviceGetName", poll_name},
    {"cuDeviceTotalMem", poll_total},
    {"cuDeviceGetDefaultMemPool", poll_pool_default},
    {"cuMemPoolGetAttribute", poll_pool},
    {"cuDeviceGetGraphMemAttribute", poll_graph},
    {"cuPointerGetAttribute", poll_pointer_size},
    {"cuPointerGetAttributes", poll_pointer_all},
    {"cuMemGetInfo in a context", poll_memory},
};
#define POLL_CALLS (sizeof(poll_calls) / sizeof(poll_calls[0]))

/* No call may make the device's primary context. */
static int part_noctx(void)
{
    unsigned flags, i;
    int active, bad = 0;

    for (i = 0; i < POLL_CALLS; i++) {
        int result = poll_calls[i].call();

        active = 0;
        CHECK(cuDevicePrimaryCtxGetState(device, &flags, &active));
        if (active) {
            printf("%s made the primary context (%d)\n", poll_calls[i].name, result);
            bad = 1;
        }
    }
    return bad;
}

static void poll_make(void)
{
    CUmemPoolProps shape;

    memset(&shape, 0, sizeof(shape));
    shape.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK(cuDevicePrimaryCtxRetain(&poll_context, device));
    CHECK(cuCtxSetCurrent(poll_context));
    CHECK(cuMemPoolCreate(&poll_own, &shape));
    CHECK(cuMemAlloc(&poll_pointer, MIB));
}

static int poll_relaxed, poll_result;
static unsigned poll_which;

static void *poll_other(void *arg)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (poll_relaxed) {
        cuThreadExchangeStreamCaptureMode(&mode);
    }
    poll_result = poll_calls[poll_which].call();
    return arg;
}

/* Each call on a second thread, while this one captures in the mode that forbids unsafe calls to all threads. In relaxed
 * mode each capture must end well; in global mode those that do not are what relaxed mode is for. */
static int part_capture(void)
{
    int bad = 0;

    poll_make();
    for (poll_relaxed = 0; poll_relaxed < 2; poll_relaxed++) {
        for (poll_which = 0; poll_which < POLL_CALLS; poll_which++) {
            CUstream stream;
            CUgraph graph = NULL;
            pthread_t thread;
            int end;

            CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
            pthread_create(&thread, NULL, poll_other, NULL);
            pthread_join(thread, NULL);
            end = cuStreamEndCapture(stream, &graph);
            if (end != 0 || poll_result > 0) {
                printf("%s %s: call %d, capture %d\n", poll_relaxed ? "relaxed" : "global", poll_calls[poll_which].name,
                       poll_result, end);
                bad |= poll_relaxed;
            }
            if (graph != NULL) {
                cuGraphDestroy(graph);
            }
            cuStreamDestroy(stream);
        }
    }
    return bad;
}

/* A question about a pool whose device was reset must not crash. */
static int part_reset(void)
{
    CUdeviceptr pointer;
    CUstream stream;

    poll_make();
    CHECK(cuStreamCreate(&stream, 0));
    CHECK(cuMemAllocFromPoolAsync(&pointer, MIB, poll_own, stream));
    CHECK(cuStreamSynchronize(stream));
    REPORT("before", poll_pool());
    REPORT("reset", cuDevicePrimaryCtxReset(device));
    fflush(stdout);
    REPORT("own pool after", poll_pool());
    poll_own = NULL;
    poll_pool_default();
    REPORT("default pool after", poll_pool());
    return 0;
}

/* What the poll thread never does: to use a context that was destroyed. It may crash here. */
static int part_gone(void)
{
    poll_make();
    CHECK(cuCtxCreate(&poll_context, NULL, 0, device));
    CHECK(cuCtxDestroy(poll_context));
    REPORT("use of a destroyed context", poll_memory());
    return 0;
}

/* ---- starts ---------------------------------------------------------------------------------------------------------- */

/* cuInit in a library's constructor, and then memory. */
static int part_ctor(const char *library)
{
    CUcontext context;
    double start = now_ms();
    void *handle = dlopen(library, RTLD_NOW);

    printf("ms %.0f\n", now_ms() - start);
    if (handle == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    program_alloc(64 * MIB);
    hold();
    return 0;
}

/* A driver in a namespace of its own. */
static int part_dlmopen(void)
{
    void *driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    CUresult (*init)(unsigned) = NULL;

    if (driver == NULL) {
        printf("%s\n", dlerror());
        return NOT_HERE;
    }
    *(void **)&init = dlsym(driver, "cuInit");
    REPORT("cuInit", init(0));
    return 0;
}

/* ---- memory of contexts ------------------------------------------------------------------------------------------------ */

static size_t memory_free(void)
{
    size_t unused = 0, total;

    CHECK(cuMemGetInfo(&unused, &total));
    return unused;
}

static int part_green(void)
{
    CUdevResource resource;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUcontext primary, context;
    CUdeviceptr pointer = 0;
    size_t before;

    CHECK(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK(cuCtxSetCurrent(primary));
    if (cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_SM) != 0 ||
        cuDevResourceGenerateDesc(&desc, &resource, 1) != 0 ||
        cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM) != 0) {
        return NOT_HERE;
    }
    CHECK(cuCtxFromGreenCtx(&context, green));
    CHECK(cuCtxSetCurrent(context));
    before = memory_free();
    CHECK(cuMemAlloc(&pointer, 512 * MIB));
    printf("held %zu\n", before - memory_free());
    hold();
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuGreenCtxDestroy(green));
    printf("held %zu\n", before - memory_free());
    hold();
    REPORT("free", cuMemFree(pointer));
    return 0;
}

/* The heap of kernels is memory that no call of the program allocates. */
static int part_heap(void)
{
    program_start();
    hold();
    REPORT("heap", cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1024 * MIB));
    hold();
    return 0;
}

/* The poll thread is in the driver when the process ends. */
static int part_exit(const char *count)
{
    CUdeviceptr pointer = 0;
    CUstream stream;
    struct timespec pause = {0, 100000};
    int i;

    program_start();
    CHECK(cuStreamCreate(&stream, 0));
    for (i = 0; i < atoi(count); i++) {
        CHECK(cuMemAllocAsync(&pointer, MIB, stream));
        CHECK(cuMemFreeAsync(pointer, stream));
        nanosleep(&pause, NULL);
    }
    exit(program_failures != 0);
}

/* ---- another tool ------------------------------------------------------------------------------------------------------ */

static unsigned tool_calls;

static void tool_callback(void *user, int domain, uint32_t id, const void *data)
{
    (void)user, (void)domain, (void)id, (void)data;
    __atomic_fetch_add(&tool_calls, 1, __ATOMIC_RELAXED);
}

static void *tool_find(void *cupti, const char *name)
{
    void *found = dlsym(cupti, name);

    if (found == NULL) {
        printf("%s is missing\n", name);
        exit(NOT_HERE);
    }
    return found;
}

/* What a profiler of today does: CUPTI's first form, activities, and callbacks. */
static int part_tool(const char *path)
{
    int (*subscribe)(void **, void (*)(void *, int, uint32_t, const void *), void *);
    int (*enable)(uint32_t, void *, int, uint32_t), (*unsubscribe)(void *), (*activity)(int);
    void *cupti = dlopen(path, RTLD_NOW), *subscriber = NULL;
    int i;

    if (cupti == NULL) {
        printf("%s\n", dlerror());
        return NOT_HERE;
    }
    *(void **)&subscribe = tool_find(cupti, "cuptiSubscribe");
    *(void **)&enable = tool_find(cupti, "cuptiEnableCallback");
    *(void **)&unsubscribe = tool_find(cupti, "cuptiUnsubscribe");
    *(void **)&activity = tool_find(cupti, "cuptiActivityEnable");
    program_start();
    for (i = 0; i < 2; i++) {
        tool_calls = 0;
        REPORT("subscribe", subscribe(&subscriber, tool_callback, NULL));
        REPORT("activity", activity(10));                /* CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL */
        REPORT("enable", enable(1, subscriber, 1, 243)); /* the driver API's cuMemAlloc_v2 */
        cuMemFree(program_alloc(MIB));
        printf("callbacks %u\n", tool_calls);
        REPORT("unsubscribe", unsubscribe(subscriber));
    }
    program_alloc(64 * MIB);
    hold();
    return 0;
}

static int part_finalize(const char *path)
{
    void *cupti = dlopen(path, RTLD_NOW);
    int (*finalize)(void) = NULL;

    if (cupti == NULL) {
        printf("%s\n", dlerror());
        return NOT_HERE;
    }
    *(void **)&finalize = tool_find(cupti, "cuptiFinalize");
    program_start();
    program_alloc(64 * MIB);
    hold();
    REPORT("finalize", finalize());
    hold();
    program_alloc(512 * MIB);
    hold();
    return 0;
}

/* ---- what calls cost ----------------------------------------------------------------------------------------------------- */

static const char cost_text[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n"
                                ".visible .entry fails() { trap; }\n";

static CUfunction cost_kernel(const char *name)
{
    CUmodule module = NULL;
    CUfunction kernel = NULL;

    if (cuModuleLoadData(&module, cost_text) != 0 || cuModuleGetFunction(&kernel, module, name) != 0) {
        return NULL;
    }
    return kernel;
}

static void cost_print(const char *what, double start, unsigned count)
{
    printf("%s %.1f\n", what, (now_ms() - start) * 1e6 / count);
}

static void cost_round(CUfunction kernel, CUgraphExec graph, CUstream stream, unsigned count)
{
    CUdeviceptr pointer = 0;
    double start = now_ms();
    unsigned i;

    for (i = 0; i < count; i++) {
        CHECK(cuMemAlloc(&pointer, 256 * KIB));
        CHECK(cuMemFree(pointer));
    }
    cost_print("alloc_ns", start, count);
    start = now_ms();
    for (i = 0; i < count; i++) {
        CHECK(cuMemAllocAsync(&pointer, 256 * KIB, stream));
        CHECK(cuMemFreeAsync(pointer, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    cost_print("alloc_async_ns", start, count);
    start = now_ms();
    for (i = 0; kernel != NULL && i < count * 10; i++) {
        CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    }
    CHECK(cuStreamSynchronize(stream));
    cost_print("launch_ns", start, count * 10);
    start = now_ms();
    for (i = 0; graph != NULL && i < 1 + count / 50; i++) {
        CHECK(cuGraphLaunch(graph, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    cost_print("graph_of_1000_ns", start, 1 + count / 50);
    fflush(stdout);
}

static CUgraphExec cost_graph(CUfunction kernel, CUstream stream, unsigned nodes)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    unsigned i;

    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (i = 0; kernel != NULL && i < nodes; i++) {
        CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    }
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

/* The same round again and again; at each hold the profiler comes or goes. The graph is from before it came. */
static int part_cost(const char *arguments)
{
    unsigned count = 1000, rounds = 1, i;
    CUdeviceptr warm = 0;
    CUfunction kernel;
    CUgraphExec graph;
    CUstream stream;

    sscanf(arguments, "%u,%u", &count, &rounds);
    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&warm, MIB, stream)); /* stays, so that the pool keeps a block */
    kernel = cost_kernel("nothing");
    graph = cost_graph(kernel, stream, 1000);
    cost_round(kernel, graph, stream, 1 + count / 10);
    for (i = 0; i < rounds; i++) {
        hold();
        cost_round(kernel, graph, stream, count);
    }
    hold();
    return program_failures != 0;
}

/* How long a capture of many nodes takes. */
static int part_nodes(const char *count)
{
    CUfunction kernel;
    CUstream stream;
    double start;

    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    kernel = cost_kernel("nothing");
    if (kernel == NULL) {
        return NOT_HERE;
    }
    cuGraphExecDestroy(cost_graph(kernel, stream, 100));
    start = now_ms();
    cuGraphExecDestroy(cost_graph(kernel, stream, (unsigned)atoi(count)));
    printf("ms %.1f\n", now_ms() - start);
    return 0;
}

/* Loads of modules: time, and the memory of the process. */
static int part_modules(const char *count)
{
    char line[256];
    double start;
    FILE *status;
    int i;

    program_start();
    start = now_ms();
    for (i = 0; i < atoi(count); i++) {
        if (cost_kernel("nothing") == NULL) {
            return NOT_HERE;
        }
    }
    printf("ms %.1f\n", now_ms() - start);
    status = fopen("/proc/self/status", "re");
    while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            printf("rss_kib %ld\n", strtol(line + 6, NULL, 10));
        }
    }
    return 0;
}

/* After a kernel that traps each call fails. The profiler asks nothing that makes it worse. */
static int part_sticky(void)
{
    CUfunction kernel;
    CUdeviceptr pointer = 0;
    int result;

    program_start();
    program_alloc(64 * MIB);
    kernel = cost_kernel("fails");
    if (kernel == NULL || cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != 0) {
        return NOT_HERE;
    }
    result = cuCtxSynchronize();
    if (result == 0) {
        printf("the kernel computes nothing here\n");
        return NOT_HERE;
    }
    REPORT("synchronize", result);
    REPORT("alloc", cuMemAlloc(&pointer, MIB));
    hold();
    REPORT("alloc", cuMemAlloc(&pointer, MIB));
    return 0;
}

/* A capture that stays open while the profiler is attached. */
static int part_attached(void)
{
    CUdeviceptr pointer = 0;
    CUgraph graph = NULL;
    CUstream stream;
    int result;

    program_start();
    program_alloc(64 * MIB);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&pointer, MIB, stream));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    hold();
    result = cuStreamEndCapture(stream, &graph);
    REPORT("capture", result);
    program_alloc(64 * MIB);
    hold();
    return result != 0;
}

/* ---- waits --------------------------------------------------------------------------------------------------------------- */

/* Pools that come and go beside the poll thread: how long their end takes. */
static int part_pools(const char *count)
{
    double longest = 0, over = 0;
    CUdeviceptr pointer = 0;
    CUmemPoolProps shape;
    CUmemoryPool pool;
    CUstream stream;
    int i;

    program_start();
    memset(&shape, 0, sizeof(shape));
    shape.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (i = 0; i < atoi(count); i++) {
        double start;

        CHECK(cuMemPoolCreate(&pool, &shape));
        CHECK(cuMemAllocFromPoolAsync(&pointer, MIB, pool, stream));
        CHECK(cuMemFreeAsync(pointer, stream));
        CHECK(cuStreamSynchronize(stream));
        start = now_ms();
        CHECK(cuMemPoolDestroy(pool));
        start = now_ms() - start;
        longest = start > longest ? start : longest;
        over += start > 20;
    }
    printf("longest_ms %.2f\nover_20_ms %.0f\n", longest, over);
    return program_failures != 0;
}

/* Memory of the host that the profiler locks or takes as huge pages would show in the process. */
static int part_idle(void)
{
    program_start();
    program_alloc(64 * MIB);
    hold();
    return 0;
}

static const struct {
    const char *name;
    int (*plain)(void);
    int (*with)(const char *argument);
    int starts_late; /* it calls cuInit itself, or not at all */
} parts[] = {
    {"noctx", part_noctx, NULL, 0},       {"capture", part_capture, NULL, 0},   {"reset", part_reset, NULL, 0},
    {"gone", part_gone, NULL, 0},         {"ctor", NULL, part_ctor, 1},         {"dlmopen", part_dlmopen, NULL, 1},
    {"green", part_green, NULL, 0},       {"heap", part_heap, NULL, 0},         {"exit", NULL, part_exit, 0},
    {"tool", NULL, part_tool, 0},         {"finalize", NULL, part_finalize, 0}, {"cost", NULL, part_cost, 0},
    {"nodes", NULL, part_nodes, 0},       {"modules", NULL, part_modules, 0},   {"sticky", part_sticky, NULL, 0},
    {"attached", part_attached, NULL, 0}, {"pools", NULL, part_pools, 0},       {"idle", part_idle, NULL, 0},
};

int main(int argc, char **argv)
{
    size_t i;

    for (i = 0; argc > 1 && i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (strcmp(parts[i].name, argv[1]) != 0) {
            continue;
        }
        if (!parts[i].starts_late && (cuInit(0) != 0 || cuDeviceGet(&device, 0) != 0)) {
            printf("no GPU\n");
            return NOT_HERE;
        }
        return parts[i].plain != NULL ? parts[i].plain() : parts[i].with(argc > 2 ? argv[2] : "");
    }
    fprintf(stderr, "usage: first PART [ARGUMENT]\n");
    return 2;
}
