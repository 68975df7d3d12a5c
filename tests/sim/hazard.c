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

/* ---- two streams ------------------------------------------------------------------------------------------------- */
static void two_writes(void)
{
    set(memory, a);
    set(memory, b);
}

static void three_writes(void) /* each use that is not protected counts */
{
    set(memory, a);
    set(memory, b);
    set(memory, c);
}

static void write_then_read(void)
{
    set(memory, a);
    copy(second, memory, b);
}

static void read_then_write(void)
{
    copy(second, memory, a);
    set(memory, b);
}

static void two_reads(void)
{
    copy(second, memory, a);
    copy(second + SIZE / 2, memory, b);
}

static void many_readers_one_writer(void) /* the last of the readers is not waited for */
{
    copy(second, memory, a);
    CHECK_OK(cuMemcpyDtoDAsync(second + SIZE / 2, memory, 4096, b));
    order(a, c);
    set(memory, c);
}

static void disjoint(void)
{
    CHECK_OK(cuMemsetD8Async(memory, 1, SIZE / 2, a));
    CHECK_OK(cuMemsetD8Async(memory + SIZE / 2, 1, SIZE / 2, b));
}

static void overlapping(void)
{
    CHECK_OK(cuMemsetD8Async(memory, 1, SIZE / 2, a));
    CHECK_OK(cuMemsetD8Async(memory + SIZE / 2 - 1, 1, SIZE / 2, b));
}

static void rows_apart(void) /* two images side by side in one pitched block */
{
    CHECK_OK(cuMemsetD2D8Async(memory, 1024, 1, 512, 16, a));
    CHECK_OK(cuMemsetD2D8Async(memory + 512, 1024, 1, 512, 16, b));
}

static void kernels(void)
{
    launch(memory + 100, a);
    launch(memory, b);
}

static void kernels_apart(void)
{
    launch(memory, a);
    launch(second, b);
}

static void same_stream(void)
{
    set(memory, a);
    launch(memory, a);
    copy(second, memory, a);
    set(memory, a);
}

/* ---- what orders ------------------------------------------------------------------------------------------------- */
static void by_event(void)
{
    set(memory, a);
    order(a, b);
    set(memory, b);
}

static void by_chain(void)
{
    set(memory, a);
    order(a, c);
    order(c, b);
    set(memory, b);
}

static void event_too_early(void)
{
    order(a, b);
    set(memory, a);
    set(memory, b);
}

static void wrong_event(void)
{
    set(memory, a);
    order(c, b);
    set(memory, b);
}

static void by_stream_wait(void)
{
    set(memory, a);
    CHECK_OK(cuStreamSynchronize(a));
    set(memory, b);
}

static void by_event_wait(void)
{
    set(memory, a);
    CHECK_OK(cuEventRecord(event, a));
    CHECK_OK(cuEventSynchronize(event));
    set(memory, b);
}

static void by_query(void)
{
    set(memory, a);
    CHECK_OK(cuStreamQuery(a));
    set(memory, b);
    CHECK_OK(cuEventRecord(event, b));
    CHECK_OK(cuEventQuery(event));
    set(memory, c);
}

static void post(void *semaphore)
{
    sem_post(semaphore);
}

static void wait_for(void *semaphore)
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
    CHECK_OK(cuLaunchHostFunc(c, wait_for, &go));
    set(memory, a);
    CHECK_OK(cuLaunchHostFunc(a, post, &done));
    set(memory, b);
    sem_post(&go);
    sem_wait(&done);
}

static void by_wrong_wait(void)
{
    set(memory, a);
    CHECK_OK(cuStreamSynchronize(c));
    set(memory, b);
}

static void by_default_stream(void)
{
    set(memory, blocking);
    set(memory, NULL);
    set(memory, blocking);
    set(memory, NULL);
    set(memory, CU_STREAM_PER_THREAD);
    set(memory, NULL);
}

static void blocking_streams(void) /* wait for the default stream, not for one another */
{
    set(memory, blocking);
    set(memory, CU_STREAM_PER_THREAD);
}

static void default_and_free(void) /* a non-blocking stream does not wait for the default one */
{
    set(memory, a);
    set(memory, NULL);
}

static void synchronous_copy(void) /* waits for itself alone */
{
    int word = 1;

    set(memory, a);
    CHECK_OK(cuMemcpyHtoD(memory, &word, sizeof word));
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

/* ---- frees and reuse --------------------------------------------------------------------------------------------- */
static CUdeviceptr pooled(CUstream stream)
{
    CUdeviceptr p = 0;

    CHECK_OK(cuMemAllocAsync(&p, SIZE, stream));
    return p;
}

static void free_waits(void) /* cuMemFree waits for the device; the address comes back clean */
{
    CUdeviceptr p, q;

    CHECK_OK(cuMemAlloc(&p, SIZE));
    set(p, a);
    CHECK_OK(cuMemFree(p));
    CHECK_OK(cuMemAlloc(&q, SIZE));
    CHECK_EQ(p, q);
    set(q, b);
    CHECK_OK(cuMemFree(q));
}

static void block_cache_early(void) /* a caching allocator gives b a part of a block that a still uses */
{
    set(memory, a);
    CHECK_OK(cuMemsetD8Async(memory + 4096, 2, 512, b));
}

static void block_cache_event(void)
{
    set(memory, a);
    order(a, b);
    CHECK_OK(cuMemsetD8Async(memory + 4096, 2, 512, b));
}

static void pool_plain(void)
{
    CUdeviceptr p = pooled(a), q;

    set(p, a);
    CHECK_OK(cuMemFreeAsync(p, a));
    q = pooled(a);
    CHECK_EQ(p, q);
    set(q, a);
    CHECK_OK(cuMemFreeAsync(q, a));
    q = pooled(b); /* whatever b gets, the pool has ordered it */
    set(q, b);
    CHECK_OK(cuMemFreeAsync(q, b));
}

static void pool_other_stream(void)
{
    CUdeviceptr p = pooled(a);

    set(p, b); /* 1: may run before the allocation */
    order(b, a);
    CHECK_OK(cuMemFreeAsync(p, a));
}

static void pool_handed_over(void)
{
    CUdeviceptr p = pooled(a);

    order(a, b);
    set(p, b);
    CHECK_OK(cuMemFreeAsync(p, b));
}

static void pool_freed_in_use(void)
{
    CUdeviceptr p = pooled(a);

    order(a, b);
    set(p, b);
    CHECK_OK(cuMemFreeAsync(p, a)); /* 1: b may still be at it */
}

static void pool_read_freed_in_use(void)
{
    CUdeviceptr p = pooled(a);

    order(a, b);
    copy(second, p, b);
    CHECK_OK(cuMemFreeAsync(p, a)); /* 1 */
}

static void pool_used_after_free(void)
{
    CUdeviceptr p = pooled(a);

    CHECK_OK(cuMemFreeAsync(p, a));
    set(p, a);          /* 1 */
    launch(p + 8, a);   /* 1 */
    copy(second, p, a); /* 1 */
}

static void pool_stale_pointer(void) /* the address belongs to another block now */
{
    CUdeviceptr p = pooled(a), q;

    order(a, b);
    CHECK_OK(cuMemFreeAsync(p, a));
    q = pooled(a);
    CHECK_EQ(p, q);
    set(p, b); /* 1 */
    order(b, a);
    CHECK_OK(cuMemFreeAsync(q, a));
}

static void pool_sync_free_in_use(void)
{
    CUdeviceptr p = pooled(a);

    set(p, a);
    CHECK_OK(cuMemFree(p)); /* 1: does not wait where pools are concerned */
}

static void pool_sync_free(void)
{
    CUdeviceptr p = pooled(a);

    set(p, a);
    CHECK_OK(cuStreamSynchronize(a));
    CHECK_OK(cuMemFree(p));
}

static void linear_free_async(void)
{
    CUdeviceptr p;

    CHECK_OK(cuMemAlloc(&p, SIZE));
    set(p, a);
    CHECK_OK(cuMemFreeAsync(p, a));
    CHECK_OK(cuMemAlloc(&p, SIZE));
    set(p, b);
    CHECK_OK(cuMemFreeAsync(p, a)); /* 1 */
}

/* ---- mappings ---------------------------------------------------------------------------------------------------- */
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

static void unmap_in_use(void)
{
    mapped(NULL);
}

static void wait_for_all(void)
{
    CHECK_OK(cuCtxSynchronize());
}

static void unmap_idle(void)
{
    mapped(wait_for_all);
}

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

#define EXPECT(wanted, program) expect(#program, program, wanted)

static void streams(void)
{
    EXPECT(1, two_writes);
    EXPECT(2, three_writes);
    EXPECT(1, write_then_read);
    EXPECT(1, read_then_write);
    EXPECT(0, two_reads);
    EXPECT(1, many_readers_one_writer);
    EXPECT(0, disjoint);
    EXPECT(1, overlapping);
    EXPECT(0, rows_apart);
    EXPECT(1, kernels);
    EXPECT(0, kernels_apart);
    EXPECT(0, same_stream);
    EXPECT(0, by_event);
    EXPECT(0, by_chain);
    EXPECT(1, event_too_early);
    EXPECT(1, wrong_event);
    EXPECT(0, by_stream_wait);
    EXPECT(0, by_event_wait);
    EXPECT(0, by_query);
    EXPECT(0, by_host_function);
    EXPECT(1, host_function_too_early);
    EXPECT(1, host_function_held);
    EXPECT(1, by_wrong_wait);
    EXPECT(0, by_default_stream);
    EXPECT(1, blocking_streams);
    EXPECT(1, default_and_free);
    EXPECT(1, synchronous_copy);
    EXPECT(1, destroyed_stream);
    EXPECT(0, many_streams);
    EXPECT(1, two_threads);
}

static void frees(void)
{
    EXPECT(0, free_waits);
    EXPECT(1, block_cache_early);
    EXPECT(0, block_cache_event);
    EXPECT(0, pool_plain);
    EXPECT(1, pool_other_stream);
    EXPECT(0, pool_handed_over);
    EXPECT(1, pool_freed_in_use);
    EXPECT(1, pool_read_freed_in_use);
    EXPECT(3, pool_used_after_free);
    EXPECT(1, pool_stale_pointer);
    EXPECT(1, pool_sync_free_in_use);
    EXPECT(0, pool_sync_free);
    EXPECT(1, linear_free_async);
    EXPECT(2, unmap_in_use);
    EXPECT(0, unmap_idle);
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
    streams();
    frees();
    program("serve");
    program("train_rt");
    return check_done();
}
