/* SPDX-License-Identifier: MIT
 * Selftest: the hazard detector.  Each case is a short program of which we know whether its order protects its memory;
 * the ledger must count exactly the uses that it does not.  The example programs are clean. */
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

#include "core_check.h"

#define SIZE CHECK_MIB

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .entry touch(.param .u64 a, .param .u32 n)\n{\n ret;\n}\n";

static CUcontext context;
static CUstream a, b, c, blocking;
static CUdeviceptr memory, second;
static CUdeviceptr block; /* of the last pooled() or linear() */
static CUevent event;
static CUfunction touch;

static long long hazards(void)
{
    return check_number(0, "\"hazards\"", "\"hazards\":");
}

/* Each case ends with an idle device, so it cannot affect the next one. */
static void expect(const char *what, void (*program)(void), long long wanted)
{
    const long long before = hazards();

    program();
    CHECK_OK(cuCtxSynchronize());
    const long long got = hazards() - before;
    if (got == wanted)
        check_passed++;
    else
        check_failed++, fprintf(stderr, "hazard.c: %s: %lld hazards, not %lld\n", what, got, wanted);
}

static void set(CUdeviceptr p, CUstream stream)
{
    CHECK_OK(cuMemsetD8Async(p, 1, SIZE, stream));
}

static void copy(CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
    CHECK_OK(cuMemcpyDtoDAsync(to, from, SIZE / 2, stream));
}

/* Everything on `after` from now on comes after all of `before`. */
static void order(CUstream before, CUstream after)
{
    CHECK_OK(cuEventRecord(event, before));
    CHECK_OK(cuStreamWaitEvent(after, event, 0));
}

static void launch(CUdeviceptr p, CUstream stream)
{
    unsigned int n = 1;
    void *params[] = {&p, &n};

    CHECK_OK(cuLaunchKernel(touch, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static void fill(CUdeviceptr p, size_t bytes, CUstream stream)
{
    CHECK_OK(cuMemsetD8Async(p, 1, bytes, stream));
}

static void rows(CUdeviceptr p, CUstream stream) /* one of two images side by side in one pitched block */
{
    CHECK_OK(cuMemsetD2D8Async(p, 1024, 1, 512, 16, stream));
}

static void wait_for(CUstream stream)
{
    CHECK_OK(cuStreamSynchronize(stream));
}

static void event_after(CUstream stream)
{
    CHECK_OK(cuEventRecord(event, stream));
}

static void event_wait(void)
{
    CHECK_OK(cuEventSynchronize(event));
}

static void query(CUstream stream)
{
    CHECK_OK(cuStreamQuery(stream));
}

static void event_query(void)
{
    CHECK_OK(cuEventQuery(event));
}

static void synchronous_copy(void)
{
    int word = 1;

    CHECK_OK(cuMemcpyHtoD(memory, &word, sizeof word));
}

static CUdeviceptr pooled(CUstream stream)
{
    CHECK_OK(cuMemAllocAsync(&block, SIZE, stream));
    return block;
}

static CUdeviceptr linear(void)
{
    CHECK_OK(cuMemAlloc(&block, SIZE));
    return block;
}

static void given(CUstream stream)
{
    CHECK_OK(cuMemFreeAsync(block, stream));
}

static void freed(void)
{
    CHECK_OK(cuMemFree(block));
}

/* ---- programs with more than steps ------------------------------------------------------------------------------- */
static void post(void *semaphore)
{
    sem_post(semaphore);
}

static void semaphore_wait(void *semaphore)
{
    sem_wait(semaphore);
}

static void by_host_function(void) /* the program waits for it in place of the stream */
{
    sem_t done;

    sem_init(&done, 0, 0);
    set(memory, a);
    CHECK_OK(cuLaunchHostFunc(a, post, &done));
    sem_wait(&done);
    set(memory, b);
}

static void host_function_too_early(void)
{
    sem_t done;

    sem_init(&done, 0, 0);
    CHECK_OK(cuLaunchHostFunc(a, post, &done));
    sem_wait(&done);
    set(memory, a);
    set(memory, b);
}

static void host_function_held(void) /* it cannot run yet: an earlier one waits */
{
    sem_t go, done;

    sem_init(&go, 0, 0);
    sem_init(&done, 0, 0);
    CHECK_OK(cuLaunchHostFunc(c, semaphore_wait, &go));
    set(memory, a);
    CHECK_OK(cuLaunchHostFunc(a, post, &done));
    set(memory, b);
    sem_post(&go);
    sem_wait(&done);
}

static void destroyed_stream(void)
{
    CUstream stream;

    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    set(memory, stream);
    CHECK_OK(cuStreamDestroy(stream));
    set(memory, a);
}

static void many_streams(void) /* numbers of streams that are gone are used again */
{
    for (int i = 0; i < 50; i++) {
        CUstream stream;

        CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        set(memory, stream);
        CHECK_OK(cuStreamSynchronize(stream));
        CHECK_OK(cuStreamDestroy(stream));
    }
}

static void *set_per_thread(void *unused)
{
    (void)unused;
    CHECK_OK(cuCtxSetCurrent(context));
    set(memory, CU_STREAM_PER_THREAD);
    return NULL;
}

static void two_threads(void) /* joining a thread does not wait for its stream */
{
    pthread_t thread;

    CHECK_EQ(pthread_create(&thread, NULL, set_per_thread, NULL), 0);
    pthread_join(thread, NULL);
    set(memory, CU_STREAM_PER_THREAD);
}

static void mapped(void (*between)(void))
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc both = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h;
    CUdeviceptr p;

    CHECK_OK(cuMemAddressReserve(&p, 2 * CHECK_MIB, 0, 0, 0));
    CHECK_OK(cuMemCreate(&h, 2 * CHECK_MIB, &prop, 0));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(cuMemMap(p, 2 * CHECK_MIB, 0, h, 0));
        CHECK_OK(cuMemSetAccess(p, 2 * CHECK_MIB, &both, 1));
        set(p, i ? b : a);
        if (between)
            between();
        CHECK_OK(cuMemUnmap(p, 2 * CHECK_MIB));
    }
    CHECK_OK(cuMemRelease(h));
    CHECK_OK(cuMemAddressFree(p, 2 * CHECK_MIB));
}

static void wait_for_all(void)
{
    CHECK_OK(cuCtxSynchronize());
}

/* ---- the cases --------------------------------------------------------------------------------------------------- */
/* How many uses are not protected, what the program is called, and its steps. */
/* clang-format off */
#define CASES(_case) \
    /* two streams */ \
    _case(1, two_writes, set(memory, a); set(memory, b)) \
    _case(2, three_writes, set(memory, a); set(memory, b); set(memory, c)) \
    _case(1, write_then_read, set(memory, a); copy(second, memory, b)) \
    _case(1, read_then_write, copy(second, memory, a); set(memory, b)) \
    _case(0, two_reads, copy(second, memory, a); copy(second + SIZE / 2, memory, b)) \
    _case(1, the_last_of_two_readers_is_not_waited_for, \
          copy(second, memory, a); copy(second + SIZE / 2, memory, b); order(a, c); set(memory, c)) \
    _case(0, disjoint, fill(memory, SIZE / 2, a); fill(memory + SIZE / 2, SIZE / 2, b)) \
    _case(1, overlapping, fill(memory, SIZE / 2, a); fill(memory + SIZE / 2 - 1, SIZE / 2, b)) \
    _case(0, rows_apart, rows(memory, a); rows(memory + 512, b)) \
    _case(1, kernels, launch(memory + 100, a); launch(memory, b)) \
    _case(0, kernels_apart, launch(memory, a); launch(second, b)) \
    _case(0, same_stream, set(memory, a); launch(memory, a); copy(second, memory, a); set(memory, a)) \
    /* what orders */ \
    _case(0, by_event, set(memory, a); order(a, b); set(memory, b)) \
    _case(0, by_chain, set(memory, a); order(a, c); order(c, b); set(memory, b)) \
    _case(1, event_too_early, order(a, b); set(memory, a); set(memory, b)) \
    _case(1, wrong_event, set(memory, a); order(c, b); set(memory, b)) \
    _case(0, by_stream_wait, set(memory, a); wait_for(a); set(memory, b)) \
    _case(1, by_wrong_wait, set(memory, a); wait_for(c); set(memory, b)) \
    _case(0, by_event_wait, set(memory, a); event_after(a); event_wait(); set(memory, b)) \
    _case(0, by_query, set(memory, a); query(a); set(memory, b); event_after(b); event_query(); set(memory, c)) \
    _case(0, host_function, by_host_function()) \
    _case(1, host_function_early, host_function_too_early()) \
    _case(1, host_function_late, host_function_held()) \
    _case(0, default_stream, \
          set(memory, blocking); set(memory, NULL); set(memory, blocking); set(memory, NULL); \
          set(memory, CU_STREAM_PER_THREAD); set(memory, NULL)) \
    /* they wait for the default stream, not for one another */ \
    _case(1, blocking_streams, set(memory, blocking); set(memory, CU_STREAM_PER_THREAD)) \
    /* a non-blocking stream does not wait for the default one */ \
    _case(1, default_and_free, set(memory, a); set(memory, NULL)) \
    _case(1, a_copy_waits_for_itself_alone, set(memory, a); synchronous_copy()) \
    _case(1, stream_gone, destroyed_stream()) \
    _case(0, streams_gone, many_streams()) \
    _case(1, threads, two_threads()) \
    /* frees and reuse; a caching allocator gives b a part of a block that a still uses */ \
    _case(1, block_cache_early, set(memory, a); fill(memory + 4096, 512, b)) \
    _case(0, block_cache_event, set(memory, a); order(a, b); fill(memory + 4096, 512, b)) \
    /* cuMemFree waits for the device; the address comes back clean */ \
    _case(0, free_waits, \
          CUdeviceptr p = linear(); set(p, a); freed(); CHECK_EQ(linear(), p); set(p, b); freed()) \
    /* whatever b gets, the pool has ordered it */ \
    _case(0, pool_plain, \
          CUdeviceptr p = pooled(a); set(p, a); given(a); CHECK_EQ(pooled(a), p); set(p, a); given(a); \
          set(pooled(b), b); given(b)) \
    /* it may run before the allocation */ \
    _case(1, pool_other_stream, set(pooled(a), b); order(b, a); given(a)) \
    _case(0, pool_handed_over, pooled(a); order(a, b); set(block, b); given(b)) \
    /* b may still be at it */ \
    _case(1, pool_freed_in_use, pooled(a); order(a, b); set(block, b); given(a)) \
    _case(1, pool_read_freed_in_use, pooled(a); order(a, b); copy(second, block, b); given(a)) \
    _case(3, pool_used_after_free, \
          pooled(a); given(a); set(block, a); launch(block + 8, a); copy(second, block, a)) \
    /* the address belongs to another block now */ \
    _case(1, pool_stale_pointer, \
          CUdeviceptr p = pooled(a); order(a, b); given(a); CHECK_EQ(pooled(a), p); set(p, b); order(b, a); given(a)) \
    /* cuMemFree does not wait where pools are concerned */ \
    _case(1, pool_sync_free_in_use, set(pooled(a), a); freed()) \
    _case(0, pool_sync_free, set(pooled(a), a); wait_for(a); freed()) \
    _case(1, linear_free_async, set(linear(), a); given(a); set(linear(), b); given(a)) \
    _case(2, unmap_in_use, mapped(NULL)) \
    _case(0, unmap_idle, mapped(wait_for_all))
/* clang-format on */

#define PROGRAM(_wanted, _name, ...)                                                                                   \
    static void case_##_name(void)                                                                                     \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }
CASES(PROGRAM)
#define EXPECT(_wanted, _name, ...) expect(#_name, case_##_name, _wanted);

/* ---- whole programs ---------------------------------------------------------------------------------------------- */
static void program(const char *name)
{
    const char *folder = getenv("SIM_SELFTEST_DIR");
    char command[512], path[300], text[65536] = "";
    const char *at = text;
    int devices = 0;

    snprintf(path, sizeof path, "%s/%s.ledger", folder ? folder : ".", name);
    snprintf(command, sizeof command, "GPUPROF_SIM_LEDGER='%s' '%s/%s' --steps 200 --pace 0 >/dev/null", path,
             folder ? folder : ".", name);
    CHECK_EQ(system(command), 0);
    FILE *file = fopen(path, "r");
    CHECK(file && fread(text, 1, sizeof text - 1, file) > 0);
    if (file)
        fclose(file);
    for (; (at = strstr(at, "\"hazards\":")); devices++) {
        at += strlen("\"hazards\":");
        CHECK_EQ(atoll(at), 0);
    }
    CHECK_EQ(devices, 1);
}

int main(void)
{
    CUmodule module;

    context = check_begin(0);
    CHECK_OK(cuModuleLoadData(&module, ptx));
    CHECK_OK(cuModuleGetFunction(&touch, module, "touch"));
    CHECK_OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamCreate(&blocking, 0));
    CHECK_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuMemAlloc(&memory, SIZE));
    CHECK_OK(cuMemAlloc(&second, SIZE));
    CASES(EXPECT)
    program("serve");
    program("train_rt");
    return check_done();
}
