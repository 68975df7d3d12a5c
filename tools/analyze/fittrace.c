/* SPDX-License-Identifier: MIT
 *
 * fittrace.c: turns one device's part of a recording into the list of requests that fit.c replays;
 * see fit.h.
 */
#include <analyze/fit.h>
#include <analyze/ranges.h>
#include <base/numbers.h>
#include <errno.h>
#include <read/common/hash.h>
#include <stdlib.h>

#define GP_FIT_MOST    ((1ull << 40) - 1) /* of one request: the field's width */
#define GP_FIT_GRANULE 512u               /* PyTorch's allocator rounds blocks to it */

struct gp_fit_build {
    const struct gp_flow *flow;
    struct gp_fit_trace *trace;
    bool recorded, cached, graphs, any_stream, modules, failed, packs;
    size_t room, sample;
    uint32_t *slot_of;          /* of each item */
    uint32_t *idle, idle_count; /* slots that can be used again */
    uint64_t load, held_by_graphs;
    const struct gp_refused *refused;
    size_t refused_at; /* the next one */
    int64_t code;      /* of kernels, where the operations have it */
    struct gp_level level;
    struct gp_flow_polled polled;
    struct gp_hash pages; /* those with small requests -> how many are live */
};

static struct gp_fit_op *build_op(struct gp_fit_build *b, enum gp_fit_kind kind, uint64_t bytes, uint32_t slot,
                                  uint32_t event)
{
    struct gp_fit_op *op = &b->trace->ops[b->trace->count++];
    *op = (struct gp_fit_op){
        .bytes = bytes < GP_FIT_MOST ? bytes : GP_FIT_MOST, .kind = kind, .slot = slot, .event = event};
    return op;
}

/* What a caching allocator could have served, but for stream-ordered pools, which have rules of their own. */
static bool build_is_request(const struct gp_rec_event *item)
{
    return item->kind != GP_KIND_POOL && gp_kind_is(item->kind, GP_TRAIT_SERVED);
}

/* How a driver packs small requests is not documented, but the recorded addresses tell it. */
static enum gp_fit_pages build_pages(struct gp_fit_build *b, const struct gp_rec_event *item, bool add)
{
    if (!build_is_request(item) || item->bytes == 0 || item->bytes > GP_FIT_SMALL)
        return GP_FIT_PAGES_MODEL;
    uint64_t hash = gp_hash_of_number(item->address / GP_FIT_PAGE);
    bool added = false;
    uint32_t *live =
        add ? gp_hash_add(&b->pages, hash, NULL, NULL, 0, &added) : gp_hash_find(&b->pages, hash, NULL, NULL);
    b->failed |= add && !live;
    if (!live)
        return GP_FIT_PAGES_NONE;
    *live += add ? 1 : UINT32_MAX;
    bool last = *live == 0;
    if (last)
        gp_hash_remove_at(&b->pages, live);
    return added || last ? GP_FIT_PAGES_ONE : GP_FIT_PAGES_NONE;
}

static bool build_is_segment(const struct gp_rec_event *event)
{
    return gp_ranges_takes(event);
}

/* Which kind of operation starts this item; its end is the next one.  False: it takes no device
 * memory of its own. */
static bool build_kind(const struct gp_fit_build *b, const struct gp_flow_change *change, enum gp_fit_kind *kind)
{
    const struct gp_rec_event *item = change->item;
    bool segments = b->flow->has_segments[b->trace->device];
    *kind = GP_FIT_DRIVER_TAKE;
    if (build_is_segment(item))
        return b->recorded && segments;
    if (change->what & GP_FLOW_CACHED) {
        *kind = GP_FIT_TAKE;
        return !b->recorded;
    }
    if (item->type == GP_EVENT_SEGMENT_ALLOC || item->type == GP_EVENT_SEGMENT_FREE)
        return item->kind == GP_KIND_VMM;
    if (item->type != GP_EVENT_ALLOC && item->type != GP_EVENT_FREE)
        return false;
    if (item->kind == GP_KIND_POOL)
        *kind = GP_FIT_POOL_TAKE;
    else if (build_is_request(item) && !segments)
        *kind = GP_FIT_TAKE;
    if (gp_kind_is(item->kind, GP_TRAIT_CODE)) /* part of a context that NVML measured */
        return b->modules;
    return item->kind == GP_KIND_POOL ||
           (gp_kind_sums(item->kind) == GP_SUM_BOTH && !gp_kind_is(item->kind, GP_TRAIT_HOST));
}

/* Work of any stream may use what a program got from the driver, whether or not a cache served it.
 * Other requests of a cache name a stream.  The events of a framework do not: its blocks have stream 0. */
static uint16_t build_stream(const struct gp_fit_build *b, const struct gp_rec_event *item)
{
    const struct gp_recording *recording = b->flow->recording;
    bool named = item->stream < recording->stream_count && recording->streams[item->stream] > 1;
    bool any = b->trace->requests == GP_FIT_OF_DRIVER || (b->any_stream && !named);
    return any ? GP_FIT_STREAM_ANY : item->stream;
}

static unsigned build_thread(const struct gp_fit_build *b, uint32_t event)
{
    return b->flow->recording->events[event].thread % GP_FIT_SHARDS;
}

static uint32_t build_slot(struct gp_fit_build *b, uint32_t id)
{
    uint32_t slot = b->idle_count ? b->idle[--b->idle_count] : b->trace->slots++;
    b->slot_of[id] = slot;
    return slot;
}

static void build_load(struct gp_fit_build *b, uint64_t bytes, bool add)
{
    b->load += add ? bytes : -bytes;
    if (b->load > b->trace->load_bytes && b->load < INT64_MAX)
        b->trace->load_bytes = b->load;
}

/* What graphs hold is polled: what is reserved beyond the other events, without the blocks of pools. */
static void build_graphs(struct gp_fit_build *b, uint64_t time_ns)
{
    if (!b->graphs)
        return;
    gp_flow_polled_advance(&b->polled, time_ns, &b->level);
    uint64_t bytes = (uint64_t)gp_flow_polled_idle(&b->polled, &b->level) + (uint64_t)b->level.graph;
    if (bytes == b->held_by_graphs)
        return;
    build_load(b, b->held_by_graphs, false);
    build_load(b, bytes, true);
    b->held_by_graphs = bytes;
    build_op(b, GP_FIT_GRAPHS, bytes, 0, GP_REC_NONE);
}

/* PyTorch keeps its segments until the program empties the cache, or until memory is short.  Several of
 * them go at once. */
static void build_trim(struct gp_fit_build *b, const struct gp_flow_change *change)
{
    struct gp_fit_trace *trace = b->trace;
    const int64_t total = b->flow->recording->devices[trace->device].total_bytes;
    bool short_of = total > 0 && b->level.reserved > total - total / 8;
    bool again = trace->count && trace->ops[trace->count - 1].kind == GP_FIT_TRIM;
    if (trace->requests == GP_FIT_OF_FRAMEWORK && !b->recorded && !change->add && !short_of && !again)
        build_op(b, GP_FIT_TRIM, 0, 0, change->event);
}

/* What is compared with a replay, which has the code of kernels too if the operations have it. */
static void build_held(struct gp_fit_build *b, const struct gp_flow_change *change)
{
    const struct gp_rec_event *item = change->item;
    if (b->modules && gp_kind_is(item->kind, GP_TRAIT_CODE) && item->bytes < GP_FIT_MOST) {
        int64_t pages = (int64_t)((item->bytes + GP_FIT_PAGE - 1) / GP_FIT_PAGE * GP_FIT_PAGE);
        b->code += change->add ? pages : -pages;
    }
    int64_t held = b->level.reserved + b->code;
    if (held > 0 && (uint64_t)held > b->trace->reserved_bytes)
        b->trace->reserved_bytes = (uint64_t)held;
}

/* A request that nothing served would have been held with what was held then, and perhaps for a moment only. */
static void build_refused(struct gp_fit_build *b, uint32_t until)
{
    const struct gp_recording *recording = b->flow->recording;
    for (; b->refused_at < b->refused->count && b->refused->events[b->refused_at] < until; b->refused_at++) {
        const uint32_t event = b->refused->events[b->refused_at];
        const struct gp_rec_event *asked = &recording->events[event];
        if (asked->device != b->trace->device || !asked->bytes)
            continue;
        const bool framework = b->trace->requests != GP_FIT_OF_OTHERS && !b->recorded;
        const enum gp_fit_kind kind = framework ? GP_FIT_TAKE : GP_FIT_DRIVER_TAKE;
        const uint32_t slot = b->idle_count ? b->idle[b->idle_count - 1] : b->trace->slots;
        b->trace->slots += slot == b->trace->slots;
        for (unsigned end = 0; end < 2; end++) {
            struct gp_fit_op *op = build_op(b, kind + end, asked->bytes, slot, event);
            op->stream = build_stream(b, asked);
            op->shard = build_thread(b, event);
            build_load(b, asked->bytes, !end);
        }
        if (!b->idle_count)
            b->idle[b->idle_count++] = slot;
        GP_RAISE(b->trace->most_bytes, asked->bytes);
        b->trace->refused++;
    }
}

/* ---- small driver allocations ------------------------------------------------------------------------------------ */

/* It shares a page of the driver with others as the model packs them. */
static bool pack_shares(const struct gp_fit_op *op)
{
    return op->slot != GP_REC_NONE && op->pages == GP_FIT_PAGES_MODEL && op->bytes && op->bytes <= GP_FIT_SMALL;
}

/* Whether they ever need another number of pages with falling addresses than with rising ones.  No other request
 * takes a part of a page, if a cache serves those that can be cached. */
static int pack_differs(struct gp_fit_trace *trace)
{
    struct gp_fit_device devices[2] = {{.size = INT64_MAX}, {.size = INT64_MAX, .downward = true}};
    uint64_t(*places)[2] = malloc((trace->slots + 1ul) * sizeof(*places));
    int rc = places ? 0 : -ENOMEM;
    for (uint32_t i = 0; places && i < trace->slots; i++)
        places[i][0] = places[i][1] = GP_FIT_WHOLE;
    for (size_t i = 0; !rc && i < trace->count && !trace->packs; i++) {
        const struct gp_fit_op *op = &trace->ops[i];
        const bool take = op->kind == GP_FIT_DRIVER_TAKE;
        if ((!take && op->kind != GP_FIT_DRIVER_GIVE) || !pack_shares(op))
            continue;
        uint64_t *place = places[op->slot];
        for (unsigned way = 0; way < 2; way++) {
            if (take && !gp_fit_device_take(&devices[way], op->bytes, &place[way]))
                rc = -ENOMEM;
            if (!take && place[way] != GP_FIT_WHOLE) { /* else its start, in a damaged file, was of another kind */
                gp_fit_device_give(&devices[way], op->bytes, place[way]);
                place[way] = GP_FIT_WHOLE;
            }
        }
        trace->packs = devices[0].used != devices[1].used;
    }
    for (unsigned way = 0; way < 2; way++)
        gp_fit_device_fini(&devices[way]);
    free(places);
    return rc;
}

/* Segments of growable caches are mapped in other pieces than they are unmapped, so their operations
 * have no slots; fit.c adds them up. */
static void build_change(struct gp_fit_build *b, const struct gp_flow_change *change)
{
    struct gp_fit_trace *trace = b->trace;
    enum gp_fit_kind kind;
    if (change->event != GP_REC_NONE)
        build_refused(b, change->event);
    build_graphs(b, change->time_ns);
    gp_level_apply(&b->level, change);
    build_held(b, change);
    if (build_is_segment(change->item))
        build_trim(b, change);
    if (!build_kind(b, change, &kind))
        return;
    uint64_t bytes = kind == GP_FIT_TAKE ? gp_rec_requested(change->item) : change->item->bytes;
    bool segment = build_is_segment(change->item);
    uint32_t slot = segment ? GP_REC_NONE : change->add ? build_slot(b, change->id) : b->slot_of[change->id];
    if (segment && !change->add)
        bytes = gp_flow_bytes(change);
    if (slot == GP_REC_NONE && !segment)
        return; /* the end of an item that never started */
    struct gp_fit_op *op = build_op(b, change->add ? kind : kind + 1, bytes, slot, change->event);
    if (kind == GP_FIT_TAKE) {
        op->stream = build_stream(b, change->item);
        trace->streams |= op->stream != GP_FIT_STREAM_ANY;
        op->shard = change->event == GP_REC_NONE ? 0 : build_thread(b, change->event);
    }
    trace->pools |= kind == GP_FIT_POOL_TAKE;
    /* Blocks of a framework are replayed with a cache alone. */
    const bool driver = trace->requests == GP_FIT_OF_DRIVER || trace->requests == GP_FIT_OF_CACHE;
    if (kind == GP_FIT_DRIVER_TAKE || (kind == GP_FIT_TAKE && driver && !b->cached))
        op->pages = build_pages(b, change->item, change->add);
    b->packs |= kind == GP_FIT_DRIVER_TAKE && pack_shares(op);
    build_load(b, bytes, change->add);
    GP_RAISE(trace->most_bytes, bytes);
    if (!change->add && !segment) {
        b->idle[b->idle_count++] = slot;
        b->slot_of[change->id] = GP_REC_NONE;
    }
}

/* ---- what kind of allocator it was ------------------------------------------------------------------------------- */

struct gp_fit_look {
    bool growable, odd, any_stream, graphs, code;
    size_t changes;
};

static void look_event(struct gp_fit_look *look, const struct gp_recording *recording, const struct gp_rec_event *event,
                       uint8_t what)
{
    if (gp_ranges_takes(event)) {
        look->growable |= event->type == GP_EVENT_SEGMENT_MAP;
        look->odd |= event->bytes % GP_FIT_PAGE != 0;
        look->any_stream |= event->stream < recording->stream_count && recording->streams[event->stream] == UINT64_MAX;
    } else if (what & GP_FLOW_CACHED) {
        look->odd |= event->bytes % GP_FIT_GRANULE != 0;
    }
    look->graphs |= event->kind == GP_KIND_GRAPH;
    look->code |= gp_kind_is(event->kind, GP_TRAIT_CODE);
}

static struct gp_fit_look look_over(const struct gp_flow *flow, uint32_t device)
{
    const struct gp_recording *recording = flow->recording;
    struct gp_fit_look look = {0};
    for (size_t i = 0; i < recording->baseline_count; i++) {
        if (recording->baseline[i].device == device)
            look_event(&look, recording, &recording->baseline[i], flow->baseline_what[i]);
        look.changes++;
    }
    for (size_t i = 0; i < recording->event_count; i++) {
        if (recording->events[i].device == device && flow->what[i]) {
            look_event(&look, recording, &recording->events[i], flow->what[i]);
            look.changes++;
        }
    }
    return look;
}

static enum gp_fit_requests look_requests(const struct gp_flow *flow, uint32_t device, const struct gp_fit_look *look)
{
    const char *allocator = flow->recording->allocator;
    if (!flow->has_segments[device])
        return GP_FIT_OF_DRIVER;
    if (allocator[0] && allocator[0] != 'o') /* not "off" */
        return GP_FIT_OF_CACHE;
    return look->odd ? GP_FIT_OF_OTHERS : GP_FIT_OF_FRAMEWORK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static bool build_all(struct gp_fit_build *b, size_t changes)
{
    const struct gp_recording *recording = b->flow->recording;
    size_t items = recording->event_count + recording->baseline_count;
    struct gp_flow_walk walk = gp_flow_begin(b->flow);
    struct gp_flow_change change;
    /* Each change makes one operation, and with graphs another one before it; a refused request makes two. */
    size_t most = (changes + b->flow->before_count + 1) * (b->graphs ? 2 : 1) + b->refused->count * 2;
    b->trace->ops = malloc(most * sizeof(*b->trace->ops));
    b->slot_of = malloc((items + 1) * sizeof(*b->slot_of));
    b->idle = malloc((changes + b->flow->before_count + b->refused->count + 1) * sizeof(*b->idle));
    if (!b->trace->ops || !b->slot_of || !b->idle)
        return false;
    for (size_t i = 0; i < items; i++)
        b->slot_of[i] = GP_REC_NONE;
    while (gp_flow_next(&walk, &change)) {
        if (change.item->device == b->trace->device)
            build_change(b, &change);
    }
    build_refused(b, GP_REC_NONE);
    build_graphs(b, recording->end_ns);
    return !b->failed && (!b->packs || pack_differs(b->trace) == 0);
}

static struct gp_fit_trace *trace_make(const struct gp_flow *flow, uint32_t device, bool recorded, bool cached)
{
    struct gp_fit_look look = look_over(flow, device);
    struct gp_fit_trace *trace = calloc(1, sizeof(*trace));
    if (!trace)
        return NULL;
    trace->recording = flow->recording;
    trace->device = device;
    trace->requests = look_requests(flow, device, &look);
    trace->growable = look.growable;
    trace->code = look.code;
    trace->keeps = flow->recording->devices[device].last.flags & GP_DEVICE_KEEPS;
    uint64_t context;
    const enum gp_fit_context how =
        gp_fit_context_find(flow->recording, device, 0, look.code ? GP_FIT_THREAD_STACK : 0, &context);
    struct gp_refused *refused = gp_refused_find(flow->recording);
    struct gp_fit_build build = {.flow = flow,
                                 .modules = how != GP_FIT_MEASURED,
                                 .trace = trace,
                                 .graphs = look.graphs,
                                 .polled = gp_flow_polled_begin(flow, device),
                                 .any_stream = look.any_stream,
                                 .recorded = recorded,
                                 .cached = cached,
                                 .refused = refused};
    bool ok = refused && build_all(&build, look.changes + flow->ghost_count);
    free(refused);
    free(build.slot_of);
    free(build.idle);
    gp_hash_free(&build.pages);
    if (ok)
        return trace;
    gp_fit_trace_free(trace);
    return NULL;
}

struct gp_fit_trace *gp_fit_trace_new(const struct gp_flow *flow, uint32_t device, bool recorded)
{
    return trace_make(flow, device, recorded, false);
}

struct gp_fit_trace *gp_fit_trace_cached(const struct gp_flow *flow, uint32_t device)
{
    return trace_make(flow, device, false, true);
}

void gp_fit_trace_free(struct gp_fit_trace *trace)
{
    if (trace)
        free(trace->ops);
    free(trace);
}
