/* SPDX-License-Identifier: MIT
 *
 * gpuprof's own allocator interfaces, as a C program and as PyTorch use them: order by stream,
 * record_stream, private pools in a capture, limits, statistics.  The library is the one that
 * CUDA_INJECTION64_PATH names, or libgpuprof.so by its name; it is opened here, so that the program
 * also runs where nothing is injected or preloaded.
 *
 * Prints the results; every line is the same in each of these cases.
 */
#include <cuda.h>
#include <gpuprof/gpuprof.h>

#include "finish.h"
#include "pattern.h"

struct pool_id { /* c10::MempoolId_t */
    unsigned long long first, second;
};

struct filter { /* std::function<bool(cudaStream_t)> of libstdc++ */
    void *target[2];
    int (*manager)(void *to, const void *from, int operation);
    int (*invoker)(const void *target, CUstream *stream);
};

/* clang-format off */
#define CALLS(_row) \
    _row(int, gpuprof_alloc, (void **, size_t, int, void *)) \
    _row(int, gpuprof_free, (void *)) \
    _row(int, gpuprof_record_stream, (void *, void *)) \
    _row(int, gpuprof_empty_cache, (int)) \
    _row(int, gpuprof_set_memory_limit, (size_t, int)) \
    _row(int, gpuprof_set_memory_fraction, (double, int)) \
    _row(int, gpuprof_begin_pool, (uint64_t, int, void *, int)) \
    _row(int, gpuprof_end_pool, (uint64_t, int)) \
    _row(int, gpuprof_release_pool, (uint64_t, int)) \
    _row(int64_t, gpuprof_driver_calls, (int)) \
    _row(int64_t, gpuprof_memory_allocated, (int)) \
    _row(int64_t, gpuprof_max_memory_allocated, (int)) \
    _row(int64_t, gpuprof_memory_reserved, (int)) \
    _row(int, gpuprof_reset_peak_memory_stats, (int)) \
    _row(void *, gpuprof_torch_alloc, (size_t, int, void *)) \
    _row(void, gpuprof_torch_free, (void *, size_t, int, void *)) \
    _row(void, gpuprof_torch_init, (int)) \
    _row(void, gpuprof_torch_reset, (void)) \
    _row(void *, gpuprof_torch_base_alloc, (void *, size_t *)) \
    _row(void, gpuprof_torch_record_stream, (void *, void *)) \
    _row(void, gpuprof_torch_begin_allocate_to_pool, (int, struct pool_id, void *)) \
    _row(void, gpuprof_torch_end_allocate_to_pool, (int, struct pool_id)) \
    _row(void, gpuprof_torch_release_pool, (int, struct pool_id))
/* clang-format on */

#define ROW(_result, _name, _params) static _result(*do_##_name) _params;
CALLS(ROW)
#undef ROW

static CUstream one, two;

static int load(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = dlopen(path != NULL ? path : "libgpuprof.so", RTLD_NOW);
    int missing = 0;
    if (library == NULL) {
        printf("no library: %s\n", dlerror());
        return 0;
    }
#define ROW(_result, _name, _params)                                                                                   \
    *(void **)&do_##_name = dlsym(library, #_name);                                                                    \
    if (do_##_name == NULL) {                                                                                          \
        printf("missing: %s\n", #_name);                                                                               \
        missing++;                                                                                                     \
    }
    CALLS(ROW)
#undef ROW
    return missing == 0;
}

static CUdeviceptr take(size_t bytes, CUstream stream)
{
    void *block = NULL;
    CHECK(do_gpuprof_alloc(&block, bytes, 0, stream));
    return (CUdeviceptr)block;
}

static void give(CUdeviceptr block)
{
    CHECK(do_gpuprof_free((void *)block));
}

/* The same stream may have the block at once; another one never while work on it is unfinished. */
static void by_stream(size_t bytes)
{
    CUdeviceptr first = take(bytes, one), again, other;
    size_t wrong;
    pattern_fill(first, bytes, 11, one);
    give(first);
    again = take(bytes, one);
    printf("%zu KiB: the same stream gets it again: %d\n", bytes / KIB, again == first);
    pattern_fill(again, bytes, 12, one);
    wrong = pattern_wrong(again, bytes, 12, one);
    pattern_fill(again, bytes, 13, one);
    give(again);
    other = take(bytes, two);
    pattern_fill(other, bytes, 14, two);
    wrong += pattern_wrong(other, bytes, 14, two);
    give(other);
    printf("%zu KiB: %zu wrong\n", bytes / KIB, wrong);
}

/* Work of stream two on a block of stream one. */
static void recorded(size_t bytes)
{
    CUdeviceptr block, next;
    size_t wrong = 0;
    int i;
    for (i = 0; i < 8; i++) {
        block = take(bytes, one);
        CHECK(cuStreamSynchronize(one));
        pattern_fill(block, bytes, 21, two);
        CHECK(do_gpuprof_record_stream((void *)block, two));
        give(block);
        next = take(bytes, one);
        pattern_fill(next, bytes, 22, one);
        wrong += pattern_wrong(next, bytes, 22, one);
        give(next);
    }
    printf("recorded: %zu wrong\n", wrong);
    CHECK(cuCtxSynchronize());
}

static void limits(void)
{
    void *block = NULL;
    CHECK(do_gpuprof_empty_cache(0));
    printf("after empty_cache: %lld reserved\n", (long long)do_gpuprof_memory_reserved(0));
    CHECK(do_gpuprof_set_memory_limit(64 * MIB, 0));
    REPORT("within the limit", do_gpuprof_alloc(&block, 32 * MIB, 0, one));
    give((CUdeviceptr)block);
    REPORT("beyond the limit", do_gpuprof_alloc(&block, 80 * MIB, 0, one));
    printf("pointer %d\n", block != NULL);
    CHECK(do_gpuprof_set_memory_limit(0, 0));
    REPORT("without a limit", do_gpuprof_alloc(&block, 80 * MIB, 0, one));
    give((CUdeviceptr)block);
    REPORT("fraction", do_gpuprof_set_memory_fraction(0.5, 0));
    REPORT("fraction of 2", do_gpuprof_set_memory_fraction(2, 0));
    CHECK(do_gpuprof_set_memory_fraction(0, 0));
    REPORT("no bytes", do_gpuprof_alloc(&block, 0, 0, one));
    REPORT("a block of no pool", do_gpuprof_free(&block));
    REPORT("nothing", do_gpuprof_free(NULL));
    REPORT("no such device", do_gpuprof_alloc(&block, 1, 99, one));
}

static void numbers(void)
{
    CUdeviceptr block;
    long long before = (long long)do_gpuprof_memory_allocated(0), calls;
    int i;
    CHECK(do_gpuprof_reset_peak_memory_stats(0));
    block = take(3 * MIB, one);
    printf("allocated +%lld\n", (long long)do_gpuprof_memory_allocated(0) - before);
    give(block);
    printf("allocated +%lld, peak +%lld\n", (long long)do_gpuprof_memory_allocated(0) - before,
           (long long)do_gpuprof_max_memory_allocated(0) - before);
    calls = (long long)do_gpuprof_driver_calls(0);
    for (i = 0; i < 1000; i++)
        give(take(3 * MIB, one));
    printf("driver calls of 1000 pairs: %lld\n", (long long)do_gpuprof_driver_calls(0) - calls);
}

/* A graph's memory stays its own while the graph lives. */
static void captured(uint64_t pool)
{
    CUdeviceptr inside, outside;
    CUgraph graph = NULL;
    CUgraphExec run = NULL;
    size_t wrong;
    CHECK(do_gpuprof_begin_pool(pool, 0, one, 0));
    CHECK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    inside = take(5 * MIB, one);
    pattern_fill(inside, 5 * MIB, 31, one);
    CHECK(do_gpuprof_free((void *)inside));
    REPORT("capture", cuStreamEndCapture(one, &graph));
    CHECK(do_gpuprof_end_pool(pool, 0));
    CHECK(cuGraphInstantiate(&run, graph, 0));
    outside = take(5 * MIB, one);
    printf("memory of the graph is given to no other: %d\n", outside != inside);
    pattern_fill(outside, 5 * MIB, 32, one);
    CHECK(cuGraphLaunch(run, one));
    wrong = pattern_wrong(outside, 5 * MIB, 32, one) + pattern_wrong(inside, 5 * MIB, 31, one);
    printf("graph: %zu wrong\n", wrong);
    give(outside);
    CHECK(cuGraphExecDestroy(run));
    CHECK(cuGraphDestroy(graph));
    CHECK(do_gpuprof_release_pool(pool, 0));
    REPORT("no such pool", do_gpuprof_end_pool(pool, 0));
}

/* ---- as PyTorch -------------------------------------------------------------------------------------------------- */

static int filters_alive;

static int filter_manage(void *to, const void *from, int operation)
{
    if (operation == 2) { /* copy */
        memcpy(to, from, sizeof(void *));
        filters_alive++;
    } else if (operation == 3) {
        filters_alive--;
    }
    return 0;
}

static int filter_call(const void *target, CUstream *stream)
{
    return *(CUstream const *)target == *stream;
}

static void torch(void)
{
    struct filter filter = {{one, NULL}, filter_manage, filter_call};
    struct pool_id pool = {0, 7};
    void *block, *base, *in_pool, *outside;
    size_t bytes = 0;
    do_gpuprof_torch_init(1);
    block = do_gpuprof_torch_alloc(MIB, 0, one);
    base = do_gpuprof_torch_base_alloc(block, &bytes);
    printf("torch: block %d, inside its base %d\n", block != NULL,
           (char *)block >= (char *)base && (char *)block + MIB <= (char *)base + bytes);
    do_gpuprof_torch_record_stream(block, two);
    do_gpuprof_torch_free(block, MIB, 0, one);
    do_gpuprof_torch_begin_allocate_to_pool(0, pool, &filter);
    filter.target[0] = two; /* PyTorch's own function object is gone by now */
    printf("torch: filters %d\n", filters_alive);
    in_pool = do_gpuprof_torch_alloc(3 * MIB, 0, one);
    outside = do_gpuprof_torch_alloc(3 * MIB, 0, two);
    do_gpuprof_torch_end_allocate_to_pool(0, pool);
    printf("torch: filters %d\n", filters_alive);
    do_gpuprof_torch_free(in_pool, 3 * MIB, 0, one);
    block = do_gpuprof_torch_alloc(3 * MIB, 0, one);
    printf("torch: the pool keeps its memory: %d\n", block != in_pool);
    do_gpuprof_torch_free(block, 3 * MIB, 0, one);
    do_gpuprof_torch_free(outside, 3 * MIB, 0, two);
    do_gpuprof_torch_release_pool(0, pool);
    do_gpuprof_torch_reset();
    printf("torch: %d of no bytes, %d too large\n", do_gpuprof_torch_alloc(0, 0, one) != NULL,
           do_gpuprof_torch_alloc((size_t)1 << 50, 0, one) != NULL);
}

int main(void)
{
    if (!load())
        return 3;
    program_start();
    CHECK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
    by_stream(64 * KIB);
    by_stream(6 * MIB);
    recorded(256 * KIB);
    recorded(6 * MIB);
    limits();
    numbers();
    captured(17);
    captured(17);
    torch();
    printf("%lld allocated at the end\n", (long long)do_gpuprof_memory_allocated(0));
    return finish();
}
