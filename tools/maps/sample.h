/* SPDX-License-Identifier: MIT
 *
 * sample.h: the whole machine in the form in which every view knows processes (collect.h), made from the agent's maps.
 */
#ifndef GP_MAPS_SAMPLE_H
#define GP_MAPS_SAMPLE_H

#include <collect/collect.h>

/* Without options->pins: gp_collect.  With it: the processes, containers and devices of the agent's maps; where their
 * table of processes may not be read, the processes are those whose sessions may.  0 or -errno as gp_collect and
 * gp_system_view_read, with a sentence in why (which may be NULL).  Any thread, one at a time. */
int gp_system_sample(const struct gp_collect_options *options, struct gp_system **out, char *why, size_t why_bytes);

/* Adds to the result of gp_collect what the maps know beside it: processes whose sessions may not be read, and the
 * sums.  0 also without an agent; -ENOMEM. */
int gp_system_complete(struct gp_system *system, const char *pins);

#endif
