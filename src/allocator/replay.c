/* SPDX-License-Identifier: MIT
 *
 * replay.c: what other settings of a framework's allocator would have done: its requests are replayed through our cache
 * with PyTorch's policy, against a device of the size that the framework had. The poller calls it after a failure.
 *
 * The first replay uses the settings in force. Unless it grants blocks of the same sizes, ends with the same memory
 * reserved and fails at the same request, the model lacks something that the program did (other streams, private
 * pools, a version with other rules), and nothing is claimed.
 *
 * A block is larger than its request by up to a MiB, which is not split off. With other settings the request, which is
 * not known, may get less. So a setting helps if it serves requests as large as the blocks, and fails if it does not
 * serve requests as small as they can have been.
 */
#include "account/feed/failed.h"
#include "allocator/internal.h"
#include "base/compiler.h"
#include "cache/cache.h"
#include "cache/policy.h"
#include <gpuprof/wire.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (1ull << 20)
/* More than any device has; sums stay in range. */
#define REPLAY_PLENTY (1ull << 50)

struct replay_device {
    uint64_t room, used, peak, next, serial;
};

static bool device_take(struct replay_device *device, uint64_t bytes)
{
    if (device->used > device->room || bytes > device->room - device->used)
        return false;
    device->used += bytes;
    device->peak = device->used > device->peak ? device->used : device->peak;
    return true;
}

struct replay_try {
    const char *more;     /* settings beside those in force; "": none */
    uint64_t room;        /* bytes of the device at the end */
    uint64_t more_before; /* and before, when other libraries may not have had yet what they have at the end */
    uint64_t leave;       /* of these, free at the end */
    bool least;           /* requests as small as they can have been */
    bool asks;            /* the request that failed comes last */
    bool trims;           /* the cache is emptied where it was */
};

struct replay_end {
    bool passed;     /* all of the history was served; and the last request, and the bytes are left */
    bool same_sizes; /* of the blocks, up to the first request that failed */
    bool served;     /* the history alone */
    uint64_t reserved_bytes, peak_bytes;
};

/* ---- the device --------------------------------------------------------------------------------------------------- */

/* Addresses are not used again: 2^18 requests of 2^30 bytes fit. */
static uint64_t device_address(struct replay_device *device, uint64_t bytes)
{
    uint64_t address = device->next;
    device->next += (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    return address;
}

static uint32_t replay_allocate(void *self, uint64_t bytes, uint64_t *address)
{
    struct replay_device *device = self;
    if (!device_take(device, bytes))
        return GP_BACKEND_OOM;
    *address = device_address(device, bytes);
    return 0;
}

static uint32_t replay_free(void *self, uint64_t address)
{
    (void)self, (void)address; /* its size comes with the event (replay_listen) */
    return 0;
}

static uint32_t replay_reserve(void *self, uint64_t bytes, uint64_t *address)
{
    *address = device_address(self, bytes);
    return 0;
}

static uint32_t replay_range(void *self, uint64_t address, uint64_t bytes)
{
    (void)self, (void)address, (void)bytes;
    return 0;
}

/* The handle has the size in its high bits, in MiB. */
static uint32_t replay_create(void *self, uint64_t bytes, uint64_t *handle)
{
    struct replay_device *device = self;
    if (!device_take(device, bytes))
        return GP_BACKEND_OOM;
    *handle = bytes / MIB << 40 | ++device->serial;
    return 0;
}

static uint32_t replay_destroy(void *self, uint64_t handle)
{
    struct replay_device *device = self;
    device->used -= (handle >> 40) * MIB;
    return 0;
}

static uint32_t replay_map(void *self, uint64_t address, uint64_t bytes, const uint64_t *handles,
                           const uint64_t *handle_bytes, unsigned count)
{
    (void)self, (void)address, (void)bytes, (void)handles, (void)handle_bytes, (void)count;
    return 0;
}

static uint32_t replay_record(void *self, const uint64_t *streams, unsigned count, uint64_t *fence)
{
    (void)self, (void)streams, (void)count;
    *fence = 1;
    return 0;
}

static uint32_t replay_reached(void *self, uint64_t fence)
{
    (void)self, (void)fence;
    return 0;
}

static uint32_t replay_memory(void *self, uint64_t *free_bytes, uint64_t *total_bytes)
{
    const struct replay_device *device = self;
    *free_bytes = device->used < device->room ? device->room - device->used : 0;
    *total_bytes = device->room;
    return 0;
}

static void replay_listen(void *listener, const struct gp_cache_event *event)
{
    struct replay_device *device = listener;
    if (event->type == GP_CACHE_SEGMENT_FREE)
        device->used -= event->bytes;
}

static struct gp_cache *replay_cache(struct replay_device *device, const struct gp_policy *policy)
{
    struct gp_cache *cache = NULL;
    const struct gp_cache_setup setup = {
        .policy = policy,
        .backend = {.self = device,
                    .page_bytes = 2 * MIB,
                    .allocate = replay_allocate,
                    .free = replay_free,
                    .reserve = replay_reserve,
                    .unreserve = replay_range,
                    .create = replay_create,
                    .destroy = replay_destroy,
                    .map = replay_map,
                    .unmap = replay_range,
                    .record = replay_record,
                    .query = replay_reached,
                    .wait = replay_reached,
                    .memory = replay_memory},
        .listener = device,
        .listen = replay_listen,
    };
    return gp_cache_new(&cache, &setup) == 0 ? cache : NULL;
}

/* ---- one replay --------------------------------------------------------------------------------------------------- */

/* The least that a request can have been that got this block. */
static uint64_t least_request(const struct gp_policy *in_force, uint64_t bytes)
{
    uint64_t over = bytes >= in_force->max_split_bytes ? in_force->max_round_bytes : MIB;
    if (bytes <= MIB)
        return bytes;
    return bytes > over + MIB + 512 ? bytes - over : MIB + 512;
}

static bool replay_take(struct gp_cache *cache, uint64_t bytes, struct gp_grant *grant)
{
    return gp_cache_alloc(cache, &(struct gp_request){.bytes = bytes}, grant) == 0;
}

/* False: a request was not served. */
static bool replay_events(struct gp_cache *cache, const struct gp_feed_replay *replay, const struct replay_try *how,
                          const struct gp_policy *in_force, uint64_t *places, struct replay_end *end)
{
    uint32_t made = 0;
    for (uint32_t i = 0; i < replay->count; i++) {
        uint64_t event = replay->history[i], value = event >> 2;
        struct gp_grant grant;
        if ((event & 3) == GP_HISTORY_FREE && value < made)
            gp_cache_release(cache, places[value], GP_FREE_ORDERED, 0, NULL);
        else if ((event & 3) == GP_HISTORY_TRIM && how->trims)
            gp_cache_trim(cache, 0);
        if ((event & 3) != GP_HISTORY_ALLOC)
            continue;
        if (made == replay->allocs || !replay_take(cache, how->least ? least_request(in_force, value) : value, &grant))
            return false;
        end->same_sizes &= grant.bytes == value;
        places[made++] = grant.address;
    }
    return true;
}

static bool replay_policies(const struct gp_feed_replay *replay, const char *more, struct gp_policy *in_force,
                            struct gp_policy *policy)
{
    char text[256], why[128];
    const struct gp_policy *pytorch = gp_policy_find("pytorch");
    if (!pytorch)
        return false;
    *in_force = *pytorch;
    in_force->whole_pages = true;
    if (*replay->conf && gp_policy_configure(in_force, replay->conf, why, sizeof(why)) != 0)
        return false;
    in_force->memory_fraction = 0; /* the room of each replay is the limit */
    *policy = *in_force;
    snprintf(text, sizeof(text), "%s", more);
    return !*text || gp_policy_configure(policy, text, why, sizeof(why)) == 0;
}

static bool replay_run(const struct gp_feed_replay *replay, const struct replay_try *how, struct replay_end *end)
{
    struct replay_device device = {.room = how->room + how->more_before, .next = 1ull << 40};
    struct gp_policy in_force, policy;
    uint64_t bytes = (replay->allocs + 1ull) * sizeof(uint64_t);
    *end = (struct replay_end){.same_sizes = true};
    if (!replay_policies(replay, how->more, &in_force, &policy))
        return false;
    void *places = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (places == MAP_FAILED)
        return false;
    struct gp_cache *cache = replay_cache(&device, &policy);
    if (cache) {
        struct gp_grant grant;
        end->served = replay_events(cache, replay, how, &in_force, places, end);
        end->passed = end->served;
        end->peak_bytes = device.peak;
        device.room = how->room;
        if (end->served && how->asks)
            end->passed = replay_take(
                cache, how->least ? least_request(&in_force, replay->asked_bytes) : replay->asked_bytes, &grant);
        end->reserved_bytes = device.used;
        end->passed &= device.used + how->leave <= device.room;
        gp_cache_free(cache);
    }
    munmap(places, bytes);
    return cache != NULL;
}

/* Where other libraries share the device, what they had at each moment is not known. So the framework must not be in
 * their way at any: it never holds more than what they leave at the end, without being made to give memory back. */
static bool replay_passes(const struct gp_feed_replay *replay, struct replay_try how)
{
    struct replay_end end;
    if (!replay_run(replay, &how, &end) || !end.passed)
        return false;
    how.more_before = REPLAY_PLENTY;
    return !replay->others_bytes || (replay_run(replay, &how, &end) && end.passed && end.peak_bytes <= how.room);
}

static bool replay_fails(const struct gp_feed_replay *replay, struct replay_try how)
{
    struct replay_end end;
    how.least = true;
    how.more_before = replay->others_bytes;
    return replay_run(replay, &how, &end) && !end.passed;
}

/* ---- what is tried ------------------------------------------------------------------------------------------------ */

/* The segment that a request takes if nothing idle serves it. */
static uint64_t replay_segment(const struct gp_feed_replay *replay)
{
    struct gp_policy in_force, policy;
    return replay_policies(replay, "", &in_force, &policy) ? gp_policy_segment(&in_force, replay->asked_bytes) : 0;
}

/* The framework's own limit is not known: it lies between what it held at most and what this request would have led
 * to. low: the least that it can be. */
static uint64_t replay_room(const struct gp_feed_replay *replay, bool low)
{
    if (!(replay->flags & GP_OOM_REFUSED))
        return replay->reserved_bytes + replay->free_bytes;
    uint64_t most = replay->reserved_bytes + replay_segment(replay) - 512;
    uint64_t least = replay->peak_bytes > replay->reserved_bytes ? replay->peak_bytes : replay->reserved_bytes;
    return low || most < least ? least : most;
}

static bool replay_agrees(const struct gp_feed_replay *replay)
{
    struct replay_try how = {
        .more = "", .room = replay_room(replay, false), .asks = !(replay->flags & GP_OOM_BESIDE), .trims = true};
    struct replay_end end;
    if (!replay_run(replay, &how, &end) || !end.served || !end.same_sizes)
        return false;
    return end.reserved_bytes == replay->reserved_bytes && (!how.asks || !end.passed);
}

/* pass: the same, with less room where that is not known. */
static void replay_note(struct gp_feed_replay *replay, enum gp_wire_oom_try bit, struct replay_try pass,
                        struct replay_try fail)
{
    if (replay_passes(replay, pass))
        replay->helps |= 1u << bit;
    else if (replay_fails(replay, fail))
        replay->fails |= 1u << bit;
}

static bool conf_has(const struct gp_feed_replay *replay, const char *key)
{
    return strstr(replay->conf, key) != NULL;
}

/* A limit for larger blocks: half of the request, and some below it. */
static void replay_split(struct gp_feed_replay *replay, struct replay_try how)
{
    const uint64_t least = 20; /* PyTorch's */
    uint64_t sizes[] = {replay->asked_bytes / 2 / MIB, 512, 128, 32};
    char text[48];
    for (unsigned i = 0; i < GP_COUNT(sizes); i++) {
        if (sizes[i] < least || (i && sizes[i] >= sizes[0]))
            continue;
        snprintf(text, sizeof(text), "max_split_size_mb:%llu", (unsigned long long)sizes[i]);
        how.more = text;
        if (!replay_passes(replay, how))
            continue;
        replay->helps |= 1u << GP_OOM_TRY_SPLIT;
        replay->split_bytes = sizes[i] * MIB;
        return;
    }
}

static void replay_fraction(struct gp_feed_replay *replay)
{
    bool beside = replay->flags & GP_OOM_BESIDE;
    uint64_t all = replay->reserved_bytes + replay->free_bytes;
    uint64_t asked = (replay->asked_bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    if (!beside && !(replay->flags & GP_OOM_REFUSED))
        return;
    struct replay_try how = {.more = "",
                             .room = !beside       ? all
                                     : all > asked ? all - asked
                                                   : 0,
                             .asks = !beside,
                             .trims = beside};
    if (!beside)
        replay_note(replay, GP_OOM_TRY_FRACTION, how, how);
    else if (replay_passes(replay, how)) /* another value may help */
        replay->helps |= 1u << GP_OOM_TRY_FRACTION;
}

void gp_replay(struct gp_feed_replay *replay)
{
    bool beside = replay->flags & GP_OOM_BESIDE;
    replay->agrees = replay_agrees(replay);
    if (!replay->agrees)
        return;
    struct replay_try low = {.more = "expandable_segments:True",
                             .room = replay_room(replay, true),
                             .leave = beside ? replay->asked_bytes : 0,
                             .asks = !beside,
                             .trims = true};
    struct replay_try high = low;
    high.room = replay_room(replay, false);
    if (!conf_has(replay, "expandable_segments:True")) {
        replay_note(replay, GP_OOM_TRY_EXPANDABLE, low, high);
        if (!conf_has(replay, "max_split_size_mb"))
            replay_split(replay, low);
    }
    replay_fraction(replay);
}
