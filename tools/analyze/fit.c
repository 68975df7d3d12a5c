/* SPDX-License-Identifier: MIT
 * fit.c: replays the requests of a recording at other sizes of the device, and searches for the
 * smallest one; see fit.h.  Called by the command `fit`. */
#include <analyze/fit.h>
#include <read/common/hash.h>

#include <cache/cache.h>
#include <cache/policy.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

/* As behind cuMemAlloc (docs/allocator.md): from this size on, a request is a driver allocation. */
#define GP_FIT_DEDICATED (2ull << 20)
#define GP_FIT_ALIGN     512u

struct gp_fit_slot { /* of a live block.  The end of one in a damaged file may name another kind than its start */
    struct gp_block *block; /* the cache's; NULL: none */
    uint64_t place;         /* on the device, if it is a driver allocation */
    uint32_t piece;         /* of the pool: its number and 1; 0: none */
};

struct gp_fit_play {
    const struct gp_fit_trace *trace;
    const struct gp_fit_setup *setup;
    struct gp_fit_device device;
    struct gp_fit_driver *driver;
    struct gp_cache *cache; /* NULL: none */
    struct gp_fit_slot *slots;
    struct gp_fit_pool *pool; /* NULL: no request is of one */
    uint64_t graphs, segments;
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
        return play_driver_take(p, op->bytes, &p->slots[op->slot].place);
    uint64_t place;
    return op->pages == GP_FIT_PAGES_NONE || play_driver_take(p, GP_FIT_PAGE, &place);
}

static void play_alone_end(struct gp_fit_play *p, const struct gp_fit_op *op)
{
    if (op->pages == GP_FIT_PAGES_MODEL)
        gp_fit_device_give(&p->device, op->bytes, p->slots[op->slot].place);
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
    p->slots[op->slot].block = grant.block;
    return true;
}

static void play_give(struct gp_fit_play *p, const struct gp_fit_op *op)
{
    if (!p->cache) {
        play_alone_end(p, op);
        if (p->pool && !p->trace->keeps) /* cudaFree waits for all work, and then a pool gives back what is idle */
            gp_fit_pool_settle(p->pool);
        return;
    }
    struct gp_block *block = p->slots[op->slot].block;
    p->slots[op->slot].block = NULL;
    if (block)
        gp_cache_release_block(p->cache, block, op->stream == GP_FIT_STREAM_ANY ? GP_FREE_UNORDERED : GP_FREE_ORDERED,
                               op->shard);
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

/* A cache of ours above the driver gives way to a pool too. */
static bool play_pool_take(struct gp_fit_play *p, const struct gp_fit_op *op)
{
    uint32_t piece;
    bool taken = gp_fit_pool_take(p->pool, op->bytes, &piece) ||
                 (p->cache && p->setup->yields && gp_cache_trim(p->cache, 0) > 0 &&
                  gp_fit_pool_take(p->pool, op->bytes, &piece));
    p->slots[op->slot].piece = taken ? piece + 1 : 0; /* of no bytes: GP_REC_NONE, and so 0 */
    return taken;
}

static void play_pool_give(struct gp_fit_play *p, const struct gp_fit_op *op)
{
    uint32_t piece = p->slots[op->slot].piece;
    p->slots[op->slot].piece = 0;
    if (piece)
        gp_fit_pool_give(p->pool, piece - 1);
    if (p->setup->downward && !p->trace->keeps)
        gp_fit_pool_settle(p->pool);
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
        return play_pool_take(p, op);
    case GP_FIT_POOL_GIVE:
        play_pool_give(p, op);
        return true;
    default:
        return play_level(p, &p->graphs, op->bytes);
    }
}

/* ---- a replay ---------------------------------------------------------------------------------------------------- */

static bool play_expands(const struct gp_policy *policy)
{
    const struct gp_policy *plain = gp_policy_find(policy->name);
    return policy->growable && plain && !plain->growable; /* by expandable_segments:True */
}

static int play_cache(struct gp_fit_play *p)
{
    struct gp_policy policy = *p->setup->policy;
    struct gp_cache_setup setup = {.policy = &policy, .uncounted = true, .alone = true};
    /* As the library does for every policy: the driver aligns to as much. */
    policy.granule_bytes = policy.granule_bytes < GP_FIT_ALIGN ? GP_FIT_ALIGN : policy.granule_bytes;
    if (!p->trace->streams) /* the caches of threads serve only requests of a stream */
        policy.thread_blocks = 0;
    p->any_flags = play_expands(&policy) ? 0
                   : policy.only_first   ? GP_REQUEST_LINEAR
                                         : GP_REQUEST_LINEAR | GP_REQUEST_DEDICATED;
    p->driver = gp_fit_driver_new(&p->device, &setup.backend);
    return p->driver ? gp_cache_new(&p->cache, &setup) : -ENOMEM;
}

/* The future is known: a free that comes soon finds the two lines of its block's record in the processor's caches. */
#define GP_FIT_AHEAD 8u

static void play_ahead(const struct gp_fit_play *p, const struct gp_fit_op *op)
{
    if (op->slot >= p->trace->slots)
        return;
    const char *block = (const char *)p->slots[op->slot].block;
    __builtin_prefetch(block, 1);
    __builtin_prefetch(block + 64, 1);
}

static bool play_next(struct gp_fit_play *p, const struct gp_fit_op *op)
{
    if (p->setup->recorded && op->event != GP_REC_NONE && p->trace->recording->events[op->event].type == GP_EVENT_OOM)
        return true; /* it had no part in what went on */
    if (!play_op(p, op))
        return false;
    if (p->setup->held)
        p->setup->held(p->setup->held_arg, op->event, p->device.used, p->pool ? gp_fit_pool_idle(p->pool) : 0);
    return true;
}

/* Of a growable cache, which has few segments.  The streams and kinds of more are not kept: then one may be there twice. */
#define GP_FIT_RANGES 64u

struct gp_fit_ranges {
    struct gp_cache_segment seen[GP_FIT_RANGES];
    unsigned count;
    bool twice;
};

static bool ranges_see(void *arg, const struct gp_cache_segment *segment)
{
    struct gp_fit_ranges *ranges = arg;
    if (!segment->growable)
        return true;
    for (unsigned i = 0; i < ranges->count && !ranges->twice; i++)
        ranges->twice = ranges->seen[i].stream == segment->stream && ranges->seen[i].small == segment->small;
    ranges->twice |= ranges->count == GP_FIT_RANGES;
    if (!ranges->twice)
        ranges->seen[ranges->count++] = *segment;
    return !ranges->twice;
}

static bool play_ranges(struct gp_cache *cache)
{
    struct gp_fit_ranges ranges = {.count = 0};
    gp_cache_walk(cache, &ranges, ranges_see, NULL);
    return ranges.twice;
}

/* Two replays at a time: the first that fails ends the other one. */
#define GP_FIT_LOOK 4096u /* operations between two looks at the other */

static int play_run(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, uint64_t bytes,
                    struct gp_fit_end *end, uint32_t *stop)
{
    struct gp_fit_play play = {.trace = trace, .setup = setup, .device = {.size = bytes, .downward = setup->downward}};
    play.slots = calloc(trace->slots + 1ul, sizeof(*play.slots));
    int rc = play.slots ? 0 : -ENOMEM;
    if (!rc && trace->pools && !(play.pool = gp_fit_pool_new(&play.device)))
        rc = -ENOMEM;
    if (!rc && setup->policy)
        rc = play_cache(&play);
    size_t at = 0;
    if (setup->progress)
        setup->progress(0);
    while (!rc && at < trace->count) {
        size_t until = trace->count - at < GP_FIT_LOOK ? trace->count : at + GP_FIT_LOOK;
        while (at < until) {
            if (at + GP_FIT_AHEAD < trace->count)
                play_ahead(&play, &trace->ops[at + GP_FIT_AHEAD]);
            if (!play_next(&play, &trace->ops[at]))
                break;
            at++;
        }
        if (at < until)
            __atomic_store_n(stop, 1, __ATOMIC_RELAXED);
        if (__atomic_load_n(stop, __ATOMIC_RELAXED)) /* only a hint: no order needed */
            break;
        if (setup->progress)
            setup->progress((unsigned)(at * 1000 / trace->count));
    }
    *end = (struct gp_fit_end){.failed = at, .peak = play.device.peak, .used = play.device.used};
    end->ranges = play.cache && setup->policy->growable && play_ranges(play.cache);
    if (play.cache)
        gp_cache_free(play.cache);
    gp_fit_driver_free(play.driver);
    gp_fit_pool_free(play.pool);
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

struct gp_fit_pair { /* replays with rising and with falling addresses */
    bool fits;
    uint64_t peak, rising_peak; /* rising: 0 unless it fits */
    size_t done;                /* operations of the one that came further */
};

/* Whether the replay with falling addresses may be another one.  A cache that takes the oldest of equal blocks looks at
 * no address, unless a heap has two ranges, which a replay tells at its end. */
static bool pair_differs(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup)
{
    return trace->pools || (setup->policy && (!setup->policy->oldest_first || trace->packs));
}

static int pair_run(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, uint64_t bytes,
                    struct gp_fit_pair *pair, struct gp_fit_sizes *fit)
{
    uint32_t stop = 0;
    struct gp_fit_other other = {trace, *setup, bytes, {0}, &stop, 0};
    struct gp_fit_end end;
    pthread_t thread;
    other.setup.downward = true;
    other.setup.progress = NULL;
    bool both = pair_differs(trace, setup), beside = both && pthread_create(&thread, NULL, play_other, &other) == 0;
    int rc = play_run(trace, setup, bytes, &end, &stop);
    both |= end.ranges && end.failed == trace->count; /* otherwise the pair does not fit, whatever the other one does */
    fit->replays += both ? 2 : 1;
    if (beside)
        pthread_join(thread, NULL);
    else if (both)
        play_other(&other);
    else
        other.end = end;
    *pair = (struct gp_fit_pair){.fits = end.failed == trace->count && other.end.failed == trace->count,
                                 .peak = end.peak,
                                 .rising_peak = end.failed == trace->count ? end.peak : 0,
                                 .done = end.failed};
    GP_RAISE(pair->peak, other.end.peak);
    GP_RAISE(pair->done, other.end.failed);
    return rc ? rc : other.rc;
}

int gp_fit_fits(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, uint64_t bytes, bool *fits,
                uint64_t *peak, struct gp_fit_sizes *fit)
{
    struct gp_fit_pair pair;
    int rc = pair_run(trace, setup, bytes, &pair, fit);
    *fits = pair.fits;
    if (peak)
        *peak = pair.peak;
    return rc;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

#define GP_FIT_PARTS 128u       /* the search ends when it knows the size to this part of it */
#define GP_FIT_TRIES 16u        /* doublings of a size that is to be enough */
#define GP_FIT_LONG  (1u << 20) /* operations: from here on the number of replays matters */
#define GP_FIT_CHEAP 0.01       /* bounds the number of replays, however early they fail */

struct gp_fit_search {
    const struct gp_fit_trace *trace;
    const struct gp_fit_setup *setup;
    struct gp_fit_sizes *fit;
    uint64_t low; /* never fits */
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
    uint64_t bytes = search_page(s->trace->load_bytes);
    struct gp_fit_pair pair = {0};
    bool relative = search_is_relative(s->setup);
    int rc = 0;
    /* Plenty is four times the load; an allocator that fragments more is given twice as much. */
    bytes = relative ? bytes + bytes / 8 + GP_FIT_PAGE : bytes * 4 + (1ull << 30);
    for (unsigned i = 0; !rc && !pair.fits && i < GP_FIT_TRIES; i++) {
        rc = pair_run(s->trace, s->setup, bytes, &pair, s->fit);
        s->fit->enough_bytes = relative ? bytes : search_page(pair.peak);
        s->fit->plenty_bytes = i == 0 ? pair.rising_peak : 0;
        bytes += relative ? search_page(bytes / 4) : bytes;
    }
    return rc ? rc : pair.fits ? 0 : -ERANGE;
}

/* The size in the middle of an interval; 0: it is small enough, or what has to stay free is more. */
static uint64_t search_middle(const struct gp_fit_search *s, uint64_t low, uint64_t high)
{
    uint64_t middle = high > low ? low + search_page((high - low) / 2) : high;
    bool ends = high <= low || high - low <= s->fit->step_bytes || middle >= high || middle <= s->fit->spare_bytes;
    return ends ? 0 : middle;
}

/* The interval in which bisection would end if sizes up to `at` did not fit and larger ones did. */
static void search_leaf(const struct gp_fit_search *s, uint64_t at, uint64_t *low, uint64_t *high)
{
    *low = s->low;
    *high = s->fit->enough_bytes;
    uint64_t middle;
    while ((middle = search_middle(s, *low, *high)))
        *(middle <= at ? low : high) = middle;
}

/* A replay of a size that fits goes to its end, and one that fails usually ends early, so most sizes that are tried
 * lie near the largest that failed.  Bisection finds the same, unless a size fits and a larger one does not. */
static int search_between(struct gp_fit_search *s)
{
    struct gp_fit_sizes *fit = s->fit;
    uint64_t fails = s->low, fits = fit->enough_bytes, low, high, unused;
    unsigned tries = 0;
    double cost = 0; /* of the last replay that failed, as a part of a whole one */
    int rc = 0;
    for (search_leaf(s, fails, &low, &high); !rc && high < fits; search_leaf(s, fails, &low, &high)) {
        struct gp_fit_pair pair;
        uint64_t next, far = (uint64_t)((double)(fits - fails) * sqrt(cost) / 2),
                       near = tries < 2 ? 0 : fit->step_bytes << (tries - 2);
        search_leaf(s, fails + (near < far ? near : far), &unused, &next);
        next = next < fits ? next : high;
        rc = pair_run(s->trace, s->setup, next - fit->spare_bytes, &pair, fit);
        if (pair.fits) {
            fits = next;
            tries = 0;
        } else {
            fails = next;
            tries += tries < GP_FIT_TRIES;
            cost = (double)pair.done / (double)s->trace->count;
            cost = cost < GP_FIT_CHEAP ? GP_FIT_CHEAP : cost;
        }
    }
    fit->smallest_bytes = high;
    fit->fails_bytes = low;
    return rc;
}

/* Where few operations make replays cheap, and where a size may well fit and a larger one not: the size of the device
 * decides the reserve, or pages move. */
static bool search_bisects(const struct gp_fit_search *s)
{
    const struct gp_policy *policy = s->setup->policy;
    if (!policy) /* a pool: its replays are cheap */
        return true;
    /* Requests that name no stream are in growable segments only by expandable_segments:True. */
    bool moves = policy->growable && (s->trace->streams || play_expands(policy));
    return s->trace->count < GP_FIT_LONG || search_is_relative(s->setup) || moves;
}

static int search_bisect(struct gp_fit_search *s)
{
    struct gp_fit_sizes *fit = s->fit;
    uint64_t low = s->low, high = fit->enough_bytes, middle;
    int rc = 0;
    while (!rc && (middle = search_middle(s, low, high))) {
        bool fits;
        rc = gp_fit_fits(s->trace, s->setup, middle - fit->spare_bytes, &fits, NULL, fit);
        *(fits ? &high : &low) = middle;
    }
    fit->smallest_bytes = high;
    fit->fails_bytes = low;
    return rc;
}

int gp_fit_find(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, struct gp_fit_sizes *fit)
{
    uint64_t load = search_page(trace->load_bytes);
    /* It never fits. */
    struct gp_fit_search search = {trace, setup, fit, load > GP_FIT_PAGE ? load - GP_FIT_PAGE : 0};
    *fit = (struct gp_fit_sizes){.step_bytes = GP_FIT_PAGE};
    int rc = search_enough(&search);
    uint64_t high = fit->enough_bytes;
    if (setup->policy && high / GP_FIT_PARTS > GP_FIT_PAGE)
        fit->step_bytes = high / GP_FIT_PARTS / GP_FIT_PAGE * GP_FIT_PAGE;
    if (setup->policy)
        fit->spare_bytes = high / GP_FIT_PARTS / 2 / GP_FIT_PAGE * GP_FIT_PAGE;
    if (!rc && (setup->policy || trace->pools))
        return search_bisects(&search) ? search_bisect(&search) : search_between(&search);
    fit->smallest_bytes = high;
    fit->fails_bytes = search.low;
    return rc;
}

/* ---- the context ------------------------------------------------------------------------------------------------- */

#define GP_FIT_SETTLES 64u

uint64_t gp_fit_context_device(uint64_t bytes, uint64_t bare, unsigned whole, unsigned kernels, uint32_t stack)
{
    uint64_t size = bytes, before = UINT64_MAX;
    for (unsigned i = 0; i < GP_FIT_SETTLES && size != before; i++) { /* it rises */
        uint64_t context = gp_fit_context_in(bare, size);
        before = size;
        size = bytes + whole * context + kernels * gp_fit_context_with(context, stack);
    }
    return size == before ? size : bytes + whole * bare + kernels * gp_fit_context_with(bare, stack);
}

enum gp_fit_context gp_fit_context_find(const struct gp_recording *recording, uint32_t device, uint64_t threads,
                                        uint32_t stack, uint64_t *bytes)
{
    uint64_t own = recording->devices[device].last.flags >> GP_DEVICE_THREADS_SHIFT;
    int64_t most = -1;
    own *= GP_DEVICE_THREADS_UNIT;
    threads = threads ? threads : own;
    for (size_t i = 0; i < recording->sample_count; i++) {
        const struct gp_rec_sample *sample = &recording->samples[i];
        if (sample->device != device || sample->process_bytes < 0 || sample->reserved_bytes < 0)
            continue;
        int64_t rest = sample->process_bytes - sample->reserved_bytes;
        GP_RAISE(most, rest);
    }
    const uint64_t measured = (uint64_t)most, here = gp_fit_context_with(gp_fit_context_of(own), stack),
                   there = gp_fit_context_with(gp_fit_context_of(threads), stack);
    if (most >= 0 && (own ? here == there : there <= measured)) {
        *bytes = measured;
        return GP_FIT_MEASURED;
    }
    if (most >= 0 && own && measured >= here) {
        *bytes = measured - here + there;
        return GP_FIT_SCALED;
    }
    *bytes = threads ? there : GP_FIT_CONTEXT_BYTES;
    return threads ? GP_FIT_ESTIMATED : GP_FIT_ASSUMED;
}
