/* SPDX-License-Identifier: MIT
 *
 * peer.h: opens, checks and copies the session of another process, the peer.  Every byte in it may have been written,
 * and may be changed at this very moment, by a hostile process: bytes are fetched once (pread into private memory),
 * checked there, and used from there.  Called by collect.c, by `run --summary` and by `trace`, and by the fuzz target.
 */
#ifndef GP_COLLECT_PEER_H
#define GP_COLLECT_PEER_H

#include <collect/collect.h>
#include <collect/procfs.h>

#define GP_PROBLEM_BYTES 160

struct gp_peer {
    int fd; /* -1 none */
    uint8_t id[16];
    uint32_t pid; /* as the process sees itself */
    uint64_t start_ns;
    uint64_t total_bytes;
    /* Checked against total_bytes and against the sizes of this build. */
    uint64_t devices_offset, scopes_offset, failures_offset, mailbox_offset, ring_offset;
    uint64_t oom_offset; /* 0: the library keeps no such report */
    uint32_t device_count, scope_count, failure_count, slot_count, chunk_count;
};

/* Finds the session among the descriptors of an open process and checks its seals and layout.  0; -ENOENT: it has none;
 * -EACCES: we may not look; -EPROTO: it has one that failed the checks (problem says why); -errno. */
int gp_peer_open(struct gp_peer *session, const struct gp_proc *proc, char problem[GP_PROBLEM_BYTES]);

/* Takes a descriptor (kept open, closed by gp_peer_close) of a memfd; checks seals, size and layout.  0; -ENOENT:
 * its header is not written yet; -EPROTO; the descriptor is closed on failure. */
int gp_peer_adopt(struct gp_peer *session, int fd, char problem[GP_PROBLEM_BYTES]);

/* gp_peer_adopt without the checks of seals and file system: for a caller that owns the file (tests, fuzzing). */
int gp_peer_load(struct gp_peer *session, int fd, char problem[GP_PROBLEM_BYTES]);

/* The layout checks alone: a private copy of the header against the size of the file.  0, -ENOENT, -EPROTO. */
int gp_peer_check(struct gp_peer *session, const struct gp_wire_header *header, uint64_t file_bytes,
                  char problem[GP_PROBLEM_BYTES]);

/* Copies everything but mailbox and ring into *process (which says who it is already): state UNKNOWN, STALE (copied;
 * the caller knows whether the numbers are exact) or DAMAGED with `problem`.  0 or -ENOMEM. */
int gp_peer_read(const struct gp_peer *session, struct gp_process *process);

/* The mapped-free way in: all of [offset, offset + bytes) of the session into *to.  0, -EPROTO, -errno. */
int gp_peer_fetch(const struct gp_peer *session, void *to, size_t bytes, uint64_t offset);

/* Frees what gp_peer_read allocated. */
void gp_peer_drop(struct gp_process *process);

void gp_peer_close(struct gp_peer *session);

#endif
