/* SPDX-License-Identifier: MIT
 *
 * replay.h: allocation traces: read, generated, and played on the simulated GPU.
 */
#ifndef GP_CONVERT_REPLAY_REPLAY_H
#define GP_CONVERT_REPLAY_REPLAY_H

#include <read/common/hash.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ==== traces ====================================================================================================== */
/* An allocation trace: the requests of a program to its allocator, in order, without addresses.  The
 * readers of files (trace.c) and the generators build traces; the runner
 * plays them.  docs/traces.md describes the text form.  Files are untrusted: every reader builds
 * through the functions below, which check.
 *
 * Threads: one caller at a time. */

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

/* ==== generators ================================================================================================== */
/* Makes traces that resemble known kinds of programs.  A seed decides everything, so the same seed
 * gives the same trace on every machine: the generators use integers only, no libm. Called by
 * `gpuprof generate` and by tests.
 *
 * A generator follows published facts (model sizes, the tensors that a framework keeps for the
 * backward pass, the allocations of its optimizer and its communication).  Where facts are missing
 * it draws from a range, and a comment argues for the range. */

struct gp_gen;

struct gp_generator {
    const char *name;
    const char *summary;
    void (*make)(struct gp_gen *g);
};

/* The generator of this name or at this index.  NULL: no such name, or an index past the last. */
const struct gp_generator *gp_generate_find(const char *name);
const struct gp_generator *gp_generate_at(unsigned index);

/* Fills *trace, which the caller frees.  scale_milli: length, 1000 is the generator's own.  0, or
 * -errno with a sentence in *problem and an empty *trace. */
int gp_generate(struct gp_replay_trace *trace, const struct gp_generator *generator, uint64_t seed,
                uint32_t scale_milli, struct gp_replay_problem *problem);

/* ==== the replay ================================================================================================== */
/* Plays a trace on the simulated GPU through the real product (libgpuprof.so, through gpuprof.h), in
 * a child process, so that every run starts with a fresh driver.  Called by `gpuprof replay`.
 *
 * The figures do not come from the product: reserved bytes, driver calls and time come from the
 * ledger of the simulated GPU, allocated bytes from the trace. */

#define GP_REPLAY_CALLS 48 /* entry points that one run can use; an allocator needs 12 */

struct gp_replay_settings {
    const char *allocator; /* policy */
    const char *conf;      /* GPUPROF_ALLOC_CONF or NULL */
    const char *sim;       /* SPEC of the simulated GPU */
    uint64_t limit_bytes;  /* 0 none */
    unsigned threads;      /* limit of real threads; 1: all operations on one thread */
    bool verify;           /* write patterns, check them, check that no two live blocks overlap */
    const char *library;   /* libgpuprof.so */
    const char *driver;    /* the simulated libcuda.so.1 */
    void *listener;
    void (*progress)(void *listener, uint32_t done, uint32_t of); /* called about every 100 ms; may be NULL */
};

struct gp_replay_device {
    uint64_t peak_allocated_bytes, peak_reserved_bytes, hazards;
};

struct gp_replay_call {
    char name[40];
    uint64_t calls, second_half;
    bool memory; /* allocates or frees driver memory; else a fence or a query */
};

enum gp_replay_phase { GP_REPLAY_PLAYING, GP_REPLAY_PLAYED, GP_REPLAY_SEEN };

/* The child writes it in shared memory.  Figures are sums over devices unless noted. */
struct gp_replay_result {
    uint32_t done; /* operations so far: relaxed, for the progress bar alone */
    /* PLAYED: the child wrote everything and waits, so that its session can be read.  SEEN: the
     * child may end.  Each side stores with release and loads with acquire, so it reads everything
     * that the other wrote before its step. */
    uint32_t phase;
    bool complete;
    char why[400]; /* the reason, if it is not complete */

    uint64_t operations; /* allocations, frees and streams recorded, refused ones included */
    uint64_t failed;     /* allocations refused */
    uint64_t refused;    /* frees and recordings refused because the product did not know the block */
    uint64_t elapsed_ns; /* inside operations, without thread hand-over and verification */
    uint64_t simulated_ns;
    uint64_t driver_calls, driver_calls_second_half; /* those of `calls` with `memory` */
    uint64_t fence_calls, fence_calls_second_half;   /* the others */
    uint64_t peak_allocated_bytes;                   /* requests rounded to 512 bytes, the same for every policy */
    uint64_t peak_reserved_bytes;
    /* The product's own figures, for comparison; -1 unknown. */
    int64_t own_reserved_bytes, retries, syncs;
    uint64_t checked, damaged, overlaps, misaligned; /* blocks, with verify */

    uint32_t device_count, call_count;
    struct gp_replay_device devices[GP_REPLAY_DEVICES];
    struct gp_replay_call calls[GP_REPLAY_CALLS];
};

/* 0, or -errno with result->why.  It forks, so the caller must have one thread only. */
int gp_replay_run(const struct gp_replay_trace *trace, const struct gp_replay_settings *settings,
                  struct gp_replay_result *result);

#endif
