/* SPDX-License-Identifier: MIT
 *
 * recent.h: collects the last events of a live process while its snapshot is being made.  Called by
 * cmd/snapshot.c.
 */
#ifndef GP_SNAPSHOT_RECENT_H
#define GP_SNAPSHOT_RECENT_H

#include <gpuprof/wire.h>
#include <read/collect/peer.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_recent {
    struct gp_wire_event *events; /* by time */
    size_t count;
    uint64_t missed; /* overwritten or damaged, since the first of them */
    size_t room;
    struct gp_ringread *reader;
    struct gp_peer session;
    struct gp_listen listen;
};

/* Starts with the events that the ring still holds.  0, -ESRCH, -EACCES, -EPROTO, -errno. */
int gp_recent_open(struct gp_recent *recent, pid_t pid);
/* Takes the new events; last: everything that is left.  0 or -errno. */
int gp_recent_poll(struct gp_recent *recent, int last);
void gp_recent_close(struct gp_recent *recent);

#endif
