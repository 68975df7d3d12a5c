/* SPDX-License-Identifier: MIT
 *
 * A random program for tests/integration/fits.py: `fits SEED` asks for memory of many kinds and sizes, in threads, in
 * processes at one time, in turn, by exec and by fork, and what it does when it gets none depends on the seed too.
 * `fits SEED plan` says what it is.  Each request that got no memory, and that it had no success with later, is a line
 * "TOTAL BYTES" in the file FITS_REFUSED.
 *
 * The requests of all threads and processes have one order, so that two runs are alike, except where the plan is loose.
 */
#include <cuda.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/random.h"

#define MIB     (1024ull * 1024)
#define WORKERS 4
#define STEPS   60 /* of a worker */
#define LIVE    64

enum shape { ONE, THREADS, TOGETHER, LOOSE, IN_TURN, EXEC, BELOW, SHAPES };
static const char *const shapes[SHAPES] = {"one", "threads", "together", "loose", "in turn", "exec", "below"};

/* What it does without memory: it fails, goes on without, gives back what it holds idle and repeats, or halves. */
enum answer { FAILS, GOES_ON, RETRIES, HALVES, ANSWERS };
static const char *const answers[ANSWERS] = {"fails", "goes on", "retries", "halves"};

enum kind { LINEAR, SMALL, PITCHED, POOL, PHYSICAL, KINDS };

struct plan {
    enum shape shape;
    enum answer answer;
    unsigned workers, kinds; /* kinds: bits */
    bool hides;              /* the status of workers */
    bool keeps, waits;       /* pools keep what is idle; it waits for the device now and then, when they return it */
    uint64_t most_bytes;     /* of a worker, about */
};

static uint64_t seed;
static struct plan plan;
static const char *self;

static struct plan plan_of(uint64_t from)
{
    uint64_t state = from * 7919 + 1;
    struct plan p = {.shape = random_mix(&state) % SHAPES};
    p.answer = random_mix(&state) % ANSWERS;
    p.workers = p.shape == ONE ? 1 : 2 + (unsigned)(random_mix(&state) % (WORKERS - 1));
    p.hides = random_mix(&state) % 2;
    p.most_bytes = (300 + random_mix(&state) % 4000) * MIB;
    p.kinds = 1u << LINEAR;
    for (unsigned kind = SMALL; kind < KINDS; kind++)
        p.kinds |= (unsigned)(random_mix(&state) % 2) << kind;
    p.keeps = random_mix(&state) % 4 == 0;
    p.waits = random_mix(&state) % 3 == 0;
    return p;
}

/* ---- one order --------------------------------------------------------------------------------------------------- */

struct order { /* shared by threads and processes */
    uint32_t turn;
    uint32_t gone[WORKERS];
};
static struct order *order;

static uint32_t order_of(uint32_t turn) /* the worker whose turn it is */
{
    uint64_t state = seed * 31 + turn;
    random_mix(&state);
    return (uint32_t)(random_mix(&state) % plan.workers);
}

/* Passes over workers that have ended. */
static void order_wait(uint32_t worker)
{
    while (order) {
        uint32_t turn = __atomic_load_n(&order->turn, __ATOMIC_SEQ_CST), whose = order_of(turn);
        if (whose == worker)
            return;
        if (__atomic_load_n(&order->gone[whose], __ATOMIC_SEQ_CST))
            __atomic_compare_exchange_n(&order->turn, &turn, turn + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        else
            usleep(50);
    }
}

static void order_pass(void)
{
    if (order)
        __atomic_fetch_add(&order->turn, 1, __ATOMIC_SEQ_CST);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

struct block {
    enum kind kind;
    uint64_t bytes;
    CUdeviceptr pointer; /* or handle */
};

struct walk {
    uint64_t state;
    uint32_t worker;
    struct block live[LIVE], idle[LIVE]; /* idle: given back by the program, kept by its allocator */
    unsigned live_count, idle_count;
    uint64_t held;
    bool failed;
};

static uint64_t total_bytes;

static CUresult take(struct block *block)
{
    size_t pitch;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    CUresult result;
    switch (block->kind) {
    case PITCHED:
        return cuMemAllocPitch(&block->pointer, &pitch, block->bytes / 256, 256, 4);
    case POOL:
        return cuMemAllocAsync(&block->pointer, block->bytes, NULL);
    case PHYSICAL:
        result = cuMemCreate(&handle, (block->bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB), &prop, 0);
        block->pointer = handle;
        return result;
    default:
        return cuMemAlloc(&block->pointer, block->bytes);
    }
}

static void give(const struct block *block)
{
    CUresult result = block->kind == POOL       ? cuMemFreeAsync(block->pointer, NULL)
                      : block->kind == PHYSICAL ? cuMemRelease(block->pointer)
                                                : cuMemFree(block->pointer);
    if (result != CUDA_SUCCESS)
        exit(9);
}

static void refused(const struct block *block)
{
    char line[64];
    const char *path = getenv("FITS_REFUSED");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    int n =
        snprintf(line, sizeof(line), "%llu %llu\n", (unsigned long long)total_bytes, (unsigned long long)block->bytes);
    if (fd >= 0 && (write(fd, line, (size_t)n) != n || close(fd) != 0))
        exit(9);
}

static void walk_empty(struct walk *walk) /* the allocator gives back what it holds idle */
{
    while (walk->idle_count)
        give(&walk->idle[--walk->idle_count]);
    cuCtxSynchronize();
}

/* False: there is no such block. */
static bool walk_get(struct walk *walk, struct block *block)
{
    CUresult result = take(block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && plan.answer == RETRIES && walk->idle_count) {
        walk_empty(walk);
        result = take(block);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) /* both got none */
            refused(block);
    }
    while (result == CUDA_ERROR_OUT_OF_MEMORY) {
        refused(block);
        walk->failed |= plan.answer == FAILS;
        if (plan.answer != HALVES || block->bytes < 8 * MIB) /* below, whole pages would be asked for again */
            return false;
        block->bytes /= 2;
        result = take(block);
    }
    if (result != CUDA_SUCCESS)
        exit(9);
    return true;
}

static void walk_take(struct walk *walk)
{
    struct block block;
    do
        block.kind = random_mix(&walk->state) % KINDS;
    while (!(plan.kinds >> block.kind & 1));
    uint64_t any = random_mix(&walk->state);
    block.bytes = block.kind == SMALL ? 1 + any % MIB : 64 * 1024 + any % (plan.most_bytes / 6);
    for (unsigned i = 0; plan.answer == RETRIES && i < walk->idle_count; i++)
        if (walk->idle[i].kind == block.kind && walk->idle[i].bytes >= block.bytes &&
            walk->idle[i].bytes / 2 < block.bytes) {
            walk->live[walk->live_count++] = walk->idle[i];
            walk->held += walk->idle[i].bytes;
            walk->idle[i] = walk->idle[--walk->idle_count];
            return;
        }
    if (!walk_get(walk, &block))
        return;
    walk->live[walk->live_count++] = block;
    walk->held += block.bytes;
}

static void walk_give(struct walk *walk)
{
    unsigned at = (unsigned)(random_mix(&walk->state) % walk->live_count);
    struct block block = walk->live[at];
    walk->live[at] = walk->live[--walk->live_count];
    walk->held -= block.bytes;
    if (plan.answer == RETRIES && walk->idle_count < LIVE)
        walk->idle[walk->idle_count++] = block;
    else
        give(&block);
}

static void walk_step(struct walk *walk)
{
    if (plan.waits && random_mix(&walk->state) % 5 == 0 && cuCtxSynchronize() != CUDA_SUCCESS)
        exit(9);
    bool full = walk->live_count == LIVE || walk->held > plan.most_bytes;
    if (walk->live_count && (full || random_mix(&walk->state) % 100 < 35))
        walk_give(walk);
    else
        walk_take(walk);
}

static void walk_run(struct walk *walk)
{
    walk->state = seed * 1000 + walk->worker;
    for (unsigned i = 0; i < STEPS && !walk->failed; i++) {
        order_wait(walk->worker);
        walk_step(walk);
        order_pass();
    }
    if (order)
        __atomic_store_n(&order->gone[walk->worker], 1, __ATOMIC_SEQ_CST);
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

/* A context that gets no memory is refused as well. */
static bool begin(void)
{
    CUcontext context;
    size_t bytes;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceTotalMem(&bytes, 0) != CUDA_SUCCESS)
        exit(9);
    total_bytes = bytes;
    if (cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS) {
        cuuint64_t all = UINT64_MAX;
        CUmemoryPool pool;
        if (plan.keeps && (cuDeviceGetDefaultMemPool(&pool, 0) != CUDA_SUCCESS ||
                           cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all) != CUDA_SUCCESS))
            exit(9);
        return true;
    }
    refused(&(struct block){0});
    return false;
}

static void *thread_run(void *walk)
{
    CUcontext context;
    if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS)
        exit(9);
    walk_run(walk);
    return NULL;
}

static bool threads_run(void)
{
    static struct order own;
    static struct walk walks[WORKERS];
    pthread_t threads[WORKERS];
    bool failed = false;
    order = &own;
    for (uint32_t i = 0; i < plan.workers; i++) {
        walks[i].worker = i;
        if (pthread_create(&threads[i], NULL, thread_run, &walks[i]) != 0)
            exit(9);
    }
    for (uint32_t i = 0; i < plan.workers; i++) {
        pthread_join(threads[i], NULL);
        failed |= walks[i].failed;
    }
    return failed;
}

static void become(uint32_t worker, int fd)
{
    char number[32], index[16], descriptor[16];
    snprintf(number, sizeof(number), "%llu", (unsigned long long)seed);
    snprintf(index, sizeof(index), "%u", worker);
    snprintf(descriptor, sizeof(descriptor), "%d", fd);
    execl(self, self, number, "worker", index, descriptor, NULL);
    _exit(9);
}

static pid_t start(uint32_t worker, int fd)
{
    pid_t pid = fork();
    if (pid == 0)
        become(worker, fd);
    if (pid < 0)
        exit(9);
    return pid;
}

static bool ended_badly(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) > 1)
        exit(9);
    return WEXITSTATUS(status);
}

static int worker_run(uint32_t worker, int fd)
{
    static struct walk walk;
    walk.worker = worker;
    if (fd >= 0 && (order = mmap(NULL, sizeof(*order), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        exit(9);
    order_wait(order ? worker : 0); /* contexts come in their order too */
    walk.failed = !begin();
    order_pass();
    if (plan.shape == THREADS && !walk.failed)
        walk.failed = threads_run();
    else
        walk_run(&walk);
    /* All that is held is held to the end of the last one. */
    for (uint32_t i = 0; order && plan.shape == TOGETHER && !walk.failed && i < plan.workers; i++)
        while (!__atomic_load_n(&order->gone[i], __ATOMIC_SEQ_CST))
            usleep(50);
    if (plan.shape == LOOSE || plan.shape == EXEC) /* in the first moments an exec takes the recording along */
        usleep(60000);
    bool more = worker + 1 < plan.workers, failed = walk.failed;
    if (plan.shape == EXEC && more && !failed)
        become(worker + 1, -1);
    if (plan.shape == BELOW && more && !failed)
        failed = ended_badly(start(worker + 1, -1));
    return failed && !plan.hides;
}

static int all_run(void)
{
    pid_t pids[WORKERS];
    bool failed = false;
    int fd = -1;
    if (plan.shape == TOGETHER && ((fd = memfd_create("order", 0)) < 0 || ftruncate(fd, sizeof(*order)) != 0))
        exit(9);
    for (uint32_t i = 0; i < plan.workers; i++) {
        pids[i] = start(i, fd);
        if (plan.shape == IN_TURN)
            failed |= ended_badly(pids[i]);
    }
    for (uint32_t i = 0; plan.shape != IN_TURN && i < plan.workers; i++)
        failed |= ended_badly(pids[i]);
    return failed && !plan.hides;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 9;
    self = argv[0];
    seed = strtoull(argv[1], NULL, 10);
    plan = plan_of(seed);
    if (argc > 2 && strcmp(argv[2], "plan") == 0) {
        printf("{\"shape\": \"%s\", \"answer\": \"%s\", \"workers\": %u, \"kinds\": %u, \"hides\": %d, \"mib\": %llu, "
               "\"keeps\": %d, \"waits\": %d}\n",
               shapes[plan.shape], answers[plan.answer], plan.workers, plan.kinds, plan.hides,
               (unsigned long long)(plan.most_bytes / MIB), plan.keeps, plan.waits);
        return 0;
    }
    if (argc > 4)
        return worker_run((uint32_t)atoi(argv[3]), atoi(argv[4]));
    if (plan.shape == TOGETHER || plan.shape == LOOSE || plan.shape == IN_TURN)
        return all_run();
    return worker_run(0, -1);
}
