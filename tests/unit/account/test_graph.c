/* SPDX-License-Identifier: MIT
 *
 * test_graph.c: the accounts of graphs' allocation nodes: what each end of a node or graph removes,
 * and that none of them walks the map, which may hold the mappings of a whole model.
 */
#include "account/feed/graph.h"
#include "account/feed/start.h"
#include "account/feed/vmm.h"
#include "account/feed/want.h"
#include "account/internal.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/map.h"
#include "base/thread.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include <criterion/criterion.h>

#define NODES    2000u
#define MAPPINGS 40000u
#define GRAPH    0x5500000000ull
#define BYTES    512u

static void setup(void)
{
    accounts_start(8, (struct gp_feed_setup){.map_limit = 1 << 20});
    cr_assert(gp_thread_enter());
}

static uint64_t node_address(unsigned i)
{
    return 0x700000000000ull + (uint64_t)i * 4096;
}

static uint64_t node_handle(unsigned i)
{
    return 0x560000000000ull + (uint64_t)i * 64;
}

static void nodes_add(unsigned from, unsigned to, uint64_t graph)
{
    for (unsigned i = from; i < to; i++)
        gp_feed_graph_node(node_address(i), BYTES, 0, node_handle(i), graph);
}

static void check_nodes(unsigned count)
{
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    gp_counter_snapshot(gp_account_of(0)->counter, gauges);
    cr_assert_eq(gauges[GP_GAUGE_KIND_LIVE + GP_KIND_GRAPH].current, count);
    cr_assert_eq(gauges[GP_GAUGE_KIND_BYTES + GP_KIND_GRAPH].current, (int64_t)count * BYTES);
}

/* Every record of the map that is not one of the `others` is gone: lists and indexes too. */
static void check_empty(uint64_t others)
{
    check_nodes(0);
    cr_assert_eq(gp_map_count(gp_accounts.objects), others);
    cr_assert_eq(lost[GP_LOST_MAP], 0);
}

static void graph_destroy(uint64_t graph, bool ok)
{
    uint32_t token = gp_feed_graph_destroy_begin(graph);
    if (token)
        gp_feed_graph_destroy_end(token, ok);
}

TestSuite(graph, .init = setup, .fini = accounts_check);

/* CUPTI announces every node inside cuGraphDestroy. */
Test(graph, the_end_of_a_graph_does_not_walk_over_the_mappings)
{
    gp_feed_vmm_create(1, 2u << 20, 0);
    for (uint64_t i = 0; i < MAPPINGS; i++)
        gp_feed_vmm_map(0x600000000000ull + (i << 21), 2u << 20, 0, 1);
    nodes_add(0, NODES, GRAPH);
    nodes_add(NODES, 2 * NODES, GRAPH + 1);
    check_nodes(2 * NODES);
    uint32_t token = gp_feed_graph_destroy_begin(GRAPH);
    for (unsigned i = 0; i < NODES; i++)
        gp_feed_graph_node_destroyed(node_handle(i));
    gp_feed_graph_destroy_end(token, true);
    check_nodes(NODES);
    graph_destroy(GRAPH + 1, true);
    gp_feed_graph_gone(GRAPH + 2);
    check_empty(MAPPINGS + 1);
    cr_assert_eq(gp_map_walked(gp_accounts.objects), 0);
}

Test(graph, nodes_end_in_any_order)
{
    static const unsigned orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 2, 0, 3}, {2, 0, 3, 1}};
    for (unsigned i = 0; i < 4; i++) {
        nodes_add(0, 4, GRAPH);
        for (unsigned k = 0; k < 4; k++) {
            gp_feed_graph_node_destroyed(node_handle(orders[i][k]));
            check_nodes(3 - k);
            cr_assert_not(gp_feed_graph_knows(node_address(orders[i][k])));
        }
        check_empty(0);
    }
    gp_feed_graph_node_destroyed(node_handle(1)); /* it is gone already */
    check_empty(0);
}

Test(graph, a_graph_that_was_not_destroyed_keeps_its_nodes)
{
    nodes_add(0, 3, GRAPH);
    graph_destroy(GRAPH, false);
    check_nodes(3);
    graph_destroy(GRAPH, true);
    check_empty(0);
    gp_feed_poll_wanted();
    cr_assert_eq(gp_feed_graph_destroy_begin(GRAPH), 0, "no graph holds memory: nothing to do");
    cr_assert_eq(gp_feed_poll_wanted(), 0);
}

/* Another thread's new graph may get the handle before the call returns. */
Test(graph, a_handle_that_is_used_again_is_another_graph)
{
    nodes_add(0, 3, GRAPH);
    uint32_t token = gp_feed_graph_destroy_begin(GRAPH);
    nodes_add(3, 5, GRAPH);
    gp_feed_graph_destroy_end(token, true);
    check_nodes(2);
    graph_destroy(GRAPH, true);
    check_empty(0);
}

/* Their graph ended unseen; the address shows it. */
Test(graph, a_node_at_an_address_in_use_replaces_the_older_one)
{
    nodes_add(0, 3, GRAPH);
    nodes_add(1, 2, GRAPH + 1);
    check_nodes(3);
    graph_destroy(GRAPH, true);
    check_nodes(1);
    cr_assert(gp_feed_graph_knows(node_address(1)));
    graph_destroy(GRAPH + 1, true);
    check_empty(0);
}

/* A capture whose node cannot be told from its neighbours (source/hooks_resource.c). */
Test(graph, nodes_without_a_handle_end_with_their_graph)
{
    for (unsigned i = 0; i < 3; i++)
        gp_feed_graph_node(node_address(i), BYTES, 0, 0, GRAPH);
    gp_feed_graph_node_destroyed(0);
    check_nodes(3);
    gp_feed_graph_gone(GRAPH);
    check_empty(0);
}
