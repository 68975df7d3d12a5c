/* SPDX-License-Identifier: MIT
 *
 * left.c: a driver call that the thread has left without its end, by a jump or an exception. Called by
 * the hooks, which notice it at the thread's next call.
 */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "account/feed/pool.h"
#include "account/feed/vmm.h"
#include "account/frame.h"
#include "base/thread.h"

void gp_feed_call_left(void)
{
    enum gp_space what;
    uint32_t token = gp_account_frame_own(&what);
    switch (token ? what : GP_SPACE_NONE) {
    case GP_SPACE_DEVICE:
        gp_feed_free_end(token, true, 0);
        break;
    case GP_SPACE_VMM:
        gp_feed_vmm_release_end(token, true);
        break;
    case GP_SPACE_MAPPING:
        gp_feed_vmm_unmap_end(token, true);
        break;
    case GP_SPACE_POOL:
        gp_feed_pool_destroy_end(token, true);
        break;
    case GP_SPACE_GRAPH:
        gp_feed_graph_destroy_end(token, true);
        break;
    case GP_SPACE_GRAPH_NODE:
        gp_feed_graph_node_destroy_end(token, true);
        break;
    case GP_SPACE_IPC:
        gp_feed_ipc_close_end(token, true);
        break;
    case GP_SPACE_CONTEXT:
        gp_feed_context_destroy_end(token, true, true);
        break;
    default:
        break;
    }
}
