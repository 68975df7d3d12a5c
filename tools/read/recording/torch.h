/* SPDX-License-Identifier: MIT
 *
 * torch.h: a snapshot of PyTorch while it becomes a recording.  fromtorch.c reads entries and
 * blocks, torchsites.c makes call sites of frames, torchstart.c finds the segments that were
 * there before the trace, and torchsplit.c the granted sizes.
 */
#ifndef GP_RECORDING_TORCH_H
#define GP_RECORDING_TORCH_H

#include <read/recording/input.h>
#include <read/recording/pickleread.h>
#include <read/recording/reading.h>

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

/* torchsites.c.  The site of this list of frames; the label, which may be NULL, becomes the outermost
 * one.  0 without frames and label, or after an error (read->error). */
uint32_t gp_torch_site(struct gp_read *read, struct gp_torch_sites *sites, const struct gp_pickle *frames,
                       const struct gp_pickle *label);
/* A site with one frame of this name. */
uint32_t gp_torch_site_named(struct gp_read *read, struct gp_torch_sites *sites, const char *name);
void gp_torch_sites_free(struct gp_torch_sites *sites);

/* torchstart.c.  Adds to the baseline the segments of the device that were there before the trace.
 * Sorts the spans.  like: the time, kind and device of these events.  0 or -ENOMEM, -EFBIG. */
int gp_torch_start(struct gp_read *read, struct gp_torch_span *spans, size_t count, const struct gp_rec_event *like);

/* torchsplit.c.  Corrects the sizes of the blocks that the device's trace allocates.  The events of each
 * device are still in their order.  0 or -ENOMEM. */
int gp_torch_split(struct gp_read *read, const struct gp_torch_span *spans, size_t count, uint8_t device);

/* fromtorch.c.  Fills the recording from a pickle or JSON.  0, -errno; -EPROTO with why. */
int gp_read_torch(struct gp_read *read, const struct gp_input *file, char *why, size_t why_bytes);
/* fromrmm.c.  The same from a log of RMM. */
int gp_read_rmm(struct gp_read *read, const struct gp_input *file, char *why, size_t why_bytes);

#endif
