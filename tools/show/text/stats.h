/* SPDX-License-Identifier: MIT
 * stats.h: the names of events, sources and resets, for all writers; those of statistics, kinds and
 * losses are in base/numbers.h. The names are part of the interface (docs/interface.md). Pure.
 */
#ifndef GP_WRITE_STATS_H
#define GP_WRITE_STATS_H

#include <base/numbers.h>

/* These return NULL for a number out of range. */
const char *gp_event_name(unsigned type);    /* "segment_alloc" */
const char *gp_source_name(unsigned source); /* "cupti" */

/* What helps a process that has no source of events. */
#define GP_SOURCE_ADVICE                                                                                               \
    "no events: start the program with 'gpuprof run', which counts with driver hooks if CUPTI cannot be used"

/* One line about a copy of CUPTI that a process tried: "PATH, version N: ANSWER (STATUS)". */
#define GP_COPY_TEXT 400
struct gp_wire_copy;
const char *gp_copy_text(char text[GP_COPY_TEXT], const struct gp_wire_copy *copy);

const char *gp_reset_name(unsigned what); /* "allocated" */

#endif
