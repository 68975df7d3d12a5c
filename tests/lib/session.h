/* SPDX-License-Identifier: MIT
 *
 * session.h: makes well-formed sessions for tests of readers, and a thread that answers the mailbox as a profiled
 * process does. It shares only wire.h with the library's session code.
 */
#ifndef GP_TEST_LIB_SESSION_H
#define GP_TEST_LIB_SESSION_H

#include <gpuprof/wire.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct gp_test_session {
    int fd;
    size_t bytes;
    void *map;
    struct gp_wire_header *header;
    struct gp_wire_device *devices;
    struct gp_wire_scope *scopes;
    struct gp_wire_failure *failures;
    struct gp_wire_oom *oom;
    struct gp_wire_cupti *cupti;
    struct gp_wire_mailbox *mailbox;
    struct gp_wire_chunk *chunks;
    pthread_t drain;
    uint32_t x_running; /* atomic */
    uint64_t x_answers; /* atomic: requests answered */
    uint64_t turn;      /* chunk sequence + 1 of the chunk in use */
    uint32_t used;
};

/* seal = false: for tests of unsealed sessions. 0 or -errno. */
int gp_test_session_make(struct gp_test_session *session, uint32_t chunk_count, bool seal);
void gp_test_session_free(struct gp_test_session *session);

/* Adds a device row with plausible numbers: linear memory, current = bytes, peak = 2 x bytes. */
void gp_test_session_device(struct gp_test_session *session, int index, const char *name, int64_t bytes);
void gp_test_session_host(struct gp_test_session *session, int64_t bytes);
void gp_test_session_scope(struct gp_test_session *session, int slot, const char *name, int64_t peak);
/* Ends a publication (publish_seq even, publish_ns now). */
void gp_test_session_publish(struct gp_test_session *session);
/* Appends one event to the ring (one writer). */
void gp_test_session_event(struct gp_test_session *session, int type, int kind, int device, uint64_t address,
                           uint64_t bytes);

/* A drain thread, which answers snapshot, reset, scope begin and end, mark. */
int gp_test_drain_start(struct gp_test_session *session);
void gp_test_drain_stop(struct gp_test_session *session);

struct gp_test_process_options {
    int devices;   /* 0: one */
    bool no_drain; /* does not answer, although drain_tid is set */
    bool no_publish;
    bool no_seal;
    bool close_soon; /* exits after 300 ms as a program does: CLOSED, exit status 7 */
    const char *comm;
    uid_t uid; /* 0: that of the caller */
};

/* Starts a child process that has such a session and sleeps. Returns its pid when the session is complete, or
 * -1. */
pid_t gp_test_process_start(const struct gp_test_process_options *options);
void gp_test_process_stop(pid_t pid);

#endif
