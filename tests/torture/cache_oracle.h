/* SPDX-License-Identifier: MIT
 *
 * cache_oracle.h: threads that share one caching allocator, and what may never happen meanwhile.  Used by cache.c and,
 * with a device whose fences lie, by cache_mutant.c.
 *
 * A shadow word for every 256 bytes of the fake device's address space tells the owner.  Given memory is exchanged for
 * the new owner's word, and the old word must be dead, its work done or ordered before (same stream); memory that
 * leaves must be dead and done.  Two plain words at the ends of each block stand for its contents: TSan reports a
 * handover from thread to thread that nothing orders.
 *
 * The device's work completes when a thread lets it, and when the cache waits for a fence.
 */
#ifndef GP_TEST_TORTURE_CACHE_ORACLE_H
#define GP_TEST_TORTURE_CACHE_ORACLE_H

#include "base/clock.h"
#include "base/compiler.h"
#include "cache/cache.h"
#include "cache/policy.h"
#include "lib/cachecheck.h"
#include "lib/fakedev.h"
#include "lib/random.h"
#include "torture/yield.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS_MAX = 8, STREAMS = 3, OPS_MAX = 4000, MAILBOX = 32, HELD_MAX = 64 };

#define GRANULE       256ull /* the least that any policy gives */
#define LIVE          (1ull << 63)
#define HARD          (1ull << 62) /* freed with a promise about all streams: must be done before any reuse */
#define WORK(_word)   ((_word) & ((1ull << 40) - 1)) /* number of the last piece of work; 0: none */
#define STREAM(_word) ((unsigned)((_word) >> 40 & 0xff))

struct shadow {
    uint64_t word, recorded; /* atomic */
    uint64_t contents;       /* plain, on purpose */
};

struct profile {
    const char *policy, *conf;
    uint64_t capacity, page_bytes;
    unsigned threads, ops;
    bool large; /* sizes up to some MiB; else up to 64 KiB */
    bool turns; /* one operation at a time, so that the order is known and peaks are exact */
    bool trims; /* one thread gives memory back all the time */
    /* small blocks, after a rise always far below the peak, and little else: mostly the fast path */
    bool below_peak;
};

struct held {
    struct gp_grant grant;
    unsigned stream; /* index; STREAMS: any */
    uint64_t recorded;
};

/* One change of the allocated bytes: somewhere between the two tickets. */
struct change {
    uint32_t begin, end;
    int64_t bytes;
};

struct tally {
    uint64_t batches, allocs, ooms, crossed, recorded, ordered, wrong;
    char why[320];
};

struct batch {
    const struct profile *profile;
    struct fakedev dev;
    struct gp_cache *cache;
    uint64_t seed;
    struct held *mailbox[MAILBOX]; /* atomic: blocks that whoever comes by frees */
    uint32_t tickets;              /* atomic */
    pthread_mutex_t turn;
    struct change *changes[THREADS_MAX];
    unsigned change_count[THREADS_MAX];
    struct tally tally; /* the counts are atomic */
};

struct worker {
    struct batch *batch;
    unsigned index;
    pthread_t thread;
    struct held *held[HELD_MAX];
    unsigned count;
};

static struct shadow *shadow_map;
static __thread uint64_t oracle_random;

static inline uint64_t oracle_draw(uint64_t below)
{
    return random_next(&oracle_random) % below;
}

void gp_testpoint(const char *name);
/* Gives the processor away in one window of 16. */
void gp_testpoint(const char *name)
{
    (void)name;
    if (oracle_random && oracle_draw(16) == 0)
        torture_yield();
}

static void tally_wrong(struct batch *batch, const char *what, uint64_t address, uint64_t word)
{
    if (__atomic_fetch_add(&batch->tally.wrong, 1, __ATOMIC_ACQ_REL) == 0)
        snprintf(batch->tally.why, sizeof batch->tally.why, "%s at %#llx, word %#llx", what,
                 (unsigned long long)address, (unsigned long long)word);
}

static void tally_add(uint64_t *count)
{
    __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
}

/* ---- the shadow ------------------------------------------------------------------------------------------------- */

/* The device gives its lowest free addresses, and all ranges together are far below this. */
#define SHADOW_BYTES ((16ull << 30) / GRANULE * sizeof(struct shadow))

static void shadow_open(void)
{
    if (shadow_map)
        return;
    shadow_map = mmap(NULL, SHADOW_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shadow_map == MAP_FAILED)
        abort();
}

static void shadow_close(void)
{
    munmap(shadow_map, SHADOW_BYTES);
    shadow_map = NULL;
}

static struct shadow *shadow_at(uint64_t address)
{
    return &shadow_map[(address - FAKEDEV_BASE) / GRANULE];
}

/* Is what the dead word stands for out of the way of `stream` (STREAMS: of all)? */
static bool shadow_ordered(struct batch *batch, uint64_t word, unsigned stream)
{
    if (WORK(word) == 0 || fakedev_done(&batch->dev, STREAM(word), WORK(word)))
        return true;
    if (word & HARD || stream == STREAMS || STREAM(word) != stream)
        return false;
    tally_add(&batch->tally.ordered);
    return true;
}

static void shadow_grant(struct batch *batch, const struct held *held, unsigned thread)
{
    uint64_t mine = LIVE | (uint64_t)thread << 48 | (held->grant.address / GRANULE & 0xffffffff);
    struct shadow *first = shadow_at(held->grant.address), *end = first + held->grant.bytes / GRANULE;
    for (struct shadow *at = first; at < end; at++) {
        uint64_t word = __atomic_exchange_n(&at->word, mine, __ATOMIC_RELAXED);
        uint64_t recorded = __atomic_exchange_n(&at->recorded, 0, __ATOMIC_RELAXED);
        if (word & LIVE)
            tally_wrong(batch, "two live blocks", held->grant.address, word);
        else if (!shadow_ordered(batch, word, held->stream) || !shadow_ordered(batch, recorded, held->stream))
            tally_wrong(batch, "given under pending work", held->grant.address, word);
    }
    first->contents = end[-1].contents = mine;
}

static void shadow_release(struct batch *batch, const struct held *held, uint64_t word)
{
    struct shadow *first = shadow_at(held->grant.address), *end = first + held->grant.bytes / GRANULE;
    uint64_t mine = first->contents;
    if (end[-1].contents != mine)
        tally_wrong(batch, "contents changed", held->grant.address, mine);
    for (struct shadow *at = first; at < end; at++) {
        __atomic_store_n(&at->recorded, held->recorded, __ATOMIC_RELAXED);
        uint64_t old = __atomic_exchange_n(&at->word, word, __ATOMIC_RELAXED);
        if (old != mine)
            tally_wrong(batch, "owner changed", held->grant.address, old);
    }
}

static const char *shadow_leave(void *arg, uint64_t address, uint64_t bytes)
{
    struct batch *batch = arg;
    const char *why = NULL;
    for (struct shadow *at = shadow_at(address), *end = at + bytes / GRANULE; at < end; at++) {
        uint64_t word = __atomic_load_n(&at->word, __ATOMIC_RELAXED);
        if (word == 0)
            continue;
        uint64_t recorded = __atomic_load_n(&at->recorded, __ATOMIC_RELAXED);
        if (word & LIVE)
            why = "a live block lies in it";
        else if (!shadow_ordered(batch, word, STREAMS) || !shadow_ordered(batch, recorded, STREAMS))
            why = "work in it is pending";
        __atomic_store_n(&at->word, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&at->recorded, 0, __ATOMIC_RELAXED);
    }
    return why;
}

/* ---- operations ------------------------------------------------------------------------------------------------- */

static uint32_t ticket(struct batch *batch)
{
    return __atomic_fetch_add(&batch->tickets, 1, __ATOMIC_ACQ_REL);
}

static struct change *change_begin(struct worker *self)
{
    struct batch *batch = self->batch;
    struct change *change = &batch->changes[self->index][batch->change_count[self->index]++];
    *change = (struct change){.begin = ticket(batch)};
    return change;
}

static uint64_t worker_size(const struct profile *profile)
{
    uint64_t kind = oracle_draw(16);
    if (profile->below_peak)
        return 1 + oracle_draw(4096);
    if (profile->large && kind == 0)
        return (1ull << 20) + oracle_draw(3ull << 20);
    return kind < 8 ? 1 + oracle_draw(2048) : 1 + oracle_draw(64 * 1024);
}

static void worker_alloc(struct worker *self)
{
    struct batch *batch = self->batch;
    struct held *held = malloc(sizeof *held);
    unsigned stream = (unsigned)oracle_draw(STREAMS * 4);
    if (!held)
        abort();
    *held = (struct held){.stream = stream == 0 && !batch->profile->below_peak ? STREAMS : stream % STREAMS};
    struct gp_request request = {.bytes = worker_size(batch->profile),
                                 .stream = held->stream == STREAMS ? GP_STREAM_ANY : held->stream,
                                 .shard = self->index + 1};
    struct change *change = change_begin(self);
    uint32_t rc = gp_cache_alloc(batch->cache, &request, &held->grant);
    change->end = ticket(batch);
    if (rc) {
        if (rc != GP_BACKEND_OOM)
            tally_wrong(batch, "alloc: not out of memory, but an error", 0, rc);
        tally_add(&batch->tally.ooms);
        free(held);
        return;
    }
    change->bytes = (int64_t)held->grant.bytes;
    tally_add(&batch->tally.allocs);
    shadow_grant(batch, held, self->index);
    self->held[self->count++] = held;
}

/* Submits the last work before the free: whatever was pending on that stream before is ordered before it. */
static void worker_release(struct worker *self, struct held *held)
{
    struct batch *batch = self->batch;
    struct gp_grant given;
    bool any = held->stream == STREAMS;
    unsigned stream = any ? (unsigned)oracle_draw(STREAMS) : held->stream;
    uint64_t word = (uint64_t)stream << 40 | fakedev_submit(&batch->dev, stream) | (any ? HARD : 0);
    shadow_release(batch, held, word);
    struct change *change = change_begin(self);
    change->bytes = -(int64_t)held->grant.bytes;
    bool is_known = gp_cache_release(batch->cache, held->grant.address, any ? GP_FREE_UNORDERED : GP_FREE_ORDERED,
                                     self->index + 1, &given);
    given.time_ns = held->grant.time_ns; /* each has its own */
    if (!is_known || memcmp(&given, &held->grant, sizeof given) != 0)
        tally_wrong(batch, "release: not what was given", held->grant.address, 0);
    change->end = ticket(batch);
    free(held);
}

static struct held *worker_take(struct worker *self)
{
    unsigned i = (unsigned)oracle_draw(self->count);
    struct held *held = self->held[i];
    self->held[i] = self->held[--self->count];
    return held;
}

static void worker_record(struct worker *self)
{
    struct held *held = self->held[oracle_draw(self->count)];
    unsigned stream = (unsigned)oracle_draw(STREAMS);
    if (held->stream == STREAMS || stream == held->stream || (held->recorded && STREAM(held->recorded) != stream))
        return;
    if (!gp_cache_record_stream(self->batch->cache, held->grant.address, stream))
        tally_wrong(self->batch, "record_stream: no such block", held->grant.address, 0);
    held->recorded = (uint64_t)stream << 40 | fakedev_submit(&self->batch->dev, stream) | HARD;
    tally_add(&self->batch->tally.recorded);
}

/* Puts a block where another thread frees it, and frees what lay there. */
static void worker_cross(struct worker *self)
{
    struct held **slot = &self->batch->mailbox[oracle_draw(MAILBOX)];
    struct held *other = __atomic_exchange_n(slot, worker_take(self), __ATOMIC_ACQ_REL);
    if (!other)
        return;
    tally_add(&self->batch->tally.crossed);
    worker_release(self, other);
}

static void worker_look(struct worker *self)
{
    struct held *held = self->held[oracle_draw(self->count)];
    struct gp_cache_numbers numbers;
    struct gp_grant found;
    if (oracle_draw(64) == 0)
        gp_cache_numbers(self->batch->cache, &numbers);
    bool is_known = gp_cache_find(self->batch->cache, held->grant.address + held->grant.bytes - 1, &found);
    found.time_ns = held->grant.time_ns; /* only of a grant */
    if (!is_known || memcmp(&found, &held->grant, sizeof found) != 0)
        tally_wrong(self->batch, "find: not what was given", held->grant.address, 0);
}

static void worker_step(struct worker *self)
{
    struct batch *batch = self->batch;
    uint64_t what = oracle_draw(64);
    unsigned stream = (unsigned)oracle_draw(STREAMS);
    if (what < 8)
        fakedev_complete(&batch->dev, stream,
                         __atomic_load_n(&batch->dev.streams[stream].completed, __ATOMIC_ACQUIRE) + 1 +
                             oracle_draw(64));
    else if (what == 8 && batch->profile->trims && self->index == 0)
        gp_cache_trim(batch->cache, oracle_draw(2) * (4ull << 20));
    else if (self->count == 0 || (what < 36 && self->count < HELD_MAX))
        worker_alloc(self);
    else if (what < 40)
        worker_record(self);
    else if (what < 44)
        worker_look(self);
    else if (what < 50)
        worker_cross(self);
    else
        worker_release(self, worker_take(self));
}

/* The first eighth rises to the most, the rest stays below a half of it. */
static void worker_step_below_peak(struct worker *self)
{
    struct batch *batch = self->batch;
    bool rise = batch->change_count[self->index] < batch->profile->ops / 8;
    unsigned most = rise ? HELD_MAX : HELD_MAX / 4;
    uint64_t what = oracle_draw(256);
    if (what == 0)
        fakedev_complete(&batch->dev, (unsigned)oracle_draw(STREAMS), UINT64_MAX);
    else if (self->count == 0 || (self->count < most && (rise || what < 120)))
        worker_alloc(self);
    else if (what < 122)
        worker_record(self);
    else if (what < 126)
        worker_look(self);
    else if (what < 160)
        worker_cross(self);
    else
        worker_release(self, worker_take(self));
}

static void *worker_main(void *arg)
{
    struct worker *self = arg;
    struct batch *batch = self->batch;
    oracle_random = (batch->seed * 0x9e3779b97f4a7c15ull ^ (self->index + 1) * 0xbf58476d1ce4e5b9ull) | 1;
    while (batch->change_count[self->index] + 2 < batch->profile->ops) {
        if (batch->profile->turns)
            pthread_mutex_lock(&batch->turn);
        if (batch->profile->below_peak)
            worker_step_below_peak(self);
        else
            worker_step(self);
        if (batch->profile->turns)
            pthread_mutex_unlock(&batch->turn);
    }
    oracle_random = 0;
    return NULL;
}

/* ---- at rest ---------------------------------------------------------------------------------------------------- */

/* The greatest total that any order within the tickets allows, and the least greatest one. */
static void peak_bounds(const struct batch *batch, int64_t *low, int64_t *high)
{
    int64_t *early = calloc(batch->tickets + 1, sizeof *early), *late = calloc(batch->tickets + 1, sizeof *late);
    int64_t a = 0, b = 0;
    if (!early || !late)
        abort();
    for (unsigned t = 0; t < batch->profile->threads; t++)
        for (unsigned i = 0; i < batch->change_count[t]; i++) {
            const struct change *change = &batch->changes[t][i];
            early[change->bytes > 0 ? change->begin : change->end] += change->bytes;
            late[change->bytes > 0 ? change->end : change->begin] += change->bytes;
        }
    *low = *high = 0;
    for (uint32_t i = 0; i < batch->tickets; i++) {
        a += early[i];
        b += late[i];
        *high = a > *high ? a : *high;
        *low = b > *low ? b : *low;
    }
    free(early);
    free(late);
}

static void rest_judge(struct batch *batch, struct worker *workers)
{
    struct gp_gauge_value values[GP_GAUGES];
    struct gp_cache_numbers numbers;
    int64_t live = 0, count = 0, low, high;
    char why[192] = "";
    for (unsigned t = 0; t < batch->profile->threads; t++)
        for (unsigned i = 0; i < workers[t].count; i++, count++)
            live += (int64_t)workers[t].held[i]->grant.bytes;
    for (unsigned i = 0; i < MAILBOX; i++)
        if (batch->mailbox[i])
            live += (int64_t)batch->mailbox[i]->grant.bytes, count++;
    gp_counter_snapshot(cache_check_gauges(batch->cache), values);
    gp_cache_numbers(batch->cache, &numbers);
    if (cache_check(batch->cache, why, sizeof why) != 0 || batch->dev.faults) {
        tally_wrong(batch, "at rest", 0, 0);
        snprintf(batch->tally.why, sizeof batch->tally.why, "%s", batch->dev.faults ? batch->dev.fault : why);
    }
    const struct gp_gauge_value *allocated = &values[GP_GAUGE_ALLOCATED_BYTES];
    if (allocated->current != live || values[GP_GAUGE_ALLOCATION].current != count ||
        (int64_t)numbers.allocated_bytes != live)
        tally_wrong(batch, "allocated bytes are wrong", (uint64_t)live, (uint64_t)allocated->current);
    if ((uint64_t)values[GP_GAUGE_RESERVED_BYTES].current != batch->dev.held ||
        (uint64_t)values[GP_GAUGE_RESERVED_BYTES].peak > batch->dev.held_peak ||
        numbers.reserved_bytes != batch->dev.held)
        tally_wrong(batch, "reserved bytes are wrong", batch->dev.held,
                    (uint64_t)values[GP_GAUGE_RESERVED_BYTES].current);
    peak_bounds(batch, &low, &high);
    if (allocated->peak < low || allocated->peak > high)
        tally_wrong(batch, "peak of allocated bytes is out of bounds", (uint64_t)low, (uint64_t)allocated->peak);
}

static void rest_empty(struct batch *batch, struct worker *workers)
{
    char left[160];
    for (unsigned t = 0; t < batch->profile->threads; t++)
        while (workers[t].count)
            worker_release(&workers[t], workers[t].held[--workers[t].count]);
    for (unsigned i = 0; i < MAILBOX; i++)
        if (batch->mailbox[i])
            worker_release(&workers[0], batch->mailbox[i]);
    gp_cache_trim(batch->cache, 0);
    if (batch->dev.held)
        tally_wrong(batch, "memory stays after everything was freed and trimmed", batch->dev.held, 0);
    gp_cache_free(batch->cache);
    if (fakedev_left(&batch->dev, true, left, sizeof left) || batch->dev.faults)
        tally_wrong(batch, batch->dev.faults ? batch->dev.fault : left, 0, 0);
}

/* One batch: fresh device, fresh cache, threads run free, then the judgement at rest. */
static void oracle_batch_run(const struct profile *profile, uint64_t seed, bool lies, struct tally *tally)
{
    static struct change *changes[THREADS_MAX];
    struct batch batch = {.profile = profile, .seed = seed, .turn = PTHREAD_MUTEX_INITIALIZER};
    struct worker workers[THREADS_MAX] = {{0}};
    struct gp_policy policy = *gp_policy_find(profile->policy);
    char why[192];
    if (profile->below_peak)
        policy.thread_blocks = 24; /* so that a thread has too many now and then */
    shadow_open();
    if (fakedev_init(&batch.dev, profile->capacity, profile->page_bytes) != 0 ||
        (profile->conf && gp_policy_configure(&policy, profile->conf, why, sizeof why) != 0))
        abort();
    for (unsigned s = 0; s < STREAMS; s++)
        fakedev_stream_open(&batch.dev, s);
    batch.dev.arg = &batch;
    batch.dev.leave = shadow_leave;
    batch.dev.lies = lies;
    struct gp_cache_setup setup = {.policy = &policy, .backend = fakedev_backend(&batch.dev)};
    if (gp_cache_new(&batch.cache, &setup) != 0)
        abort();
    for (unsigned t = 0; t < profile->threads; t++) {
        if (!changes[t] && !(changes[t] = malloc((OPS_MAX + HELD_MAX + MAILBOX + 2) * sizeof(struct change))))
            abort();
        batch.changes[t] = changes[t];
        workers[t] = (struct worker){.batch = &batch, .index = t};
    }
    for (unsigned t = 0; t < profile->threads; t++)
        if (pthread_create(&workers[t].thread, NULL, worker_main, &workers[t]))
            abort();
    for (unsigned t = 0; t < profile->threads; t++)
        pthread_join(workers[t].thread, NULL);
    rest_judge(&batch, workers);
    oracle_random = seed | 1;
    if (batch.tally.wrong == 0) /* a broken one is left alone: its end could hang */
        rest_empty(&batch, workers);
    oracle_random = 0;
    fakedev_fini(&batch.dev);
    if (batch.tally.wrong) /* else all memory has left, and with it every word */
        shadow_close();
    tally->batches++;
    tally->allocs += batch.tally.allocs;
    tally->ooms += batch.tally.ooms;
    tally->crossed += batch.tally.crossed;
    tally->recorded += batch.tally.recorded;
    tally->ordered += batch.tally.ordered;
    if (tally->wrong == 0)
        memcpy(tally->why, batch.tally.why, sizeof tally->why);
    tally->wrong += batch.tally.wrong;
}

#define MIB (1ull << 20)

static const struct profile oracle_profiles[] = {
    {"caching", NULL, 256 * MIB, 2 * MIB, 2, 3900, .below_peak = true},
    {"caching", NULL, 256 * MIB, 2 * MIB, 4, 3900, .below_peak = true},
    {"caching", NULL, 256 * MIB, 2 * MIB, 8, 3900, .below_peak = true},
    {"pytorch", NULL, 256 * MIB, 0, 4, 2000, true, false, true, false},
    {"pytorch", NULL, 64 * MIB, 0, 3, 2000, true, false, false, false},
    {"pytorch", "expandable_segments:True", 256 * MIB, 2 * MIB, 3, 2000, true, false, true, false},
    {"auto_growth", NULL, 64 * MIB, 0, 3, 2000, true, false, true, false},
    {"passthrough", NULL, 64 * MIB, 0, 3, 1000, true, false, false, false},
    {"prealloc", NULL, 64 * MIB, 0, 3, 2000, true, false, true, false},
    {"caching", NULL, 256 * MIB, 2 * MIB, 4, 3000, false, false, false, false},
    {"caching", NULL, 256 * MIB, 2 * MIB, 4, 3000, true, false, true, false},
    {"caching", NULL, 48 * MIB, 2 * MIB, 3, 2000, true, false, false, false},
    {"caching", NULL, 256 * MIB, 2 * MIB, 8, 1500, true, false, true, false},
    {"caching", NULL, 256 * MIB, 2 * MIB, 4, 2000, true, true, true, false},
    {"pytorch", NULL, 256 * MIB, 0, 4, 2000, true, true, true, false},
};

#endif
