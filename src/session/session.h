/* SPDX-License-Identifier: MIT
 *
 * session.h: the shared memory that viewers read (wire.h), and the thread that answers them.
 */
#ifndef GP_SESSION_SESSION_H
#define GP_SESSION_SESSION_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_session {
    struct gp_wire_header *header;
    struct gp_wire_device *devices;
    struct gp_wire_scope *scopes;
    struct gp_wire_failure *failures;
    struct gp_wire_oom *oom;
    struct gp_wire_mailbox *mailbox;
    struct gp_wire_chunk *chunks;
    uint32_t chunk_count;
    void *sites; /* NULL none */
    int fd;      /* the process may close it behind our back: used after start only to tell whether it is still ours */
    uint64_t inode, device;
};

/* What the drain thread needs of the stages before it; set by inject/. */
struct gp_session_hooks {
    bool (*poll_now)(uint64_t timeout_ns); /* refresh polled quantities */
    uint32_t (*driver_version)(void);
    bool (*yield)(void);                                           /* give up the subscriber; false: there is none */
    void (*event)(enum gp_wire_event_type type, const char *name); /* into the ring */
};

struct gp_session_size {
    uint64_t sites_bytes; /* room for the call-site tables (site/site.h); 0 none */
    bool wide;            /* a ring for a recorder that must not miss anything */
};

/* An empty memfd that can be sealed, close-on-exec, with a number beyond those that programs count on.  -errno. */
int gp_session_memfd(const char *name);

/* Makes the memfd, sizes, seals and maps it, fills the header.  0 or -errno; on error nothing is left behind. */
int gp_session_open(struct gp_session *session, const struct gp_session_size *size);

/* ---- publish.c: from here on, after gp_drain_start, whether or not its thread could be had ----------------------- */

void gp_session_share(struct gp_session *session, const struct gp_session_hooks *hooks);
/* False: start is not through, or has failed: nothing below may be called, nor tap.h.  Any thread. */
bool gp_session_ready(void);
/* There is a source of events, and it was not given up. */
bool gp_session_sourced(void);
/* Refreshes what is polled (pools, graphs, imports, who the devices are); waits at most 50 ms.  Under no lock. */
void gp_session_poll(void);
/* Publishes exact numbers of every device.  Our own threads and the exit path; waits for another publisher. */
void gp_session_publish(void);

/* Scopes: watermarks of their own, which viewers (drain.c) and the program (api/) begin and end in one table, under one
 * lock.  A handle stays that scope's: once it has ended, -ENOENT, also when its row was taken again.  Any thread inside
 * gp_thread_enter. */

/* name: not "", shorter than a row's.  twin: another scope of that name may be open.  A handle >= 0, -EINVAL, -EEXIST,
 * -ENOSPC. */
int gp_scope_begin(const char *name, bool twin);
/* The newest scope of that name, or -ENOENT. */
int gp_scope_find(const char *name);
/* Peaks so far, on the device index.  0, -ENOENT, -ENODEV (an index that was never used). */
int gp_scope_read(int handle, unsigned index, struct gp_wire_scope_value *out);
/* Ends it and gives its peaks.  0, -ENOENT. */
int gp_scope_end(int handle, struct gp_wire_scope_value out[GP_WIRE_DEVICES]);

/* ---- */

/* Nobody will answer the mailbox. */
void gp_session_mute(struct gp_session *session);

/* Starts the drain thread: it sleeps on the doorbell and answers requests.  0 or -errno. */
int gp_drain_start(struct gp_session *session, const struct gp_session_hooks *hooks);

/* The numbers are final. */
void gp_session_close(struct gp_session *session);

/* In a forked child: close our descriptor if it still is ours. */
void gp_session_forget(struct gp_session *session);

#endif
