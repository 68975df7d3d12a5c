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

#include "account/feed/cache.h"
#include "account/feed/feed.h"
#include "account/internal.h"
#include "torture/reader_base.h"

#include "../../src/account/cached.c"

#include "bench/cache_bump.h"
#include "cache/policy.h"

enum { HELD = 40, GRANULES = 1 << 18 };

static struct gp_cache *cache;
static uint64_t x_held[WRITERS][HELD]; /* addresses; 0: none.  Any thread may take one away */
static uint64_t listen_base;
static uint8_t known[GRANULES];

struct gp_account *gp_account_of(int device)
{
    (void)device;
    return NULL;
}

bool gp_thread_life_on(void)
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

static unsigned reader_most(void)
{
    return 5000;
}

static void reader_step(unsigned writer)
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
    reader_walked += block->state == GP_CACHE_LIVE;
    return true;
}

static bool reader_is_right(void)
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

static void reader_forget(void)
{
    memset(known, 0, sizeof(known));
}

static void reader_walk(uint64_t begin)
{
    (void)begin;
    gp_cache_iterate(cache, NULL, listen_segment, listen_block, NULL);
}

static void reader_take(const struct gp_wire_event *event, uint64_t begin)
{
    if (event->time_ns >= begin && (event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_FREE))
        known[listen_place(event->address)] = event->type == GP_EVENT_ALLOC;
}

static void reader_begin(void)
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

#endif
