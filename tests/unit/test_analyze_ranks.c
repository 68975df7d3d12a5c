/* SPDX-License-Identifier: MIT
 *
 * test_analyze_ranks.c: the order of ranks, their clocks, the skew, and what the worst holds.
 */
#include <analyze/analyze.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define GIB    (1ll << 30)
#define SECOND 1000000000ull

/* A rank that holds `bytes` from 1 s to 2 s after its start, in two sites. */
static struct gp_job_rank rank_new(int32_t number, const char *host, uint64_t begin_ns, int64_t bytes, int64_t more)
{
    struct gp_job_rank rank = {.number = number,
                               .begin_ns = begin_ns,
                               .end_ns = begin_ns + 3 * SECOND,
                               .begin_unix_ns = begin_ns + 1000 * SECOND,
                               .total_bytes = 80 * GIB,
                               .peak_bytes = bytes + more,
                               .reserved_peak_bytes = bytes + more,
                               .headroom_bytes = 80 * GIB - bytes - more,
                               .complete = true,
                               .site_count = more ? 2 : 1};
    strcpy(rank.host, host);
    rank.allocated = calloc(1, sizeof(*rank.allocated) + 3 * sizeof(rank.allocated->points[0]));
    rank.allocated->count = 3;
    rank.allocated->points[0] = (struct gp_series_point){begin_ns, 0, 0, 0};
    rank.allocated->points[1] = (struct gp_series_point){begin_ns + SECOND, 0, bytes + more, bytes + more};
    rank.allocated->points[2] = (struct gp_series_point){begin_ns + 2 * SECOND, 0, bytes + more, 0};
    rank.sites = calloc(2, sizeof(*rank.sites));
    rank.sites[0] = (struct gp_rank_site){.name = "layer", .owner = "pytorch", .peak_bytes = bytes};
    rank.sites[1] = (struct gp_rank_site){.name = "gather", .owner = "nccl", .peak_bytes = more};
    return rank;
}

static void ranks_end(struct gp_job_rank *ranks, uint32_t count, struct gp_ranks *all)
{
    gp_ranks_free(all);
    for (uint32_t i = 0; i < count; i++) {
        free(ranks[i].allocated);
        free(ranks[i].sites);
    }
}

Test(ranks, worst_first)
{
    struct gp_job_rank ranks[3] = {rank_new(0, "a", 5 * SECOND, 10 * GIB, 0),
                                   rank_new(1, "a", 5 * SECOND, 10 * GIB, 2 * GIB),
                                   rank_new(2, "a", 5 * SECOND, 9 * GIB, 0)};
    struct gp_ranks *all = gp_ranks_find(ranks, 3);
    cr_assert(all);
    cr_expect_eq(ranks[0].number, 1);
    cr_expect_eq(ranks[2].number, 2);
    cr_expect_eq(all->median_bytes, 10 * GIB);
    cr_expect_eq(all->clock, GP_CLOCK_MONOTONIC);
    cr_expect_eq(all->length_ns, 3 * SECOND);
    cr_expect_str_eq(all->sites[0].name, "gather");
    cr_expect_eq(all->sites[0].worst_bytes, 2 * GIB);
    cr_expect_eq(all->sites[0].median_bytes, 0);
    cr_expect_eq(all->sites[0].holders, 1);
    cr_expect_str_eq(all->owners[0].name, "nccl");
    cr_expect_eq(all->owner_count, 2);
    const struct gp_rank_moment *middle = &all->moments[GP_RANK_POINT / 2];
    cr_expect_eq(middle->ranks, 3);
    cr_expect_eq(middle->low, 9 * GIB);
    cr_expect_eq(middle->median, 10 * GIB);
    cr_expect_eq(middle->high, 12 * GIB);
    ranks_end(ranks, 3, all);
}

Test(ranks, failure_and_unknown_sizes)
{
    struct gp_job_rank ranks[2] = {rank_new(0, "a", SECOND, 10 * GIB, 0), rank_new(1, "a", SECOND, 9 * GIB, 0)};
    ranks[1].ooms = 1;
    struct gp_ranks *all = gp_ranks_find(ranks, 2);
    cr_expect_eq(ranks[0].number, 1, "the one that failed is not the worst");
    ranks[0].ooms = 0;
    ranks[0].headroom_bytes = -1; /* then the peaks decide */
    gp_ranks_free(all);
    all = gp_ranks_find(ranks, 2);
    cr_expect_eq(ranks[0].number, 0);
    ranks_end(ranks, 2, all);
}

/* Each machine has a clock of its own: only the wall clock tells what was at the same time. */
Test(ranks, clocks_of_two_machines)
{
    struct gp_job_rank ranks[2] = {rank_new(0, "a", 5 * SECOND, GIB, 0), rank_new(1, "b", 900 * SECOND, 2 * GIB, 0)};
    ranks[1].begin_unix_ns = ranks[0].begin_unix_ns + SECOND;
    struct gp_ranks *all = gp_ranks_find(ranks, 2);
    cr_expect_eq(all->clock, GP_CLOCK_WALL);
    cr_expect_eq(all->length_ns, 4 * SECOND);
    cr_expect_eq(all->moments[0].ranks, 1);
    cr_expect_eq(gp_ranks_at(all, &ranks[0], 0), -1, "the worst starts a second later");
    cr_expect_eq(gp_ranks_at(all, &ranks[0], GP_RANK_POINT * 5 / 8), 2 * GIB);
    cr_expect_eq(gp_ranks_at(all, &ranks[1], GP_RANK_POINT * 5 / 8), 0);
    ranks_end(ranks, 2, all);
}
