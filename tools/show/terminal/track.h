/* SPDX-License-Identifier: MIT
 *
 * track.h: the data that the model keeps about a row from one sample to the next: counters for
 * rates, the highest sums seen, and histories.  Only model.c and track.c use it.
 */
#ifndef GP_SHOW_TERMINAL_TRACK_H
#define GP_SHOW_TERMINAL_TRACK_H

#include <show/terminal/model.h>
#include <show/terminal/outlook.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_track {
    struct gp_row_id id;
    struct gp_track *next;
    unsigned generation; /* of the model, when the row was last seen */
    bool counted;        /* the counters below hold a sample */
    uint64_t publish_ns, time_ns;
    int64_t allocs, frees;
    double allocs_per_s, frees_per_s;
    int64_t allocated_seen, reserved_seen; /* highest so far; -1 none */
    struct gp_history history;
    struct gp_plot_history *plot; /* of a GPU; else NULL */
    struct gp_outlook *outlook;   /* of a pair on a GPU; else NULL */
};

/* Finds the track of a row, or makes one; NULL: out of memory. */
struct gp_track *gp_track_get(struct gp_model *model, const struct gp_row_id *id);
/* Sets the row's peaks to the highest sums seen so far.  The exact peak of a member is a lower
 * bound of that. */
void gp_track_peak(struct gp_track *track, struct gp_row *row);
void gp_track_push(struct gp_track *track, int64_t allocated);
/* Sets the row's rates since the last sample. */
void gp_track_rate(struct gp_track *track, struct gp_row *row, uint64_t time_ns);
/* The same, from counters that were read at time_ns; -1 unknown. */
void gp_track_rate_of(struct gp_track *track, struct gp_row *row, uint64_t time_ns, int64_t allocs, int64_t frees);
void gp_track_free_all(struct gp_model *model);
/* Adds a sample of a GPU.  0 or -ENOMEM. */
int gp_track_plot(struct gp_track *track, const struct gp_plot_sample *sample);
/* Frees the tracks of rows that this generation has not seen.  Those of GPUs stay for a while: without
 * NVML, a GPU that no process uses is not seen. */
void gp_track_sweep(struct gp_model *model);

#endif
