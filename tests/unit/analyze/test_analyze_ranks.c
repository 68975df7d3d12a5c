/* SPDX-License-Identifier: MIT
 *
 * test_analyze_ranks.c: the order of ranks, their clocks, the skew, and what the worst holds.
 */
#include <analyze/analyze.h>
#include <analyze/ranks.h>
#include <criterion/criterion.h>
#include <lib/random.h>
#include <stdio.h>
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

/* After the first step DDP makes its buckets at another line: the rank whose peak is later holds them there, and
 * the others where they were first. */
Test(ranks, what_another_line_offsets_explains_no_peak)
{
    struct gp_job_rank ranks[4];
    for (int32_t i = 0; i < 4; i++) {
        ranks[i] = rank_new(i, "a", 5 * SECOND, 10 * GIB, i == 2 ? 2 * GIB : 0);
        ranks[i].sites = realloc(ranks[i].sites, 3 * sizeof(*ranks[i].sites));
        cr_assert(ranks[i].sites);
        ranks[i].sites[1 + (i == 2)] = (struct gp_rank_site){.owner = "pytorch", .peak_bytes = 5 * GIB};
        strcpy(ranks[i].sites[1 + (i == 2)].name, i == 2 ? "train buckets" : "init buckets");
        ranks[i].site_count++;
    }
    struct gp_ranks *all = gp_ranks_find(ranks, 4);
    cr_assert(all);
    cr_expect_eq(ranks[0].number, 2);
    cr_assert_eq(all->site_count, 4);
    cr_expect_str_eq(all->sites[0].name, "gather");
    cr_expect(!all->sites[0].is_offset);
    cr_expect_str_eq(all->sites[1].name, "train buckets");
    cr_expect(all->sites[1].is_offset);
    cr_expect_str_eq(all->sites[3].name, "init buckets");
    cr_expect(!all->sites[3].is_offset);
    ranks_end(ranks, 4, all);
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

/* The clock of one boot drifts from the wall clock by up to a minute; a name that is missing may be any machine. */
Test(ranks, clocks_of_one_machine)
{
    static const struct {
        int64_t apart;
        const char *host;
        bool from_torch;
        enum gp_rank_clock clock;
    } cases[] = {{60 * (int64_t)SECOND, "a", false, GP_CLOCK_MONOTONIC},
                 {60 * (int64_t)SECOND + 1, "a", false, GP_CLOCK_WALL},
                 {-60 * (int64_t)SECOND, "a", false, GP_CLOCK_MONOTONIC},
                 {-60 * (int64_t)SECOND - 1, "a", false, GP_CLOCK_WALL},
                 {0, "a", true, GP_CLOCK_WALL},
                 {0, "", false, GP_CLOCK_WALL},
                 {0, "a2", false, GP_CLOCK_WALL}};
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct gp_job_rank ranks[2] = {rank_new(0, "a", 500 * SECOND, 2 * GIB, 0),
                                       rank_new(1, cases[c].host, 500 * SECOND, GIB, 0)};
        ranks[1].begin_unix_ns += (uint64_t)cases[c].apart;
        ranks[1].from_torch = cases[c].from_torch;
        struct gp_ranks *all = gp_ranks_find(ranks, 2);
        cr_expect_eq(all->clock, cases[c].clock, "case %u", c);
        cr_expect_eq(all->begin_unix_ns, 1500 * SECOND - (cases[c].apart < 0 ? (uint64_t)-cases[c].apart : 0));
        ranks_end(ranks, 2, all);
    }
}

/* ---- GPUs of several ranks ---------------------------------------------------------------------------------------- */

static void gpu_add(struct gp_job_rank *rank, const char *uuid, int64_t bytes, bool own)
{
    rank->gpus = rank->gpus ? rank->gpus : calloc(4, sizeof(*rank->gpus));
    struct gp_rank_gpu *gpu = &rank->gpus[rank->device_count++];
    gpu->peak_bytes = gpu->reserved_peak_bytes = bytes;
    gpu->own = own;
    snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", uuid);
}

/* The second of three ranks is fuller on the GPU of the first than on its own. */
Test(ranks, gpu_of_two)
{
    struct gp_job_rank ranks[3] = {rank_new(0, "a", SECOND, 3 * GIB, 0), rank_new(1, "a", SECOND, 4 * GIB, 0),
                                   rank_new(2, "b", SECOND, 3 * GIB, 0)};
    gpu_add(&ranks[0], "one", 3 * GIB, true);
    gpu_add(&ranks[1], "one", 4 * GIB, true);
    gpu_add(&ranks[1], "two", 2 * GIB, false);
    gpu_add(&ranks[2], "one", 3 * GIB, true); /* of another machine */
    struct gp_rank_gpu *gpus[3] = {ranks[0].gpus, ranks[1].gpus, ranks[2].gpus};
    struct gp_ranks *all = gp_ranks_find(ranks, 3);
    cr_assert_eq(all->shared_count, 1);
    cr_expect(gpus[0]->shared == 1 && gpus[1]->shared == 1 && !gpus[1][1].shared && !gpus[2]->shared);
    for (unsigned i = 0; i < 3; i++)
        cr_expect_eq(ranks[i].headroom_bytes, (ranks[i].number == 2 ? 77 : 73) * GIB);
    struct gp_rank_share share = gp_ranks_share(all, 1);
    cr_expect(share.ranks == 2 && share.strays == 1 && share.together_bytes == 7 * GIB);
    cr_expect(share.rank->number == 1 && share.gpu == gpus[1] && share.other->number == 0);
    ranks_end(ranks, 3, all);
    for (unsigned i = 0; i < 3; i++)
        free(gpus[i]);
}

/* Runs that came one after the other, and GPUs without a name, share nothing. */
Test(ranks, gpu_of_one_after_the_other)
{
    for (unsigned c = 0; c < 3; c++) {
        struct gp_job_rank ranks[2] = {rank_new(0, "a", SECOND, GIB, 0),
                                       rank_new(1, "a", (c == 0 ? 4 : 3) * SECOND, GIB, 0)};
        for (unsigned i = 0; i < 2; i++)
            gpu_add(&ranks[i], c == 1 ? "" : "one", GIB, true);
        struct gp_rank_gpu *gpus[2] = {ranks[0].gpus, ranks[1].gpus};
        struct gp_ranks *all = gp_ranks_find(ranks, 2);
        cr_expect_eq(all->shared_count, c == 2, "case %u", c);
        cr_expect_eq(ranks[0].headroom_bytes, (c == 2 ? 78 : 79) * GIB);
        ranks_end(ranks, 2, all);
        free(gpus[0]);
        free(gpus[1]);
    }
}

/* ---- random ranks ------------------------------------------------------------------------------------------------- */

#define MANY  6u
#define SITES 5u

static int number_order(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static int64_t median_of(int64_t *values, unsigned count)
{
    qsort(values, count, sizeof(*values), number_order);
    return values[(count - 1) / 2];
}

/* The most in [from, until), -1 outside of the recording: what was held at its start, and each point in it. */
static int64_t most_in(const struct gp_job_rank *rank, uint64_t from, uint64_t until)
{
    int64_t most = 0;
    if (rank->begin_ns + rank->shift_ns >= until || rank->end_ns + rank->shift_ns < from)
        return -1;
    for (uint32_t i = 0; i < rank->allocated->count; i++) {
        const struct gp_series_point *point = &rank->allocated->points[i];
        uint64_t at = point->time_ns + rank->shift_ns;
        if (at <= from || i == 0)
            most = point->last;
        else if (at < until)
            most = point->high > most ? point->high : most;
    }
    return most;
}

static struct gp_job_rank rank_draw(uint64_t *seed, int32_t number, bool known)
{
    struct gp_job_rank rank = {.number = number,
                               .begin_ns = random_next(seed) % 900,
                               .ooms = !(random_next(seed) % 5),
                               .peak_bytes = (int64_t)(random_next(seed) % 4),
                               .headroom_bytes = known || random_next(seed) % 3 ? (int64_t)(random_next(seed) % 3) : -1,
                               .site_count = (uint32_t)(random_next(seed) % SITES),
                               .host = "a"};
    uint64_t at = rank.begin_unix_ns = rank.begin_ns;
    rank.allocated = calloc(1, sizeof(*rank.allocated) + 8 * sizeof(rank.allocated->points[0]));
    rank.sites = calloc(SITES, sizeof(*rank.sites));
    rank.allocated->count = 1 + random_next(seed) % 8;
    for (uint32_t i = 0; i < rank.allocated->count; i++) {
        int64_t last = (int64_t)(random_next(seed) % 9);
        rank.allocated->points[i] = (struct gp_series_point){at, 0, last + (int64_t)(random_next(seed) % 4), last};
        at += 1 + random_next(seed) % 300;
    }
    rank.end_ns = at + random_next(seed) % 100;
    for (uint32_t i = 0; i < rank.site_count; i++) {
        strcpy(rank.sites[i].name, random_next(seed) % 2 ? "layer" : "gather");
        strcpy(rank.sites[i].owner, random_next(seed) % 2 ? "pytorch" : "nccl");
        rank.sites[i].kind = random_next(seed) % 2;
        rank.sites[i].peak_bytes = (int64_t)(random_next(seed) % 5);
    }
    return rank;
}

/* What the sites of this name, owner and kind hold in each rank; NULL: any name and kind. */
static unsigned held_by(const struct gp_job_rank *ranks, unsigned count, const char *name, const char *owner,
                        unsigned kind, int64_t *values)
{
    unsigned holders = 0;
    for (unsigned i = 0; i < count; i++) {
        values[i] = 0;
        for (uint32_t k = 0; k < ranks[i].site_count; k++) {
            const struct gp_rank_site *site = &ranks[i].sites[k];
            if ((!name || (strcmp(site->name, name) == 0 && site->kind == kind)) && strcmp(site->owner, owner) == 0)
                values[i] += site->peak_bytes;
        }
        holders += values[i] > 0;
    }
    return holders;
}

static void rows_compared(const struct gp_ranks *all, const struct gp_rank_row *rows, uint32_t row_count, bool owners)
{
    int64_t values[MANY], sum = 0, right = 0;
    for (uint32_t i = 0; i < row_count; i++) {
        const struct gp_rank_row *row = &rows[i];
        cr_assert_eq(row->holders,
                     held_by(all->ranks, all->count, owners ? NULL : row->name, row->owner, row->kind, values));
        cr_assert_eq(row->worst_bytes, values[0]);
        for (uint32_t k = 0; k < all->count; k++)
            sum += values[k];
        cr_assert_eq(row->median_bytes, median_of(values, all->count));
        int64_t less = i ? row[-1].worst_bytes - row[-1].median_bytes - (row->worst_bytes - row->median_bytes) : 1;
        cr_assert(less > 0 || (less == 0 && strcmp(row[-1].name, row->name) <= 0));
    }
    for (uint32_t i = 0; i < all->count; i++)
        for (uint32_t k = 0; k < all->ranks[i].site_count; k++)
            right += all->ranks[i].sites[k].peak_bytes;
    cr_assert_eq(sum, right, "each site is in one row");
}

/* Less than 0: this rank is worse. */
static int64_t rank_order(const struct gp_job_rank *a, const struct gp_job_rank *b, bool known)
{
    return (a->ooms > 0) != (b->ooms > 0)                    ? (b->ooms > 0) - (a->ooms > 0)
           : known && a->headroom_bytes != b->headroom_bytes ? a->headroom_bytes - b->headroom_bytes
           : a->peak_bytes != b->peak_bytes                  ? b->peak_bytes - a->peak_bytes
                                                             : a->number - b->number;
}

Test(ranks, of_random_jobs)
{
    uint64_t seed = 11;
    for (unsigned round = 0; round < 300; round++) {
        struct gp_job_rank ranks[MANY];
        uint32_t count = 1 + random_next(&seed) % MANY;
        int64_t values[MANY];
        bool known = true;
        for (uint32_t i = 0; i < count; i++) {
            ranks[i] = rank_draw(&seed, (int32_t)i, round % 2);
            known &= ranks[i].headroom_bytes >= 0;
        }
        struct gp_ranks *all = gp_ranks_find(ranks, count);
        uint64_t end = 0;
        for (uint32_t i = 0; i < count; i++) {
            cr_assert(!i || rank_order(&ranks[i - 1], &ranks[i], known) < 0, "round %u, rank %u", round, i);
            end = ranks[i].end_ns + ranks[i].shift_ns > end ? ranks[i].end_ns + ranks[i].shift_ns : end;
            values[i] = ranks[i].peak_bytes;
        }
        cr_assert_eq(all->length_ns, end);
        cr_assert_eq(all->median_bytes, median_of(values, count));
        cr_assert(all->lowest_bytes == values[0] && all->highest_bytes == values[count - 1]);
        for (uint32_t m = 0; m < GP_RANK_POINT; m++) {
            uint64_t from = (uint64_t)((double)end / GP_RANK_POINT * m),
                     until = (uint64_t)((double)end / GP_RANK_POINT * (m + 1));
            uint32_t there = 0;
            for (uint32_t i = 0; i < count; i++) {
                int64_t most = most_in(&ranks[i], from, until);
                cr_assert_eq(gp_ranks_at(all, &ranks[i], m), most, "round %u, moment %u", round, m);
                if (most >= 0)
                    values[there++] = most;
            }
            const struct gp_rank_moment *moment = &all->moments[m];
            cr_assert(moment->ranks == there && moment->time_ns == from);
            cr_assert(!there || (moment->median == median_of(values, there) && moment->low == values[0] &&
                                 moment->high == values[there - 1]));
        }
        rows_compared(all, all->sites, all->site_count, false);
        rows_compared(all, all->owners, all->owner_count, true);
        ranks_end(ranks, count, all);
    }
}

/* A rank that is slower than another one keeps as much of each step. */
Test(ranks, growth_is_compared_by_the_step_where_there_are_steps)
{
    static const struct {
        double step, second; /* of rank 1; rank 0 has 1 MiB and 100 MiB */
        bool alike;
    } cases[] = {{1, 50, true},  {0.91, 100, true}, {0.89, 100, false}, {1.2, 100, false},
                 {0, 100, true}, {0, 91, true},     {0, 50, false},     {1, 1000, true}};
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct gp_job_rank ranks[2] = {rank_new(0, "a", SECOND, GIB, 0), rank_new(1, "a", SECOND, GIB, 0)};
        for (unsigned i = 0; i < 2; i++) {
            strcpy(ranks[i].grows, "keep");
            ranks[i].growth_per_step = i ? cases[c].step : 1;
            ranks[i].growth_per_second = i ? cases[c].second : 100;
        }
        struct gp_ranks *all = gp_ranks_find(ranks, 2);
        cr_expect_eq(all->group_count, cases[c].alike ? 1 : 2, "case %u", c);
        ranks_end(ranks, 2, all);
    }
}
