/* SPDX-License-Identifier: MIT
 *
 * history.h: what was live at many moments of a recording, so that a reader can ask for any of
 * them.  A recording with few blocks has all of them, with their starts and ends.  Otherwise time
 * is divided into equal stretches, and the history has the parts of the allocated memory at the
 * highest moment and at the last change of each stretch; and the blocks that held the most.
 */
#ifndef GP_ANALYZE_HISTORY_H
#define GP_ANALYZE_HISTORY_H

#include <analyze/flow.h>

struct gp_life { /* one block */
    uint64_t from_ns, to_ns, bytes;
    uint32_t site;
    uint8_t kind;
    bool live; /* at the end of the recording; to_ns is that end */
};

struct gp_history_part { /* as in struct gp_peak */
    uint32_t site;
    uint8_t kind;
};

struct gp_history_cell { /* a part has these values from this moment on */
    uint32_t part;
    int64_t bytes, count;
};

struct gp_moment {
    uint64_t time_ns;
    int64_t bytes, count;             /* allocated */
    int64_t other_bytes, other_count; /* of the parts that are not in the history */
    size_t first_cell;                /* the cells of a moment are those of the parts that changed */
};

struct gp_history_limits {
    uint32_t all;       /* so many blocks are all kept, and no moments */
    uint32_t lives;     /* of more blocks, so many are kept */
    uint32_t stretches; /* at most two moments for each */
    uint32_t parts;
};

struct gp_past {
    uint32_t device;
    bool complete;       /* lives has every block */
    uint64_t blocks;     /* how many blocks there were */
    uint64_t stretch_ns; /* width of a stretch; 0: there are no moments */
    uint32_t life_count, moment_count, part_count;
    size_t cell_count, cell_room;
    struct gp_life *lives; /* by from_ns */
    struct gp_moment *moments;
    struct gp_history_part *parts; /* those that held the most at one of the moments */
    struct gp_history_cell *cells;
};

/* NULL: out of memory. */
struct gp_past *gp_flow_history(const struct gp_flow *flow, uint32_t device, const struct gp_history_limits *limits);
void gp_history_free(struct gp_past *history);

#endif
