/* SPDX-License-Identifier: MIT
 *
 * peer.h: opens, checks and copies the session of another process, the peer. The peer may be
 * hostile, and may change any byte at any time: bytes are fetched once (pread into private memory),
 * checked there, and used from there. Called by collect.c, `run --summary`, `trace`, and the fuzz
 * target.
 */
#ifndef GP_READ_COLLECT_PEER_H
#define GP_READ_COLLECT_PEER_H

#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GP_PROBLEM_BYTES 160

struct gp_peer {
    int fd; /* -1 none */
    uint8_t id[16];
    uint32_t pid; /* as the process sees itself */
    uint64_t start_ns;
    uint64_t total_bytes;
    /* Checked against total_bytes and against the sizes of this build. */
    uint64_t devices_offset, scopes_offset, failures_offset, mailbox_offset, ring_offset;
    uint64_t oom_offset;           /* 0: the library writes no such report */
    uint64_t oom_framework_offset; /* 0: nor a part about a framework */
    uint64_t before_offset;        /* 0: the library cannot be attached late */
    uint64_t blocks_offset;        /* 0: the library cannot list blocks from before */
    uint64_t doors_offset;         /* 0: the library knows no pools of libraries */
    uint64_t owners_offset;        /* 0: the library knows no owners */
    uint64_t cupti_offset;         /* 0: the library does not tell which copies it tried */
    uint32_t device_count, scope_count, failure_count, slot_count, chunk_count;
};

/* Finds the session among the descriptors of an open process and checks its seals and layout. 0;
 * -ENOENT: it has none; -EACCES: access denied; -EPROTO: it has one that failed the checks
 * (`problem`); -errno. */
int gp_peer_open(struct gp_peer *session, const struct gp_proc *proc, char problem[GP_PROBLEM_BYTES]);

/* Whether the process still has that session at the first of the descriptors that the library takes; two system calls tell.
 * A process whose session is elsewhere has to be searched to know. */
bool gp_peer_stays(const struct gp_peer *session, const struct gp_proc *proc);

/* What one look at many processes has spent on the tables of descriptors of each user. Starts as zeros. */
#define GP_PEER_LOOK_USERS 64u
struct gp_peer_look {
    struct {
        uid_t uid;
        uint64_t spent_ns; /* of processor time */
    } users[GP_PEER_LOOK_USERS];
    unsigned user_count;
    uint64_t spent_ns;
    int unsearched; /* processes not all of whose descriptors were looked at, and in which no session was found */
};

/* gp_peer_open for a look at many processes, any of which may be hostile: of a table of descriptors that
 * took its user's time it searches only the numbers that the library uses, and the next look goes
 * on where this one ended. Any thread. */
int gp_peer_find(struct gp_peer *session, const struct gp_proc *proc, struct gp_peer_look *look,
                 char problem[GP_PROBLEM_BYTES]);

/* Opens a memfd that another process has open for reading and writing, for both; proc: its directory
 * in /proc. -ENOENT: the descriptor is no memfd, or the process may not write to it, and it was not
 * opened; -errno. */
int gp_peer_memory(int proc, const char *number);

/* gp_peer_open by pid. -ESRCH: the process is not profiled or does not exist; -EACCES: access
 * denied; else as gp_peer_open. */
int gp_peer_open_pid(struct gp_peer *session, pid_t pid, char problem[GP_PROBLEM_BYTES]);

/* Takes over a descriptor of a memfd (closed by gp_peer_close) and checks seals, size and layout.
 * 0; -ENOENT: its header is not written yet; -EPROTO. The descriptor is closed on failure. */
int gp_peer_adopt(struct gp_peer *session, int fd, char problem[GP_PROBLEM_BYTES]);

/* gp_peer_adopt without the checks of seals and file system: for a caller that owns the file
 * (tests, fuzzing). */
int gp_peer_load(struct gp_peer *session, int fd, char problem[GP_PROBLEM_BYTES]);

/* Only checks the layout: a private copy of the header against the size of the file. 0, -ENOENT,
 * -EPROTO. */
int gp_peer_check(struct gp_peer *session, const struct gp_wire_header *header, uint64_t file_bytes,
                  char problem[GP_PROBLEM_BYTES]);

/* Copies everything except mailbox and ring into *process, whose identity is filled in already.
 * Sets the state to UNKNOWN, STALE (copied; the caller knows whether the numbers are exact) or
 * DAMAGED with `problem`. 0 or -ENOMEM. */
int gp_peer_read(const struct gp_peer *session, struct gp_process *process);

/* Reads [offset, offset + bytes) of the session into *to, without mapping it. 0, -EPROTO,
 * -errno. */
int gp_peer_fetch(const struct gp_peer *session, void *to, size_t bytes, uint64_t offset);

/* Frees what gp_peer_read allocated. */
void gp_peer_drop(struct gp_process *process);

void gp_peer_close(struct gp_peer *session);

#endif
