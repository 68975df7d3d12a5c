/* SPDX-License-Identifier: MIT
 *
 * A program with a framework's caching allocator: the stand-in for PyTorch's libraries in the folder FOLDER.
 *
 * framework MODE FOLDER: opens FOLDER/libc10_cuda.so, unless it is there from the start, and does what MODE says.
 * After every operation gpuprof's numbers must be the allocator's own: with gpuprof in the process the program prints
 * each difference, without it nothing is compared. So it prints the same with gpuprof and without.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unwind.h>

#include <cuda.h>

#include "../framework/c10.h"
#include "api.h"

#define BLOCKS 64

#define TORCH_ROW(_result, _name, _params) static _result(*x_##_name) _params;
TORCH_ROWS(TORCH_ROW)
#undef TORCH_ROW
static struct c10_seen *seen;
static void (**thrower)(void);
static const char *folder;
static void *torch, *c10;
static int is_profiled, is_old;
/* What the driver gave outside of the allocator; segments from before gpuprof. */
static long long others, others_peak, unseen_reserved;

/* ---- the stand-in ---------------------------------------------------------------------------------------------- */

static void torch_open(void)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/libc10_cuda.so", folder);
    torch = dlopen(path, RTLD_LAZY | RTLD_LOCAL); /* NOW would bind every slot */
    snprintf(path, sizeof(path), "%s/libc10.so", folder);
    c10 = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (torch == NULL || c10 == NULL) {
        printf("not loaded: %s\n", dlerror());
        exit(3);
    }
#define TORCH_ROW(_result, _name, _params) *(void **)&x_##_name = dlsym(torch, #_name);
    TORCH_ROWS(TORCH_ROW)
#undef TORCH_ROW
    seen = dlsym(c10, "c10_seen");
    thrower = dlsym(c10, "c10_thrower");
    is_old = dlsym(c10, C10_REPORT "NS_6DeviceE") != NULL;
}

/* ---- comparing ------------------------------------------------------------------------------------------------- */

static void differs(const char *after, const char *what, long long ours, long long theirs)
{
    if (ours != theirs) {
        printf("after %s: gpuprof says %s %lld, the allocator %lld\n", after, what, ours, theirs);
        program_failures++;
    }
}

/* Peaks are compared while nothing but the allocator asks the driver: the sum of two peaks is none. */
static void compare(const char *after)
{
    struct torch_stats stats;
    if (!is_profiled)
        return;
    x_torch_stats(0, &stats);
    differs(after, "allocated", api_gpuprof_memory_allocated(0), stats.allocated + others);
    differs(after, "reserved", api_gpuprof_memory_reserved(0), stats.reserved - unseen_reserved + others);
    if (others_peak == 0) {
        differs(after, "allocated peak", api_gpuprof_max_memory_allocated(0), stats.allocated_peak);
        differs(after, "reserved peak", api_gpuprof_max_memory_reserved(0), stats.reserved_peak);
    }
}

static void *take(const char *what, size_t bytes)
{
    uint64_t reports = seen->reports, ooms = seen->ooms;
    void *pointer = x_torch_alloc(0, bytes);
    struct torch_stats stats;
    x_torch_stats(0, &stats);
    if (pointer != NULL && (seen->reports != reports + 1 || seen->pointer != pointer ||
                            seen->bytes != (int64_t)((bytes + 511) / 512 * 512) || seen->device.type != C10_CUDA))
        printf("%s: libc10 got something else\n", what);
    if (pointer != NULL && !is_old && (seen->allocated != stats.allocated || seen->reserved != stats.reserved))
        printf("%s: libc10 got other totals\n", what);
    if (pointer == NULL && !is_old && seen->ooms != ooms + 1)
        printf("%s: libc10 got no report of memory that is out\n", what);
    compare(what);
    return pointer;
}

static void give(const char *what, void *pointer)
{
    uint64_t reports = seen->reports;
    x_torch_free(0, pointer);
    if (seen->reports != reports + 1 || seen->pointer != pointer || seen->bytes >= 0)
        printf("%s: libc10 got something else\n", what);
    compare(what);
}

static void show(const char *what)
{
    struct torch_stats stats;
    x_torch_stats(0, &stats);
    printf(
        "%s: allocated %lld peak %lld, reserved %lld peak %lld, %lld blocks, %lld segments, %lld retries, %lld ooms\n",
        what, (long long)stats.allocated, (long long)stats.allocated_peak, (long long)stats.reserved,
        (long long)stats.reserved_peak, (long long)stats.blocks, (long long)stats.segments, (long long)stats.retries,
        (long long)stats.ooms);
}

/* ---- what a mode does ------------------------------------------------------------------------------------------ */

static unsigned random_next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Blocks of all sizes come and go. */
static void walk(unsigned steps, unsigned seed)
{
    static void *blocks[BLOCKS];
    for (unsigned i = 0; i < steps; i++) {
        unsigned at = random_next(&seed) % BLOCKS, size = random_next(&seed);
        if (blocks[at] != NULL) {
            give("free", blocks[at]);
            blocks[at] = NULL;
        } else {
            size_t bytes = size % 3 == 0 ? size % (16 * MIB) : size % 3 == 1 ? size % MIB : size % (64 * KIB);
            blocks[at] = take("alloc", bytes + 1);
        }
        if (i % 50 == 49) {
            x_torch_empty_cache(0);
            compare("empty_cache");
        }
    }
    show("walk");
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i] != NULL && i % 2 == 0) {
            give("free", blocks[i]);
            blocks[i] = NULL;
        }
    }
}

static void mode_walk(void)
{
    walk(300, 1);
}

static void mode_expandable(void)
{
    x_torch_configure(&(struct torch_conf){.expandable = 1});
    walk(300, 2);
}

static void asleep(const char *what, long long bytes, long long peak)
{
    if (is_profiled) {
        differs(what, "asleep", api_stat(0, "asleep_bytes.current"), bytes);
        differs(what, "asleep peak", api_stat(0, "asleep_bytes.peak"), peak);
        differs(what, "allocated with asleep", api_gpuprof_memory_allocated(0) + bytes, 7 * MIB);
        differs(what, "reserved", api_gpuprof_memory_reserved(0), bytes ? 0 : 20 * MIB);
    }
}

/* The program takes the memory away below live blocks, and puts other memory there. */
static void mode_sleep(void)
{
    CUmemGenericAllocationHandle handle = 0, own = 0;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    void *blocks[2];
    x_torch_configure(&(struct torch_conf){.expandable = 1});
    blocks[0] = take("one", 3 * MIB);
    blocks[1] = take("two", 4 * MIB);
    others_peak = 1;
    CUdeviceptr at = (CUdeviceptr)blocks[0];
    CHECK(cuMemRetainAllocationHandle(&handle, blocks[0]));
    for (int i = 0; i < 2; i++) {
        asleep("awake", 0, i * 7 * MIB);
        CHECK(cuMemUnmap(at, 20 * MIB));
        CHECK(cuMemRelease(i == 0 ? handle : own));
        if (i == 0)
            CHECK(cuMemRelease(handle)); /* the allocator's own reference */
        asleep("asleep", 7 * MIB, 7 * MIB);
        if (i == 1)
            program_hold();
        CHECK(cuMemCreate(&own, 20 * MIB, &prop, 0));
        CHECK(cuMemMap(at, 20 * MIB, 0, own, 0));
    }
    compare("woken");
    give("one", blocks[0]);
    CHECK(cuMemUnmap(at, 20 * MIB));
    x_torch_free(0, blocks[1]);
    CHECK(cuMemRelease(own));
    if (is_profiled) {
        differs("the end", "asleep", api_stat(0, "asleep_bytes.current"), 0);
        differs("the end", "reserved", api_gpuprof_memory_reserved(0), 0);
    }
}

/* Two times of sleep for a reader that comes at the first hold and goes at the second. */
static void mode_naps(void)
{
    CUmemGenericAllocationHandle handle = 0;
    void *one, *two;
    CUdeviceptr own;
    x_torch_configure(&(struct torch_conf){.expandable = 1});
    one = take("one", 3 * MIB);
    two = take("two", 4 * MIB);
    program_hold();
    own = program_alloc(2 * MIB);
    CHECK(cuMemRetainAllocationHandle(&handle, one));
    CHECK(cuMemUnmap((CUdeviceptr)one, 20 * MIB));
    CHECK(cuMemMap((CUdeviceptr)one, 20 * MIB, 0, handle, 0));
    x_torch_free(0, one);
    CHECK(cuMemUnmap((CUdeviceptr)one, 20 * MIB));
    x_torch_free(0, two);
    CHECK(cuMemRelease(handle));
    program_hold();
    CHECK(cuMemFree(own));
}

/* Driver memory of the program beside the framework's. */
static void mode_others(void)
{
    CUdeviceptr own = program_alloc(3 * MIB);
    CUmemoryPool pool = NULL;
    CUdeviceptr pooled = 0;
    others = others_peak = 3 * MIB;
    compare("cuMemAlloc");
    walk(100, 3);
    CHECK(cuMemFree(own));
    others = 0;
    compare("cuMemFree");
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuMemAllocAsync(&pooled, MIB, NULL));
    CHECK(cuMemFreeAsync(pooled, NULL));
    CHECK(cuStreamSynchronize(NULL));
    CHECK(cuMemPoolTrimTo(pool, 0));
}

/* Memory of each owner, of each kind. */
static void mode_owners(void)
{
    void *(*engine_alloc)(size_t) = NULL;
    CUdeviceptr pooled = 0, managed = 0;
    void *engine, *block;
    char path[1024];
    snprintf(path, sizeof(path), "%s/../libengine.so", folder);
    engine = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (engine == NULL) {
        printf("no engine: %s\n", dlerror());
        return;
    }
    *(void **)&engine_alloc = dlsym(engine, "engine_alloc");
    program_alloc(3 * MIB);
    CHECK(engine_alloc(5 * MIB) == NULL);
    block = x_torch_alloc(0, 30 * MIB);
    x_torch_alloc(0, MIB);
    x_torch_free(0, block);
    CHECK(cuMemAllocManaged(&managed, 7 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemAllocAsync(&pooled, 11 * MIB, NULL));
    CHECK(cuStreamSynchronize(NULL));
    if (is_profiled) {
        void *ours = NULL;
        CHECK(api_gpuprof_alloc(&ours, 13 * MIB, 0, NULL));
    }
}

/* One failure that is answered by freeing the cache; then one that is not, and is an out of memory. */
static void mode_oom(void)
{
    void *kept = take("100 MiB", 100 * MIB), *cached = take("600 MiB", 600 * MIB);
    give("free 600 MiB", cached);
    cached = take("700 MiB", 700 * MIB);
    show("retried");
    printf("too much: %d\n", take("2 GiB", 2048 * MIB) != NULL);
    show("out of memory");
    give("free 700 MiB", cached);
    give("free 100 MiB", kept);
}

static void mode_lie(void)
{
    void *block = take("1 MiB", MIB);
    program_hold();
    x_torch_configure(&(struct torch_conf){.lie = 512});
    x_torch_free(0, block);
    x_torch_configure(&(struct torch_conf){0});
}

/* The harness resets gpuprof's peaks while the program is held. */
static void mode_peaks(void)
{
    void *block = take("30 MiB", 30 * MIB);
    give("free", block);
    x_torch_empty_cache(0);
    compare("empty_cache");
    program_hold();
    x_torch_reset_peaks(0);
    compare("the reset");
    block = take("5 MiB", 5 * MIB);
    give("free", block);
    block = take("6 MiB", 6 * MIB);
    show("peaks");
}

/* A block that stays, and one of another size before and after each hold: the harness reads events in between. */
static void mode_readers(void)
{
    void *stays = take("7 MiB", 7 * MIB);
    give("free", take("1 MiB", MIB));
    for (int i = 2; i <= 4; i++) {
        program_hold();
        give("free", take("i MiB", (size_t)i * MIB));
    }
    give("free", stays);
    show("readers");
}

/* PYTORCH_NO_CUDA_MEMORY_CACHING: the harness sets it. */
static void mode_uncached(void)
{
    void *block;
    x_torch_configure(&(struct torch_conf){.uncached = 1});
    block = x_torch_alloc(0, 5 * MIB);
    others = 5 * MIB;
    others_peak = 1;
    compare("an uncached block");
    x_torch_free(0, block);
    others = 0;
    compare("its free");
    block = x_torch_alloc(0, 7 * MIB);
    printf("uncached: %d\n", block != NULL);
}

static void mode_fork(void)
{
    void *block = take("3 MiB", 3 * MIB);
    int status = 0;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        is_profiled = 0;
        /* As PyTorch: the child may run the allocator's code, and the driver refuses. */
        give("free in the child", block);
        printf("child: %d\n", x_torch_alloc(0, 64 * MIB) != NULL);
        fflush(stdout);
        _exit(4);
    }
    waitpid(child, &status, 0);
    printf("the child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    give("free", block);
    block = take("9 MiB", 9 * MIB);
    show("parent");
}

/* gpuprof comes into the process when blocks and segments are there (GPUPROF_TEST_LIBRARY names it). Their bytes come
 * with the first report, and leave with the frees of blocks that it has never seen; it never hears of the segments. */
static void mode_before(void)
{
    void *old[4], *young;
    const char *path = getenv("GPUPROF_TEST_LIBRARY");
    int (*start)(void) = NULL;
    struct torch_stats stats;
    for (int i = 0; i < 4; i++)
        old[i] = take("before", (size_t)(i + 1) * MIB);
    if (path != NULL) {
        *(void **)&start = dlsym(dlopen(path, RTLD_NOW), "InitializeInjection");
        CHECK(start == NULL || start() != 1);
        is_profiled = api_load() && api_gpuprof_active();
        CHECK(!is_profiled);
    }
    CHECK(cuMemFree(program_alloc(MIB))); /* the first look */
    unseen_reserved = 22 * MIB;
    others_peak = 1;
    young = take("the first seen", 3 * MIB);
    for (int i = 0; i < 4; i++)
        give("from before", old[i]);
    old[0] = take("another segment", 64 * MIB);
    give("young", young);
    if (is_profiled) {
        x_torch_stats(0, &stats);
        differs("all", "the peak", api_gpuprof_max_memory_allocated(0), stats.allocated_peak);
    }
    show("before");
}

/* The slots must be found again, at other addresses. */
static void mode_again(void)
{
    for (int i = 0; i < 3; i++) {
        void *block = take("4 MiB", 4 * MIB), *hole;
        show("opened");
        give("free", block);
        x_torch_empty_cache(0);
        compare("empty_cache");
        dlclose(torch);
        dlclose(c10);
        if (dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD) != NULL)
            printf("still there\n");
        /* What was there stays occupied. */
        hole = mmap(NULL, 1 << 16 << i, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(hole == MAP_FAILED);
        CHECK(cuMemFree(program_alloc(1))); /* while it is gone */
        torch_open();
        if (is_profiled)
            api_gpuprof_reset_peak_memory_stats(0);
    }
}

/* ---- a report that throws -------------------------------------------------------------------------------------- */

static jmp_buf caught;
static int throws;

static _Unwind_Reason_Code throw_stop(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
                                      struct _Unwind_Exception *exception, struct _Unwind_Context *context, void *arg)
{
    (void)version;
    (void)class;
    (void)exception;
    if (actions & _UA_END_OF_STACK || _Unwind_GetCFA(context) > (_Unwind_Word)(uintptr_t)arg)
        longjmp(caught, 1);
    return _URC_NO_REASON;
}

static void *throw_target;

static void throw_far(void)
{
    static struct _Unwind_Exception exception;
    throws++;
    memset(&exception, 0, sizeof(exception));
    _Unwind_ForcedUnwind(&exception, throw_stop, throw_target);
}

/* Unwinds the stack as an exception does, through gpuprof and the allocator, which gives its lock back. */
static void __attribute__((noinline)) throw_once(void)
{
    throw_target = __builtin_frame_address(0);
    *thrower = throw_far;
    if (setjmp(caught) == 0) {
        x_torch_alloc(0, 2 * MIB);
        printf("nothing was thrown\n");
    }
    *thrower = NULL;
    compare("a throw");
}

static void *throw_thread(void *arg)
{
    CHECK(cuCtxSetCurrent(arg));
    x_torch_empty_cache(0); /* would wait for ever for a lock that was not given back */
    return NULL;
}

static void mode_throw(void)
{
    CUcontext context = NULL;
    pthread_t thread;
    CHECK(cuCtxGetCurrent(&context));
    give("free", take("1 MiB", MIB));
    for (int i = 0; i < 3; i++)
        throw_once();
    CHECK(pthread_create(&thread, NULL, throw_thread, context));
    CHECK(pthread_join(thread, NULL));
    compare("the other thread");
    give("free", take("8 MiB", 8 * MIB));
    printf("%d throws\n", throws);
    show("thrown");
}

/* ---- private pools ----------------------------------------------------------------------------------------------- */

static struct c10_pools *pools;
static void (*x_torch_pool_begin[2])(int device, uint64_t first, uint64_t second);
static void (*x_torch_pool_end[2])(int device, uint64_t first, uint64_t second);
enum { POOL_GRAPH, POOL_MEM };

static void pools_open(void)
{
    static const char *const names[] = {"libtorch_cuda.so", "libtorch_python.so"};
    char path[1024];

    for (int i = 0; i < 2; i++) {
        void *library;
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        CHECK(library == NULL);
        *(void **)&x_torch_pool_begin[i] = dlsym(library, "torch_pool_begin");
        *(void **)&x_torch_pool_end[i] = dlsym(library, "torch_pool_end");
    }
    pools = dlsym(torch, "c10_pools");
}

/* The allocator gets what its caller said. */
static void pool(int what, int begins, uint64_t first, uint64_t second)
{
    struct c10_pools before = *pools;

    (begins ? x_torch_pool_begin : x_torch_pool_end)[what](0, first, second);
    if (pools->begun != before.begun + (begins != 0) || pools->ended != before.ended + (begins == 0) ||
        pools->first != first || pools->second != second || pools->device != 0) {
        printf("the allocator got something else\n");
    }
}

static void *pools_thread(void *arg)
{
    CHECK(cuCtxSetCurrent(arg));
    take("another thread's", 12 * MIB);
    return NULL;
}

static void pools_throw(void)
{
    throw_target = __builtin_frame_address(0);
    *thrower = throw_far;
    if (setjmp(caught) == 0) {
        x_torch_pool_begin[POOL_MEM](0, 0, 9);
        printf("nothing was thrown\n");
    }
    *thrower = NULL;
}

/* Of the pools are 30 and 70 MiB. */
static void mode_pools(void)
{
    CUcontext context = NULL;
    CUgraph graph = NULL;
    CUstream stream;
    pthread_t thread;

    pools_open();
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    take("the default pool's", 11 * MIB);
    pool(POOL_MEM, 1, 0, 1);
    take("a MemPool's", 30 * MIB);
    CHECK(pthread_create(&thread, NULL, pools_thread, context));
    CHECK(pthread_join(thread, NULL));
    pool(POOL_MEM, 0, 0, 1);
    take("after it", 50 * MIB);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    take("before a graph has its pool", 13 * MIB);
    pool(POOL_GRAPH, 1, 1, 0);
    take("a graph's", 70 * MIB);
    CHECK(cuStreamEndCapture(stream, &graph));
    take("after the capture", 14 * MIB);
    pool(POOL_GRAPH, 0, 1, 0);
    pools_throw();
    take("after a pool that did not begin", 15 * MIB);
    printf("%llu pools begun, %llu ended\n", (unsigned long long)pools->begun, (unsigned long long)pools->ended);
    show("pools");
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
}

/* ---- loading --------------------------------------------------------------------------------------------------- */

/* Another allocation comes while the loader relocates the framework's library. */
static void early_alloc(void)
{
    CUdeviceptr own = program_alloc(64 * KIB);
    CHECK(cuMemFree(own));
}

static void mode_early(void)
{
    void **at = mmap((void *)TORCH_EARLY, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    *at = (void *)early_alloc;
    torch_open();
    if (is_profiled)
        api_gpuprof_reset_peak_memory_stats(0);
    walk(40, 4);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
        int is_late; /* opens the library itself */
    } modes[] = {{"walk", mode_walk, 0},         {"expandable", mode_expandable, 0},
                 {"others", mode_others, 0},     {"oom", mode_oom, 0},
                 {"lie", mode_lie, 0},           {"peaks", mode_peaks, 0},
                 {"uncached", mode_uncached, 0}, {"fork", mode_fork, 0},
                 {"again", mode_again, 0},       {"throw", mode_throw, 0},
                 {"early", mode_early, 1},       {"owners", mode_owners, 0},
                 {"before", mode_before, 0},     {"readers", mode_readers, 0},
                 {"sleep", mode_sleep, 0},       {"naps", mode_naps, 0},
                 {"pools", mode_pools, 0}};
    int is_late = count > 3 && strcmp(arguments[3], "late") == 0;
    if (count < 3)
        return 2;
    folder = arguments[2];
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(arguments[1], modes[i].name) != 0)
            continue;
        if (!modes[i].is_late && !is_late)
            torch_open();
        program_start();
        is_profiled = dlopen("libgpuprof.so", RTLD_NOW | RTLD_NOLOAD) != NULL && api_load() && api_gpuprof_active();
        if (!modes[i].is_late && is_late) {
            CHECK(cuMemFree(program_alloc(512)));
            if (is_profiled)
                api_gpuprof_reset_peak_memory_stats(0);
            torch_open();
        }
        modes[i].run();
        return finish();
    }
    printf("no mode %s\n", arguments[1]);
    return 2;
}
