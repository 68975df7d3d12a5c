/* SPDX-License-Identifier: MIT
 *
 * graph.c: memory of CUDA graphs. The calls show the virtual addresses of allocation nodes; the
 * driver reports the physical memory per device.
 */
#include "account/account.h"
#include "base/clock.h"

/* Record of an allocation node: key = address, link = graph, requested_bytes = node, bytes =
 * virtual size. */
static uint64_t x_graph_nodes;

#define GP_GRAPH_TAG_SHIFT                                                                                             \
    52 /* a graph being destroyed: its number carries the token, so a new graph at the same address differs */

static void graph_move(const struct gp_record *record, enum gp_counter_op op)
{
    struct gp_move move = {.kind = GP_KIND_GRAPH, .parts = GP_PART_KIND, .bytes = (int64_t)record->bytes, .count = 1};
    if (record->device != GP_NO_DEVICE)
        gp_account_move(record->device, op, &move);
}

static void graph_gone(const struct gp_record *record)
{
    struct gp_record event = *record;
    event.requested_bytes = event.bytes;
    graph_move(record, GP_SUB);
    gp_event_record(GP_EVENT_FREE, &event, 0);
}

void gp_feed_graph_node(uint64_t address, uint64_t bytes, int device, uint64_t node, uint64_t graph)
{
    struct gp_record old, record = {
                              .key = address,
                              .space = GP_SPACE_GRAPH,
                              .kind = GP_KIND_GRAPH,
                              .device = device < 0 ? GP_NO_DEVICE : (uint8_t)device,
                              .bytes = bytes,
                              .requested_bytes = node,
                              .time_ns = gp_clock_ns(),
                              .link = graph,
                              .site = gp_event_here(device, GP_KIND_GRAPH),
                          };
    if (device < 0)
        gp_feed_lost(GP_LOST_DEVICE);
    else if (!gp_account_of(device))
        return;
    int status = gp_map_insert(gp_accounts.objects, &record, &old);
    if (status < 0) {
        gp_feed_lost(GP_LOST_MAP);
        return;
    }
    if (status == 1)
        graph_gone(&old);
    else
        __atomic_fetch_add(&x_graph_nodes, 1, __ATOMIC_RELAXED);
    graph_move(&record, GP_ADD);
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

static bool graph_node_gone(struct gp_record *record, void *arg)
{
    const struct gp_graph_match *match = arg;
    if (record->space != GP_SPACE_GRAPH)
        return false;
    if (match->node ? record->requested_bytes != match->node : record->link != match->graph)
        return false;
    graph_gone(record);
    return true;
}

static void graph_remove(const struct gp_graph_match *match)
{
    uint64_t removed = gp_map_each(gp_accounts.objects, graph_node_gone, (void *)match);
    __atomic_fetch_sub(&x_graph_nodes, removed, __ATOMIC_RELAXED);
}

void gp_feed_graph_node_destroyed(uint64_t node)
{
    if (node && __atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED))
        graph_remove(&(struct gp_graph_match){.node = node});
}

void gp_feed_graph_gone(uint64_t graph)
{
    if (__atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED))
        graph_remove(&(struct gp_graph_match){.graph = graph});
}

static bool graph_tag(struct gp_record *record, void *arg)
{
    const struct gp_graph_match *match = arg;
    if (record->space == GP_SPACE_GRAPH && record->link == match->graph)
        record->link = match->tagged;
    return false;
}

void gp_feed_graph_moved(uint64_t graph, uint64_t into)
{
    if (__atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED))
        gp_map_each(gp_accounts.objects, graph_tag, &(struct gp_graph_match){.graph = graph, .tagged = into});
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
    gp_map_each(gp_accounts.objects, graph_tag, &match);
    return token;
}

void gp_feed_graph_destroy_end(uint32_t token, bool ok)
{
    struct gp_frame *frame = gp_frame_of(token, GP_SPACE_GRAPH);
    if (!frame)
        return;
    uint64_t tagged = frame->address ^ ((uint64_t)token << GP_GRAPH_TAG_SHIFT);
    if (ok)
        graph_remove(&(struct gp_graph_match){.graph = tagged});
    else
        gp_map_each(gp_accounts.objects, graph_tag,
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
    gp_counter_snapshot(account->counter, gauges); /* only the poller moves these two */
    gp_polled_set(account, GP_GAUGE_GRAPH_RESERVED, gauges[GP_GAUGE_GRAPH_RESERVED].current, reserved,
                  &account->polled.graph_reserved_high, reserved_high);
    gp_polled_set(account, GP_GAUGE_GRAPH_USED, gauges[GP_GAUGE_GRAPH_USED].current, used,
                  &account->polled.graph_used_high, used_high);
}
