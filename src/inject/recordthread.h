/* SPDX-License-Identifier: MIT
 *
 * recordthread.h: records the process's own events (GPUPROF_RECORD).  A thread of ours copies them
 * from the ring to a file.  The program's threads never wait for it: events that come too fast are
 * overwritten in the ring and counted. The thread has a descriptor table of its own, so the file
 * and the program's descriptors cannot interfere.
 */
#ifndef GP_INJECT_RECORDTHREAD_H
#define GP_INJECT_RECORDTHREAD_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>

struct gp_ring;

struct gp_record_setup {
    const char *path;              /* record/recorder.h: %p is the pid */
    struct gp_wire_header *header; /* of the mapped session; the recorder writes its record_* fields and `recorded` */
    /* Both run on the recorder's thread, and both may be NULL. */
    void (*publish)(void);      /* refreshes the session's published numbers */
    void (*appeared)(void);     /* a device was used for the first time, so the driver can be asked for its identity */
    const struct gp_ring *ring; /* the session's; NULL: chunks that no event was in are looked at like others */
    uint64_t since_unix_ns;     /* an older recording of this name is replaced; 0: none is */
};

/* 0; -errno with a sentence in why: then nothing is recorded, and nothing else changes. */
int gp_record_start(const struct gp_record_setup *setup, char *why, size_t why_bytes);

/* Ends the recording: writes the events in the ring for half a second, counts the rest, and closes
 * the file.  Call it once, at the exit or at the detach, which waits for one second at most; after that the
 * header says that the file has no end (ETIMEDOUT) and how many events are missing. */
void gp_record_stop(bool detached);

#endif
