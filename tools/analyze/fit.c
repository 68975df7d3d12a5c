/* SPDX-License-Identifier: MIT
 * fit.c: replays the requests of a recording at other sizes of the device, and searches for the
 * smallest one; see fit.h.  Called by the command `fit`. */
#include <analyze/fit.h>
#include <read/common/order.h>

#include <allocator/cache/cache.h>
#include <allocator/cache/policy.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/* As behind cuMemAlloc (docs/allocator.md): from this size on, a request is a driver allocation. */
#define GP_FIT_DEDICATED (2ull << 20)
#define GP_FIT_ALIGN     512u

struct gp_fit_play {
    const struct gp_fit_trace *trace;
    const struct gp_fit_setup *setup;
    struct gp_fit_device device;
    struct gp_fit_driver *driver;
    struct gp_cache *cache; /* NULL: none */
    uint64_t *slots;        /* of each live block: its address in the cache, or its place on the device */
    uint64_t pools, pool_pages, graphs, segments;
    unsigned any_flags; /* of a request that names no stream */
};

/* ---- one operation: false if there is no memory ------------------------------------------------------------------ */

static bool play_driver_take(struct gp_fit_play *p, uint64_t bytes, uint64_t *place)
{
    if (gp_fit_device_take(&p->device, bytes, place))
        return true;
    return p->cache && p->setup->yields && gp_cache_trim(p->cache, 0) > 0 &&
           gp_fit_device_take(&p->device, bytes, place);
}

/* Raises or lowers what something that is not a block holds, in whole pages. */
static bool play_level(struct gp_fit_play *p, uint64_t *pages, uint64_t bytes)
{
    uint64_t wanted = (bytes + GP_FIT_PAGE - 1) / GP_FIT_PAGE, place;
    if (wanted > *pages && !play_driver_take(p, (wanted - *pages) * GP_FIT_PAGE, &place))
        return false;
    if (wanted < *pages)
        p->device.used -= (*pages - wanted) * GP_FIT_PAGE;
    *pages = wanted;
    return true;
}

static bool play_alone(struct gp_fit_play *p, const struct gp_fit_op *op)
{
    if (op->pages == GP_FIT_PAGES_MODEL)
        return play_driver_take(p, op->bytes, &p->slots[op->slot]);
    uint64_t place;
    return op->pages == GP_FIT_PAGES_NONE || play_driver_take(p, GP_FIT_PAGE, &place);
}

static void play_alone_end(struct gp_fit_play *p, const struct gp_fit_op *op)
{
    if (op->pages == GP_FIT_PAGES_MODEL)
        gp_fit_device_give(&p->device, op->bytes, p->slots[op->slot]);
    else if (op->pages == GP_FIT_PAGES_ONE)
        gp_fit_device_give(&p->device, GP_FIT_PAGE, GP_FIT_WHOLE);
}

static bool play_take(struct gp_fit_play *p, const struct gp_fit_op *op)
{
    if (!p->cache)
        return play_alone(p, op);
    bool any = op->stream == GP_FIT_STREAM_ANY;
    struct gp_request request = {.bytes = op->bytes, .stream = any ? GP_STREAM_ANY : op->stream, .shard = op->shard};
    struct gp_grant grant = {0};
    if (any)
        request.flags = op->bytes < GP_FIT_DEDICATED ? p->any_flags & ~GP_REQUEST_DEDICATED : p->any_flags;
    if (op->bytes && gp_cache_alloc(p->cache, &request, &grant) != 0)
        return false;
    p->slots[op->slot] = grant.address;
    return true;
}

static void play_give(struct gp_fit_play *p, const struct gp_fit_op *op)
{
    if (!p->cache)
        play_alone_end(p, op);
    else if (op->bytes)
        gp_cache_release(p->cache, p->slots[op->slot],
                         op->stream == GP_FIT_STREAM_ANY ? GP_FREE_UNORDERED : GP_FREE_ORDERED, op->shard, NULL);
}

/* A segment that was recorded has no slot: its pages are only counted. */
static bool play_driver(struct gp_fit_play *p, const struct gp_fit_op *op, bool take)
{
    if (op->slot == GP_REC_NONE) {
        uint64_t bytes = p->segments * GP_FIT_PAGE;
        return play_level(p, &p->segments, take ? bytes + op->bytes : bytes > op->bytes ? bytes - op->bytes : 0);
    }
    if (take)
        return play_alone(p, op);
    play_alone_end(p, op);
    return true;
}

static bool play_pool(struct gp_fit_play *p, const struct gp_fit_op *op, bool take)
{
    uint64_t bytes = (op->bytes + GP_FIT_ALIGN - 1) / GP_FIT_ALIGN * GP_FIT_ALIGN;
    p->pools = take ? p->pools + bytes : p->pools - bytes;
    return play_level(p, &p->pool_pages, p->pools);
}

static bool play_op(struct gp_fit_play *p, const struct gp_fit_op *op)
{
    switch (op->kind) {
    case GP_FIT_TAKE:
        return play_take(p, op);
    case GP_FIT_GIVE:
        play_give(p, op);
        return true;
    case GP_FIT_DRIVER_TAKE:
    case GP_FIT_DRIVER_GIVE:
        return play_driver(p, op, op->kind == GP_FIT_DRIVER_TAKE);
    case GP_FIT_TRIM:
        if (p->cache)
            gp_cache_trim(p->cache, 0);
        return true;
    case GP_FIT_POOL_TAKE:
    case GP_FIT_POOL_GIVE:
        return play_pool(p, op, op->kind == GP_FIT_POOL_TAKE);
    default:
        return play_level(p, &p->graphs, op->bytes);
    }
}

/* ---- a replay ---------------------------------------------------------------------------------------------------- */

static int play_cache(struct gp_fit_play *p)
{
    struct gp_policy policy = *p->setup->policy;
    struct gp_cache_setup setup = {.policy = &policy};
    /* As the library does for every policy: the driver aligns to as much. */
    policy.granule_bytes = policy.granule_bytes < GP_FIT_ALIGN ? GP_FIT_ALIGN : policy.granule_bytes;
    const struct gp_policy *plain = gp_policy_find(policy.name);
    bool growable = policy.growable && plain && !plain->growable; /* by expandable_segments:True */
    p->any_flags = growable ? 0 : policy.only_first ? GP_REQUEST_LINEAR : GP_REQUEST_LINEAR | GP_REQUEST_DEDICATED;
    p->driver = gp_fit_driver_new(&p->device, &setup.backend);
    return p->driver ? gp_cache_new(&p->cache, &setup) : -ENOMEM;
}

/* Two replays at a time: the first that fails ends the other one. */
#define GP_FIT_LOOK 4096u /* operations between two looks at the other */

static int play_run(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, uint64_t bytes,
                    struct gp_fit_end *end, uint32_t *stop)
{
    struct gp_fit_play play = {.trace = trace, .setup = setup, .device = {.size = bytes, .downward = setup->downward}};
    play.slots = calloc(trace->slots + 1ul, sizeof(*play.slots));
    int rc = play.slots ? 0 : -ENOMEM;
    if (!rc && setup->policy)
        rc = play_cache(&play);
    size_t at = 0;
    while (!rc && at < trace->count) {
        size_t until = trace->count - at < GP_FIT_LOOK ? trace->count : at + GP_FIT_LOOK;
        while (at < until && play_op(&play, &trace->ops[at]))
            at++;
        if (at < until)
            __atomic_store_n(stop, 1, __ATOMIC_RELAXED);
        if (__atomic_load_n(stop, __ATOMIC_RELAXED)) /* only a hint: no order needed */
            break;
    }
    *end = (struct gp_fit_end){.failed = at, .peak = play.device.peak, .used = play.device.used};
    if (play.cache)
        gp_cache_free(play.cache);
    gp_fit_driver_free(play.driver);
    gp_fit_device_fini(&play.device);
    free(play.slots);
    return rc;
}

int gp_fit_play(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, uint64_t bytes,
                struct gp_fit_end *end)
{
    uint32_t stop = 0;
    return play_run(trace, setup, bytes, end, &stop);
}

struct gp_fit_other { /* the replay on the other thread */
    const struct gp_fit_trace *trace;
    struct gp_fit_setup setup;
    uint64_t bytes;
    struct gp_fit_end end;
    uint32_t *stop;
    int rc;
};

static void *play_other(void *argument)
{
    struct gp_fit_other *other = argument;
    other->rc = play_run(other->trace, &other->setup, other->bytes, &other->end, other->stop);
    return NULL;
}

int gp_fit_fits(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, uint64_t bytes, bool *fits,
                uint64_t *peak, struct gp_fit_sizes *fit)
{
    uint32_t stop = 0;
    struct gp_fit_other other = {trace, *setup, bytes, {0}, &stop, 0};
    struct gp_fit_end end;
    pthread_t thread;
    other.setup.downward = true;
    bool both = setup->policy, beside = both && pthread_create(&thread, NULL, play_other, &other) == 0;
    int rc = play_run(trace, setup, bytes, &end, &stop);
    fit->replays += both ? 2 : 1;
    if (beside)
        pthread_join(thread, NULL);
    else if (both)
        play_other(&other);
    *fits = end.failed == trace->count && (!both || other.end.failed == trace->count);
    if (peak)
        *peak = other.end.peak > end.peak ? other.end.peak : end.peak;
    return rc ? rc : other.rc;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

#define GP_FIT_PARTS 128u /* the search ends when it knows the size to this part of it */
#define GP_FIT_TRIES 16u  /* doublings of a size that is to be enough */

struct gp_fit_search {
    const struct gp_fit_trace *trace;
    const struct gp_fit_setup *setup;
    struct gp_fit_sizes *fit;
};

/* The reserve of such an allocator depends on the size of the device. */
static bool search_is_relative(const struct gp_fit_setup *setup)
{
    return setup->policy && (setup->policy->first_fraction > 0 || setup->policy->memory_fraction > 0);
}

static uint64_t search_page(uint64_t bytes)
{
    return (bytes + GP_FIT_PAGE - 1) / GP_FIT_PAGE * GP_FIT_PAGE;
}

/* A size that is enough: the peak where there is plenty. */
static int search_enough(const struct gp_fit_search *s)
{
    uint64_t bytes = search_page(s->trace->load_bytes), peak = 0;
    bool fits = false, relative = search_is_relative(s->setup);
    int rc = 0;
    /* Plenty is four times the load; an allocator that fragments more is given twice as much. */
    bytes = relative ? bytes + bytes / 8 + GP_FIT_PAGE : bytes * 4 + (1ull << 30);
    for (unsigned i = 0; !rc && !fits && i < GP_FIT_TRIES; i++) {
        rc = gp_fit_fits(s->trace, s->setup, bytes, &fits, &peak, s->fit);
        s->fit->enough_bytes = relative ? bytes : search_page(peak);
        bytes += relative ? search_page(bytes / 4) : bytes;
    }
    return rc ? rc : fits ? 0 : -ERANGE;
}

int gp_fit_find(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, struct gp_fit_sizes *fit)
{
    const struct gp_fit_search search = {trace, setup, fit};
    *fit = (struct gp_fit_sizes){.step_bytes = GP_FIT_PAGE};
    int rc = search_enough(&search);
    uint64_t high = fit->enough_bytes, low = search_page(trace->load_bytes);
    /* low never fits from here on, high always does. */
    low = low > GP_FIT_PAGE ? low - GP_FIT_PAGE : 0;
    if (setup->policy && high / GP_FIT_PARTS > GP_FIT_PAGE)
        fit->step_bytes = high / GP_FIT_PARTS / GP_FIT_PAGE * GP_FIT_PAGE;
    if (setup->policy)
        fit->spare_bytes = high / GP_FIT_PARTS / 2 / GP_FIT_PAGE * GP_FIT_PAGE;
    while (!rc && setup->policy && high > low && high - low > fit->step_bytes) {
        uint64_t middle = low + search_page((high - low) / 2);
        bool fits;
        if (middle >= high || middle <= fit->spare_bytes)
            break;
        rc = gp_fit_fits(trace, setup, middle - fit->spare_bytes, &fits, NULL, fit);
        high = fits ? middle : high;
        low = fits ? low : middle;
    }
    fit->smallest_bytes = high;
    fit->fails_bytes = low;
    return rc;
}

/* ---- the context ------------------------------------------------------------------------------------------------- */

enum gp_fit_context gp_fit_context_find(const struct gp_recording *recording, uint32_t device, uint64_t *bytes)
{
    int64_t most = -1;
    for (size_t i = 0; i < recording->sample_count; i++) {
        const struct gp_rec_sample *sample = &recording->samples[i];
        if (sample->device != device || sample->process_bytes < 0 || sample->reserved_bytes < 0)
            continue;
        int64_t rest = sample->process_bytes - sample->reserved_bytes;
        GP_RAISE(most, rest);
    }
    *bytes = most >= 0 ? (uint64_t)most : GP_FIT_CONTEXT_BYTES;
    return most >= 0 ? GP_FIT_MEASURED : GP_FIT_ASSUMED;
}
