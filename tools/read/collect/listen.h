/* SPDX-License-Identifier: MIT
 *
 * listen.h: announces a reader of a process's ring. Without one, the process writes no events for the
 * blocks of frameworks. Called by `record`, `trace` and `snapshot --trace`, with the reader of the
 * ring already open or about to be.
 */
#ifndef GP_COLLECT_LISTEN_H
#define GP_COLLECT_LISTEN_H

#include <read/collect/peer.h>

struct gp_listen {
    const struct gp_peer *session;
    uint64_t again_ns; /* CLOCK_MONOTONIC */
    bool heard;        /* the process has answered */
};

/* From its return on, every block is an event, until the session's descriptor is closed or this
 * process ends. Waits for the answer for at most a second. A process that does not answer (stopped) is
 * asked again by gp_listen_again, which callers run in their loop. */
void gp_listen(struct gp_listen *listen, const struct gp_peer *session);
void gp_listen_again(struct gp_listen *listen);

#endif
