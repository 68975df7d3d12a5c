/* SPDX-License-Identifier: MIT
 *
 * pool.c: stream-ordered pools, graph memory and imports: what the API tells at once, and what only a poll can tell.
 *
 * Record of a pool: refs = 1 while the program holds it, 2 while a destroy is under way, 0 after it; uses = blocks out;
 * bytes = reserved at the last poll; requested_bytes = the highest reserve that the driver reported.  A destroyed pool
 * lives, with its last known reserve, until its last block returns (cuda.h: cuMemPoolDestroy), and is not asked about
 * any more.
 */
#include "account/account.h"
#include "base/clock.h"
#include <errno.h>
#include <sched.h>
#include <string.h>

/* ---- pools ---------------------------------------------------------------------------------------------------- */

void gp_feed_pool_create(uint64_t pool, int device, bool imported)
{
    struct gp_record record = {
        .key = pool,
        .space = GP_SPACE_POOL,
        .kind = GP_KIND_POOL,
        .device = (uint8_t)device,
        .flags = imported,
        .time_ns = gp_clock_ns(),
        .refs = 1,
    };
    if (!gp_account_of(device))
        return;
    if (gp_map_insert(gp_accounts.objects, &record, NULL) < 0)
        gp_feed_lost(GP_LOST_MAP);
    gp_feed_poll_want(GP_POLL_POOLS);
}

static uint64_t x_polling; /* the pool that the poller is asking the driver about */

bool gp_feed_poll_enter(uint64_t pool)
{
    struct gp_record record;
    /* [poll.P] sequentially consistent store, then the lookup; the destroyer removes the record, then loads [poll.D]:
     * one of the two sees the other. */
    __atomic_store_n(&x_polling, pool, __ATOMIC_SEQ_CST);
    if (gp_map_find(gp_accounts.objects, GP_SPACE_POOL, pool, &record) == 0 && record.refs == 1)
        return true;
    __atomic_store_n(&x_polling, 0, __ATOMIC_SEQ_CST);
    return false;
}

void gp_feed_poll_leave(void)
{
    __atomic_store_n(&x_polling, 0, __ATOMIC_SEQ_CST);
}

struct gp_polled_pool {
    int64_t reserved, high, last, last_high;
    int device;
};

static bool gp_pool_polled(struct gp_record *pool, void *arg)
{
    struct gp_polled_pool *polled = arg;
    polled->device = pool->device;
    polled->last = (int64_t)pool->bytes;
    polled->last_high = (int64_t)pool->requested_bytes;
    pool->bytes = (uint64_t)polled->reserved;
    if (polled->high > polled->last_high)
        pool->requested_bytes = (uint64_t)polled->high;
    return false;
}

void gp_feed_poll_pool(uint64_t pool, int64_t reserved, int64_t reserved_high)
{
    struct gp_polled_pool polled = {.reserved = reserved, .high = reserved_high};
    if (gp_map_update(gp_accounts.objects, GP_SPACE_POOL, pool, gp_pool_polled, &polled) == 0)
        gp_polled_set(gp_account_of(polled.device), GP_GAUGE_POOL_RESERVED, polled.last, reserved, &polled.last_high,
                      reserved_high);
}

void gp_feed_poll_pool_found(uint64_t pool, int device)
{
    struct gp_record record;
    if (gp_map_find(gp_accounts.objects, GP_SPACE_POOL, pool, &record) != 0)
        gp_feed_pool_create(pool, device, false);
}

struct gp_pool_list {
    struct gp_poll_pool *out;
    unsigned count, max;
};

static bool gp_pool_collect(struct gp_record *record, void *arg)
{
    struct gp_pool_list *list = arg;
    if (record->space == GP_SPACE_POOL && record->refs == 1 && !record->flags && list->count < list->max)
        list->out[list->count++] = (struct gp_poll_pool){record->key, record->device};
    return false;
}

unsigned gp_feed_poll_pools(struct gp_poll_pool *out, unsigned max)
{
    struct gp_pool_list list = {out, 0, max};
    gp_map_each(gp_accounts.objects, gp_pool_collect, &list);
    return list.count;
}

struct gp_pool_change {
    int uses;           /* blocks that went out (+) or came back (-) */
    uint32_t refs_from; /* if not equal: the new state */
    uint32_t refs_to;
    struct gp_record gone; /* refs == 1: the record left the map, this is what it held */
};

static bool gp_pool_changed(struct gp_record *pool, void *arg)
{
    struct gp_pool_change *change = arg;
    pool->uses = (uint32_t)((int)pool->uses + change->uses);
    if (change->refs_from != change->refs_to && pool->refs == change->refs_from)
        pool->refs = change->refs_to;
    if (pool->refs != 0 || pool->uses != 0)
        return false;
    change->gone = *pool;
    change->gone.refs = 1;
    return true;
}

static int gp_pool_change(uint64_t pool, struct gp_pool_change *change)
{
    int error = gp_map_update(gp_accounts.objects, GP_SPACE_POOL, pool, gp_pool_changed, change);
    struct gp_account *account = !error && change->gone.refs ? gp_account_of(change->gone.device) : NULL;
    int64_t high = INT64_MAX; /* no watermark: the pool is gone */
    if (account)
        gp_polled_set(account, GP_GAUGE_POOL_RESERVED, (int64_t)change->gone.bytes, 0, &high, 0);
    return error;
}

void gp_pool_count(uint64_t pool, int blocks)
{
    gp_pool_change(pool, &(struct gp_pool_change){.uses = blocks});
}

uint32_t gp_feed_pool_destroy_begin(uint64_t pool)
{
    const uint64_t patience_ns = 10000000; /* 10 ms: a pool query takes microseconds; past that we would rather risk our
                                              poll than hold the program */
    struct gp_frame *frame;
    struct gp_record record;
    if (gp_map_find(gp_accounts.objects, GP_SPACE_POOL, pool, &record) == 0 && record.uses &&
        gp_accounts.setup.poll_now)
        gp_accounts.setup.poll_now(patience_ns);
    uint32_t token = gp_frame_get(&frame);
    if (!token)
        return 0;
    frame->what = GP_SPACE_POOL;
    frame->address = pool;
    if (gp_pool_change(pool, &(struct gp_pool_change){.refs_from = 1, .refs_to = 2}) != 0) {
        gp_frame_put(token);
        return 0;
    }
    /* [poll.D]: pairs with [poll.P]. */
    uint64_t deadline = gp_clock_ns() + patience_ns;
    while (__atomic_load_n(&x_polling, __ATOMIC_SEQ_CST) == pool && gp_clock_ns() < deadline)
        sched_yield();
    return token;
}

void gp_feed_pool_destroy_end(uint32_t token, bool ok)
{
    struct gp_frame *frame = gp_frame_of(token, GP_SPACE_POOL);
    if (!frame)
        return;
    gp_pool_change(frame->address, &(struct gp_pool_change){.refs_from = 2, .refs_to = ok ? 0 : 1});
    gp_frame_put(token);
    gp_feed_poll_want(GP_POLL_POOLS);
}

void gp_feed_pool_use(int device, uint64_t pool)
{
    struct gp_account *account = gp_account_of(device);
    if (account)
        __atomic_store_n(&account->x_pool, pool,
                         __ATOMIC_RELAXED); /* the program orders this against its allocations */
}

uint64_t gp_feed_pool_of(int device)
{
    struct gp_account *account = device < 0 ? NULL : gp_account_of(device);
    return account ? __atomic_load_n(&account->x_pool, __ATOMIC_RELAXED) : 0;
}

int gp_feed_pool_device(uint64_t pool)
{
    struct gp_record record;
    if (pool && gp_map_find(gp_accounts.objects, GP_SPACE_POOL, pool, &record) == 0)
        return record.device;
    return GP_DEVICE_UNKNOWN;
}

/* ---- graph memory --------------------------------------------------------------------------------------------- */

/* Record of an allocation node: key = address, link = graph, requested_bytes = node, bytes = virtual size. */
static uint64_t x_graph_nodes;

#define GP_GRAPH_TAG_SHIFT                                                                                             \
    52 /* a graph being destroyed: its number carries the token, so a new graph at the same address is another */

static void gp_graph_move(const struct gp_record *record, enum gp_counter_op op)
{
    struct gp_move move = {.kind = GP_KIND_GRAPH, .parts = GP_PART_KIND, .bytes = (int64_t)record->bytes, .count = 1};
    gp_account_move(record->device, op, &move);
}

void gp_feed_graph_node(uint64_t address, uint64_t bytes, int device, uint64_t node, uint64_t graph)
{
    struct gp_record old, record = {
                              .key = address,
                              .space = GP_SPACE_GRAPH,
                              .kind = GP_KIND_GRAPH,
                              .device = (uint8_t)device,
                              .bytes = bytes,
                              .requested_bytes = node,
                              .time_ns = gp_clock_ns(),
                              .link = graph,
                          };
    if (!gp_account_of(device))
        return;
    int status = gp_map_insert(gp_accounts.objects, &record, &old);
    if (status < 0) {
        gp_feed_lost(GP_LOST_MAP);
        return;
    }
    if (status == 1)
        gp_graph_move(&old, GP_SUB);
    else
        __atomic_fetch_add(&x_graph_nodes, 1, __ATOMIC_RELAXED);
    gp_graph_move(&record, GP_ADD);
    record.requested_bytes = bytes;
    gp_event_record(GP_EVENT_ALLOC, &record, 0);
    gp_feed_poll_want(GP_POLL_GRAPHS);
}

bool gp_feed_graph_knows(uint64_t address)
{
    struct gp_record record;
    return __atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED) &&
           gp_map_find(gp_accounts.objects, GP_SPACE_GRAPH, address, &record) == 0;
}

struct gp_graph_match {
    uint64_t node, graph, tagged;
};

static bool gp_graph_node_gone(struct gp_record *record, void *arg)
{
    const struct gp_graph_match *match = arg;
    if (record->space != GP_SPACE_GRAPH)
        return false;
    if (match->node ? record->requested_bytes != match->node : record->link != match->graph)
        return false;
    gp_graph_move(record, GP_SUB);
    struct gp_record event = *record;
    event.requested_bytes = event.bytes;
    gp_event_record(GP_EVENT_FREE, &event, 0);
    return true;
}

static void gp_graph_remove(const struct gp_graph_match *match)
{
    uint64_t removed = gp_map_each(gp_accounts.objects, gp_graph_node_gone, (void *)match);
    __atomic_fetch_sub(&x_graph_nodes, removed, __ATOMIC_RELAXED);
}

void gp_feed_graph_node_destroyed(uint64_t node)
{
    if (node && __atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED))
        gp_graph_remove(&(struct gp_graph_match){.node = node});
}

void gp_feed_graph_gone(uint64_t graph)
{
    if (__atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED))
        gp_graph_remove(&(struct gp_graph_match){.graph = graph});
}

static bool gp_graph_tag(struct gp_record *record, void *arg)
{
    const struct gp_graph_match *match = arg;
    if (record->space == GP_SPACE_GRAPH && record->link == match->graph)
        record->link = match->tagged;
    return false;
}

uint32_t gp_feed_graph_destroy_begin(uint64_t graph)
{
    struct gp_frame *frame;
    if (__atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED) == 0)
        return 0; /* no graph of this process holds memory */
    uint32_t token = gp_frame_get(&frame);
    if (!token)
        return 0;
    frame->what = GP_SPACE_GRAPH;
    frame->address = graph;
    struct gp_graph_match match = {.graph = graph, .tagged = graph ^ ((uint64_t)token << GP_GRAPH_TAG_SHIFT)};
    gp_map_each(gp_accounts.objects, gp_graph_tag, &match);
    return token;
}

void gp_feed_graph_destroy_end(uint32_t token, bool ok)
{
    struct gp_frame *frame = gp_frame_of(token, GP_SPACE_GRAPH);
    if (!frame)
        return;
    uint64_t tagged = frame->address ^ ((uint64_t)token << GP_GRAPH_TAG_SHIFT);
    if (ok)
        gp_graph_remove(&(struct gp_graph_match){.graph = tagged});
    else
        gp_map_each(gp_accounts.objects, gp_graph_tag,
                    &(struct gp_graph_match){.graph = tagged, .tagged = frame->address});
    gp_frame_put(token);
    gp_feed_poll_want(GP_POLL_GRAPHS);
}

void gp_feed_poll_graph(int device, int64_t used, int64_t used_high, int64_t reserved, int64_t reserved_high)
{
    struct gp_account *account = gp_account_of(device);
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    if (!account)
        return;
    gp_counter_snapshot(account->counter, gauges); /* the poller alone moves these two */
    gp_polled_set(account, GP_GAUGE_GRAPH_RESERVED, gauges[GP_GAUGE_GRAPH_RESERVED].current, reserved,
                  &account->polled.graph_reserved_high, reserved_high);
    gp_polled_set(account, GP_GAUGE_GRAPH_USED, gauges[GP_GAUGE_GRAPH_USED].current, used,
                  &account->polled.graph_used_high, used_high);
}

/* ---- imports -------------------------------------------------------------------------------------------------- */

/* Record: key = address, refs = opens, bytes = 0 until the poller learned them. */
static void gp_import_move(const struct gp_record *record, enum gp_counter_op op, int64_t bytes, int64_t count)
{
    struct gp_move move = {.kind = GP_KIND_IMPORTED, .parts = GP_PART_KIND, .bytes = bytes, .count = count};
    gp_account_move(record->device, op, &move);
}

static bool gp_import_reference(struct gp_record *record, void *arg)
{
    record->refs += *(int *)arg;
    return false;
}

static bool gp_import_close(struct gp_record *record, void *arg)
{
    struct gp_frame *frame = arg;
    record->refs--;
    frame->record = *record;
    frame->died = record->refs == 0;
    return frame->died;
}

uint32_t gp_feed_ipc_close_begin(uint64_t address)
{
    struct gp_frame *frame;
    uint32_t token = gp_frame_get(&frame);
    if (!token)
        return 0;
    frame->what = GP_SPACE_IPC;
    if (gp_map_update(gp_accounts.objects, GP_SPACE_IPC, address, gp_import_close, frame) != 0) {
        gp_frame_put(token);
        return 0;
    }
    if (frame->died)
        gp_import_move(&frame->record, GP_TAKE, (int64_t)frame->record.bytes, 1);
    return token;
}

void gp_feed_ipc_close_end(uint32_t token, bool ok)
{
    struct gp_frame *frame = gp_frame_of(token, GP_SPACE_IPC);
    int more = 1;
    if (!frame)
        return;
    struct gp_record *record = &frame->record;
    if (ok && frame->died) {
        gp_import_move(record, GP_TAKEN, (int64_t)record->bytes, 1);
        gp_event_record(GP_EVENT_FREE, record, 0);
    } else if (!ok && frame->died) {
        record->refs = 1;
        if (gp_map_insert(gp_accounts.objects, record, NULL) < 0)
            gp_feed_lost(GP_LOST_MAP);
        gp_import_move(record, GP_PUTBACK, (int64_t)record->bytes, 1);
    } else if (!ok) {
        gp_map_update(gp_accounts.objects, GP_SPACE_IPC, record->key, gp_import_reference, &more);
    }
    gp_frame_put(token);
}

/* Imports that wait for the poller to learn their size.  Past 256 between two polls the rest stays unknown (bytes 0),
 * which loses nothing of what this process owns. */
static struct {
    uint32_t count;
    struct {
        uint8_t space;
        uint64_t address;
    } asked[256];
} gp_imports;

static void gp_import_ask(enum gp_space space, uint64_t address)
{
    gp_lock_take(&gp_accounts.lock);
    if (gp_imports.count < GP_COUNT(gp_imports.asked)) {
        gp_imports.asked[gp_imports.count].space = (uint8_t)space;
        gp_imports.asked[gp_imports.count++].address = address;
    }
    gp_lock_give(&gp_accounts.lock);
    gp_feed_poll_want(GP_POLL_IMPORTS);
}

bool gp_feed_poll_import_next(struct gp_poll_import *out)
{
    gp_lock_take(&gp_accounts.lock);
    bool any = gp_imports.count > 0;
    if (any) {
        gp_imports.count--;
        *out = (struct gp_poll_import){gp_imports.asked[gp_imports.count].space,
                                       gp_imports.asked[gp_imports.count].address};
    }
    gp_lock_give(&gp_accounts.lock);
    return any;
}

static bool gp_import_sized(struct gp_record *record, void *arg)
{
    struct gp_record *answer = arg;
    if (record->kind == GP_KIND_IMPORTED && record->bytes == 0) {
        record->bytes = record->requested_bytes = answer->bytes;
        answer->device = record->device;
        answer->refs = 1;
    }
    return false;
}

void gp_feed_poll_import(const struct gp_poll_import *import, uint64_t bytes)
{
    struct gp_record answer = {.bytes = bytes};
    struct gp_map *map = import->space == GP_SPACE_DEVICE ? gp_accounts.blocks : gp_accounts.objects;
    if (gp_map_update(map, import->space, import->address, gp_import_sized, &answer) == 0 && answer.refs)
        gp_import_move(&answer, GP_ADD, (int64_t)bytes, 0);
}

void gp_feed_pool_import_pointer(uint64_t address, int device)
{
    struct gp_block block = {.space = GP_SPACE_DEVICE, .kind = GP_KIND_IMPORTED, .device = device, .address = address};
    gp_feed_alloc(&block);
    gp_import_ask(GP_SPACE_DEVICE, address);
}

void gp_feed_ipc_open(uint64_t address, int device, uint32_t ctx)
{
    int more = 1;
    if (gp_map_update(gp_accounts.objects, GP_SPACE_IPC, address, gp_import_reference, &more) == 0)
        return; /* the driver gives the same address again and counts */
    struct gp_record record = {
        .key = address,
        .space = GP_SPACE_IPC,
        .kind = GP_KIND_IMPORTED,
        .device = (uint8_t)device,
        .ctx = ctx,
        .time_ns = gp_clock_ns(),
        .refs = 1,
    };
    if (!gp_account_of(device))
        return;
    if (gp_map_insert(gp_accounts.objects, &record, NULL) < 0) {
        gp_feed_lost(GP_LOST_MAP);
        return;
    }
    gp_import_move(&record, GP_ADD, 0, 1);
    gp_event_record(GP_EVENT_ALLOC, &record, 0);
    gp_import_ask(GP_SPACE_IPC, address);
}
