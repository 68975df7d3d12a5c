/* SPDX-License-Identifier: MIT
 *
 * fromtorch.h: the parts of reading a snapshot of PyTorch.
 */
#ifndef GP_READ_RECORDING_FROMTORCH_H
#define GP_READ_RECORDING_FROMTORCH_H

#include <read/common/hash.h>
#include <read/recording/internal.h>
#include <read/recording/pickleread.h>
#include <read/recording/recording.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

struct gp_torch_text {
    const char *at; /* not terminated by a zero */
    uint32_t length;
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
/* The number of a frame in sites->frames; the lengths are in bytes, and 0 is no text.  0 after an error. */
uint32_t gp_torch_frame(struct gp_read *read, struct gp_torch_sites *sites, const struct gp_torch_text *function,
                        const struct gp_torch_text *file, uint32_t line, bool native);
/* The site of a stack of such numbers, innermost first.  0 without frames, or after an error. */
uint32_t gp_torch_stack(struct gp_read *read, struct gp_torch_sites *sites, const uint32_t *frames, uint32_t count);
void gp_torch_sites_free(struct gp_torch_sites *sites);

/* torchsplit.c.  Adds to the baseline the segments of the device that were there before the trace.
 * Sorts the spans.  like: the time, kind and device of these events.  0 or -ENOMEM, -EFBIG. */
int gp_torch_start(struct gp_read *read, struct gp_torch_span *spans, size_t count, const struct gp_rec_event *like);

/* torchsplit.c.  Whether the settings change neither how sizes are rounded nor how blocks are cut. */
bool gp_torch_splits(const struct gp_pickle *settings);

/* torchsplit.c.  Corrects the sizes of the blocks that the device's trace allocates.  The events of each
 * device are still in their order.  0 or -ENOMEM. */
int gp_torch_split(struct gp_read *read, const struct gp_torch_span *spans, size_t count, uint8_t device);

#endif
