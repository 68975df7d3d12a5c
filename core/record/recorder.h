/* SPDX-License-Identifier: MIT
 *
 * recorder.h: copies a session to a recording file. Runs in the profiled process
 * (inject/recordthread.c) and outside it (`gpuprof record`): it reads the session through one copy
 * function and checks what it reads. Never calls malloc. Threads: one at a time.
 */
#ifndef GP_RECORD_RECORDER_H
#define GP_RECORD_RECORDER_H

#include "record/format.h"
#include "record/modules.h"
#include "record/ringread.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_recorder;

/* The names of recordings, and the place of a process in a distributed program. Called by the
 * library, which opens the file, and by `run` and `record`, which look for it. Any thread. */

#define GP_NAME_SUFFIX ".gpuprof"

struct gp_rank {                /* -1: unknown */
    int32_t rank, local, world; /* local: on this machine; world: number of ranks */
};

/* From the environment variables of the launchers: of torchrun, else of Open MPI, MPICH or Slurm. get
 * returns a variable's value, or NULL. */
void gp_rank_read(struct gp_rank *out, const char *get(void *arg, const char *name), void *arg);

/* Expands the pattern: %p is the pid, %% a percent sign. Without %p one of several ranks gets its own
 * name. second: another process has that name already. What is added stands before ".gpuprof", if the
 * name ends with it: x.gpuprof, x.rank3.gpuprof, x.1234.gpuprof, x.rank3.1234.gpuprof. 0,
 * -ENAMETOOLONG or -EINVAL. */
int gp_record_name(char *out, size_t bytes, const char *pattern, unsigned pid, const struct gp_rank *rank, bool second);

/* The length of the name without GP_NAME_SUFFIX at its end. */
size_t gp_record_stem(const char *name);

struct gp_recorder_setup {
    /* Copies bytes [offset, offset + bytes) of the session, both multiples of 8; see
     * gp_ringread_fn. */
    gp_ringread_fn copy;
    void *copy_arg;
    struct gp_wire_header header; /* a copy whose offsets and counts were checked against the session's size */
    const char *proc;             /* the process's directory, "/proc/123"; not copied: must stay valid */
    const char *memory;           /* that of a thread which lives, whose maps and files are read; NULL: the same */
    struct gp_rank rank;
    uint64_t run_unix_ns; /* format.h */
    bool from_start;      /* include the events that the ring still holds */
    /* Ends the recording of a process that was killed, with what its recorder did not get to write:
     * the descriptor is that recording's. in_file: the event is in the file already; file_events:
     * how many are. from_start is set too. */
    bool (*in_file)(void *arg, const struct gp_wire_event *event);
    uint64_t file_events;
    gp_modules_open *open_module; /* NULL: gp_modules_open_file */
    /* Callbacks; each may be NULL. */
    void (*refresh)(void *arg); /* refreshes the published numbers */
    void (*measure)(void *arg, const char *uuid, int64_t *used_bytes, int64_t *process_bytes); /* preset to -1 */
    void (*appeared)(void *arg); /* an event named a device for the first time */
    /* Only read and write may be called from now on: the process is in a sandbox. NULL: it is
     * another process. */
    bool (*confined)(void *arg);
    bool (*late)(void *arg); /* the deadline has passed: events not in the file yet are counted and dropped */
    void *arg;
};

/* Takes over the descriptor, also on failure (file.h). 0 or -errno: the file is still empty if it was
 * new. */
int gp_recorder_new(struct gp_recorder **out, int fd, const struct gp_recorder_setup *setup);
/* Writes the modules that are loaded now. The process's own recorder calls it at its start, when it
 * may still open files. */
void gp_recorder_begin(struct gp_recorder *recorder);
/* Adds an ALLOC event for memory that was live when recording started. Call before the first
 * poll. */
void gp_recorder_baseline(struct gp_recorder *recorder, const struct gp_wire_event *event);

/* Takes the new events; once a second everything is written to the file. Returns the number of
 * events, or the copy function's -errno. */
ssize_t gp_recorder_poll(struct gp_recorder *recorder);

struct gp_recorder_stats {
    uint64_t recorded; /* events in the file */
    uint64_t waiting;  /* taken, but not in the file yet */
    uint64_t lost;     /* lost, for any reason */
    uint64_t bytes;
    int error;      /* errno of the last write; 0: it succeeded */
    int lost_error; /* errno of the write that first gave up events; 0: none did */
    bool dead;      /* set when writing has stopped for good */
};
void gp_recorder_stats(const struct gp_recorder *recorder, struct gp_recorder_stats *out);

/* Takes the last events, writes the final blocks, closes the file, and returns the final counts in
 * *out. 0; -errno: the file is not complete. */
int gp_recorder_end(struct gp_recorder *recorder, enum gp_format_why why, struct gp_recorder_stats *out);

#endif
