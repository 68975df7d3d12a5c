/* SPDX-License-Identifier: MIT
 *
 * stats.h: names of everything that is counted, one table for all writers.  The statistics' names
 * are those of torch.cuda.memory_stats; the rest are the contract's.  Pure.
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

/* The GP_STAT_KEYS keys in the order in which PyTorch gives them: sorted by name. */
const struct gp_stat_key *gp_stat_keys(void);
int64_t gp_stat_get(const struct gp_wire_device *device, const struct gp_stat_key *key);

const char *gp_stat_name(unsigned stat);     /* "allocated_bytes"; NULL out of range, as all of these */
const char *gp_kind_name(unsigned kind);     /* "linear" */
const char *gp_lost_name(unsigned cause);    /* "ring_full"; NULL also for the unused causes */
const char *gp_event_name(unsigned type);    /* "segment_alloc" */
const char *gp_source_name(unsigned source); /* "cupti" */

/* Whether a reset of this sort (GP_RESET_*) touches this statistic's peak or totals. */
bool gp_reset_touches(unsigned what, unsigned stat);
const char *gp_reset_name(unsigned what); /* "allocated" */

#endif
