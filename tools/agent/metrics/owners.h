/* SPDX-License-Identifier: MIT
 *
 * owners.h: rows of owners of memory, from the sessions of the processes in the tables. Called by
 * samples.c.
 */
#ifndef GP_METRICS_OWNERS_H
#define GP_METRICS_OWNERS_H

#include <agent/metrics/names.h>
#include <agent/metrics/samples.h>

/* Fills rows->owners, at most `most` of them besides an "other" row for each device. Rows with the
 * same labels are one row. A process that is not in the view is left out. False: out of memory. */
bool gp_owners_make(struct gp_rows *rows, const struct gp_names *names, enum gp_metrics_processes how,
                    const struct gp_system_view *view, const struct gp_system *sessions, uint32_t most);

#endif
