/* SPDX-License-Identifier: MIT
 *
 * session.h: the shared memory that viewers read (wire.h), and the thread that answers them.
 */
#ifndef GP_SESSION_SESSION_H
#define GP_SESSION_SESSION_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_session {
    struct gp_wire_header *header;
    struct gp_wire_device *devices;
    struct gp_wire_scope *scopes;
    struct gp_wire_failure *failures;
    struct gp_wire_oom *oom;
    struct gp_wire_oom_framework *oom_framework;
    struct gp_wire_owners *owners;
    struct gp_wire_cupti *cupti;
    struct gp_wire_before *before;
    struct gp_wire_blocks *blocks;
    struct gp_wire_doors *doors;
    struct gp_wire_mailbox *mailbox;
    struct gp_wire_chunk *chunks;
    uint32_t chunk_count;
    void *sites; /* reserved for the call-site tables: see gp_session_sites; NULL: no room */
    uint64_t sites_bytes;
    uint64_t bytes; /* of the mapping */
    int fd;         /* the program may close it: after the start it is only compared, to see whether it is still ours */
    uint64_t inode, device;
};

/* Functions of earlier stages that the drain thread calls; set by inject/. */
struct gp_session_hooks {
    bool (*poll_now)(uint64_t timeout_ns); /* refresh polled quantities */
    uint32_t (*driver_version)(void);
    bool (*yield)(void);                                           /* give up the subscriber; false: there is none */
    void (*event)(enum gp_wire_event_type type, const char *name); /* into the ring */
    bool (*gone)(void);                                            /* the source makes no events any more */
    /* What the source did not see, as a sentence; false: all was seen. text: "" at first. */
    bool (*trouble)(char *text, size_t bytes);
    const char *(*allocator)(void); /* whose name the header has; it may come into use at any time */
    /* Changes which stacks are taken (GP_SITES_*): 0 or -errno.  before: what they were. */
    int (*stacks)(uint32_t modes, uint32_t *before);
    /* Detaches: 0, or -errno if that cannot be done, and then nothing has changed. After 0 the program's
     * threads are out of the library, and only the drain thread is left. NULL: cannot be done. */
    int (*leave)(void);
    /* The last thing before the drain thread ends: from here on it touches no variable of the library.
     * False: a thread may still be inside, and what is mapped must stay. */
    bool (*left)(void);
    /* Asks a framework for its blocks from before the attach: 0 or -errno. NULL: cannot be done. */
    int (*blocks)(void);
    /* What all call sites of the device hold: bytes, and blocks. */
    void (*settle)(unsigned index, int64_t bytes, int64_t count);
};

/* Not 0: the ring has a reader, or may have one that does not announce itself. */
extern uint32_t gp_session_listened;
/* Call it before gp_drain_start: from the first event on, and to the end. */
void gp_session_listen_always(void);

struct gp_session_size {
    uint64_t sites_bytes; /* of the call-site tables (stack/stack.h) */
    bool sites;           /* they are needed now; otherwise the room is reserved if that is possible */
    bool wide;            /* a large ring, for a recorder */
};

/* Creates, sizes, seals and maps the memfd, and fills the header.  0 or -errno; an error leaves
 * nothing allocated. */
int gp_session_open(struct gp_session *session, const struct gp_session_size *size);

/* Makes the reserved room usable. NULL: there is none. Our own threads. */
void *gp_session_sites(struct gp_session *session);
/* Shows the tables to viewers. */
void gp_session_show_sites(struct gp_session *session);

void gp_session_share(struct gp_session *session, const struct gp_session_hooks *hooks);
/* False: the start is not complete or has failed, and no function below or in tap.h may be called.
 * Any thread. */
bool gp_session_ready(void);
/* Whether there is a source of events that was not given up. */
bool gp_session_sourced(void);
/* Refreshes polled values (pools, graphs, imports, the identity of devices); waits at most 50 ms.
 * Call it without a lock. */
void gp_session_poll(void);
/* Publishes exact numbers of every device.  For our own threads and the exit path; waits for
 * another publisher. */
void gp_session_publish(void);

/* Scopes: peaks that viewers (drain.c) and the program (api/) start and end, in one table under one
 * lock.  A handle names one scope for ever: after the scope's end it gives -ENOENT, also when its
 * row is in use again.  Any thread inside gp_thread_enter. */

/* Starts a scope.  name: not "", shorter than a row's.  twin: another scope of that name may be
 * open.  Returns a handle >= 0, -EINVAL, -EEXIST, -ENOSPC. */
int gp_session_scope_begin(const char *name, bool twin);
/* Returns the newest scope of that name, or -ENOENT. */
int gp_session_scope_find(const char *name);
/* Reads the peaks so far on a device index.  0, -ENOENT, -ENODEV (the index was never used). */
int gp_session_scope_read(int handle, unsigned index, struct gp_wire_scope_value *out);
/* Ends the scope and returns its peaks.  0, -ENOENT. */
int gp_session_scope_end(int handle, struct gp_wire_scope_value out[GP_WIRE_DEVICES]);

/* ---- */

/* Marks the mailbox as unanswered. */
void gp_session_mute(struct gp_session *session);

/* Starts the drain thread, which sleeps on the doorbell and answers requests.  0 or -errno. */
int gp_drain_start(struct gp_session *session, const struct gp_session_hooks *hooks);

/* Publishes the final numbers. */
void gp_session_close(struct gp_session *session);

/* Closes the descriptor. The memory stays mapped. */
void gp_session_drop(struct gp_session *session);

/* Whether the descriptor is still that of the session. */
bool gp_session_owns(const struct gp_session *session);

/* In a forked child: closes our descriptor if it still is ours. */
void gp_session_forget(struct gp_session *session);

/* Sends batches (gpuprof/batch.h) to the kernel through the USDT probe gpuprof:batch while there is
 * a listener: the numbers of every device and the events since the last batch.  Without a listener
 * it costs a thread of the program one load of the probe's semaphore. docs/understand/batches.md
 * explains the design. */

/* The semaphore: the number of listeners.  The kernel writes it, so it is loaded each time
 * (relaxed: it publishes nothing). */
extern uint16_t gpuprof_batch_semaphore __attribute__((visibility("hidden")));
/* What threads of the program look at: the semaphore, or, under Valgrind, a word that stays 0. */
const uint16_t *gp_batch_armed_word(void);
/* There is a listener, and it gets no batches, because Valgrind runs the process. */
bool gp_batch_withheld(void);

#endif
