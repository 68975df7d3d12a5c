/* SPDX-License-Identifier: MIT
 *
 * sample.h: reads the whole machine from the agent's maps into the form that every view uses
 * (collect.h).
 */
#ifndef GP_MAPS_SAMPLE_H
#define GP_MAPS_SAMPLE_H

#include <read/collect/collect.h>

/* Without options->pins this is gp_collect. With it, reads the processes, containers and devices of
 * the agent's maps; if the process table cannot be read, the processes are those whose sessions
 * can. 0 or -errno as gp_collect and gp_system_view_read, with a sentence in why (which may be
 * NULL). Any thread, one at a time. */
int gp_system_sample(const struct gp_collect_options *options, struct gp_system **out, char *why, size_t why_bytes);

/* Adds from the maps to the result of gp_collect: processes whose sessions cannot be read, and the
 * sums. 0 also without an agent; -ENOMEM. */
int gp_system_complete(struct gp_system *system, const char *pins);

#endif
