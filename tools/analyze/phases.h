/* SPDX-License-Identifier: MIT
 *
 * phases.h: what each phase of a program added to a device's memory, its peak, and what it left
 * behind.  A phase is an NVTX range, or the time from one mark to the next; without both, the time
 * before, in and after the steps.  docs/phases.md defines the numbers.
 */
#ifndef GP_ANALYZE_PHASES_H
#define GP_ANALYZE_PHASES_H

#include <analyze/uses.h>

enum gp_phase_source {
    GP_PHASES_NVTX,  /* ranges; marks too, if there are any */
    GP_PHASES_MARKS, /* marks alone */
    GP_PHASES_STEPS, /* neither: the steps that were found */
    GP_PHASES_WHOLE, /* nor steps: one phase */
};

struct gp_phase_part { /* changes of one call site between two moments of the phase */
    uint32_t site;
    uint8_t kind;
    int64_t added_bytes; /* from its start to its peak */
    int64_t left_bytes;  /* from its start to its end */
};

struct gp_phase_use { /* changes of all memory of one use, as of a part; zeros without uses */
    int64_t at_peak_bytes;
    int64_t added_bytes, left_bytes;
};

struct gp_phase { /* all occurrences of one name, without its numbers, at one depth */
    char name[40];
    uint32_t depth; /* ranges around it on its thread */
    uint32_t count;
    uint64_t begin_ns;    /* of the first */
    uint64_t duration_ns; /* of all */
    int64_t left_bytes;   /* sum of what they left; less than 0: they freed more */
    /* Of the occurrence with the highest peak; of several the first: */
    uint64_t peak_ns;
    int64_t begin_bytes, peak_bytes, end_bytes;
    uint32_t part_count;
    struct gp_phase_part *parts; /* the most added first */
    struct gp_phase_use uses[GP_USES];
};

#define GP_PHASES_MOST 64u /* further names are only counted */
struct gp_phases {
    enum gp_phase_source source;
    uint32_t device, count, left_out;
    struct gp_phase *phases; /* by their first start */
};
/* uses: of the same device, or NULL.  NULL: out of memory.  Free with gp_phases_free. */
struct gp_phases *gp_phases_find(const struct gp_flow *flow, const struct gp_steps *steps,
                                 const struct gp_use_table *uses, uint32_t device);
void gp_phases_free(struct gp_phases *phases);

#endif
