/* SPDX-License-Identifier: MIT
 *
 * trace.h: an allocation trace: the requests of a program to its allocator, in order, without
 * addresses.  The readers of files (trace.c) and the generators (generate.h) build traces; the
 * runner (isolate.h) plays them.  docs/traces.md describes the text form.  Files are untrusted:
 * every reader builds through the functions below, which check.
 *
 * Threads: one caller at a time.
 */
#ifndef GP_REPLAY_TRACE_H
#define GP_REPLAY_TRACE_H

#include <read/common/hash.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Limits of a trace.  Operations take 400 MB at the limit; the longest known logs (RMM, one day)
 * have a tenth of that.  A replay creates a real stream and thread for each one.  No allocator
 * serves more bytes (PyTorch's rule). */
#define GP_REPLAY_OPS     (1u << 24)
#define GP_REPLAY_STREAMS 1024u
#define GP_REPLAY_THREADS 64u
#define GP_REPLAY_DEVICES 16u
#define GP_REPLAY_BYTES   (1ull << 60)

enum gp_replay_kind {
    GP_REPLAY_ALLOC,        /* block, bytes, stream, thread, device */
    GP_REPLAY_FREE,         /* block, thread; stream: of its last use, GP_REPLAY_ANY: the block's own */
    GP_REPLAY_RECORD,       /* block, stream: work on that stream uses the block too */
    GP_REPLAY_POOL_BEGIN,   /* bytes: the pool's number; stream, or GP_REPLAY_ANY: the whole thread */
    GP_REPLAY_POOL_END,     /* bytes: the pool's number */
    GP_REPLAY_POOL_RELEASE, /* bytes: the pool's number */
    GP_REPLAY_SYNC,         /* the device is idle; stream GP_REPLAY_ANY, or that stream alone */
    GP_REPLAY_EMPTY,        /* empty the cache */
    GP_REPLAY_LIMIT,        /* bytes: limit of reserved bytes from here on; 0: no limit */
    GP_REPLAY_STEP,         /* bytes: the step's number */
    GP_REPLAY_MARK,         /* block: index into names */
    GP_REPLAY_KINDS,
};
#define GP_REPLAY_ANY UINT32_MAX

struct gp_replay_op {
    uint8_t kind, device;
    uint16_t thread;
    uint32_t stream; /* 0: the default stream */
    uint32_t block;  /* allocations are numbered from 0 in order */
    uint32_t pad_;
    uint64_t bytes;
};

struct gp_replay_trace {
    struct gp_replay_op *ops;
    uint32_t count, room;
    uint32_t blocks, streams, threads, devices; /* one more than the largest number */
    char **names;
    uint32_t name_count, name_room;
    const char *format; /* format of the file */
    uint64_t left_out;  /* entries without an operation (failed requests, other actions) */
};

void gp_replay_trace_free(struct gp_replay_trace *trace);

/* The problem of a file: its line (0: not a text file) and a sentence. */
struct gp_replay_problem {
    uint64_t line;
    char text[232];
};
void gp_replay_say(struct gp_replay_problem *problem, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- building ---------------------------------------------------------------------------------------------------- */

struct gp_replay_builder {
    struct gp_replay_trace *trace;
    struct gp_hash live;    /* name of a live block in the file -> its number */
    struct gp_hash streams; /* for files with arbitrary numbers */
    struct gp_replay_problem problem;
};
void gp_replay_builder_free(struct gp_replay_builder *builder); /* the trace stays */

/* Each appends one operation.  0, or -errno with a sentence in builder->problem: -EEXIST the name
 * is live, -ENOENT it is not, -ERANGE a number beyond the limits, -E2BIG too many operations,
 * -ENOMEM. */
int gp_replay_alloc(struct gp_replay_builder *b, uint64_t name, uint64_t bytes, uint32_t stream, uint32_t thread,
                    uint32_t device);
int gp_replay_free(struct gp_replay_builder *b, uint64_t name, uint32_t stream, uint32_t thread);
int gp_replay_record(struct gp_replay_builder *b, uint64_t name, uint32_t stream, uint32_t thread);
/* Appends any other kind except MARK. */
int gp_replay_other(struct gp_replay_builder *b, enum gp_replay_kind kind, uint64_t number, uint32_t stream,
                    uint32_t thread, uint32_t device);
int gp_replay_mark(struct gp_replay_builder *b, const char *name, size_t length, uint32_t thread);

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Appends a recording that is in memory (trace.c).  0 or -errno with the problem in the
 * builder. */
struct gp_recording;
int gp_replay_import(struct gp_replay_builder *b, const struct gp_recording *recording);

/* Reads bytes of any known format.  0 with a *trace that the caller frees; -errno with *problem and
 * an empty *trace. */
int gp_replay_read(struct gp_replay_trace *trace, const uint8_t *data, size_t bytes, struct gp_replay_problem *problem);
/* The same from a file; "-" is standard input. */
int gp_replay_load(struct gp_replay_trace *trace, const char *path, struct gp_replay_problem *problem);
/* Writes the text form.  0 or -errno of the stream. */
int gp_replay_write(FILE *out, const struct gp_replay_trace *trace);

#endif
