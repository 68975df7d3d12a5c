/* SPDX-License-Identifier: MIT
 *
 * internal.h: what the files of recording/ share.
 */
#ifndef GP_READ_RECORDING_INTERNAL_H
#define GP_READ_RECORDING_INTERNAL_H

#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_read_work;

/* A recording while it is being read. read.c finds blocks, payload.c and events.c decode them,
 * table.c stores rows, and read.c establishes what recording.h promises. */

/* Limits, so that a few hostile bytes cannot request much memory. Events: 10 GiB of them. The site
 * tables are far smaller in the process itself. */
#define GP_READ_EVENTS  (1u << 28)
#define GP_READ_ROWS    (1u << 24) /* sites, frames, threads, samples */
#define GP_READ_MODULES (1u << 16)
#define GP_READ_STRINGS (1u << 28)
/* In a file of so many bytes: rows of all blocks, an event as 1/64 of one; bytes of these when they are
 * unpacked, an event's as 1/16, since equal steps pack much better than tables; and rows of a
 * table of sites or frames, those that damaged blocks lost included. */
#define GP_READ_PACKED(_bytes)   ((1ull << 19) + (_bytes))
#define GP_READ_UNPACKED(_bytes) ((16ull << 20) + 32ull * (_bytes))
#define GP_READ_TABLE(_bytes)    ((1ull << 17) + (_bytes) / 2)
#define GP_READ_ALLOCATION_LIMIT (1ull << 50) /* largest allocation: a petabyte */

#define GP_READ_TURNED 15u /* a free that is marked GP_FREE_SEGMENT, until the last block was read */

struct gp_read {
    struct gp_recording *recording;
    int error; /* -ENOMEM, or -EFBIG: beyond the limits; reading ends */
    size_t events_room, baseline_room, devices_room, samples_room, befores_room, sleeps_room, sites_room, frames_room,
        names_room, modules_room, threads_room, streams_room, strings_room;
    /* Strings of the site tables, to which only frames refer; appended to recording->strings at the
     * end. */
    char *site_strings;
    size_t site_string_bytes, site_strings_room;
    struct gp_hash interned; /* text -> offset in strings */
    struct gp_hash tids, streams;
    uint8_t device_of[256]; /* index in the session -> + 1 in devices */
    struct gp_read_work *work;
    uint32_t *mapped; /* indexes of modules, by address */
    uint32_t mapped_count;
    size_t mapped_room;
    uint32_t late_frames;                         /* those from this one on were written after the last modules */
    uint32_t comm, command_line, host, allocator; /* offsets in strings */
    uint64_t file_bytes;
    bool has_process, has_numbers, has_counts, has_turned; /* an event of type GP_READ_TURNED */
};

/* Makes room for `need` rows; new ones are zero, except events. False: read->error is set. */
bool gp_read_room(struct gp_read *read, void *array_pointer, size_t *room, size_t need, size_t limit, size_t row_bytes);
#define GP_READ_ROOM(_read, _array, _room, _need, _limit)                                                              \
    gp_read_room((_read), &(_array), &(_room), (_need), (_limit), sizeof(*(_array)))

/* Stores the text, cleaned for output, and returns its offset in the recording's strings. */
uint32_t gp_read_string(struct gp_read *read, const void *text, size_t length);
uint32_t gp_read_thread(struct gp_read *read, uint32_t tid);    /* index in threads */
uint16_t gp_read_stream(struct gp_read *read, uint64_t stream); /* index in streams, or GP_REC_OTHERS */
uint8_t gp_read_device(struct gp_read *read, uint32_t index);   /* index in devices, or GP_REC_NO_DEVICE */

/* Decodes one payload. False: it is damaged, and nothing important was taken from it. */
bool gp_read_payload(struct gp_read *read, const struct gp_format_block *block, const void *payload);
bool gp_read_events(struct gp_read *read, const struct gp_format_block *block, const void *payload);

/* joined.c. Gives each import its size, which the events have later than the import, and leaves out
 * events of no type, as of segments that were joined. 0 or -ENOMEM. */
int gp_read_imports(struct gp_recording *recording);
/* joined.c. Makes one segment of what a pool took, a marked free and a segment. 0 or -ENOMEM. */
int gp_read_turned(struct gp_recording *recording);

/* polls.c. Makes memory of what the polls of pools and graphs have read. 0 or -ENOMEM. */
int gp_read_polls(struct gp_recording *recording);

/* fromvalues.c.  Fills the recording from a pickle or JSON.  0, -errno; -EPROTO with why. */
int gp_read_values(struct gp_read *read, const struct gp_input *file, char *why, size_t why_bytes);
/* The same from the values of such a file.  fromtorch.c: a memory snapshot of PyTorch, which frees the values early.
 * fromkineto.c: a trace of PyTorch's profiler.  fromtimeline.c: what export_memory_timeline writes. */
struct gp_pickle_file;
int gp_read_torch(struct gp_read *read, struct gp_pickle_file *values, const struct gp_input *file, char *why,
                  size_t why_bytes);
int gp_read_kineto(struct gp_read *read, struct gp_pickle_file *values, char *why, size_t why_bytes);
int gp_read_timeline(struct gp_read *read, struct gp_pickle_file *values, char *why, size_t why_bytes);
/* fromrmm.c.  The same from a log of RMM. */
int gp_read_rmm(struct gp_read *read, const struct gp_input *file, char *why, size_t why_bytes);
/* frompprof.c.  The same from a heap profile of pprof. */
int gp_read_pprof(struct gp_read *read, const struct gp_input *file, char *why, size_t why_bytes);

#endif
