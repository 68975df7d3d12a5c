/* SPDX-License-Identifier: MIT
 *
 * record.h: the process writes down its own events (GPUPROF_RECORD).  A thread of ours copies them out of the ring and
 * into a file; the program's threads never wait for it, what comes too fast is overwritten in the ring and counted.
 * The thread has a descriptor table of its own, so that whatever the program does with its descriptors, it can neither
 * meet the file nor be met by it.
 */
#ifndef GP_INJECT_RECORDTHREAD_H
#define GP_INJECT_RECORDTHREAD_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>

struct gp_record_setup {
    const char *path;              /* %p: the pid */
    struct gp_wire_header *header; /* of the mapped session; its record_* fields and `recorded` are the recorder's */
    /* Both on the recorder's thread, and both may be NULL. */
    void (*publish)(void);  /* refreshes the session's published numbers */
    void (*appeared)(void); /* a device was used for the first time: now the driver can be asked who it is */
};

/* 0; -errno with what and why in a sentence: nothing is recorded then, and nothing else changes. */
int gp_record_start(const struct gp_record_setup *setup, char *why, size_t why_bytes);

/* The process ends: what is in the ring is written for half a second, the rest is counted, and the file is closed.
 * Once, from the exit path, which it holds up for a second at most: then the header says that the file has no end
 * (ETIMEDOUT), and how many events that cost. */
void gp_record_stop(void);

#endif
