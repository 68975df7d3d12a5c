/* SPDX-License-Identifier: MIT
 *
 * cache_bare.c: our cache linked with counters that count nothing, as a contender of bench_cache:
 * the difference is the cost of the statistics.  It is a library of its own, so both caches run in
 * one process, in turns. */
#include "base/compiler.h"
#include "base/counter.h"
#include "bench/cache_own.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BARE_SHARDS 64

struct gp_counter {
    struct gp_counter_shape shape;
    pthread_mutex_t mutex; /* freeze to thaw */
    struct {
        struct gp_gate gate;
    } GP_ALIGNED_LINE shard[BARE_SHARDS];
};

int gp_counter_new(struct gp_counter **out, unsigned gauges, unsigned shards)
{
    (void)gauges;
    (void)shards;
    if (posix_memalign((void **)out, GP_LINE, sizeof **out))
        return -ENOMEM;
    memset(*out, 0, sizeof **out);
    pthread_mutex_init(&(*out)->mutex, NULL);
    (*out)->shape = (struct gp_counter_shape){
        .shards = BARE_SHARDS, .stride = sizeof(*out)->shard[0], .first = (char *)(*out)->shard};
    for (unsigned s = 0; s < BARE_SHARDS; s++)
        (*out)->shard[s].gate.state = GP_GATE_OPEN;
    return 0;
}

void gp_counter_free(struct gp_counter *set)
{
    free(set);
}

void gp_counter_bundle(struct gp_counter *set, unsigned bundle, gp_gauge_set gauges)
{
    (void)set;
    (void)bundle;
    (void)gauges;
}

bool gp_counter_used(const struct gp_counter *set, unsigned shard)
{
    (void)set;
    (void)shard;
    return true;
}

void gp_counter_freeze(struct gp_counter *set)
{
    pthread_mutex_lock(&set->mutex);
    for (unsigned s = 0; s < BARE_SHARDS; s++)
        while (!gp_gate_hold(&set->shard[s].gate))
            ;
}

void gp_counter_thaw(struct gp_counter *set)
{
    for (unsigned s = 0; s < BARE_SHARDS; s++)
        gp_gate_release(&set->shard[s].gate);
    pthread_mutex_unlock(&set->mutex);
}

void gp_counter_apply(struct gp_counter *set, unsigned shard, enum gp_counter_op op, const struct gp_delta *deltas,
                      unsigned n)
{
    /* The caller still has to make the deltas: a cache without statistics would not, but this one's
     * figure is about the counters. */
    __asm__ volatile("" ::"r"(set), "r"(shard), "r"(op), "r"(deltas), "r"(n) : "memory");
}

uint64_t gp_counter_apply_timed(struct gp_counter *set, unsigned shard, enum gp_counter_op op,
                                const struct gp_delta *deltas, unsigned n)
{
    gp_counter_apply(set, shard, op, deltas, n);
    return 0;
}

void gp_counter_snapshot(struct gp_counter *set, struct gp_gauge_value *out)
{
    (void)set;
    memset(out, 0, GP_GAUGES * sizeof *out);
}

const struct bench_cache_api bench_cache_peer = {"caching_bare", caching_create, cache_destroy,
                                                 cache_alloc,    cache_free,     cache_calls};
