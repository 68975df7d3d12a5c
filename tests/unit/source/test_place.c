/* SPDX-License-Identifier: MIT
 *
 * Where memory lies, by the location that a call names: a device, the host, or a place that this
 * build does not know.  Memory at an unknown place is in no total, and is counted as such.
 */
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "account/feed/poll.h"
#include "account/feed/pool.h"
#include "account/feed/start.h"
#include "account/feed/vmm.h"
#include "base/thread.h"
#include "lib/accounts.h"
#include "source/internal.h"
#include <criterion/criterion.h>
#include <gpuprof/wire.h>

static void start_accounts(void)
{
    accounts_start(8, (struct gp_feed_setup){.map_limit = 1 << 16});
    cr_assert(gp_thread_enter());
}

Test(place, kinds_of_locations)
{
    static const struct {
        int type, id, device;
    } places[] = {
        {1, 5, 5},                  /* DEVICE */
        {2, 7, GP_WIRE_HOST},       /* HOST: the id means nothing */
        {3, 1, GP_WIRE_HOST},       /* HOST_NUMA */
        {4, 0, GP_WIRE_HOST},       /* HOST_NUMA_CURRENT */
        {6, 0x0103, 3},             /* DEVICE_LOCALITY_DOMAIN: domain 1 of device 3 */
        {0, 0, GP_DEVICE_UNKNOWN},  /* NONE */
        {5, -2, GP_DEVICE_UNKNOWN}, /* INVISIBLE */
        {7, 0, GP_DEVICE_UNKNOWN},  /* of some later CUDA */
        {-1, 0, GP_DEVICE_UNKNOWN}, /* garbage */
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        cr_expect_eq(gp_place_device(&(struct gp_cu_location){places[i].type, places[i].id}), places[i].device,
                     "location %d", places[i].type);
}

Test(place, memory_at_an_unknown_place_is_followed_and_counted)
{
    start_accounts();
    gp_feed_vmm_create(77, 2 << 20, GP_DEVICE_UNKNOWN);
    gp_feed_vmm_map(0x7f0000000000, 2 << 20, 0, 77);
    gp_feed_graph_node(0x7e0000000000, 4 << 20, GP_DEVICE_UNKNOWN, 1, 2);
    cr_assert_eq(lost[GP_LOST_DEVICE], 2);
    uint32_t token = gp_feed_vmm_release_begin(77);
    cr_assert_neq(token, 0, "the handle is known");
    gp_feed_vmm_release_end(token, true);
    token = gp_feed_vmm_unmap_begin(0x7f0000000000, 2 << 20);
    gp_feed_vmm_unmap_end(token, true);
    gp_feed_graph_gone(2);
    cr_assert_eq(gp_feed_devices(), 0, "no device has it");
    for (unsigned cause = 0; cause < GP_LOSTS; cause++)
        cr_expect(cause == GP_LOST_DEVICE || lost[cause] == 0, "lost[%u]", cause);
}

Test(place, a_pool_at_an_unknown_place)
{
    struct gp_poll_pool pools[4];
    start_accounts();
    gp_feed_pool_create(5, GP_DEVICE_UNKNOWN, 0);
    gp_feed_pool_create(6, GP_DEVICE_UNKNOWN, GP_POOL_MANAGED);
    cr_assert(gp_feed_pool_is_nowhere(5));
    cr_assert(!gp_feed_pool_is_nowhere(6), "its blocks are the stream's device's");
    cr_assert(!gp_feed_pool_is_nowhere(7));
    cr_assert_eq(gp_feed_pool_device(5), GP_DEVICE_UNKNOWN);
    cr_assert_eq(gp_feed_poll_pools(pools, 4), 0);
    gp_feed_pool_found(5, 1, 0);
    cr_assert_eq(gp_feed_pool_device(5), GP_DEVICE_UNKNOWN, "known already");
    uint32_t token = gp_feed_pool_destroy_begin(5);
    gp_feed_pool_destroy_end(token, true);
    cr_assert_eq(gp_feed_devices(), 0);
}
