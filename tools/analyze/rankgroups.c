/* SPDX-License-Identifier: MIT
 * rankgroups.c: which ranks of a job are alike, and which have no recording (ranks.h).  Called by ranks.c
 * and rankleaks.c. */
#include <analyze/ranks.h>
#include <read/common/hash.h>

#include <stdlib.h>
#include <string.h>

#define GP_GROUP_PART  100 /* sizes that differ by less than a hundredth of the peak are alike */
#define GP_GROUP_WORLD (1 << 22)

static bool group_near(const struct gp_job_rank *leader, int64_t one, int64_t other)
{
    return one < 0 || other < 0 ? one == other : llabs(one - other) <= leader->peak_bytes / GP_GROUP_PART;
}

/* Whether they hold about the same at each call site, whose lists are sorted by gp_ranks_find. */
static bool group_same_sites(const struct gp_job_rank *leader, const struct gp_job_rank *rank)
{
    uint32_t i = 0, k = 0;
    while (i < leader->site_count || k < rank->site_count) {
        const struct gp_rank_site *a = &leader->sites[i], *b = &rank->sites[k];
        int order = i >= leader->site_count ? 1 : k >= rank->site_count ? -1 : strcmp(a->name, b->name);
        if (!order)
            order = strcmp(a->owner, b->owner);
        if (!order)
            order = (int)a->kind - (int)b->kind;
        if (!group_near(leader, order <= 0 ? a->peak_bytes : 0, order >= 0 ? b->peak_bytes : 0))
            return false;
        i += order <= 0;
        k += order >= 0;
    }
    return true;
}

/* About the rate of what grows: per step, because how long a step takes is no difference of memory. */
static bool group_same_rate(const struct gp_job_rank *leader, const struct gp_job_rank *rank)
{
    bool steps = leader->growth_per_step > 0 && rank->growth_per_step > 0;
    double one = steps ? leader->growth_per_step : leader->growth_per_second;
    double other = steps ? rank->growth_per_step : rank->growth_per_second;
    return (one < other ? one : other) >= (one < other ? other : one) * 0.9;
}

/* Of what grows: the line, and about the rate. */
static bool group_alike(const struct gp_job_rank *leader, const struct gp_job_rank *rank)
{
    return leader->ooms == rank->ooms && leader->device_count <= 1 && rank->device_count <= 1 &&
           group_same_rate(leader, rank) && strcmp(leader->grows, rank->grows) == 0 &&
           strcmp(leader->may_grow, rank->may_grow) == 0 && strcmp(leader->device_name, rank->device_name) == 0 &&
           leader->total_bytes == rank->total_bytes && group_near(leader, leader->peak_bytes, rank->peak_bytes) &&
           group_near(leader, leader->reserved_peak_bytes, rank->reserved_peak_bytes) &&
           group_near(leader, leader->headroom_bytes, rank->headroom_bytes) &&
           group_near(leader, leader->end_bytes, rank->end_bytes) && group_same_sites(leader, rank);
}

bool gp_ranks_missing(struct gp_ranks *all)
{
    int32_t world = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        const struct gp_job_rank *rank = &all->ranks[i];
        if (rank->from != GP_RANK_RECORDED || rank->world_size <= 0)
            continue;
        if (world && world != rank->world_size)
            return true;
        world = rank->world_size;
    }
    if (!world || world > GP_GROUP_WORLD) /* a list of more would say nothing, and a file may name any number */
        return true;
    bool *there = calloc((size_t)world, sizeof(*there));
    all->missing = calloc(all->count + 1ul, sizeof(*all->missing)); /* between ranks, and at both ends */
    if (!there || !all->missing) {
        free(there);
        return false;
    }
    for (uint32_t i = 0; i < all->count; i++)
        if (all->ranks[i].number >= 0 && all->ranks[i].number < world)
            there[all->ranks[i].number] = true;
    all->world_size = world;
    for (int32_t number = 0; number < world; number++) {
        if (there[number])
            continue;
        if (number && !there[number - 1])
            all->missing[all->missing_spans - 1].last = number;
        else
            all->missing[all->missing_spans++] = (struct gp_rank_span){number, number};
        all->missing_count++;
    }
    free(there);
    return true;
}

bool gp_ranks_group(struct gp_ranks *all)
{
    uint32_t *leaders = calloc(all->count + 1ul, sizeof(*leaders));
    for (uint32_t i = 0; leaders && i < all->count; i++) {
        uint32_t group = 0;
        while (group < all->group_count && !group_alike(&all->ranks[leaders[group]], &all->ranks[i]))
            group++;
        all->ranks[i].group = group;
        if (group == all->group_count)
            leaders[all->group_count++] = i;
    }
    free(leaders);
    return leaders && gp_ranks_missing(all);
}
