/* SPDX-License-Identifier: MIT
 *
 * graph.c: memory of CUDA graphs. The calls show the virtual addresses of allocation nodes; the
 * driver reports the physical memory per device.
 */
#include "account/feed/graph.h"
#include "account/ending.h"
#include "account/event.h"
#include "account/feed/feed.h"
#include "account/feed/poll.h"
#include "account/feed/want.h"
#include "account/frame.h"
#include "account/internal.h"
#include "account/move.h"
#include "account/polled.h"
#include "base/clock.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/kept.h"
#include "base/lock.h"
#include "base/map.h"
#include <gpuprof/wire.h>

/* A graph that ends must find its own nodes without a look at the rest of the map, which may hold
 * the mappings of a whole model.  So the nodes of a graph are in a ring, whose head outlives the
 * graph's handle: while a graph is being destroyed, another thread may get the handle.
 *
 * Three records lead to it: GRAPH from the address of a node, GRAPH_NODE from its handle, and
 * GRAPH_OWNER from the handle of the graph to the head. */
struct gp_graph_node {
    struct gp_graph_node *next, *previous, *list; /* list: the head; of an unused one only next is used */
    uint64_t address;                             /* of a head: how many nodes there are */
    uint64_t handle;                              /* 0: unknown; of a head: the graph's */
    bool ends; /* of a head: the graph is being destroyed, and no record leads to it */
};
#define GRAPH_CHUNK (64u << 10)

static struct gp_lock graph_lock = GP_LOCK_INIT(GP_RANK_ACCOUNT); /* the rings; taken alone */
static struct gp_graph_node *graph_unused;
static uint64_t x_graph_nodes;

/* Returns the time of the change, as gp_account_move. */
static uint64_t graph_move(const struct gp_record *record, enum gp_counter_op op)
{
    struct gp_move move = gp_account_block_move(record);
    return record->device != GP_NO_DEVICE ? gp_account_move(record->device, op, &move) : 0;
}

static void graph_gone(const struct gp_record *record)
{
    __atomic_fetch_sub(&x_graph_nodes, 1, __ATOMIC_RELAXED);
    gp_event_record_at(GP_EVENT_FREE, record, 0, graph_move(record, GP_SUB));
}

/* ---- the rings, under graph_lock ------------------------------------------------------------------------------ */

static struct gp_graph_node *graph_node_new(void)
{
    struct gp_graph_node *chunk = graph_unused ? NULL : gp_kept_map(GRAPH_CHUNK, 0);
    for (unsigned i = 0; chunk && i < GRAPH_CHUNK / sizeof(*chunk); i++) {
        chunk[i].next = graph_unused;
        graph_unused = &chunk[i];
    }
    struct gp_graph_node *node = graph_unused;
    if (node)
        graph_unused = node->next;
    return node;
}

static void graph_node_free(struct gp_graph_node *node)
{
    node->next = graph_unused;
    graph_unused = node;
}

static struct gp_graph_node *graph_find(enum gp_space space, uint64_t key)
{
    struct gp_record record;
    return gp_map_find(gp_accounts.objects, (uint8_t)space, key, &record) == 0 ? record.graph.node : NULL;
}

static bool graph_lead(enum gp_space space, uint64_t key, struct gp_graph_node *node)
{
    return gp_map_insert(
               gp_accounts.objects,
               &(struct gp_record){.key = key, .space = (uint8_t)space, .device = GP_NO_DEVICE, .graph.node = node},
               NULL) >= 0;
}

/* Takes the record of a key away if it leads to the node. */
static void graph_drop(enum gp_space space, uint64_t key, const struct gp_graph_node *node)
{
    if (graph_find(space, key) == node)
        gp_map_take(gp_accounts.objects, (uint8_t)space, key, NULL);
}

static void graph_list_trim(struct gp_graph_node *list)
{
    if (list->next != list || list->ends)
        return;
    graph_drop(GP_SPACE_GRAPH_OWNER, list->handle, list);
    graph_node_free(list);
}

/* The graph's ring, made if need be; NULL: no memory. */
static struct gp_graph_node *graph_list_of(uint64_t graph)
{
    struct gp_graph_node *list = graph_find(GP_SPACE_GRAPH_OWNER, graph);
    if (list || !(list = graph_node_new()))
        return list;
    *list = (struct gp_graph_node){.next = list, .previous = list, .list = list, .handle = graph};
    if (graph_lead(GP_SPACE_GRAPH_OWNER, graph, list))
        return list;
    graph_node_free(list);
    return NULL;
}

static void graph_hook(struct gp_graph_node *node, struct gp_graph_node *list)
{
    node->list = node->previous = list;
    node->next = list->next;
    list->next->previous = node;
    list->next = node;
    list->address++;
}

static void graph_unhook(struct gp_graph_node *node)
{
    node->previous->next = node->next;
    node->next->previous = node->previous;
    node->list->address--;
    graph_list_trim(node->list);
}

/* The node leaves its ring and the map. record: as it was there; space 0: it was not. */
static void graph_take(struct gp_graph_node *node, struct gp_record *record)
{
    if (node->handle)
        graph_drop(GP_SPACE_GRAPH_NODE, node->handle, node);
    if (gp_map_take(gp_accounts.objects, GP_SPACE_GRAPH, node->address, record) != 0)
        record->space = 0;
    graph_unhook(node);
    graph_node_free(node);
}

/* False: there is no room for it. */
static bool graph_put(struct gp_record *record, uint64_t handle, uint64_t graph)
{
    struct gp_graph_node *list = graph_list_of(graph), *node = list ? graph_node_new() : NULL;
    if (!node) {
        if (list)
            graph_list_trim(list);
        return false;
    }
    *node = (struct gp_graph_node){.address = record->key, .handle = handle};
    graph_hook(node, list);
    record->graph.node = node;
    if (gp_map_insert(gp_accounts.objects, record, NULL) < 0) {
        graph_unhook(node);
        graph_node_free(node);
        return false;
    }
    /* Without room for it the node is found when its graph ends. */
    if (handle)
        graph_lead(GP_SPACE_GRAPH_NODE, handle, node);
    return true;
}

/* ---- nodes and graphs ----------------------------------------------------------------------------------------- */

void gp_feed_graph_node(uint64_t address, uint64_t bytes, int device, uint64_t node, uint64_t graph)
{
    struct gp_record old = {.space = 0}, record = {
                                             .key = address,
                                             .space = GP_SPACE_GRAPH,
                                             .kind = GP_KIND_GRAPH,
                                             .device = device < 0 ? GP_NO_DEVICE : (uint8_t)device,
                                             .bytes = bytes,
                                             .requested_bytes = bytes,
                                             .time_ns = gp_clock_ns(),
                                             .site = gp_event_here(device, GP_KIND_GRAPH),
                                         };
    if (device < 0)
        gp_feed_lost(GP_LOST_DEVICE);
    else if (!gp_account_of(device))
        return;
    gp_lock_take(&graph_lock);
    struct gp_graph_node *there = graph_find(GP_SPACE_GRAPH, address);
    if (there)
        graph_take(there, &old);
    bool entered = graph_put(&record, node, graph);
    gp_lock_give(&graph_lock);
    if (old.space)
        graph_gone(&old);
    if (!entered) {
        gp_feed_lost(GP_LOST_MAP);
        return;
    }
    __atomic_fetch_add(&x_graph_nodes, 1, __ATOMIC_RELAXED);
    graph_move(&record, GP_ADD);
    gp_event_record(GP_EVENT_ALLOC, &record, 0);
    gp_feed_poll_want(GP_POLL_GRAPHS);
}

bool gp_feed_graph_knows(uint64_t address)
{
    struct gp_record record;
    return __atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED) &&
           gp_map_find(gp_accounts.objects, GP_SPACE_GRAPH, address, &record) == 0;
}

void gp_feed_graph_node_destroyed(uint64_t node)
{
    struct gp_record gone = {.space = 0};
    if (!node || __atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED) == 0)
        return;
    gp_lock_take(&graph_lock);
    struct gp_graph_node *found = graph_find(GP_SPACE_GRAPH_NODE, node);
    if (found)
        graph_take(found, &gone);
    gp_lock_give(&graph_lock);
    if (gone.space)
        graph_gone(&gone);
}

uint32_t gp_feed_graph_node_destroy_begin(uint64_t node)
{
    struct gp_frame *frame;
    struct gp_record *gone;
    uint32_t token = node && __atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED) ? gp_account_frame_get(&frame) : 0;
    if (!token)
        return 0;
    gone = &frame->record;
    gone->space = 0;
    gp_lock_take(&graph_lock);
    struct gp_graph_node *found = graph_find(GP_SPACE_GRAPH_NODE, node);
    if (found) {
        frame->address = found->list->handle;
        graph_take(found, gone);
    }
    gp_lock_give(&graph_lock);
    if (!gone->space) {
        gp_account_frame_put(token);
        return 0;
    }
    frame->what = GP_SPACE_GRAPH_NODE;
    gone->graph.handle = node;
    frame->time_ns = graph_move(gone, GP_SUB);
    return token;
}

/* The driver did not destroy it. Its bytes are in the totals again. */
static void graph_put_back(struct gp_record *record, void *graph)
{
    gp_lock_take(&graph_lock);
    bool entered = graph_put(record, record->graph.handle, *(const uint64_t *)graph);
    gp_lock_give(&graph_lock);
    if (entered)
        return;
    gp_feed_lost(GP_LOST_MAP);
    graph_gone(record);
}

void gp_feed_graph_node_destroy_end(uint32_t token, bool ok)
{
    struct gp_frame *frame = gp_account_frame_of(token, GP_SPACE_GRAPH_NODE);
    if (!frame)
        return;
    struct gp_move move = gp_account_block_move(&frame->record);
    if (ok) {
        __atomic_fetch_sub(&x_graph_nodes, 1, __ATOMIC_RELAXED);
        gp_event_record_at(GP_EVENT_FREE, &frame->record, 0, frame->time_ns);
    } else {
        if (frame->record.device != GP_NO_DEVICE)
            gp_account_putback(frame->record.device, frame->time_ns, &move);
        graph_put_back(&frame->record, &frame->address);
    }
    gp_account_frame_put(token);
    gp_feed_poll_want(GP_POLL_GRAPHS);
}

/* Ends the nodes of a graph that ends, one at a time, so that no thread waits for a long ring. */
static void graph_list_gone(struct gp_graph_node *list)
{
    bool more = list != NULL;
    while (more) {
        struct gp_record gone = {.space = 0};
        gp_lock_take(&graph_lock);
        more = list->next != list;
        if (more) {
            graph_take(list->next, &gone);
        } else {
            list->ends = false;
            graph_list_trim(list);
        }
        gp_lock_give(&graph_lock);
        if (gone.space)
            graph_gone(&gone);
    }
}

/* The ring of a graph whose handle may be reused from now on; NULL: it holds no memory. count: of its nodes. */
static struct gp_graph_node *graph_disown(uint64_t graph, uint64_t *count)
{
    gp_lock_take(&graph_lock);
    struct gp_graph_node *list = graph_find(GP_SPACE_GRAPH_OWNER, graph);
    if (list) {
        gp_map_take(gp_accounts.objects, GP_SPACE_GRAPH_OWNER, graph, NULL);
        list->ends = true;
    }
    *count = list ? list->address : 0;
    gp_lock_give(&graph_lock);
    return list;
}

/* Takes the next node of a ring that ends. False: the ring has no more, or there is no room. */
static bool graph_leaves(struct gp_graph_node *list, struct gp_ending *ending)
{
    struct gp_record gone = {.space = 0};
    gp_lock_take(&graph_lock);
    struct gp_graph_node *node = list->next;
    bool more = node != list && gp_map_find(gp_accounts.objects, GP_SPACE_GRAPH, node->address, &gone) == 0;
    gone.graph.handle = node->handle;
    more = more && gp_ending_add(ending, &gone);
    if (more)
        graph_take(node, &gone);
    gp_lock_give(&graph_lock);
    return more;
}

void gp_feed_graph_gone(uint64_t graph)
{
    uint64_t count;
    if (__atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED))
        graph_list_gone(graph_disown(graph, &count));
}

/* Under graph_lock. False: all nodes have moved, or there is no room for the other ring. */
static bool graph_relink(uint64_t graph, uint64_t into)
{
    struct gp_graph_node *from = graph_find(GP_SPACE_GRAPH_OWNER, graph), *to = from ? graph_list_of(into) : NULL;
    if (!to)
        return false;
    struct gp_graph_node *node = from->next;
    graph_unhook(node);
    graph_hook(node, to);
    return true;
}

void gp_feed_graph_moved(uint64_t graph, uint64_t into)
{
    bool more = graph != into && __atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED);
    while (more) { /* one node at a time, as above */
        gp_lock_take(&graph_lock);
        more = graph_relink(graph, into);
        gp_lock_give(&graph_lock);
    }
}

uint32_t gp_feed_graph_destroy_begin(uint64_t graph)
{
    struct gp_frame *frame;
    uint64_t count;
    if (__atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED) == 0)
        return 0; /* no graph of this process holds memory */
    uint32_t token = gp_account_frame_get(&frame);
    if (!token)
        return 0;
    struct gp_graph_node *list = graph_disown(graph, &count);
    frame->what = GP_SPACE_GRAPH;
    frame->record.graph.node = list;
    frame->ending = gp_ending_new(count);
    while (frame->ending && graph_leaves(list, frame->ending))
        ;
    gp_ending_begin(frame->ending);
    return token;
}

static void graph_own_again(struct gp_graph_node *list)
{
    gp_lock_take(&graph_lock);
    list->ends = false;
    if (list->next != list)
        graph_lead(GP_SPACE_GRAPH_OWNER, list->handle, list);
    graph_list_trim(list);
    gp_lock_give(&graph_lock);
}

void gp_feed_graph_destroy_end(uint32_t token, bool ok)
{
    struct gp_frame *frame = gp_account_frame_of(token, GP_SPACE_GRAPH);
    if (!frame)
        return;
    struct gp_graph_node *list = frame->record.graph.node;
    uint64_t graph = list ? list->handle : 0;
    if (ok) {
        __atomic_fetch_sub(&x_graph_nodes, gp_ending_count(frame->ending), __ATOMIC_RELAXED);
        gp_ending_done(frame->ending);
        graph_list_gone(list);
    } else if (list) {
        graph_own_again(list);
        gp_ending_refused(frame->ending, graph_put_back, &graph);
    }
    gp_account_frame_put(token);
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
