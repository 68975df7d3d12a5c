/* SPDX-License-Identifier: MIT
 *
 * graph.c: memory of CUDA graphs. The calls show the virtual addresses of allocation nodes; the
 * driver reports the physical memory per device.
 */
#include "account/account.h"
#include "base/clock.h"

/* A graph that ends must find its own nodes without a look at the rest of the map, which may hold
 * the mappings of a whole model.  So the nodes of a graph form a list, whose number outlives the
 * graph's handle: while a graph is being destroyed, another thread may get the handle.
 *
 * Node:   space GRAPH, key = address, bytes = virtual size.
 * Link:   space GRAPH_LINK, key = address, link = list, bytes = next address, requested_bytes =
 *         previous address, time_ns = node; 0: unknown.
 * Node:   space GRAPH_NODE, key = node, link = address.
 * List:   space GRAPH_LIST, key = list, link = first address, bytes = graph.  It has a node.
 * Owner:  space GRAPH_OWNER, key = graph, link = list.  Absent while the graph is being destroyed.
 */
static struct gp_lock graph_lock = GP_LOCK_INIT(GP_RANK_ACCOUNT); /* the records above; taken alone */
static uint64_t graph_lists;                                      /* under graph_lock: lists made so far */
static uint64_t x_graph_nodes;

static void graph_move(const struct gp_record *record, enum gp_counter_op op)
{
    struct gp_move move = {.kind = GP_KIND_GRAPH, .parts = GP_PART_KIND, .bytes = (int64_t)record->bytes, .count = 1};
    if (record->device != GP_NO_DEVICE)
        gp_account_move(record->device, op, &move);
}

static void graph_gone(const struct gp_record *record)
{
    __atomic_fetch_sub(&x_graph_nodes, 1, __ATOMIC_RELAXED);
    graph_move(record, GP_SUB);
    gp_event_record(GP_EVENT_FREE, record, 0);
}

/* ---- the lists, under graph_lock ------------------------------------------------------------------------------ */

static bool graph_get(enum gp_space space, uint64_t key, struct gp_record *out)
{
    return gp_map_find(gp_accounts.objects, (uint8_t)space, key, out) == 0;
}

static bool graph_set(const struct gp_record *record)
{
    return gp_map_insert(gp_accounts.objects, record, NULL) >= 0;
}

/* Takes the record of a key away if it still leads to `link`. */
static void graph_drop(enum gp_space space, uint64_t key, uint64_t link)
{
    struct gp_record record;
    if (graph_get(space, key, &record) && record.graph.link == link)
        gp_map_take(gp_accounts.objects, (uint8_t)space, key, NULL);
}

static void graph_list_drop(const struct gp_record *list)
{
    gp_map_take(gp_accounts.objects, GP_SPACE_GRAPH_LIST, list->key, NULL);
    graph_drop(GP_SPACE_GRAPH_OWNER, list->bytes, list->key);
}

/* The graph's list, made if need be. */
static bool graph_list_of(uint64_t graph, struct gp_record *list)
{
    struct gp_record owner = {.key = graph, .space = GP_SPACE_GRAPH_OWNER, .device = 255};
    if (graph_get(GP_SPACE_GRAPH_OWNER, graph, &owner))
        return graph_get(GP_SPACE_GRAPH_LIST, owner.graph.link, list);
    owner.graph.link = ++graph_lists;
    *list = (struct gp_record){.key = owner.graph.link, .space = GP_SPACE_GRAPH_LIST, .device = 255, .bytes = graph};
    return graph_set(&owner) && graph_set(list);
}

static bool graph_link(uint64_t address, uint64_t node, uint64_t graph)
{
    struct gp_record list, next;
    if (!graph_list_of(graph, &list)) {
        graph_drop(GP_SPACE_GRAPH_OWNER, graph, graph_lists);
        return false;
    }
    if (!graph_set(&(struct gp_record){.key = address,
                                       .space = GP_SPACE_GRAPH_LINK,
                                       .device = 255,
                                       .bytes = list.graph.link,
                                       .time_ns = node,
                                       .graph.link = list.key})) {
        if (!list.graph.link)
            graph_list_drop(&list);
        return false;
    }
    if (list.graph.link && graph_get(GP_SPACE_GRAPH_LINK, list.graph.link, &next)) {
        next.requested_bytes = address;
        graph_set(&next);
    }
    list.graph.link = address;
    graph_set(&list);
    /* Without room for it the node is found when its graph ends. */
    if (node)
        graph_set(&(struct gp_record){.key = node, .space = GP_SPACE_GRAPH_NODE, .device = 255, .graph.link = address});
    return true;
}

/* False: there is no node at this address. */
static bool graph_unlink(uint64_t address)
{
    struct gp_record link, other;
    if (gp_map_take(gp_accounts.objects, GP_SPACE_GRAPH_LINK, address, &link) != 0)
        return false;
    uint64_t next = link.bytes, previous = link.requested_bytes;
    if (link.time_ns)
        graph_drop(GP_SPACE_GRAPH_NODE, link.time_ns, address);
    if (previous && graph_get(GP_SPACE_GRAPH_LINK, previous, &other)) {
        other.bytes = next;
        graph_set(&other);
    }
    if (next && graph_get(GP_SPACE_GRAPH_LINK, next, &other)) {
        other.requested_bytes = previous;
        graph_set(&other);
    }
    if (previous || !graph_get(GP_SPACE_GRAPH_LIST, link.graph.link, &other))
        return true;
    other.graph.link = next;
    if (next)
        graph_set(&other);
    else
        graph_list_drop(&other);
    return true;
}

/* ---- nodes and graphs ----------------------------------------------------------------------------------------- */

/* False: the list has no such node; record: what left the map, with space 0 if nothing did. */
static bool graph_take(uint64_t address, struct gp_record *record)
{
    record->space = 0;
    if (!graph_unlink(address))
        return false;
    if (gp_map_take(gp_accounts.objects, GP_SPACE_GRAPH, address, record) != 0)
        record->space = 0;
    return true;
}

void gp_feed_graph_node(uint64_t address, uint64_t bytes, int device, uint64_t node, uint64_t graph)
{
    struct gp_record old, record = {
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
    graph_take(address, &old);
    bool linked = graph_link(address, node, graph), entered = linked && graph_set(&record);
    if (linked && !entered)
        graph_unlink(address);
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
    struct gp_record index, gone = {.space = 0};
    if (!node || __atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED) == 0)
        return;
    gp_lock_take(&graph_lock);
    if (graph_get(GP_SPACE_GRAPH_NODE, node, &index))
        graph_take(index.graph.link, &gone);
    gp_lock_give(&graph_lock);
    if (gone.space)
        graph_gone(&gone);
}

/* One node at a time, so that no thread waits for a long list. */
static void graph_list_gone(uint64_t number)
{
    bool more = true;
    while (more) {
        struct gp_record list, gone = {.space = 0};
        gp_lock_take(&graph_lock);
        more = graph_get(GP_SPACE_GRAPH_LIST, number, &list) && graph_take(list.graph.link, &gone);
        gp_lock_give(&graph_lock);
        if (gone.space)
            graph_gone(&gone);
    }
}

/* The list of a graph whose handle may be reused from now on; 0: it holds no memory. */
static uint64_t graph_disown(uint64_t graph)
{
    struct gp_record owner = {.graph.link = 0};
    gp_lock_take(&graph_lock);
    bool owned = gp_map_take(gp_accounts.objects, GP_SPACE_GRAPH_OWNER, graph, &owner) == 0;
    gp_lock_give(&graph_lock);
    return owned ? owner.graph.link : 0;
}

void gp_feed_graph_gone(uint64_t graph)
{
    if (__atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED))
        graph_list_gone(graph_disown(graph));
}

/* Under graph_lock. A node that finds no room in the other list stays where it is: false. */
static bool graph_relink(uint64_t graph, uint64_t into)
{
    struct gp_record owner, list, link;
    if (!graph_get(GP_SPACE_GRAPH_OWNER, graph, &owner) || !graph_get(GP_SPACE_GRAPH_LIST, owner.graph.link, &list) ||
        !graph_get(GP_SPACE_GRAPH_LINK, list.graph.link, &link))
        return false;
    graph_unlink(link.key);
    if (graph_link(link.key, link.time_ns, into))
        return true;
    graph_link(link.key, link.time_ns, graph); /* the room that the unlink made */
    return false;
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
    if (__atomic_load_n(&x_graph_nodes, __ATOMIC_RELAXED) == 0)
        return 0; /* no graph of this process holds memory */
    uint32_t token = gp_frame_get(&frame);
    if (!token)
        return 0;
    frame->what = GP_SPACE_GRAPH;
    frame->address = graph;
    frame->bytes = graph_disown(graph);
    return token;
}

static void graph_own_again(uint64_t graph, uint64_t number)
{
    struct gp_record list;
    gp_lock_take(&graph_lock);
    if (graph_get(GP_SPACE_GRAPH_LIST, number, &list))
        graph_set(
            &(struct gp_record){.key = graph, .space = GP_SPACE_GRAPH_OWNER, .device = 255, .graph.link = number});
    gp_lock_give(&graph_lock);
}

void gp_feed_graph_destroy_end(uint32_t token, bool ok)
{
    struct gp_frame *frame = gp_frame_of(token, GP_SPACE_GRAPH);
    if (!frame)
        return;
    if (frame->bytes && ok)
        graph_list_gone(frame->bytes);
    else if (frame->bytes)
        graph_own_again(frame->address, frame->bytes);
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
