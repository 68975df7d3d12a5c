/* SPDX-License-Identifier: MIT
 *
 * context.c: contexts, streams and modules: which memory each owns, and what is freed with each.
 */
#include "account/context.h"
#include "account/before.h"
#include "account/block.h"
#include "account/ending.h"
#include "account/event.h"
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "account/feed/poll.h"
#include "account/feed/pool.h"
#include "account/feed/want.h"
#include "account/frame.h"
#include "account/framework.h"
#include "account/ground.h"
#include "account/internal.h"
#include "account/move.h"
#include "account/oomfacts.h"
#include "account/segment.h"
#include "base/clock.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/map.h"
#include "base/thread.h"
#include <gpuprof/wire.h>
#include <string.h>

void gp_feed_context_created(uint32_t ctx, int device)
{
    struct gp_account *account = gp_account_of(device);
    if (!account || !gp_context_count(ctx, device))
        return;
    __atomic_fetch_add(&account->x_context_count, 1, __ATOMIC_RELAXED);
    gp_feed_poll_want(GP_POLL_DEVICES);
}

struct context_leaving {
    uint32_t ctx;
    uint64_t count;
    struct gp_ending *ending;
};

static bool context_owns(const struct context_leaving *leaving, const struct gp_record *record)
{
    return record->ctx == leaving->ctx && record->space <= GP_SPACE_MODULE && record->space != GP_SPACE_STREAM;
}

static bool context_count(struct gp_record *record, void *arg)
{
    struct context_leaving *leaving = arg;
    leaving->count += context_owns(leaving, record);
    return false;
}

static bool context_take(struct gp_record *record, void *arg)
{
    struct context_leaving *leaving = arg;
    return context_owns(leaving, record) && gp_ending_add(leaving->ending, record);
}

/* For what there was no room for, or came while the context was being destroyed. */
static bool context_end_one(struct gp_record *record, void *arg)
{
    uint64_t time_ns = 0;
    if (!context_owns(arg, record))
        return false;
    if (record->device != GP_NO_DEVICE) {
        struct gp_move move = gp_account_block_move(record);
        time_ns = gp_account_move(record->device, GP_SUB, &move);
        if (record->segment)
            gp_segment_framework(record, GP_SUB);
    }
    gp_event_record_at(GP_EVENT_FREE, record, 0, time_ns);
    return true;
}

/* Nothing may use the context any more. */
static void context_unused(uint32_t ctx, int device)
{
    gp_oom_context_gone(ctx);
    gp_framework_context_gone(ctx, device < 0 ? gp_feed_context_device(ctx) : device);
}

static void context_ended(uint32_t ctx, int device, bool announced)
{
    struct gp_account *account = device < 0 ? NULL : gp_account_of(device);
    bool is_counted = gp_context_forget(ctx, device);
    if (!account || (!is_counted && !announced))
        return;
    /* The end of a context from before us is an event too, but was never counted. */
    if (is_counted)
        __atomic_fetch_sub(&account->x_context_count, 1, __ATOMIC_RELAXED);
    struct gp_wire_event event = {.type = GP_EVENT_CONTEXT_DESTROYED, .device = (uint8_t)device};
    event.address = ctx;
    gp_event_write(&event);
}

/* The context's memory leaves the totals. */
static struct gp_ending *context_leaves(uint32_t ctx, int device)
{
    struct context_leaving leaving = {.ctx = ctx};
    context_unused(ctx, device);
    uint32_t primary = gp_feed_primary_of(device);
    if (primary ? ctx == primary : device >= 0 && gp_accounts.setup.late) /* then it may be that one */
        gp_feed_pools_unsure(device);
    gp_ground_context_gone(ctx); /* blocks end before their segments */
    gp_map_each(gp_accounts.blocks, context_count, &leaving);
    gp_map_each(gp_accounts.objects, context_count, &leaving);
    leaving.ending = gp_ending_new(leaving.count);
    if (!leaving.ending)
        return NULL;
    gp_map_each(gp_accounts.blocks, context_take, &leaving);
    gp_map_each(gp_accounts.objects, context_take, &leaving);
    gp_ending_begin(leaving.ending);
    return leaving.ending;
}

static void context_left(uint32_t ctx, int device, struct gp_ending *ending, bool announced)
{
    struct context_leaving rest = {.ctx = ctx};
    gp_ending_done(ending);
    gp_map_each(gp_accounts.blocks, context_end_one, &rest);
    gp_map_each(gp_accounts.objects, context_end_one, &rest);
    gp_before_context(ctx);
    context_ended(ctx, device, announced);
}

void gp_feed_context_destroyed(uint32_t ctx, int device, bool announced)
{
    if (ctx)
        context_left(ctx, device, context_leaves(ctx, device), announced);
}

uint32_t gp_feed_context_destroy_begin(uint32_t ctx, int device)
{
    struct gp_frame *frame;
    uint32_t token = ctx ? gp_account_frame_get(&frame) : 0;
    if (!token)
        return 0;
    frame->what = GP_SPACE_CONTEXT;
    frame->record = (struct gp_record){.ctx = ctx, .device = device < 0 ? GP_NO_DEVICE : (uint8_t)device};
    frame->ending = context_leaves(ctx, device);
    return token;
}

static void context_put(struct gp_record *record, void *arg)
{
    (void)arg;
    gp_block_put(record);
}

void gp_feed_context_destroy_end(uint32_t token, bool ok, bool announced)
{
    struct gp_frame *frame = gp_account_frame_of(token, GP_SPACE_CONTEXT);
    if (!frame)
        return;
    const struct gp_record *context = &frame->record;
    if (ok)
        context_left(context->ctx, context->device == GP_NO_DEVICE ? GP_DEVICE_UNKNOWN : context->device, frame->ending,
                     announced);
    else
        gp_ending_refused(frame->ending, context_put, NULL);
    gp_account_frame_put(token);
}

struct context_change {
    uint32_t from, to;
};

static bool context_renumber(struct gp_record *record, void *arg)
{
    const struct context_change *change = arg;
    if (record->ctx == change->from)
        record->ctx = change->to;
    return false;
}

void gp_feed_green_destroyed(uint32_t ctx, int device)
{
    struct context_change change = {ctx, gp_feed_primary_of(device)};
    if (ctx == 0)
        return;
    context_unused(ctx, device);
    gp_map_each(gp_accounts.blocks, context_renumber, &change);
    gp_map_each(gp_accounts.objects, context_renumber, &change);
    gp_before_renumber(ctx, change.to);
    context_ended(ctx, device, true);
}

void gp_feed_primary_context(int device, uint32_t ctx)
{
    struct gp_account *account = gp_account_of(device);
    if (account)
        __atomic_store_n(&account->x_primary, ctx, __ATOMIC_RELAXED);
}

uint32_t gp_feed_primary_of(int device)
{
    struct gp_account *account = device < 0 ? NULL : gp_account_of(device);
    return account ? __atomic_load_n(&account->x_primary, __ATOMIC_RELAXED) : 0;
}

/* ---- streams -------------------------------------------------------------------------------------------------- */

static uint32_t x_recaptures; /* under way */

void gp_feed_stream_created(uint64_t stream, uint32_t ctx)
{
    struct gp_record record = {
        .key = stream, .space = GP_SPACE_STREAM, .device = 255, .ctx = ctx, .time_ns = gp_clock_ns()};
    if (gp_map_insert(gp_accounts.objects, &record, NULL) < 0)
        gp_feed_lost(GP_LOST_MAP);
}

void gp_feed_stream_destroyed(uint64_t stream)
{
    struct gp_record record;
    /* A capture that never ended is discarded with its stream, together with its graph, which
     * was never handed out. */
    if (gp_map_take(gp_accounts.objects, GP_SPACE_STREAM, stream, &record) != 0)
        return;
    if (record.stream.capture == GP_CAPTURE_AGAIN)
        __atomic_fetch_sub(&x_recaptures, 1, __ATOMIC_RELAXED);
    if (record.stream.capture)
        __atomic_fetch_sub(&gp_accounts.x_captures, 1, __ATOMIC_RELAXED);
    if (record.stream.graph) /* of GP_CAPTURE_NEW alone */
        gp_feed_graph_gone(record.stream.graph);
}

int gp_feed_stream_device(uint64_t stream)
{
    struct gp_record record;
    if (gp_map_find(gp_accounts.objects, GP_SPACE_STREAM, stream, &record) != 0)
        return GP_DEVICE_UNKNOWN;
    return gp_feed_context_device(record.ctx);
}

/* change: in: the new capture and graph; out: the old ones. */
static bool stream_set_capture(struct gp_record *record, void *change)
{
    struct gp_record_stream *to = change, old = record->stream;
    record->stream.capture = to->capture;
    record->stream.graph = to->graph;
    *to = old;
    return false;
}

static bool stream_switch_capture(uint64_t stream, struct gp_record_stream *change)
{
    uint32_t again = change->capture == GP_CAPTURE_AGAIN, any = change->capture != 0;
    if (gp_map_update(gp_accounts.objects, GP_SPACE_STREAM, stream, stream_set_capture, change) != 0)
        return false;
    again -= change->capture == GP_CAPTURE_AGAIN;
    any -= change->capture != 0;
    if (any)
        __atomic_fetch_add(&gp_accounts.x_captures, any, __ATOMIC_RELAXED);
    if (again)
        __atomic_fetch_add(&x_recaptures, again, __ATOMIC_RELAXED);
    return true;
}

void gp_feed_capture_begin(uint64_t stream, enum gp_capture how)
{
    stream_switch_capture(stream, &(struct gp_record_stream){.capture = how});
}

bool gp_feed_recaptured(uint64_t address)
{
    return __atomic_load_n(&x_recaptures, __ATOMIC_RELAXED) && gp_feed_graph_knows(address);
}

static bool stream_set_graph(struct gp_record *record, void *arg)
{
    if (record->stream.capture == GP_CAPTURE_NEW)
        record->stream.graph = *(uint64_t *)arg;
    return false;
}

void gp_feed_capture_graph(uint64_t stream, uint64_t graph)
{
    gp_map_update(gp_accounts.objects, GP_SPACE_STREAM, stream, stream_set_graph, &graph);
}

void gp_feed_capture_end(uint64_t stream, bool discarded)
{
    struct gp_record_stream old = {0};
    if (stream_switch_capture(stream, &old) && discarded && old.graph)
        gp_feed_graph_gone(old.graph);
}

/* ---- questions during a capture ---------------------------------------------------------------------------------- */

/* The poller asks in relaxed mode, which excuses it. If that does not hold for a call, or in a driver, each capture of
 * the program would fail again while we ask. */
static uint32_t x_asks, x_harmed;
static uint32_t x_forbidden; /* x_asks after the newest call of the program that a capture forbade */

bool gp_feed_poll_ask(void)
{
    if (gp_feed_poll_silent())
        return false;
    __atomic_fetch_add(&x_asks, 1, __ATOMIC_SEQ_CST); /* before the driver's own lock */
    return true;
}

void gp_feed_poll_refused(void)
{
    __atomic_store_n(&x_harmed, 1, __ATOMIC_RELAXED);
}

bool gp_feed_poll_silent(void)
{
    return __atomic_load_n(&x_harmed, __ATOMIC_RELAXED);
}

uint32_t gp_feed_poll_asks(void)
{
    return __atomic_load_n(&x_asks, __ATOMIC_SEQ_CST);
}

static bool stream_set_asks(struct gp_record *record, void *asks)
{
    record->stream.asks = *(uint32_t *)asks;
    return false;
}

void gp_feed_capture_asks(uint64_t stream, uint32_t asks)
{
    gp_map_update(gp_accounts.objects, GP_SPACE_STREAM, stream, stream_set_asks, &asks);
}

/* It counts as a question, so that a capture which began before it has an older number. */
void gp_feed_capture_forbidden(void)
{
    uint32_t asks = __atomic_add_fetch(&x_asks, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&x_forbidden, asks, __ATOMIC_RELAXED);
}

/* If the program itself made a call that a capture forbids, that explains it. Whether questions harm captures too, the
 * next one shows that breaks without such a call. */
void gp_feed_capture_broke(uint64_t stream)
{
    struct gp_record record;
    if (gp_map_find(gp_accounts.objects, GP_SPACE_STREAM, stream, &record) == 0 && record.stream.capture &&
        record.stream.asks != gp_feed_poll_asks() &&
        (int32_t)(__atomic_load_n(&x_forbidden, __ATOMIC_RELAXED) - record.stream.asks) <= 0)
        gp_feed_poll_refused();
}

bool gp_feed_stream_is_capturing(uint64_t stream)
{
    struct gp_record record;
    return __atomic_load_n(&gp_accounts.x_captures, __ATOMIC_RELAXED) &&
           gp_map_find(gp_accounts.objects, GP_SPACE_STREAM, stream, &record) == 0 && record.stream.capture;
}

/* ---- modules -------------------------------------------------------------------------------------------------- */

void gp_feed_module_loaded(uint32_t module, uint64_t bytes, uint32_t ctx)
{
    int device = gp_feed_context_device(ctx);
    struct gp_allocation block = {
        .space = GP_SPACE_MODULE,
        .kind = GP_KIND_MODULE,
        .device = device,
        .ctx = ctx,
        .address = module,
        .bytes = bytes,
        .requested_bytes = bytes,
    };
    if (device >= 0)
        gp_feed_alloc(&block);
}

void gp_feed_module_unloaded(uint32_t module)
{
    uint32_t token = gp_feed_free_begin(GP_SPACE_MODULE, module);
    if (token)
        gp_feed_free_end(token, true, 0);
}
