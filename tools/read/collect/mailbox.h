/* SPDX-License-Identifier: MIT
 *
 * mailbox.h: asks a process for something through its session, and listens to its events.
 */
#ifndef GP_READ_COLLECT_MAILBOX_H
#define GP_READ_COLLECT_MAILBOX_H

#include <gpuprof/wire.h>
#include <read/collect/peer.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The viewer's side of the mailbox; wire.h has the protocol. The mailbox is the only part of a
 * session that is mapped and written. The peer may be hostile: it can make a request fail or time
 * out, and nothing else. */

struct gp_mailbox {
    void *map; /* whole pages around the mailbox; NULL none */
    size_t map_bytes;
    struct gp_wire_mailbox *shared;
    int slot; /* claimed; -1 none */
    uint64_t request_id;
    uint32_t command;
    bool keeps; /* set by the caller: keep the answer's descriptor valid until gp_mailbox_done */
};

/* Maps the mailbox of a checked session. 0, -ETIMEDOUT (no thread serves it), -EPROTO. */
int gp_mailbox_open(struct gp_mailbox *box, const struct gp_peer *session);
/* Posts command, what, device and name of *request. 0, -EAGAIN (every slot is taken: try again
 * later). */
int gp_mailbox_post(struct gp_mailbox *box, const struct gp_wire_slot *request);
/* Waits for the answer until `deadline` (CLOCK_MONOTONIC ns) and copies it, checked, to *answer.
 * The process's result (0 or -errno), -ETIMEDOUT (the request was withdrawn), -EPROTO. */
int gp_mailbox_wait(struct gp_mailbox *box, struct gp_wire_slot *answer, uint64_t deadline);
/* Releases the descriptor of an answer (struct gp_wire_slot.fd), and wakes the process to close
 * it. */
void gp_mailbox_done(struct gp_mailbox *box);
void gp_mailbox_close(struct gp_mailbox *box);

/* Sends one request and waits for its answer, also waiting for a free slot. */
int gp_mailbox_call(const struct gp_peer *session, struct gp_wire_slot *slot, uint64_t deadline);

/* Announces a reader of a process's ring. Without one, the process writes no events for the blocks
 * of frameworks. Called by `record`, `trace` and `snapshot --trace`, with the reader of the ring
 * already open or about to be. */

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
