/* SPDX-License-Identifier: MIT
 *
 * scenario.h: runs the cache on a simulated device, step by step. Each step lists the statistics that it changes.
 * After every step all statistics are compared; those that a step does not mention must not change. Only
 * test_scenario*.c include it.
 */
#ifndef GP_TEST_UNIT_SCENARIO_H
#define GP_TEST_UNIT_SCENARIO_H

#include "cache/policy.h"
#include "lib/cachecheck.h"
#include "lib/fakedev.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* The changes by one step in the statistics of one pool. */
struct scene_change {
    int64_t count, bytes;         /* allocation, allocated_bytes */
    int64_t active, active_bytes; /* as above, plus freed blocks that wait for pending work */
    int64_t requested;            /* follows active */
    int64_t segments, reserved;   /* segments: only driver allocations, not pages */
    int64_t splits, split_bytes;  /* idle parts of segments that are partly in use */
};
#define SCENE_FIELDS  9
#define SCENE_STREAMS 16
_Static_assert(sizeof(struct scene_change) == SCENE_FIELDS * sizeof(int64_t), "seen as an array");
static const char *const scene_fields[SCENE_FIELDS] = {"allocation",     "allocated_bytes", "active",
                                                       "active_bytes",   "requested_bytes", "segment",
                                                       "reserved_bytes", "inactive_split",  "inactive_split_bytes"};
static const unsigned scene_gauges[SCENE_FIELDS] = {
    GP_GAUGE_ALLOCATION,     GP_GAUGE_ALLOCATED_BYTES, GP_GAUGE_ACTIVE,
    GP_GAUGE_ACTIVE_BYTES,   GP_GAUGE_REQUESTED_BYTES, GP_GAUGE_SEGMENT,
    GP_GAUGE_RESERVED_BYTES, GP_GAUGE_INACTIVE_SPLIT,  GP_GAUGE_INACTIVE_SPLIT_BYTES};

/* A block is allocated; is freed and idle at once; is freed and waits; stops waiting. */
#define GIVES(block, wanted)                                                                                           \
    .count = 1, .bytes = (int64_t)(block), .active = 1, .active_bytes = (int64_t)(block), .requested = (int64_t)(wanted)
#define TAKES(block, wanted)                                                                                           \
    .count = -1, .bytes = -(int64_t)(block), .active = -1, .active_bytes = -(int64_t)(block),                          \
    .requested = -(int64_t)(wanted)
#define FREED(block)         .count = -1, .bytes = -(int64_t)(block)
#define IDLED(block, wanted) .active = -1, .active_bytes = -(int64_t)(block), .requested = -(int64_t)(wanted)
/* Changes of the segments and of their idle parts. */
#define SEGMENTS(n, total) .segments = (n), .reserved = (int64_t)(total)
#define SPLITS(n, total)   .splits = (n), .split_bytes = (int64_t)(total)

enum scene_op {
    ALLOC,
    FREE,
    FREE_UNORDERED,
    RECORD,  /* the block is used on a stream too */
    REACH,   /* all work submitted so far is done, but the cache has not checked that yet */
    PENDING, /* from now on a fence is reached only by a wait or by REACH */
    EMPTY,
    LIMIT,
    POOL_BEGIN,
    POOL_RELEASE,
    FORBID, /* bytes 1: driver calls are forbidden (capture); 0: allowed */
};

struct scene_step {
    enum scene_op op;
    char name; /* of the block */
    uint64_t bytes, stream, pool;
    uint32_t result;
    char where; /* the block starts `offset` bytes after the last start of this one */
    uint64_t offset;
    struct scene_change small, large;
    int64_t oversize, oversize_segments;
    int64_t retries, ooms;
    int64_t swapped; /* segments made and released in addition to the change in `segments` */
    int64_t waits;   /* at least this many waits; 0: exactly none */
};

struct scene {
    struct fakedev device;
    bool pending; /* work is submitted before each step */
    struct gp_policy policy;
    struct gp_cache *cache;
    const char *title;
    unsigned number; /* of the step */
    uint64_t addresses[128];
    struct scene_change small, large;
    int64_t oversize, oversize_segments, retries, ooms, allocs, frees;
    int64_t peak_bytes;
    int64_t seen_ooms, seen_retries;
};

static inline void scene_listen(void *arg, const struct gp_cache_event *event)
{
    struct scene *scene = arg;
    scene->seen_ooms += event->type == GP_CACHE_OOM;
    scene->seen_retries += event->type == GP_CACHE_RETRY;
}

/* device_bytes: the device's memory; limit_bytes: the most that may be reserved of it (0: no
 * limit). */
static inline void scene_open(struct scene *scene, const char *title, const char *policy, const char *conf,
                              uint64_t device_bytes, uint64_t limit_bytes)
{
    memset(scene, 0, sizeof *scene);
    char why[256];
    scene->title = title;
    scene->policy = *gp_policy_find(policy);
    cr_assert_eq(gp_policy_configure(&scene->policy, conf, why, sizeof why), 0, "%s", why);
    cr_assert_eq(fakedev_init(&scene->device, device_bytes, 2 << 20), 0);
    for (unsigned stream = 0; stream < SCENE_STREAMS; stream++)
        fakedev_stream_open(&scene->device, stream);
    struct gp_cache_setup setup = {.policy = &scene->policy,
                                   .backend = fakedev_backend(&scene->device),
                                   .limit_bytes = limit_bytes,
                                   .listener = scene,
                                   .listen = scene_listen};
    cr_assert_eq(gp_cache_new(&scene->cache, &setup), 0);
}

static inline void scene_close(struct scene *scene)
{
    gp_cache_free(scene->cache);
    cr_assert_eq(scene->device.held, 0, "%s: %lu bytes were not given back", scene->title, scene->device.held);
    cr_assert_eq(scene->device.faults, 0, "%s: %s", scene->title, scene->device.fault);
    fakedev_fini(&scene->device);
}

static inline void scene_expect(struct scene *scene, char name, const char *what, int64_t seen, int64_t expected)
{
    cr_assert_eq(seen, expected, "%s, step %u (%c): %s is %ld, should be %ld (%+ld)", scene->title, scene->number,
                 name ? name : '-', what, seen, expected, seen - expected);
}

static inline void scene_add(struct scene_change *sum, const struct scene_change *change)
{
    int64_t *to = (int64_t *)sum;
    const int64_t *from = (const int64_t *)change;
    for (unsigned i = 0; i < SCENE_FIELDS; i++)
        to[i] += from[i];
}

static inline void scene_expect_gauges(struct scene *scene, char name)
{
    struct gp_gauge_value values[GP_GAUGES];
    gp_counter_snapshot(cache_check_gauges(scene->cache), values);
    const int64_t *small = (const int64_t *)&scene->small, *large = (const int64_t *)&scene->large;
    for (unsigned i = 0; i < SCENE_FIELDS; i++) {
        char what[64];
        snprintf(what, sizeof what, "%s.all", scene_fields[i]);
        scene_expect(scene, name, what, values[scene_gauges[i] + GP_POOL_ALL].current, small[i] + large[i]);
        snprintf(what, sizeof what, "%s.small_pool", scene_fields[i]);
        scene_expect(scene, name, what, values[scene_gauges[i] + GP_POOL_SMALL].current, small[i]);
        snprintf(what, sizeof what, "%s.large_pool", scene_fields[i]);
        scene_expect(scene, name, what, values[scene_gauges[i] + GP_POOL_LARGE].current, large[i]);
    }
    scene_expect(scene, name, "oversize_allocations", values[GP_GAUGE_OVERSIZE_ALLOCATIONS].current, scene->oversize);
    scene_expect(scene, name, "oversize_segments", values[GP_GAUGE_OVERSIZE_SEGMENTS].current,
                 scene->oversize_segments);
    scene_expect(scene, name, "allocated_bytes.all.peak", values[GP_GAUGE_ALLOCATED_BYTES].peak, scene->peak_bytes);
}

static inline void scene_expect_numbers(struct scene *scene, char name)
{
    struct gp_cache_numbers numbers;
    gp_cache_numbers(scene->cache, &numbers);
    int64_t bytes = scene->small.bytes + scene->large.bytes;
    int64_t active = scene->small.active_bytes + scene->large.active_bytes;
    int64_t reserved = scene->small.reserved + scene->large.reserved;
    scene_expect(scene, name, "numbers.reserved", (int64_t)numbers.reserved_bytes, reserved);
    scene_expect(scene, name, "numbers.allocated", (int64_t)numbers.allocated_bytes, bytes);
    scene_expect(scene, name, "numbers.waiting", (int64_t)numbers.waiting_bytes, active - bytes);
    scene_expect(scene, name, "numbers.idle", (int64_t)numbers.idle_bytes, reserved - active);
    scene_expect(scene, name, "num_alloc_retries", (int64_t)numbers.retries, scene->retries);
    scene_expect(scene, name, "the device's used bytes", (int64_t)scene->device.held, reserved);
    if (!scene->policy.growable) {
        scene_expect(scene, name, "num_device_alloc", (int64_t)numbers.device_allocs, scene->allocs);
        scene_expect(scene, name, "num_device_free", (int64_t)numbers.device_frees, scene->frees);
    }
    scene_expect(scene, name, "RETRY events", scene->seen_retries, scene->retries);
    scene_expect(scene, name, "OOM events", scene->seen_ooms, scene->ooms);
    char why[256] = "";
    cr_assert_eq(cache_check(scene->cache, why, sizeof why), 0, "%s, step %u: %s", scene->title, scene->number, why);
}

static inline void scene_alloc(struct scene *scene, const struct scene_step *step)
{
    struct gp_request request = {.bytes = step->bytes, .stream = step->stream, .pool = step->pool};
    struct gp_grant grant = {0};
    uint32_t result = gp_cache_alloc(scene->cache, &request, &grant);
    scene_expect(scene, step->name, "the result", result, step->result);
    if (result)
        return;
    scene_expect(scene, step->name, "the block's size", (int64_t)grant.bytes, step->small.bytes + step->large.bytes);
    scene_expect(scene, step->name, "the size asked for", (int64_t)grant.requested_bytes, (int64_t)step->bytes);
    if (step->where)
        scene_expect(scene, step->name, "the address", (int64_t)grant.address,
                     (int64_t)(scene->addresses[(unsigned char)step->where] + step->offset));
    scene->addresses[(unsigned char)step->name] = grant.address;
}

static inline void scene_act(struct scene *scene, const struct scene_step *step)
{
    uint64_t address = scene->addresses[(unsigned char)step->name];
    switch (step->op) {
    case ALLOC:
        scene_alloc(scene, step);
        break;
    case FREE:
        cr_assert(gp_cache_release(scene->cache, address, GP_FREE_ORDERED, 0, NULL));
        break;
    case FREE_UNORDERED:
        cr_assert(gp_cache_release(scene->cache, address, GP_FREE_UNORDERED, 0, NULL));
        break;
    case RECORD:
        cr_assert(gp_cache_record_stream(scene->cache, address, step->stream));
        break;
    case REACH:
        fakedev_complete_all(&scene->device);
        break;
    case PENDING:
        scene->pending = true;
        break;
    case EMPTY:
        gp_cache_trim(scene->cache, 0);
        break;
    case LIMIT:
        gp_cache_set_limit(scene->cache, step->bytes);
        break;
    case POOL_BEGIN:
        cr_assert_eq(gp_cache_pool_begin(scene->cache, step->pool), 0);
        break;
    case POOL_RELEASE:
        cr_assert_eq(gp_cache_pool_release(scene->cache, step->pool), 0);
        break;
    case FORBID:
        scene->device.capturing = step->bytes != 0;
        break;
    }
}

static inline void scene_step(struct scene *scene, const struct scene_step *step)
{
    int64_t segments = step->small.segments + step->large.segments;
    uint64_t waits = scene->device.calls[FAKEDEV_WAIT];
    scene->number++;
    scene_add(&scene->small, &step->small);
    scene_add(&scene->large, &step->large);
    scene->oversize += step->oversize;
    scene->oversize_segments += step->oversize_segments;
    scene->retries += step->retries;
    scene->ooms += step->ooms;
    scene->allocs += step->swapped + (segments > 0 ? segments : 0);
    scene->frees += step->swapped - (segments < 0 ? segments : 0);
    int64_t bytes = scene->small.bytes + scene->large.bytes;
    if (bytes > scene->peak_bytes)
        scene->peak_bytes = bytes;
    for (unsigned stream = 0; stream < SCENE_STREAMS && scene->pending && step->op != REACH; stream++)
        fakedev_submit(&scene->device, stream);
    scene_act(scene, step);
    waits = scene->pending ? scene->device.calls[FAKEDEV_WAIT] - waits : 0;
    cr_assert(step->waits ? (int64_t)waits >= step->waits : waits == 0, "%s, step %u: %lu waits", scene->title,
              scene->number, waits);
    scene_expect_gauges(scene, step->name);
    scene_expect_numbers(scene, step->name);
}

#define SCENE_RUN(scene, steps)                                                                                        \
    for (unsigned i_ = 0; i_ < sizeof(steps) / sizeof(steps)[0]; i_++)                                                 \
    scene_step(scene, &(steps)[i_])

/* One step, written in place. */
#define SCENE_DO(scene, ...) scene_step(scene, &(struct scene_step){__VA_ARGS__})

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

#endif
