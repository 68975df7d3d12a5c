/* SPDX-License-Identifier: MIT
 * stats.h: the names of statistics, kinds, events, losses, sources and resets, for all writers.
 * Statistics are named as in torch.cuda.memory_stats; the other names are part of the interface
 * (docs/interface.md).  Pure.
 */
#ifndef GP_WRITE_STATS_H
#define GP_WRITE_STATS_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>

#define GP_STAT_KEYS 122 /* 9 statistics x 3 pools x 4 values, 2 oversize x 4 values, 6 counters */

struct gp_stat_key {
    char name[48];
    size_t offset; /* of the int64_t in struct gp_wire_device */
};

/* The GP_STAT_KEYS keys, sorted by name as in PyTorch. */
const struct gp_stat_key *gp_stat_keys(void);
int64_t gp_stat_get(const struct gp_wire_device *device, const struct gp_stat_key *key);

/* False: unknown, as a framework's blocks count, and a framework reports the rounded sizes of its
 * blocks and not how its idle memory is split. */
bool gp_stat_told(const struct gp_wire_device *device, const struct gp_stat_key *key);

/* These return NULL for a number out of range. */
const char *gp_stat_name(unsigned stat);     /* "allocated_bytes" */
const char *gp_kind_name(unsigned kind);     /* "linear" */
const char *gp_lost_name(unsigned cause);    /* "ring_full"; NULL for an unused cause too */
const char *gp_event_name(unsigned type);    /* "segment_alloc" */
const char *gp_source_name(unsigned source); /* "cupti" */

/* What helps a process that has no source of events. */
#define GP_SOURCE_ADVICE                                                                                               \
    "no events: start the program with 'gpuprof run', which counts with driver hooks if CUPTI cannot be used"

/* One line about a copy of CUPTI that a process tried: "PATH, version N: ANSWER (STATUS)". */
#define GP_COPY_TEXT 400
struct gp_wire_copy;
const char *gp_copy_text(char text[GP_COPY_TEXT], const struct gp_wire_copy *copy);

/* True: a reset of this sort (GP_RESET_*) changes the peak or the totals of this statistic. */
bool gp_reset_touches(unsigned what, unsigned stat);
const char *gp_reset_name(unsigned what); /* "allocated" */

#endif
