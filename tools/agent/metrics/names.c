/* SPDX-License-Identifier: MIT
 * names.c: the names of cgroups, each looked up once (internal.h). */
#include <agent/metrics/internal.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lookups per update. One costs 30 us if the files are cached: 256 take less than 10 ms of one
 * page. */
#define GP_NAMES_LOOKUPS 256u
/* A container starts before its kubelet has written all files; one without a name after this many
 * pages has none. */
#define GP_NAMES_TRIES 20u

void gp_names_fini(struct gp_names *names)
{
    for (uint32_t i = 0; i < names->count; i++)
        free(names->sorted[i]);
    free(names->sorted);
    names->sorted = NULL;
    names->count = 0;
}

const struct gp_name *gp_names_find(const struct gp_names *names, uint64_t cgroup_id)
{
    uint32_t low = 0, high = names->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (names->sorted[middle]->cgroup_id < cgroup_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < names->count && names->sorted[low]->cgroup_id == cgroup_id ? names->sorted[low] : NULL;
}

static void name_lookup(const struct gp_names *names, struct gp_name *name, pid_t hint)
{
    struct gp_container_name found;
    name->tries++;
    if (!names->off && gp_container_lookup(names->root, name->cgroup_id, hint, &found) == 0) {
        name->found = found;
        if (!found.id[0] || found.pod[0] || found.container[0])
            name->whole = true;
    }
    /* A cgroup may be removed before its bytes are: a name found earlier stays. */
    if (names->off || name->tries >= GP_NAMES_TRIES)
        name->whole = true;
    if (name->found.path[0]) {
        snprintf(name->id, sizeof(name->id), "%s", name->found.path);
        for (char *at = name->id; (at = strchr(at, '#'));)
            *at = '_'; /* '#' is reserved: it separates equal paths */
    } else
        snprintf(name->id, sizeof(name->id), "cgroup-%" PRIu64, name->cgroup_id);
}

static int name_by_id(const void *a, const void *b)
{
    const struct gp_name *const *x = a, *const *y = b;
    int order = strcmp((*x)->id, (*y)->id);
    return order ? order : ((*x)->cgroup_id > (*y)->cgroup_id) - ((*x)->cgroup_id < (*y)->cgroup_id);
}

/* A cgroup that was removed and created again has the same path and another number, and both may
 * have bytes for a while. Two series must not have the same labels. */
static int names_make_unique(struct gp_names *names)
{
    struct gp_name **by_id = malloc((names->count + 1) * sizeof(struct gp_name *));
    if (!by_id)
        return -ENOMEM;
    memcpy(by_id, names->sorted, names->count * sizeof(struct gp_name *));
    qsort(by_id, names->count, sizeof(struct gp_name *), name_by_id);
    for (uint32_t i = names->count; i-- > 1;) {
        size_t length = strlen(by_id[i]->id);
        if (strcmp(by_id[i]->id, by_id[i - 1]->id) == 0)
            snprintf(by_id[i]->id + length, sizeof(by_id[i]->id) - length, "#%" PRIu64, by_id[i]->cgroup_id);
    }
    free(by_id);
    return 0;
}

int gp_names_update(struct gp_names *names, const uint64_t *cgroups, const pid_t *hints, uint32_t count)
{
    struct gp_name **sorted = calloc(count + 1, sizeof(struct gp_name *));
    if (!sorted)
        return -ENOMEM;
    uint32_t old = 0, lookups = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (; old < names->count && names->sorted[old]->cgroup_id < cgroups[i]; old++)
            free(names->sorted[old]);
        if (old < names->count && names->sorted[old]->cgroup_id == cgroups[i])
            sorted[i] = names->sorted[old++];
        else
            sorted[i] = calloc(1, sizeof(struct gp_name));
        if (!sorted[i]) {
            /* Names in neither list are freed; the old list continues from its current position. */
            for (uint32_t k = 0; k < i; k++)
                free(sorted[k]);
            memmove(names->sorted, names->sorted + old, (names->count - old) * sizeof(struct gp_name *));
            names->count -= old;
            free(sorted);
            return -ENOMEM;
        }
        sorted[i]->cgroup_id = cgroups[i];
        if (!sorted[i]->whole && lookups++ < GP_NAMES_LOOKUPS)
            name_lookup(names, sorted[i], hints[i]);
        if (!sorted[i]->id[0])
            snprintf(sorted[i]->id, sizeof(sorted[i]->id), "cgroup-%" PRIu64, cgroups[i]);
    }
    for (; old < names->count; old++)
        free(names->sorted[old]);
    free(names->sorted);
    names->sorted = sorted;
    names->count = count;
    return names_make_unique(names);
}
