/* SPDX-License-Identifier: MIT
 *
 * mapwalk.c: walks the maps in parts of bounded size and frees the rows of removed cgroups. A part
 * is one system call. A hash map is read bucket by bucket, so an entry that stays in it during a
 * walk is read exactly once, whatever other entries are added or removed.
 */
#include "agent/kernel/bpf.h"
#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loaderabi.h"

static int walk_part(int fd, struct gp_bpf_walk *walk, void *keys, void *values, uint32_t *count)
{
    LIBBPF_OPTS(bpf_map_batch_opts, options);
    uint32_t from = walk->at; /* the kernel writes the next position while it still reads this one */
    *count = GP_BPF_PART;
    int error = bpf_map_lookup_batch(fd, walk->is_begun ? &from : NULL, &walk->at, keys, values, count, &options);
    walk->is_begun = true;
    if (!error)
        return 1;
    if (errno == ENOENT)
        return 0; /* after the last entries */
    *count = 0;
    return -errno;
}

int gp_bpf_processes(const struct gp_bpf *bpf, struct gp_bpf_walk *walk, struct gp_bpf_one *out, uint32_t *count)
{
    uint32_t tgids[GP_BPF_PART];
    struct gp_bpf_process states[GP_BPF_PART];
    int more = walk_part(gp_bpf_map(bpf, "process"), walk, tgids, states, count);
    for (uint32_t i = 0; i < *count; i++)
        out[i] = (struct gp_bpf_one){.start_ns = states[i].start_ns, .tgid = tgids[i]};
    return more;
}

int gp_bpf_idle_containers(const struct gp_bpf *bpf, struct gp_bpf_walk *walk, uint64_t *ids, uint32_t *count)
{
    uint64_t keys[GP_BPF_PART];
    struct gp_map_container rows[GP_BPF_PART];
    uint32_t got, idle = 0;
    int more = walk_part(gp_bpf_map(bpf, "container"), walk, keys, rows, &got);
    for (uint32_t i = 0; i < got; i++)
        if (rows[i].entries == 0)
            ids[idle++] = keys[i];
    *count = idle;
    return more;
}

int gp_bpf_idle_sums(const struct gp_bpf *bpf, struct gp_bpf_walk *walk, uint64_t *ids, uint32_t *count)
{
    struct gp_map_container_key keys[GP_BPF_PART];
    struct gp_map_sum sums[GP_BPF_PART];
    uint32_t got, idle = 0;
    int more = walk_part(gp_bpf_map(bpf, "container_device"), walk, keys, sums, &got);
    for (uint32_t i = 0; i < got; i++)
        if (sums[i].processes == 0)
            ids[idle++] = keys[i].cgroup_id;
    *count = idle;
    return more;
}

/* ---- rows of removed cgroups ----------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

enum { LEFT_NOTHING, LEFT_TAKEN, LEFT_KEPT }; /* the state of a container's sums */

/* A sum that still counts a process stays: the process left the cgroup before the removal and is
 * counted there until its next batch. */
static int forget_sums(int fd, const uint64_t *ids, uint32_t count, uint8_t *left)
{
    struct gp_map_container_key keys[GP_BPF_PART];
    struct gp_map_sum sums[GP_BPF_PART];
    struct gp_bpf_walk walk = {.at = 0};
    int rows = 0, more;
    do {
        uint32_t got;
        more = walk_part(fd, &walk, keys, sums, &got);
        for (uint32_t i = 0; i < got; i++) {
            const uint64_t *id = bsearch(&keys[i].cgroup_id, ids, count, sizeof *ids, compare);
            if (!id)
                continue;
            if (sums[i].processes) {
                left[id - ids] = LEFT_KEPT;
                continue;
            }
            rows += bpf_map_delete_elem(fd, &keys[i]) == 0;
            if (left[id - ids] == LEFT_NOTHING)
                left[id - ids] = LEFT_TAKEN;
        }
    } while (more > 0);
    return more < 0 ? more : rows;
}

int gp_bpf_forget_containers(struct gp_bpf *bpf, uint64_t *ids, uint32_t count, uint32_t *forgotten)
{
    int containers = gp_bpf_map(bpf, "container");
    uint8_t *left = calloc(count ? count : 1, 1);
    if (!left)
        return -ENOMEM;
    qsort(ids, count, sizeof *ids, compare);
    int rows = forget_sums(gp_bpf_map(bpf, "container_device"), ids, count, left);
    uint32_t done = 0;
    for (uint32_t i = 0; rows >= 0 && i < count; i++) {
        struct gp_map_container row;
        bool has_row = bpf_map_lookup_elem(containers, &ids[i], &row) == 0;
        if (left[i] == LEFT_KEPT || (has_row && row.entries))
            continue;
        bool is_taken = has_row && bpf_map_delete_elem(containers, &ids[i]) == 0;
        rows += is_taken;
        done += is_taken || left[i] == LEFT_TAKEN;
    }
    free(left);
    if (forgotten)
        *forgotten = done;
    return rows;
}
