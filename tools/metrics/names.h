/* SPDX-License-Identifier: MIT
 *
 * names.h: the names of cgroups, looked up once and kept while the cgroup is in the tables.  Called by samples.c alone.
 */
#ifndef GP_METRICS_NAMES_H
#define GP_METRICS_NAMES_H

#include <maps/maps.h>

struct gp_name {
    uint64_t cgroup_id;
    struct gp_container_name found;
    char id[300]; /* label: the path, or what stands for it; unique among the names */
    uint32_t tries;
    bool whole; /* nothing more is to be found out */
};

struct gp_names {
    const char *root;
    bool off;
    uint32_t count;
    struct gp_name **sorted; /* by cgroup */
};

void gp_names_fini(struct gp_names *names);
/* Keeps the names of these cgroups and of no other.  cgroups: sorted, without doubles; hints: a process in each, 0
 * none. Names stay where they are while they are kept.  0 or -ENOMEM. */
int gp_names_update(struct gp_names *names, const uint64_t *cgroups, const pid_t *hints, uint32_t count);
/* NULL: not among those of the last update. */
const struct gp_name *gp_names_find(const struct gp_names *names, uint64_t cgroup_id);

#endif
