/* SPDX-License-Identifier: MIT
 *
 * listen_oracle.h: a reader of events comes while threads allocate from one of our caches and free, walks over the cache,
 * and goes again: reader_oracle.h, for blocks of a cache.
 *
 * The cache, cached.c and event.c are the product's.  The walk with the events that are later than its begin must give
 * exactly the blocks that live: an event that was written late, after the walk, has the time of the change.  Sizes, and frees by another thread, take every way through the cache.
 */
#ifndef GP_TEST_TORTURE_LISTEN_ORACLE_H
#define GP_TEST_TORTURE_LISTEN_ORACLE_H

#include "torture/reader_base.h"

#include "../../src/account/cached.c"

#include "bench/cache_bump.h"
#include "cache/policy.h"

enum { WRITERS = 3, HELD = 40, MOST = 5000, GRANULES = 1 << 18 };

static struct gp_cache *cache;
static uint32_t x_go, x_stop, x_begun, x_resting;
static uint64_t x_held[WRITERS][HELD]; /* addresses; 0: none.  Any thread may take one away */
static uint64_t listen_base, listen_events, listen_walked, listen_wrong;
static uint8_t known[GRANULES];

struct gp_account *gp_account_of(int device)
{
    (void)device;
    return NULL;
}

bool gp_life_on(void)
{
    return true;
}

static uint64_t listen_bytes(void)
{
    uint64_t class = reader_random() % 16;
    return class < 12 ? 512 * (1 + reader_random() % 8) : class < 15 ? 512 * (1 + reader_random() % 400) : 3u << 20;
}

/* As src/allocator does. */
static void listen_tell(enum gp_wire_event_type type, const struct gp_grant *grant)
{
    if (gp_feed_cache_wants_block(0))
        gp_feed_cache_event(&(struct gp_feed_event){type, 0, 0, grant->address, grant->bytes, grant->requested_bytes,
                                                    grant->stream, grant->time_ns});
}

static void listen_step(unsigned writer)
{
    /* Mostly its own blocks, at times another thread's. */
    unsigned from = reader_random() % 8 ? writer : (unsigned)(reader_random() % WRITERS);
    uint64_t *place = &x_held[from][reader_random() % HELD], none = 0;
    uint64_t address = __atomic_exchange_n(place, 0, __ATOMIC_ACQ_REL);
    struct gp_grant grant;
    if (address) {
        if (!gp_cache_release(cache, address, GP_FREE_BY_STREAM, gp_thread.number, &grant))
            abort();
        listen_tell(GP_EVENT_FREE, &grant);
        return;
    }
    struct gp_request request = {
        .bytes = listen_bytes(), .stream = reader_random() % 16 ? 7 : GP_STREAM_ANY, .shard = gp_thread.number};
    if (gp_cache_alloc(cache, &request, &grant) != 0)
        abort();
    listen_tell(GP_EVENT_ALLOC, &grant);
    if (__atomic_compare_exchange_n(place, &none, grant.address, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        return;
    if (!gp_cache_release(cache, grant.address, GP_FREE_BY_STREAM, gp_thread.number, &grant))
        abort();
    listen_tell(GP_EVENT_FREE, &grant);
}

static void *listen_write(void *arg)
{
    unsigned writer = (unsigned)(uintptr_t)arg;
    gp_thread.tid = gp_thread.number = writer + 1;
    for (uint32_t round = 0; !__atomic_load_n(&x_stop, __ATOMIC_RELAXED);) {
        uint32_t go = __atomic_load_n(&x_go, __ATOMIC_ACQUIRE);
        if (go % 2 == 0 || go == round) {
            sched_yield();
            continue;
        }
        round = go;
        __atomic_fetch_add(&x_begun, 1, __ATOMIC_RELEASE);
        for (unsigned i = 0; i < MOST && __atomic_load_n(&x_go, __ATOMIC_RELAXED) == go; i++)
            listen_step(writer);
        __atomic_fetch_add(&x_resting, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void listen_await(uint32_t *x_count)
{
    while (__atomic_load_n(x_count, __ATOMIC_ACQUIRE) != WRITERS)
        sched_yield();
    __atomic_store_n(x_count, 0, __ATOMIC_RELAXED);
}

static uint64_t listen_place(uint64_t address)
{
    uint64_t at = (address - listen_base) / 512;
    if (at >= GRANULES)
        abort();
    return at;
}

static bool listen_segment(void *arg, const struct gp_cache_segment *segment)
{
    (void)arg;
    (void)segment;
    return true;
}

static bool listen_block(void *arg, const struct gp_cache_block *block)
{
    (void)arg;
    if (block->state == GP_CACHE_LIVE)
        known[listen_place(block->address)] = 1;
    listen_walked += block->state == GP_CACHE_LIVE;
    return true;
}

static bool listen_is_right(void)
{
    unsigned held = 0, found = 0;
    for (unsigned w = 0; w < WRITERS; w++)
        for (unsigned i = 0; i < HELD; i++) {
            held += x_held[w][i] != 0;
            found += x_held[w][i] && known[listen_place(x_held[w][i])];
        }
    unsigned all = 0;
    for (unsigned i = 0; i < GRANULES; i++)
        all += known[i];
    return held == found && all == held;
}

static void listen_round(void)
{
    const struct gp_wire_event *events;
    struct gp_ringread *reader;
    struct gp_ringread_stats stats;
    memset(known, 0, sizeof(known));
    __atomic_fetch_add(&x_go, 1, __ATOMIC_RELEASE);
    listen_await(&x_begun);
    for (uint64_t i = reader_random() % 64; i > 0; i--)
        sched_yield();
    __atomic_store_n(&x_listened, 1, __ATOMIC_RELEASE); /* as listen_begin */
    if (gp_ringread_new(&reader, reader_copy, chunks, CHUNKS, GP_RINGREAD_NOW) != 0)
        exit(1);
    uint64_t begin = gp_clock_ns();
    gp_cache_iterate(cache, NULL, listen_segment, listen_block, NULL);
    for (uint64_t i = reader_random() % 16; i > 0; i--)
        sched_yield();
    __atomic_fetch_add(&x_go, 1, __ATOMIC_RELEASE);
    listen_await(&x_resting);
    ssize_t count = gp_ringread_poll(reader, UINT64_MAX, &events);
    for (ssize_t i = 0; i < count; i++)
        if (events[i].time_ns >= begin && (events[i].type == GP_EVENT_ALLOC || events[i].type == GP_EVENT_FREE))
            known[listen_place(events[i].address)] = events[i].type == GP_EVENT_ALLOC;
    gp_ringread_stats(reader, &stats);
    listen_events += (uint64_t)count;
    if (count < 0 || stats.overwritten || stats.damaged)
        exit(1);
    listen_wrong += !listen_is_right();
    gp_ringread_free(reader);
    __atomic_store_n(&x_listened, 0, __ATOMIC_RELEASE);
}

static void listen_new(void)
{
    struct gp_cache_setup setup = {.policy = gp_policy_find("caching"),
                                   .times = true,
                                   .wants_time = gp_feed_cache_wants_time,
                                   .backend = BUMP_BACKEND};
    setup.backend.page_bytes = 0; /* no growable segments: their reservations are larger than the table of granules */
    listen_base = bump_next;
    if (gp_cache_new(&cache, &setup) != 0)
        exit(1);
}

static void listen_rounds(uint64_t end, unsigned least, bool until_wrong, unsigned *rounds)
{
    pthread_t threads[WRITERS];
    reader_begin_ring();
    listen_new();
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_create(&threads[i], NULL, listen_write, (void *)(uintptr_t)i);
    for (*rounds = 0; *rounds < least || (gp_clock_ns() < end && !(until_wrong && listen_wrong)); ++*rounds)
        listen_round();
    __atomic_store_n(&x_stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
}

#endif
