/* SPDX-License-Identifier: MIT
 *
 * segment.h: driver memory that is a segment, and its owner (account.c).
 * Their bytes are reserved (segment.c).
 */
#ifndef GP_ACCOUNT_SEGMENT_H
#define GP_ACCOUNT_SEGMENT_H

#include "base/counter.h"
#include "base/map.h"
#include <gpuprof/wire.h>
#include <stdbool.h>

/* gp_record.segment */
enum { GP_SEGMENT_NONE, GP_SEGMENT_FRAMEWORK, GP_SEGMENT_HEAP };

/* gp_record.flags of a segment: it is known to be of a private pool (frameworkoom.c). */
#define GP_FLAG_PRIVATE 1u
/* gp_record.flags of a block: a framework reports it. */
#define GP_FLAG_REPORTED 2u

/* Sets the record's owner, and whether it is a segment, from the stack of the driver call under way. */
void gp_account_own(struct gp_record *record);
/* Memory of this kind can be a segment of a framework. */
bool gp_account_is_divisible(enum gp_wire_kind kind);
/* The gauges of a segment moved. */
void gp_segment_framework(const struct gp_record *segment, enum gp_counter_op op);
/* The allocation counted as a segment, and turns out to be none. */
void gp_segment_not(const struct gp_record *segment);
/* A record became or ceased to be a segment, or changed its owner: moves the gauges of its reserved
 * bytes that depend on that. */
void gp_segment_remade(const struct gp_record *before, const struct gp_record *after);

#endif
