/* SPDX-License-Identifier: MIT
 *
 * recorder.h: from a session to a file.  Runs in the program (record.c) and beside it (`gpuprof record`): what it knows
 * of the session comes through one copy function, and is checked.  Never calls malloc.  Threads: one at a time.
 */
#ifndef GP_RECORD_RECORDER_H
#define GP_RECORD_RECORDER_H

#include "record/blocks.h"
#include "record/ringread.h"
#include <gpuprof/wire.h>
#include <stdbool.h>

struct gp_recorder_setup {
    /* Bytes [offset, offset + bytes) of the session, both multiples of 8; as gp_ringread_fn, which see. */
    gp_ringread_fn copy;
    void *copy_arg;
    struct gp_wire_header header; /* a copy whose offsets and counts were checked against the session's size */
    const char *proc;             /* the process's directory, "/proc/123"; stays the caller's */
    bool from_start;              /* with all that the ring still holds */
    /* May be NULL. */
    void (*refresh)(void *arg); /* makes the published numbers new */
    void (*measure)(void *arg, const char *uuid, int64_t *used_bytes, int64_t *process_bytes); /* both are -1 before */
    void *arg;
};

struct gp_recorder;

/* Takes over the descriptor (file.h).  0 or -errno. */
int gp_recorder_new(struct gp_recorder **out, int fd, const struct gp_recorder_setup *setup);
/* What was live when recording began, before the first poll: ALLOC events. */
void gp_recorder_baseline(struct gp_recorder *recorder, const struct gp_wire_event *event);

/* Takes what is new; once a second everything goes to the file.  Number of events, -errno of the copier. */
ssize_t gp_recorder_poll(struct gp_recorder *recorder);

struct gp_recorder_stats {
    uint64_t recorded; /* events in the file */
    uint64_t waiting;  /* taken, and not in it yet */
    uint64_t lost;     /* not in it, for whatever cause */
    uint64_t bytes;
    int error; /* errno of the last write, 0: it went well */
    bool dead; /* nothing will be written any more */
};
void gp_recorder_stats(const struct gp_recorder *recorder, struct gp_recorder_stats *out);

/* Takes the last events, writes the end, closes the file, gives the last numbers.  0; -errno: the file has no end. */
int gp_recorder_end(struct gp_recorder *recorder, enum gp_format_why why, struct gp_recorder_stats *out);

#endif
