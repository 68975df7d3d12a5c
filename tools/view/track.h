/* SPDX-License-Identifier: MIT
 *
 * track.h: what the model remembers of a row from one sample to the next.  Used by model.c alone.
 */
#ifndef GP_VIEW_TRACK_H
#define GP_VIEW_TRACK_H

#include <view/model.h>

struct gp_track {
    struct gp_row_id id;
    struct gp_track *next;
    unsigned generation; /* of the model, when last seen */
    bool counted;        /* the counters below are a sample */
    uint64_t publish_ns, time_ns;
    int64_t allocs, frees;
    double allocs_per_s, frees_per_s;
    int64_t allocated_seen, reserved_seen; /* highest so far; -1 none */
    struct gp_history history;
};

/* Finds or makes; NULL: no memory. */
struct gp_track *gp_track_get(struct gp_model *model, const struct gp_row_id *id);
/* Forgets what this generation has not seen; GPUs stay, their history is the machine's. */
void gp_track_sweep(struct gp_model *model);
void gp_track_free_all(struct gp_model *model);
void gp_track_push(struct gp_track *track, int64_t allocated);
/* Rates since the last sample, into the row. */
void gp_track_rate(struct gp_track *track, struct gp_row *row, uint64_t time_ns);
/* The same from counters that are read at time_ns; -1 unknown. */
void gp_track_rate_of(struct gp_track *track, struct gp_row *row, uint64_t time_ns, int64_t allocs, int64_t frees);
/* Raises the sums seen; an exact peak of one member is a lower bound too.  Result in the row's peaks. */
void gp_track_peak(struct gp_track *track, struct gp_row *row);

#endif
