/* SPDX-License-Identifier: MIT
 *
 * names.h: the names of cgroups, looked up once and kept while the cgroup is in the tables. Only
 * samples.c calls it.
 */
#ifndef GP_METRICS_NAMES_H
#define GP_METRICS_NAMES_H

#include <agent/maps/maps.h>

struct gp_name {
    uint64_t cgroup_id;
    struct gp_container_name found;
    char id[300]; /* the label `id`: the path or a replacement; unique among the names */
    uint32_t tries;
    bool whole; /* no further lookup */
};

struct gp_names {
    const char *root;
    bool off;
    uint32_t count;
    struct gp_name **sorted; /* ordered by cgroup */
};

void gp_names_fini(struct gp_names *names);
/* Keeps the names of these cgroups and of no others. cgroups: sorted, without duplicates; hints: a
 * process in each, 0: none. Pointers to kept names stay valid. 0 or -ENOMEM. */
int gp_names_update(struct gp_names *names, const uint64_t *cgroups, const pid_t *hints, uint32_t count);
/* NULL: not among the cgroups of the last update. */
const struct gp_name *gp_names_find(const struct gp_names *names, uint64_t cgroup_id);

#endif
