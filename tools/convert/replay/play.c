/* SPDX-License-Identifier: MIT
 *
 * play.c: the replay's child (internal.h).  Performs the operations of a trace, each on the thread
 * that the trace names, strictly in the trace's order. One thread has the turn and keeps it while
 * the following operations are its own; it hands over by a condition variable, outside the measured
 * time.  Everything below belongs to the thread that has the turn.
 */
#include "convert/replay/internal.h"
#include <base/clock.h>
#include <base/futex.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the replay -------------------------------------------------------------------------------------------------- */

struct gp_play_block {
    void *pointer; /* NULL: no bytes, refused, or freed */
    uint64_t bytes;
    uint32_t stream;
    uint32_t device;
};

struct gp_player {
    const struct gp_replay_trace *trace;
    const struct gp_replay_settings *settings;
    struct gp_replay_result *result;
    struct gp_replay_driver driver;
    struct gp_replay_verify *verify;
    struct gp_play_block *blocks;
    void **streams; /* [device][stream] */
    void *contexts[GP_REPLAY_DEVICES];
    uint64_t live_bytes[GP_REPLAY_DEVICES];
    struct gp_replay_ledger begin, half, end;
    char ledger_path[256];
    unsigned threads;

    pthread_mutex_t lock;
    pthread_cond_t turn[GP_REPLAY_THREADS];
    uint32_t next; /* under the lock: the thread that has the turn */
};

static void *play_stream(struct gp_player *p, uint32_t device, uint32_t stream)
{
    return p->streams[device * p->trace->streams + stream];
}

/* Sum of the measured calls, when patterns are written between them. */
static uint64_t play_clock(const struct gp_player *p)
{
    return p->settings->verify ? gp_clock_ns() : 0;
}

static void play_took(struct gp_player *p, uint64_t begin)
{
    if (p->settings->verify)
        p->result->elapsed_ns += gp_clock_ns() - begin;
}

static void play_alloc(struct gp_player *p, const struct gp_replay_op *op)
{
    struct gp_play_block *block = &p->blocks[op->block];
    struct gp_replay_result *result = p->result;
    void *stream = play_stream(p, op->device, op->stream);
    uint64_t begin = play_clock(p);
    int rc = p->driver.gpuprof_alloc(&block->pointer, op->bytes, op->device, stream);
    play_took(p, begin);
    result->operations++;
    block->bytes = op->bytes;
    block->stream = op->stream;
    block->device = op->device;
    if (rc != 0 || op->bytes == 0) {
        result->failed += rc != 0;
        block->pointer = NULL;
        return;
    }
    uint64_t *live = &p->live_bytes[op->device], *peak = &result->devices[op->device].peak_allocated_bytes;
    *live += (op->bytes + 511) & ~511ull;
    if (*live > *peak)
        *peak = *live;
    if (p->verify) {
        gp_replay_verify_on(p->verify, op->device);
        gp_replay_verify_alloc(p->verify, op->block, (uint64_t)block->pointer, op->bytes, stream);
    }
}

static void play_record(struct gp_player *p, const struct gp_replay_op *op)
{
    struct gp_play_block *block = &p->blocks[op->block];
    if (!block->pointer)
        return;
    void *stream = play_stream(p, block->device, op->stream);
    if (p->verify) {
        gp_replay_verify_on(p->verify, block->device);
        gp_replay_verify_use(p->verify, op->block, (uint64_t)block->pointer, block->bytes,
                             play_stream(p, block->device, block->stream), stream);
    }
    uint64_t begin = play_clock(p);
    int rc = p->driver.gpuprof_record_stream(block->pointer, stream);
    play_took(p, begin);
    p->result->operations++;
    p->result->refused += rc != 0;
}

static void play_free(struct gp_player *p, const struct gp_replay_op *op)
{
    struct gp_play_block *block = &p->blocks[op->block];
    if (!block->pointer)
        return;
    /* A free behind work on another stream (RMM's deallocate names one): that stream uses the block
     * too. */
    if (op->stream != GP_REPLAY_ANY && op->stream != block->stream)
        play_record(p, op);
    if (p->verify) {
        gp_replay_verify_on(p->verify, block->device);
        gp_replay_verify_release(p->verify, op->block, (uint64_t)block->pointer, block->bytes,
                                 play_stream(p, block->device, block->stream));
    }
    p->live_bytes[block->device] -= (block->bytes + 511) & ~511ull;
    uint64_t begin = play_clock(p);
    int rc = p->driver.gpuprof_free(block->pointer);
    play_took(p, begin);
    block->pointer = NULL;
    p->result->operations++;
    p->result->refused += rc != 0;
}

static void play_sync(struct gp_player *p, const struct gp_replay_op *op)
{
    p->driver.cuCtxSetCurrent(p->contexts[op->device]);
    if (op->stream == GP_REPLAY_ANY)
        p->driver.cuCtxSynchronize();
    else
        p->driver.cuStreamSynchronize(play_stream(p, op->device, op->stream));
}

static void play_other(struct gp_player *p, const struct gp_replay_op *op)
{
    const struct gp_replay_driver *driver = &p->driver;
    bool any = op->stream == GP_REPLAY_ANY;
    int rc = 0;
    switch (op->kind) {
    case GP_REPLAY_POOL_BEGIN:
        rc =
            driver->gpuprof_begin_pool(op->bytes, op->device, any ? NULL : play_stream(p, op->device, op->stream), any);
        break;
    case GP_REPLAY_POOL_END:
        rc = driver->gpuprof_end_pool(op->bytes, op->device);
        break;
    case GP_REPLAY_POOL_RELEASE:
        rc = driver->gpuprof_release_pool(op->bytes, op->device);
        break;
    case GP_REPLAY_SYNC:
        play_sync(p, op);
        break;
    case GP_REPLAY_EMPTY:
        rc = driver->gpuprof_empty_cache(op->device);
        break;
    case GP_REPLAY_LIMIT:
        rc = driver->gpuprof_set_memory_limit(op->bytes, op->device);
        break;
    default: /* a step or a mark has no effect here */
        break;
    }
    p->result->refused += rc != 0;
}

static void play_operation(struct gp_player *p, const struct gp_replay_op *op)
{
    switch (op->kind) {
    case GP_REPLAY_ALLOC:
        play_alloc(p, op);
        break;
    case GP_REPLAY_FREE:
        play_free(p, op);
        break;
    case GP_REPLAY_RECORD:
        play_record(p, op);
        break;
    default:
        play_other(p, op);
    }
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static unsigned play_thread_of(const struct gp_player *p, uint32_t index)
{
    return p->trace->ops[index].thread % p->threads;
}

/* Performs operations from `at` on, while they belong to this thread.  Returns where the next
 * thread continues. */
static uint32_t play_stretch(struct gp_player *p, uint32_t at, unsigned me)
{
    uint32_t count = p->trace->count, middle = count / 2;
    uint64_t begin = gp_clock_ns();
    while (at < count && play_thread_of(p, at) == me) {
        if (at == middle) {
            uint64_t pause = gp_clock_ns();
            gp_replay_ledger_take(&p->half, &p->driver, p->ledger_path);
            begin += gp_clock_ns() - pause;
        }
        play_operation(p, &p->trace->ops[at]);
        at++;
        if (at % 1024 == 0)
            __atomic_store_n(&p->result->done, at, __ATOMIC_RELAXED); /* for the progress bar: no order needed */
    }
    if (!p->settings->verify)
        p->result->elapsed_ns += gp_clock_ns() - begin;
    return at;
}

static void play_turns(struct gp_player *p, unsigned me)
{
    uint32_t count = p->trace->count;
    p->driver.cuCtxSetCurrent(p->contexts[0]);
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->next < count && play_thread_of(p, p->next) != me)
            pthread_cond_wait(&p->turn[me], &p->lock);
        if (p->next >= count)
            break;
        uint32_t at = p->next;
        pthread_mutex_unlock(&p->lock);
        at = play_stretch(p, at, me);
        pthread_mutex_lock(&p->lock);
        p->next = at;
        if (at < count)
            pthread_cond_signal(&p->turn[play_thread_of(p, at)]);
    }
    for (unsigned t = 0; t < p->threads; t++)
        pthread_cond_signal(&p->turn[t]);
    pthread_mutex_unlock(&p->lock);
}

struct gp_play_start {
    struct gp_player *player;
    unsigned number;
};

static void *play_thread(void *argument)
{
    struct gp_play_start *start = argument;
    play_turns(start->player, start->number);
    return NULL;
}

static int play_all(struct gp_player *p)
{
    pthread_t threads[GP_REPLAY_THREADS];
    struct gp_play_start starts[GP_REPLAY_THREADS];
    int rc = 0;
    unsigned started = 1;
    for (unsigned t = 0; t < p->threads; t++) {
        pthread_cond_init(&p->turn[t], NULL);
        starts[t] = (struct gp_play_start){p, t};
    }
    /* All threads or none: the others would wait for a missing one for ever. */
    pthread_mutex_lock(&p->lock);
    for (; !rc && started < p->threads; started++)
        rc = -pthread_create(&threads[started], NULL, play_thread, &starts[started]);
    started -= rc != 0;
    if (rc)
        p->next = p->trace->count;
    pthread_mutex_unlock(&p->lock);
    play_turns(p, 0);
    for (unsigned t = 1; t < started; t++)
        pthread_join(threads[t], NULL);
    return rc;
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

static int play_fail(struct gp_player *p, const char *what, int rc)
{
    snprintf(p->result->why, sizeof(p->result->why), "%s: %d", what, rc);
    return -EIO;
}

static int play_devices(struct gp_player *p)
{
    const struct gp_replay_driver *driver = &p->driver;
    int device, rc = driver->cuInit(0);
    if (rc)
        return play_fail(p, "the simulated GPU does not start: cuInit", rc);
    for (uint32_t d = p->trace->devices; d-- > 0;) {
        if (driver->cuDeviceGet(&device, (int)d) != 0)
            return play_fail(p, "the trace uses a device that the simulated GPU does not have (--sim=devices=N)",
                             (int)d);
        rc = driver->cuDevicePrimaryCtxRetain(&p->contexts[d], device);
        if (!rc)
            rc = driver->cuCtxSetCurrent(p->contexts[d]);
        /* Non-blocking, as the frameworks' are; number 0 is the default stream. */
        for (uint32_t s = 1; !rc && s < p->trace->streams; s++)
            rc = driver->cuStreamCreate(&p->streams[d * p->trace->streams + s], 1 /* CU_STREAM_NON_BLOCKING */);
        if (rc)
            return play_fail(p, "no context or no stream", rc);
        /* One-time work of the library (finding the driver, creating the cache of a device) is not
         * measured. */
        driver->gpuprof_empty_cache((int)d);
        if (p->settings->limit_bytes)
            driver->gpuprof_set_memory_limit(p->settings->limit_bytes, (int)d);
    }
    return 0;
}

static int play_prepare(struct gp_player *p, const char *folder)
{
    const struct gp_replay_trace *trace = p->trace;
    unsigned most =
        p->settings->threads && p->settings->threads < trace->threads ? p->settings->threads : trace->threads;
    int rc = gp_replay_driver_open(&p->driver, p->settings, p->result->why, sizeof(p->result->why));
    if (rc)
        return rc;
    p->threads = most ? most : 1;
    p->blocks = calloc(trace->blocks + 1u, sizeof(p->blocks[0]));
    p->streams = calloc((size_t)trace->devices * trace->streams + 1, sizeof(p->streams[0]));
    if (!p->blocks || !p->streams)
        return play_fail(p, "out of memory", -ENOMEM);
    memset(p->blocks, 0,
           (trace->blocks + 1u) * sizeof(p->blocks[0])); /* its pages appear now, not in the measurement */
    snprintf(p->ledger_path, sizeof(p->ledger_path), "%s/ledger", folder);
    rc = play_devices(p);
    if (!rc && p->settings->verify) {
        p->verify = gp_replay_verify_new(&p->driver, p->result, p->contexts, trace->devices);
        rc = p->verify ? 0 : play_fail(p, "out of memory", -ENOMEM);
    }
    return rc;
}

/* The result is complete: the parent may read it, and the session of this process while it waits
 * here. */
static void play_finish(struct gp_player *p)
{
    struct gp_replay_result *result = p->result;
    result->device_count = p->trace->devices;
    gp_replay_ledger_count(result, &p->begin, &p->half, &p->end);
    for (uint32_t d = 0; d < p->trace->devices; d++) {
        int64_t own = p->driver.gpuprof_max_memory_reserved((int)d), sum = result->own_reserved_bytes;
        result->own_reserved_bytes = own < 0 || sum < 0 ? -1 : sum + own;
    }
    result->complete = true;
    /* [played.R] release: the result before the phase; pairs with [played.A] */
    __atomic_store_n(&result->phase, GP_REPLAY_PLAYED, __ATOMIC_RELEASE);
    gp_futex_wake(&result->phase);
    /* [seen.A] acquire: pairs with [seen.R]: the parent read the session before */
    while (__atomic_load_n(&result->phase, __ATOMIC_ACQUIRE) == GP_REPLAY_PLAYED)
        gp_futex_wait(&result->phase, GP_REPLAY_PLAYED, UINT64_MAX);
}

void gp_replay_play(const struct gp_replay_trace *trace, const struct gp_replay_settings *settings, const char *folder,
                    struct gp_replay_result *result)
{
    struct gp_player *p = calloc(1, sizeof(*p));
    int rc = p ? 0 : -ENOMEM;
    if (rc)
        return;
    *p = (struct gp_player){.trace = trace, .settings = settings, .result = result};
    pthread_mutex_init(&p->lock, NULL);
    rc = play_prepare(p, folder);
    if (!rc && (rc = gp_replay_ledger_take(&p->begin, &p->driver, p->ledger_path)) != 0)
        play_fail(p, "the simulated GPU's ledger cannot be read", rc);
    if (!rc && (rc = play_all(p)) != 0)
        play_fail(p, "a thread cannot be started", rc);
    if (!rc) {
        if (p->verify)
            gp_replay_verify_settle(p->verify);
        rc = gp_replay_ledger_take(&p->end, &p->driver, p->ledger_path);
    }
    if (!rc)
        play_finish(p);
    gp_replay_verify_free(p->verify);
    free(p->streams);
    free(p->blocks);
    free(p);
}
