/* SPDX-License-Identifier: MIT
 *
 * internal.h: declarations that the files of recording/ share. No other folder includes it.
 */
#ifndef GP_READ_RECORDING_INTERNAL_H
#define GP_READ_RECORDING_INTERNAL_H

#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <record/pack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ==== a recording that is being read ============================================================================== */
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

/* ==== pickles and JSON ============================================================================================ */
/* Plain data from a file: dictionaries, lists, strings and numbers.  pickleread.c reads Python
 * pickles, protocols 2 to 5, and refuses opcodes that name a class or call a function, so a file can
 * execute nothing.  unjson.c reads JSON into the same values.  Values of a pickle may be shared and
 * may even contain themselves: every walk over them needs a bound. Threads: one caller at a time. */

enum gp_pickle_type {
    GP_PICKLE_NONE,
    GP_PICKLE_BOOL,
    GP_PICKLE_INT,
    GP_PICKLE_FLOAT,
    GP_PICKLE_TEXT,
    GP_PICKLE_LIST, /* and tuples and sets */
    GP_PICKLE_DICT, /* items: key, value, key, value */
    GP_PICKLE_MARK, /* only inside the reader */
};

struct gp_pickle_items;

struct gp_pickle {
    uint8_t type;
    uint32_t length; /* of a text, in bytes */
    union {
        int64_t number;
        double real;
        const char *text; /* points into the data that was read; not terminated by a zero */
        struct gp_pickle_items *items;
    };
};
struct gp_pickle_items {
    struct gp_pickle_items *next; /* links all items, to free them */
    struct gp_pickle *at;
    uint32_t count, room;
};

struct gp_pickle_file {
    struct gp_pickle root;
    struct gp_pickle_items *all;
    char *texts;     /* of JSON: those that had escape sequences */
    const char *why; /* a refusal, as a sentence */
    size_t position; /* where */
    uint64_t left;   /* bytes that the values may still take */
};

/* All values of a file of so many bytes take at most so many bytes.  An entry of a real snapshot
 * takes six times its bytes. */
#define GP_PICKLE_MEMORY(_bytes) ((32ull << 20) + 12ull * (_bytes))

/* Reads one pickle.  Texts point into data, which must outlive the file.  0, -EINVAL (with why),
 * -ENOMEM, -E2BIG; the caller frees the file in every case. */
int gp_pickle_read(struct gp_pickle_file *file, const uint8_t *data, size_t bytes);
/* The same of one JSON value (unjson.c). */
int gp_unjson_read(struct gp_pickle_file *file, const uint8_t *data, size_t bytes);
void gp_pickle_free(struct gp_pickle_file *file);

/* NULL: not a dictionary, or no such key. */
const struct gp_pickle *gp_pickle_get(const struct gp_pickle *dict, const char *key);
bool gp_pickle_is(const struct gp_pickle *value, const char *text);
/* The value of an integer or a bool; `otherwise` for any other type and for NULL. */
int64_t gp_pickle_number(const struct gp_pickle *value, int64_t otherwise);
uint32_t gp_pickle_count(const struct gp_pickle *list); /* 0 if it is not a list */
const struct gp_pickle *gp_pickle_at(const struct gp_pickle *list, uint32_t index);

/* ---- pickleread.c, for the readers ----------------------------------------------------------------------------------- */

/* Before anything else: no values, and memory for a file of so many bytes. */
void gp_pickle_begin(struct gp_pickle_file *file, size_t bytes);
/* Takes so many bytes of the file's memory.  0, or -EINVAL with why. */
int gp_pickle_take(struct gp_pickle_file *file, uint64_t bytes);
/* Makes an empty container.  0, -EINVAL with why, -ENOMEM. */
int gp_pickle_container(struct gp_pickle_file *file, enum gp_pickle_type type, struct gp_pickle *value);
/* Appends values to a container.  0, -EINVAL with why, -E2BIG, -ENOMEM. */
int gp_pickle_append(struct gp_pickle_file *file, const struct gp_pickle *container, const struct gp_pickle *values,
                     uint32_t count);

/* ==== snapshots of PyTorch ======================================================================================== */
/* A snapshot of PyTorch while it becomes a recording.  fromtorch.c reads entries and blocks,
 * torchsites.c makes call sites of frames, torchsplit.c finds the segments that were there before
 * the trace and the granted sizes, and torchgaps.c what follows for entries that the trace lacks. */

struct gp_torch_sites {
    struct gp_hash by_list;  /* a list of frames, by its place in memory -> site */
    struct gp_hash by_frame; /* a frame, by its place in memory -> number in frames */
    struct gp_hash by_name;  /* a frame's names and line -> number in frames */
    struct gp_hash by_stack; /* the numbers of a stack's frames -> site */
    struct gp_hash texts;    /* text -> offset in the strings of the sites */
    struct gp_torch_frame {
        uint32_t function, file, line;
        uint32_t native; /* 1: a C++ frame */
    } * frames;
    size_t frame_room;
    uint32_t frame_count;
    uint32_t *stacks; /* of each row of the recording's frames its number in frames */
    size_t stack_room;
};

struct gp_torch_span { /* segments in a range of addresses change, or are there at the end */
    uint64_t start, end;
    uint32_t order; /* of the change in the trace; GP_TORCH_AT_END */
    bool there;     /* before the change there was memory: it was taken away, or stayed until the end */
    bool growable;
};
#define GP_TORCH_AT_END UINT32_MAX

/* Of the traces of a device: which actions they have. */
struct gp_torch_gap {
    bool allocs, frees, requested, segments; /* requested: of the frees, free_requested */
    bool known_end, unlisted;                /* the file has what lives at the end; or segments without blocks */
    bool broken;                             /* a block counts for a moment of its life only */
    bool unseen_end;                         /* blocks at the end were allocated in no entry */
    uint64_t last_ns, changed_ns;            /* of the last entry; of the last one that changes memory */
};

enum { GP_TORCH_OPEN, GP_TORCH_KEPT, GP_TORCH_REUSED };

struct gp_torch_gaps {
    struct gp_torch_gap of[256]; /* index in the recording's devices */
    uint8_t *ended;              /* of each event that allocates a block: GP_TORCH_KEPT: its end is known */
    size_t ended_room;
    uint32_t *ends; /* of each block of the baseline: the event that frees it; GP_REC_NONE: it lives at the end */
    size_t ends_room;
    bool sites; /* blocks got sites that their frees lack */
};

/* torchgaps.c.  The block that this event allocates is freed, or lives at the end; or its address was
 * allocated again without a free.  False: read->error. */
bool gp_torch_gap_keep(struct gp_read *read, struct gp_torch_gaps *gaps, uint32_t event);
bool gp_torch_gap_reuse(struct gp_read *read, struct gp_torch_gaps *gaps, uint32_t event);
/* The block that was added to the baseline last ends with this event. */
bool gp_torch_gap_end(struct gp_read *read, struct gp_torch_gaps *gaps, uint32_t end);
/* Adds the frees and allocations that the traces lack.  The events of each device are still in their order.
 * blocks: so many rows of the baseline are blocks, and segments follow; before: the site of blocks from
 * before the trace.  0, -ENOMEM, -EFBIG. */
int gp_torch_gaps(struct gp_read *read, struct gp_torch_gaps *gaps, size_t blocks, uint32_t before);
void gp_torch_gaps_free(struct gp_torch_gaps *gaps);

/* torchsites.c.  The site of this list of frames; the label, which may be NULL, becomes the outermost
 * one.  0 without frames and label, or after an error (read->error). */
uint32_t gp_torch_site(struct gp_read *read, struct gp_torch_sites *sites, const struct gp_pickle *frames,
                       const struct gp_pickle *label);
/* A site with one frame of this name. */
uint32_t gp_torch_site_named(struct gp_read *read, struct gp_torch_sites *sites, const char *name);
void gp_torch_sites_free(struct gp_torch_sites *sites);

/* torchsplit.c.  Adds to the baseline the segments of the device that were there before the trace.
 * Sorts the spans.  like: the time, kind and device of these events.  0 or -ENOMEM, -EFBIG. */
int gp_torch_start(struct gp_read *read, struct gp_torch_span *spans, size_t count, const struct gp_rec_event *like);

/* torchsplit.c.  Whether the settings change neither how sizes are rounded nor how blocks are cut. */
bool gp_torch_splits(const struct gp_pickle *settings);

/* torchsplit.c.  Corrects the sizes of the blocks that the device's trace allocates.  The events of each
 * device are still in their order.  0 or -ENOMEM. */
int gp_torch_split(struct gp_read *read, const struct gp_torch_span *spans, size_t count, uint8_t device);

/* fromtorch.c.  Fills the recording from a pickle or JSON.  0, -errno; -EPROTO with why. */
int gp_read_torch(struct gp_read *read, const struct gp_input *file, char *why, size_t why_bytes);
/* fromrmm.c.  The same from a log of RMM. */
int gp_read_rmm(struct gp_read *read, const struct gp_input *file, char *why, size_t why_bytes);

#endif
