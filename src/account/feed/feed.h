/* SPDX-License-Identifier: MIT
 *
 * feed.h: what the headers of feed/ share. They are the only way into the accounts: sources (CUPTI
 * callbacks, driver hooks), the allocator and the poller report each operation of the driver there
 * in plain numbers; account/ knows no CUDA types. Every function runs between gp_thread_enter and
 * gp_thread_leave on the application's thread (those of poll.h on the poller's). None takes a lock
 * for longer than a map shard or the counters' slow path needs, makes a system call in the common
 * case, calls malloc, or fails: the session's `lost` counts events that cannot be recorded.
 *
 * Begin/end pairs bracket a driver call that frees something. Begin takes it out of the map before
 * the driver can hand the address to another thread; end settles it (ok) or restores everything.
 * The token is never 0 for a call that was begun; 0 means that the address was unknown.
 */
#ifndef GP_ACCOUNT_FEED_FEED_H
#define GP_ACCOUNT_FEED_FEED_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* What kind of address or handle a key is: keys of different spaces never collide. */
enum gp_space {
    GP_SPACE_NONE,
    GP_SPACE_DEVICE, /* device addresses: linear, pitched, managed, pool, mapped external buffers */
    GP_SPACE_HOST,   /* pinned host memory */
    GP_SPACE_REGISTERED,
    GP_SPACE_ARRAY,
    GP_SPACE_BLOCK,   /* blocks of a framework, inside its segments */
    GP_SPACE_VMM,     /* allocation handles */
    GP_SPACE_MAPPING, /* mapped addresses */
    GP_SPACE_RANGE,   /* address reservations */
    GP_SPACE_POOL,
    GP_SPACE_GRAPH, /* addresses of graph allocation nodes */
    GP_SPACE_IPC,
    GP_SPACE_STREAM,
    GP_SPACE_MODULE,         /* the last one that a context can own */
    GP_SPACE_BINDING,        /* of handles to multicast objects */
    GP_SPACE_PENDING,        /* mappings being unmapped */
    GP_SPACE_PENDING_HANDLE, /* handles that the unmap under way would free */
    GP_SPACE_GRAPH_NODE,     /* handles of graph allocation nodes */
    GP_SPACE_GRAPH_OWNER,    /* of their graphs */
    GP_SPACE_CONTEXT,        /* of no record: a frame (account/frame.h) is about one */
};

#define GP_DEVICE_UNKNOWN (-1)
/* Occurrences that are counted but not decoded. */
void gp_feed_lost(enum gp_wire_lost cause);

/* The thread has left a call between its begin and its end, and does not come back. It is not known
 * whether the driver did the call: memory that the call was to free counts as freed. */
void gp_feed_call_left(void);
/* Devices in use by index: a bit set of the first 64. */
uint64_t gp_feed_devices(void);
/* Whether a reader follows the ring. */
bool gp_feed_followed(void);
/* Writes a mark or process event that the library itself makes. */
void gp_feed_event(enum gp_wire_event_type type, const char *name);

#endif
