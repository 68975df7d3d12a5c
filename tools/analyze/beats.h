/* SPDX-License-Identifier: MIT
 *
 * beats.h: points of time at which something came back, and the steps that they make.
 */
#ifndef GP_ANALYZE_BEATS_H
#define GP_ANALYZE_BEATS_H

#include <analyze/tally.h>
#include <read/recording/recording.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rhythms in a recording: finds the one that is the program's step among everything that repeats.  A
 * beat is a name or a call site (or a pair of them in a row) with the events at which it occurs.
 * docs/analyses.md has the rule and its reasons.  steps.c calls this. */

/* Occurrences of a beat: four steps have five bounds; leaks.c says why four. */
#define GP_BEAT_MIN 5u

struct gp_beats {              /* occurrences of all beats */
    struct gp_tally kinds;     /* a row per beat; bytes: occurrences whose block is freed */
    uint32_t *kind, *position; /* of each occurrence, in the order of time; position: index of the event */
    uint32_t *grouped;         /* the positions, grouped by kind */
    size_t count, room;
};

bool gp_beats_init(struct gp_beats *beats, size_t room);
void gp_beats_fini(struct gp_beats *beats);
/* Adds an occurrence.  freed: its block is freed within the recording.  False: no room or memory. */
bool gp_beats_put(struct gp_beats *beats, uint64_t key, uint32_t position, bool freed);
/* Call once, after the last occurrence: fills grouped[].  The positions of a row are
 * grouped[extra .. extra + count). */
void gp_beats_group(struct gp_beats *beats);

/* The part of the distance from the first to the last occurrence, 0..1, that consists of intervals
 * within a factor of two of the median.  < 0: out of memory. */
double gp_beats_even(const uint32_t *positions, size_t count);

/* The memory of temporary blocks and the call sites, event by event, from event `begin` on. */
struct gp_beat_curve {
    const struct gp_recording *recording;
    size_t begin;
    int64_t *level;   /* before each event: bytes of blocks that are allocated and freed in the curve */
    uint32_t *symbol; /* of each event that allocates, from 1: its call site, or without stacks its size; else 0 */
    uint32_t *stamp;  /* of each symbol */
    uint32_t symbols, stamps;
};

bool gp_beat_curve_init(struct gp_beat_curve *curve, const struct gp_recording *recording, size_t begin);
void gp_beat_curve_fini(struct gp_beat_curve *curve);

/* The row of the beat that is the step, of those that are marked in `even` (an evenness of each row,
 * 0: it is no candidate).  NULL: none of them follows the memory.  *ok false: out of memory. */
const struct gp_tally_row *gp_beats_step(const struct gp_beats *beats, const double *even, struct gp_beat_curve *curve,
                                         bool *ok);

/* Identifies the code that allocates: its call site; without stacks, the kind of the block and the
 * power of two of its size. */
uint64_t gp_beat_symbol(const struct gp_rec_event *event);

#endif
