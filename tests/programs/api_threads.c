/* SPDX-License-Identifier: MIT
 *
 * Peaks over threads: those that a sum of per-thread numbers gets wrong (a thread that held more
 * before; a block that another thread frees; threads that warm up one by one and then hold
 * together), snapshots and resets while others allocate, and two devices side by side.  Prints
 * nothing that depends on the order of threads.
 */
#include <cuda.h>

#include "api.h"
#include "threads.h"

#define WORKERS 4u
#define ROUNDS  400

static struct {
    unsigned thread;
    int amount; /* MiB to allocate, or minus the row whose block is freed */
} const script[] = {
    /* 0 held 4 before: its 3 do not exceed that, but 2 + 3 are 5. */
    {0, 4},
    {0, -1},
    {1, 2},
    {0, 3},
    /* 2 frees what others allocated, and its 6 are not more than it owes: 6 at once, with nothing
     * else. */
    {2, -3},
    {2, -4},
    {2, 6},
    {3, -7}};
#define SCRIPT (sizeof(script) / sizeof(script[0]))

static CUdeviceptr blocks[SCRIPT];
static pthread_barrier_t barrier;
static unsigned x_workers;

static void thread_script(unsigned number)
{
    unsigned i;
    for (i = 0; i < SCRIPT; i++) {
        pthread_barrier_wait(&barrier);
        if (script[i].thread == number && script[i].amount > 0)
            blocks[i] = program_alloc((size_t)script[i].amount * MIB);
        else if (script[i].thread == number)
            CHECK(cuMemFree(blocks[-script[i].amount - 1]));
        pthread_barrier_wait(&barrier);
        if (number == 0)
            printf("%u: peak %lld MiB\n", i + 1, (long long)api_gpuprof_max_memory_allocated(0) >> 20);
        if (number == 0 && i == 3)
            CHECK(api_gpuprof_reset_peak_memory_stats(0));
    }
}

/* First each thread holds 2 MiB in turn, then all of them do. */
static void thread_warm(unsigned number)
{
    CUdeviceptr block;
    unsigned i;
    for (i = 0; i < WORKERS; i++) {
        if (i == number)
            CHECK(cuMemFree(program_alloc(2 * MIB)));
        pthread_barrier_wait(&barrier);
    }
    block = program_alloc(2 * MIB);
    pthread_barrier_wait(&barrier);
    CHECK(cuMemFree(block));
}

static void thread_work(unsigned number)
{
    CUdeviceptr mine[4] = {0};
    unsigned random = number + 1, i;
    for (i = 0; i < ROUNDS; i++) {
        random = random * 1103515245u + 12345u;
        if (mine[i % 4] != 0)
            CHECK(cuMemFree(mine[i % 4]));
        mine[i % 4] = program_alloc((1 + (random >> 16) % 64) * 64 * KIB);
    }
    for (i = 0; i < 4; i++)
        CHECK(cuMemFree(mine[i]));
    __atomic_sub_fetch(&x_workers, 1, __ATOMIC_ACQ_REL);
}

static unsigned place(const char *name)
{
    unsigned i;
    for (i = 0; strcmp(api_gpuprof_stat_name(i), name) != 0; i++) {
    }
    return i;
}

/* What holds in every snapshot, whatever the others do. */
static int wrong(const int64_t *values, unsigned allocated)
{
    /* By their names' order: .allocated .current .freed .peak of all, large_pool, small_pool. */
    const int64_t *all = values + allocated, *large = all + 4, *small = all + 8;

    return (all[3] < all[1]) + (all[0] - all[2] < all[1]) + (large[1] + small[1] != all[1]) +
           (large[0] + small[0] != all[0]);
}

static void resets_meanwhile(void)
{
    struct thread_arg threads[WORKERS];
    unsigned allocated = place("allocated_bytes.all.allocated"), reserved = place("reserved_bytes.all.allocated");
    int64_t values[GPUPROF_STATS];
    int scope = api_gpuprof_scope_begin("all of it");
    long long highest = 0, peak;
    int problems = 0;
    int64_t scope_peak = 0;
    x_workers = WORKERS;
    threads_start(threads, WORKERS, thread_work);
    while (__atomic_load_n(&x_workers, __ATOMIC_ACQUIRE) != 0) {
        CHECK(api_gpuprof_memory_stats(0, values, GPUPROF_STATS));
        problems += wrong(values, allocated) + wrong(values, reserved);
        highest = values[allocated + 3] > highest ? values[allocated + 3] : highest;
        CHECK(api_gpuprof_reset_peak_memory_stats(0));
    }
    threads_join(threads, WORKERS);
    peak = api_gpuprof_max_memory_allocated(0);
    highest = peak > highest ? peak : highest;
    CHECK(api_gpuprof_scope_read(scope, 0, &scope_peak, NULL));
    CHECK(api_gpuprof_scope_end(scope));
    /* A peak may fall between a read and the reset after it; none that was read can be above the
     * scope's. */
    printf("resets meanwhile: %d wrong, peaks within the scope's: %d\n", problems,
           highest <= scope_peak && scope_peak > 0);
    CHECK(api_gpuprof_reset_peak_memory_stats(0));
    api_show("then", 0);
}

static void thread_device(unsigned number)
{
    CUcontext context = NULL;
    CHECK(cuDevicePrimaryCtxRetain(&context, (CUdevice)number));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemFree(program_alloc((number + 2) * MIB)));
    pthread_barrier_wait(&barrier);
    if (number == 1)
        CHECK(api_gpuprof_reset_peak_memory_stats(1));
    pthread_barrier_wait(&barrier);
    program_alloc((number + 1) * 512 * KIB);
}

int main(void)
{
    struct thread_arg threads[WORKERS];
    program_start();
    if (!api_load())
        return 3;
    pthread_barrier_init(&barrier, NULL, WORKERS);
    threads_start(threads, WORKERS, thread_script);
    threads_join(threads, WORKERS);
    CHECK(api_gpuprof_reset_peak_memory_stats(0));
    threads_start(threads, WORKERS, thread_warm);
    threads_join(threads, WORKERS);
    api_show("warm", 0);
    resets_meanwhile();
    pthread_barrier_destroy(&barrier);
    pthread_barrier_init(&barrier, NULL, 2);
    threads_start(threads, 2, thread_device);
    threads_join(threads, 2);
    printf("devices %d\n", api_gpuprof_device_count());
    api_show("device 0", 0);
    api_show("device 1", 1);
    api_show("device 2", 2);
    return finish();
}
