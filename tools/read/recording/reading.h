/* SPDX-License-Identifier: MIT
 *
 * reading.h: a recording while it is being read. read.c finds blocks, payload.c and events.c decode
 * them, table.c stores rows, and finish.c establishes what recording.h promises.
 */
#ifndef GP_RECORDING_READING_H
#define GP_RECORDING_READING_H

#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <record/pack.h>

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

struct gp_read_work; /* events.c: the block that is being decoded; from malloc */

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
    bool has_process, has_numbers, has_counts;
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

/* imports.c. Gives each import its size, which the events have later than the import. 0 or -ENOMEM. */
int gp_read_imports(struct gp_recording *recording);
/* After the last block: order, indexes, strings, peers, numbers.  0 or -errno. */
int gp_read_finish(struct gp_read *read);

#endif
