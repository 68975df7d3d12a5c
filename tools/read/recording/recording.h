/* SPDX-License-Identifier: MIT
 *
 * recording.h: a recording in memory, for analyses, exports and the report. read.c fills it from a
 * file that may be hostile, and checks the contents: indexes are in range, strings are
 * NUL-terminated UTF-8, events are in order of time. It is constant once it is filled (and its sites
 * joined); any number of threads may read it.
 */
#ifndef GP_READ_RECORDING_RECORDING_H
#define GP_READ_RECORDING_RECORDING_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ==== the recording =============================================================================================== */

#define GP_REC_NO_DEVICE 255u
#define GP_REC_OTHERS    65535u /* stream: one beyond the 65 535 that are distinguished */
#define GP_REC_NONE      UINT32_MAX

/* 10^7 events need less than 500 MB: 40 bytes each, and 4 for `peer`. */
struct gp_rec_event {
    uint64_t time_ns; /* CLOCK_MONOTONIC of the recorded machine */
    uint64_t address;
    uint64_t bytes;       /* granted; mark: offset of its name in the strings */
    uint32_t unused;      /* granted - requested */
    uint32_t site;        /* index in sites; 0 unknown */
    uint32_t thread : 24; /* index in threads */
    uint32_t cost : 8;    /* of the driver call (gp_wire_cost); 0 unknown */
    uint16_t stream;      /* index in streams */
    uint8_t type : 4;     /* enum gp_wire_event_type */
    uint8_t kind : 4;     /* enum gp_wire_kind */
    uint8_t device;       /* index in devices; GP_REC_NO_DEVICE */
};
_Static_assert(sizeof(struct gp_rec_event) == 40 && GP_EVENT_TYPES <= 16 && GP_KINDS <= 16, "bit fields");

/* What the sums over time of a device are, peaks included, if a trace lacks events.  Two bits: they may be too low, and
 * too high. */
enum gp_rec_bound { GP_REC_EXACT, GP_REC_AT_LEAST, GP_REC_AT_MOST, GP_REC_ABOUT };

struct gp_rec_device {
    uint8_t index;   /* in the session; GP_WIRE_HOST is the host */
    uint8_t bound;   /* enum gp_rec_bound */
    int32_t ordinal; /* -1 host */
    char uuid[48], name[64];
    int64_t total_bytes;        /* -1 unknown */
    bool has_last;              /* the statistics below are the final ones */
    struct gp_wire_device last; /* at the recording's end */
};

/* Of a file without addresses: a block has its size, or is a change of a sum. */
enum gp_rec_timeline { GP_REC_BLOCKS, GP_REC_SIZES, GP_REC_SUMS };

/* To be printed in front of such a sum; and for JSON. */
static inline const char *gp_rec_bound_text(uint8_t bound)
{
    static const char *const texts[] = {"", "at least ", "at most ", "about "};
    return texts[bound & 3];
}

static inline const char *gp_rec_bound_name(uint8_t bound)
{
    static const char *const names[] = {"exact", "at_least", "at_most", "about"};
    return names[bound & 3];
}

/* What a library that was asked (XLA) said of its pools; pool_bytes 0: none did, or it cannot be. */
static inline struct gp_wire_polled gp_rec_polled(const struct gp_rec_device *device)
{
    struct gp_wire_polled said = device->last.polled;
    if (said.peak_bytes <= 0 || said.pool_bytes < said.peak_bytes || said.pool_bytes > INT64_MAX / 64)
        said = (struct gp_wire_polled){0};
    return said;
}

struct gp_rec_sample { /* periodic measurements; -1: unknown */
    uint64_t time_ns;
    uint32_t device; /* index in devices */
    int64_t allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes;
    int64_t used_bytes;    /* of the whole device, by NVML */
    int64_t process_bytes; /* of this process, by NVML */
};

enum gp_rec_attached { GP_REC_ATTACHED_UNKNOWN, GP_REC_ATTACHED_NO, GP_REC_ATTACHED_YES }; /* as in the file */

/* Memory from before the attach, as it was from this time on until the next one of the device. */
struct gp_rec_before {
    uint64_t time_ns;
    uint32_t device; /* index in devices */
    struct gp_wire_before_device is;
};

/* A block of a framework that lost its memory, got some again, or was taken back without any: bytes of it. */
struct gp_rec_sleep {
    uint64_t time_ns, bytes;
    uint32_t site;
    uint8_t device; /* index in devices */
    uint8_t what;   /* GP_SLEEP_* */
};

struct gp_rec_frame {
    uint64_t pc;             /* native; else 0 */
    uint32_t function, file; /* Python, and named: offsets in the strings; else 0 ("") */
    uint32_t line;
    uint32_t module; /* native: index in modules; GP_REC_NONE */
    bool named;      /* native, but another tool has looked it up: no pc, and no module */
};

/* What was called at a native frame, looked up where the program ran: the innermost of the calls that
 * are inlined there has depth 0. */
struct gp_rec_name {
    uint64_t pc;
    uint32_t module, depth;
    uint32_t function, file; /* offsets in the strings */
    uint32_t line;
};

struct gp_rec_site {
    uint32_t first_frame, frame_count; /* innermost first */
    uint8_t device, kind;              /* device: index in the session */
    bool truncated;
    int64_t live_bytes, live_count, peak_bytes, at_peak_bytes, allocated_bytes, calls; /* at the end */
};

struct gp_rec_module { /* one executable mapping */
    uint64_t start, end, offset;
    uint32_t path;     /* offset in the strings */
    uint32_t build_id; /* offset in the strings, as hex digits; 0: none */
};

struct gp_rec_thread {
    uint32_t tid;
    uint32_t name; /* offset in the strings */
};

struct gp_recording {
    /* The recorded process. */
    uint32_t pid;
    const char *comm, *command_line, *host; /* "" unknown */
    uint32_t source;                        /* enum gp_wire_source */
    const char *allocator;                  /* "off" or the policy */
    uint32_t driver_version;                /* 0 unknown */
    uint64_t begin_ns, end_ns;              /* the recorded time, CLOCK_MONOTONIC */
    uint64_t begin_unix_ns;                 /* the same instant on the wall clock */
    /* A part of a recording (gp_recording_cut): what lies before it, and the whole's length; 0: not a part. */
    uint64_t part_from_ns, part_of_ns;
    /* The place in a distributed program, unless has_rank is false; the last two may be -1, unknown. */
    bool has_rank;
    int32_t rank, local_rank, world_size;

    enum gp_rec_attached attached; /* to the running program: see gp_rec_before_at */

    /* Completeness: tried = delivered + dropped, as the process counted when the recording
     * ended. */
    bool complete;   /* the writer ended it; otherwise the file was cut and ends with its last sound block */
    bool from_start; /* recorded from the process's first event; else see `baseline` */
    uint64_t tried, delivered, dropped;
    size_t recorded;         /* events in the file: several may be one here, and a reading none */
    uint64_t damaged_blocks; /* skipped for a wrong checksum */
    uint64_t unwritten;      /* of dropped: those that could not be written */
    int write_error;         /* errno of the write that first lost events; 0: none did */
    uint64_t write_error_ns; /* the lowest time of those events */
    /* No event was written after that: end_ns is then write_error_ns, and up to it nothing is
     * missing for this reason. Else, when writing stopped: */
    bool ended_early;
    uint64_t stopped_ns; /* when the writer ended */

    /* A snapshot of PyTorch: its trace began while memory was allocated.  Of these blocks only the
     * sizes are known: not when, nor where they were allocated. */
    bool from_torch;
    bool from_rmm;   /* a log of RMM: every free names its stream */
    bool from_pprof; /* a heap profile: what was held at one time, as sums of stacks */
    /* Events have what pools and graphs held, as SEGMENT_MAP and SEGMENT_UNMAP of kind POOL (their reserve) and GRAPH (in
     * use); of a file before format 1.6 only samples have the reserve. */
    bool polled;
    uint64_t before_blocks, before_bytes;
    uint8_t timeline; /* enum gp_rec_timeline */
    bool before_sum;  /* of that memory only the sum is known, not how many blocks it was */
    /* And blocks of which the trace lacks the allocation, or the free, though it was going on. */
    uint64_t unseen_blocks, unseen_bytes, unfreed_blocks, unfreed_bytes;
    uint64_t torch_unknown; /* entries with actions that this version does not know */

    struct gp_rec_event *events;
    size_t event_count;
    /* For an ALLOC the index of its FREE, for a FREE that of its ALLOC (event_count + i: the i-th
     * of baseline); GP_REC_NONE: live at the end, or allocated before the start. The same holds for
     * SEGMENT_ALLOC and SEGMENT_FREE, and for SEGMENT_MAP and SEGMENT_UNMAP except those of kind
     * LINEAR (a growable cache's). If the address was allocated again before the free was recorded
     * (or the free never was): the index of the ALLOC that got the address; the peer of that free,
     * if there is one, is the older ALLOC, which it no longer ends. */
    uint32_t *peer;
    /* Memory that was live when recording started: ALLOC events, with the time of the allocation if
     * known. */
    struct gp_rec_event *baseline;
    size_t baseline_count;

    struct gp_rec_device *devices;
    uint32_t device_count;
    struct gp_rec_sample *samples;
    size_t sample_count;
    struct gp_rec_before *befores;
    size_t before_count;
    struct gp_rec_sleep *sleeps; /* in the order of time */
    size_t sleep_count;
    struct gp_rec_site *sites; /* [0] is the unknown site */
    uint32_t site_count;
    struct gp_rec_frame *frames;
    uint32_t frame_count;
    struct gp_rec_name *names; /* in the order of module, pc and depth */
    uint32_t name_count;
    struct gp_rec_module *modules;
    uint32_t module_count;
    struct gp_rec_thread *threads;
    uint32_t thread_count;
    uint64_t *streams;
    uint32_t stream_count;
    char *strings; /* [0] is "" */
    uint32_t string_bytes;

    bool has_oom;
    struct gp_wire_oom oom; /* the last one */
    uint64_t lost[GP_LOSTS];
};

/* What the file was. */
static inline const char *gp_rec_format(bool from_torch, bool from_rmm, bool from_pprof)
{
    if (from_pprof)
        return "pprof";
    return from_torch ? "pytorch" : from_rmm ? "rmm" : "gpuprof";
}

/* Events that are missing between begin_ns and end_ns. */
static inline uint64_t gp_rec_missing(const struct gp_recording *recording)
{
    return recording->dropped - (recording->ended_early ? recording->unwritten : 0);
}

static inline uint64_t gp_rec_requested(const struct gp_rec_event *event)
{
    return event->bytes - event->unused;
}

/* read.c. Opens, checks and loads a file of any format that recording.h knows; "-" is standard input. 0;
 * -errno of the file; -EPROTO with the problem in `why` (not a recording, of a newer version, no
 * sound block). A cut file is not an error: see complete. progress: may be NULL; gets parts per 1000. */
typedef void gp_rec_progress_fn(void *arg, unsigned parts);
int gp_recording_open(struct gp_recording **out, const char *path, char *why, size_t why_bytes,
                      gp_rec_progress_fn *progress, void *arg);
/* The same. listed: a folder lists the file, and nobody named it: then a pipe, socket or device is refused, and not waited
 * for. */
int gp_recording_open_as(struct gp_recording **out, const char *path, bool listed, char *why, size_t why_bytes,
                         gp_rec_progress_fn *progress, void *arg);
/* The same from a buffer, for tests and fuzzing. */
int gp_recording_parse(struct gp_recording **out, const void *bytes, size_t size, char *why, size_t why_bytes);
void gp_recording_free(struct gp_recording *recording);

/* Memory of the device from before the attach, as of that time, or of the first time at which it is
 * known. It is in no event and in no other number. Zeros if there was no attach, -1 and
 * GP_BEFORE_NONE if it is unknown. */
struct gp_wire_before_device gp_rec_before_at(const struct gp_recording *recording, uint32_t device, uint64_t time_ns);

/* recording.c. Makes one site of several: to[i] is the site that gets what site i has, mostly i itself;
 * to[to[i]] == to[i]. The peak_bytes of such a site are a sum, at most. Changes the recording, so it
 * belongs before the analyses that are to see it. */
void gp_recording_join(struct gp_recording *recording, const uint32_t *to);
/* Its part for the report of a failed request, whose sites must be in range. */
void gp_recording_join_oom(struct gp_wire_oom *oom, const uint32_t *to);

/* recording.c. Fills in peer: an ALLOC is paired with the next FREE of its address on its device and in
 * its address space, segments and mappings likewise. Called by the readers, and by builders of
 * recordings (tests, import). 0 or -ENOMEM. */
int gp_recording_match(struct gp_recording *recording);

/* ==== the file ==================================================================================================== */
/* What a file is, by its contents, and its bytes: the one place that recognises a format. The reader
 * of recordings (read.c) and that of traces (replay) get theirs from here; a format that a reader
 * takes is a row of the table in input.c.  Threads: any, one caller per file. */

enum gp_input_format {
    GP_INPUT_UNKNOWN,
    GP_INPUT_RECORDING,
    GP_INPUT_PICKLE,
    GP_INPUT_JSON,
    GP_INPUT_RMM,
    GP_INPUT_TRACE,
    GP_INPUT_PPROF,
    GP_INPUT_GZIP,
    GP_INPUT_HTML,
    GP_INPUT_FOREIGN, /* known, and not read: the refusal says what to do */
};

/* The first line of gpuprof's text form of a trace, which only a replay reads. */
#define GP_INPUT_TRACE_NAME "gpuprof.trace/1"
/* What is read, for messages and help. */
#define GP_INPUT_READ                                                                                                  \
    "recordings of gpuprof, memory snapshots of PyTorch (pickle, JSON, memory_viz's page), traces of its profiler "    \
    "with "                                                                                                            \
    "memory events (JSON), RMM logs (CSV), heap profiles (pprof), each also as .gz"

/* The format by the first bytes; 64 KiB are enough. */
enum gp_input_format gp_input_format(const uint8_t *head, size_t bytes);

struct gp_input {
    enum gp_input_format format; /* of the contents: never GP_INPUT_GZIP or GP_INPUT_HTML */
    const uint8_t *data;
    size_t bytes;
    uint8_t *own; /* data, if it was unpacked */
};

/* Recognises the bytes, and unpacks them if they are compressed or inside a page.  0; -EPROTO with
 * why for what is not known or damaged; -ENOMEM.  gp_input_free in every case. */
int gp_input_unwrap(struct gp_input *file, const uint8_t *data, size_t bytes, char *why, size_t why_bytes);
void gp_input_free(struct gp_input *file);

/* Opens a file, a pipe, or standard input ("-").  The descriptor, with the size of a file or -1 in *bytes; -errno. */
int gp_input_open(const char *path, int64_t *bytes);
/* Opens a regular file alone; -EPROTO with why for what is none, which is neither opened nor waited for. */
int gp_input_open_regular(const char *path, int64_t *bytes, char *why, size_t why_bytes);
/* Reads all of it; *data is to be freed.  Nothing behind the first 64 KiB is read if their format is
 * not known: then -EPROTO with why.  -EFBIG, -ENOMEM, -errno. */
typedef void gp_input_progress_fn(void *arg, unsigned parts);
int gp_input_slurp(int fd, int64_t size, uint8_t **data, size_t *bytes, char *why, size_t why_bytes,
                   gp_input_progress_fn *progress, void *arg);

#endif
