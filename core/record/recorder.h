/* SPDX-License-Identifier: MIT
 *
 * recorder.h: copies a session to a recording file. Runs in the profiled process
 * (inject/recordthread.c) and outside it (`gpuprof record`): it reads the session through one copy
 * function and checks what it reads. Never calls malloc. Threads: one at a time.
 */
#ifndef GP_RECORD_RECORDER_H
#define GP_RECORD_RECORDER_H

#include "base/vma.h"
#include "record/format.h"
#include "record/pack.h"
#include "record/ringread.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ==== the name of the file ======================================================================================== */
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

/* ==== modules ===================================================================================================== */
/* The code that a process has mapped, from /proc/PID/maps, and the build IDs of the files, with
 * which symbols are found later and on other machines. Called by the recorder, in the profiled
 * process and in `gpuprof record`, and by live views of sites. The files may contain anything: every
 * number in them is checked. Never calls malloc. */

/* PyTorch maps about 500 objects. */
#define GP_MODULES_MOST 4096u

struct gp_module { /* one executable mapping */
    uint64_t start, end, offset;
    const char *path; /* as in maps; "" if none */
    uint8_t build_id[32];
    uint8_t build_id_bytes; /* 0: none found */
};

struct gp_modules {
    struct gp_module *rows; /* by address */
    uint32_t count;
    bool truncated; /* there were more */
    char *paths;
    uint32_t path_bytes;
};

/* Opens the file of a mapping, to read its build ID. A descriptor, or -errno: the build ID stays
 * unknown. */
typedef int gp_modules_open(const char *proc, const struct gp_vma *file);

/* As for our own process. Takes 20 KiB of the stack. */
int gp_modules_open_file(const char *proc, const struct gp_vma *file);

/* Reads the modules of the process whose directory is `proc` ("/proc/123", "/proc/self"). open: for
 * another process, whose paths may lead anywhere; NULL opens them as for our own. 0 or -errno; on
 * failure there is nothing to free. */
int gp_modules_read(struct gp_modules *modules, const char *proc, gp_modules_open *open);
/* The module that contains the address, or NULL. */
const struct gp_module *gp_modules_find(const struct gp_modules *modules, uint64_t pc);
void gp_modules_free(struct gp_modules *modules);

/* ==== blocks ====================================================================================================== */
/* Encodes the payloads of a recording's blocks, except events (file.h). Called by the recorder,
 * and by the tests, which write a recording in memory to a file. Each call appends one row; the
 * caller counts the rows. */

struct gp_block_process {
    uint32_t pid, source, driver_version;
    bool from_start;
    uint64_t begin_ns, begin_unix_ns;
    const char *comm, *command_line, *host, *allocator;
    struct gp_rank rank;
    enum gp_format_attached attached;
};
void gp_block_process(struct gp_pack *pack, const struct gp_block_process *process);

/* The payloads of STRINGS, FRAMES, SITES and SITE_NUMBERS start with the number of their first row
 * (STRINGS: first byte). */
void gp_block_first(struct gp_pack *pack, uint64_t first);
void gp_block_frame(struct gp_pack *pack, const struct gp_wire_frame *frame);
void gp_block_site(struct gp_pack *pack, const struct gp_wire_site *site);
/* The row's live_bytes, live_count, peak_bytes, at_peak_bytes, allocated_bytes and calls. */
void gp_block_site_numbers(struct gp_pack *pack, const struct gp_wire_site *site);

void gp_block_module(struct gp_pack *pack, uint64_t start, uint64_t end, uint64_t offset, const char *path,
                     const uint8_t *build_id, size_t build_id_bytes);
void gp_block_thread(struct gp_pack *pack, uint32_t tid, const char *name);

struct gp_block_sample { /* unknown: -1 */
    uint64_t time_ns;
    uint32_t device; /* index in the session */
    int64_t allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, used_bytes, process_bytes;
};
void gp_block_sample(struct gp_pack *pack, const struct gp_block_sample *sample);

/* numbers: NULL if unknown. final: they are those of the recording's end. */
void gp_block_device(struct gp_pack *pack, uint32_t index, int32_t ordinal, const char *uuid, const char *name,
                     int64_t total_bytes, const struct gp_wire_device *numbers, bool final);
/* Memory of one device from before the attach, as it was at that time. */
void gp_block_before(struct gp_pack *pack, uint64_t time_ns, uint32_t index,
                     const struct gp_wire_before_device *before);
void gp_block_oom(struct gp_pack *pack, const struct gp_wire_oom *oom);

struct gp_block_counts {
    enum gp_format_why why;
    int error; /* errno: with GP_END_ERROR why it ended, else of the last failed write */
    uint64_t time_ns;
    uint64_t tried, delivered;
    uint64_t dropped[GP_DROPS];
    uint64_t lost[GP_LOSTS];
    int lost_error;      /* errno of the write that first gave up events; 0: none did */
    uint64_t lost_ns;    /* the lowest time of those events */
    uint64_t lost_after; /* events in the file then; if it has no more, writing did not go on */
};
void gp_block_counts(struct gp_pack *pack, const struct gp_block_counts *counts);

/* ==== the recorder ================================================================================================ */

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

struct gp_recorder;

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
