/* SPDX-License-Identifier: MIT
 *
 * test_rank_leaks.c: which ranks of a job are one row of `gpuprof leaks`: all that the row names must hold for each.
 */
#include <analyze/rankleaks.h>
#include <criterion/criterion.h>
#include <show/text/ranks.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB  (1 << 20)
#define MOST 24u

static struct gp_job_rank ranks[MOST];
static struct gp_rank_growth growths[MOST];

/* Ranks with one suspect each, of 1 MiB per step. */
static void job_new(uint32_t count)
{
    memset(ranks, 0, sizeof(ranks));
    memset(growths, 0, sizeof(growths));
    for (uint32_t i = 0; i < count; i++) {
        struct gp_rank_grown row = {.name = "keep (a.py:3)", .owner = "torch", .own = true, .sites = 1};
        row.leak = (struct gp_leak){.kind = 1,
                                    .live_bytes = 20 * MIB,
                                    .live_count = 20,
                                    .bytes_per_step = MIB,
                                    .bytes_per_second = 10 * MIB,
                                    .confidence = 1,
                                    .seconds_to_oom = 100 + i};
        ranks[i] = (struct gp_job_rank){.file = "f",
                                        .number = (int32_t)i,
                                        .from = GP_RANK_RECORDED,
                                        .world_size = (int32_t)count,
                                        .complete = true,
                                        .total_bytes = 80ll << 30,
                                        .growth = &growths[i]};
        strcpy(ranks[i].device_name, "GPU");
        strcpy(growths[i].step_word, "step");
        strcpy(growths[i].step_found, "marks");
        growths[i].steps = 20;
        growths[i].step_ns = 5000000;
        gp_rank_growth_add(&growths[i], &row);
    }
}

static struct gp_rank_grown *row_of(uint32_t rank)
{
    return &growths[rank].rows[0];
}

/* The group of the rank, whose place in the array may have changed. */
static uint32_t group_of(const struct gp_rank_leaks *leaks, int32_t number)
{
    uint32_t i = 0;
    while (i < leaks->all.count && leaks->all.ranks[i].number != number)
        i++;
    cr_assert_lt(i, leaks->all.count);
    return leaks->all.ranks[i].group;
}

static void answer(uint32_t rank, enum gp_rank_answer answer, const char *why)
{
    growths[rank].answer = answer;
    growths[rank].count = growths[rank].suspects = growths[rank].candidates = 0;
    strcpy(growths[rank].why, why);
}

Test(rank_leaks, equal_ranks_are_one_row_with_both_ends)
{
    job_new(8);
    row_of(2)->leak.bytes_per_step = 0.91 * MIB;
    row_of(5)->leak.live_count = 21;
    row_of(6)->leak.confidence = 0.9;
    growths[7].steps = 18;
    struct gp_rank_leaks *leaks = gp_rank_leaks_find(ranks, 8);
    cr_assert_eq(leaks->all.group_count, 1);
    const struct gp_rank_leak_group *group = &leaks->groups[0];
    cr_expect_eq(group->count, 8);
    cr_expect_eq(group->first->number, 0);
    cr_expect_eq(group->row_count, 1);
    cr_expect_float_eq(group->rows[0].rate.low, 0.91 * MIB, 1);
    cr_expect_float_eq(group->rows[0].rate.high, MIB, 1);
    cr_expect_eq(group->rows[0].blocks.low, 20);
    cr_expect_eq(group->rows[0].blocks.high, 21);
    cr_expect_eq(group->rows[0].sure.low, 0.9);
    cr_expect_eq(group->rows[0].seconds_to_oom.high, 107);
    cr_expect_eq(group->steps.low, 18);
    cr_expect_eq(leaks->answers[GP_RANK_SUSPECTS], 8);
    cr_expect_eq(leaks->full->number, 0);
    cr_expect_eq(leaks->full_seconds, 100);
    gp_rank_leaks_free(leaks);
}

/* Each of these ranks differs from rank 0 in one thing that the row names. */
static void change(uint32_t what)
{
    struct gp_rank_grown *row = row_of(what), *more;
    switch (what) {
    case 1:
        strcpy(row->name, "other (a.py:9)");
        break;
    case 2:
        row->leak.bytes_per_step *= 1.2;
        break;
    case 3:
        row->leak.bytes_per_step *= 0.8;
        break;
    case 4:
        row->own = false;
        break;
    case 5:
        row->own = false;
        row->device = -1;
        break;
    case 6:
        row->leak.kind = 2;
        break;
    case 7:
        strcpy(row->owner, "nccl");
        break;
    case 8:
        strcpy(growths[what].step_found, "repeats");
        break;
    case 9:
        strcpy(growths[what].step_word, "repeat");
        break;
    case 10:
        strcpy(ranks[what].device_name, "Other GPU");
        break;
    case 11:
        ranks[what].total_bytes /= 2;
        break;
    case 12:
        answer(what, GP_RANK_NOTHING_GROWS, "none");
        break;
    case 13:
        answer(what, GP_RANK_CANNOT_KNOW, "few");
        break;
    case 14:
        answer(what, GP_RANK_CANNOT_KNOW, "lost");
        break;
    case 15:
        more =
            &(struct gp_rank_grown){.name = "more", .own = true, .leak = {.bytes_per_step = 5, .seconds_to_oom = -1}};
        gp_rank_growth_add(&growths[what], more);
        break;
    default:
        row->leak.doubt = GP_LEAK_LAYERS;
        growths[what].answer = GP_RANK_CANDIDATES;
        growths[what].suspects = 0;
        growths[what].candidates = 1;
    }
}

Test(rank_leaks, what_differs_is_a_row_of_its_own)
{
    job_new(20);
    for (uint32_t i = 1; i < 17; i++)
        change(i);
    struct gp_rank_leaks *leaks = gp_rank_leaks_find(ranks, 20);
    cr_assert_eq(leaks->all.group_count, 17);
    for (int32_t a = 0; a < 17; a++)
        for (int32_t b = 0; b < a; b++)
            cr_expect_neq(group_of(leaks, a), group_of(leaks, b), "ranks %d and %d are in one row", a, b);
    for (int32_t a = 17; a < 20; a++)
        cr_expect_eq(group_of(leaks, a), group_of(leaks, 0));
    cr_expect_eq(leaks->usual, group_of(leaks, 0));
    cr_expect_eq(leaks->answers[GP_RANK_SUSPECTS], 16);
    cr_expect_eq(leaks->answers[GP_RANK_CANDIDATES], 1);
    cr_expect_eq(leaks->answers[GP_RANK_CANNOT_KNOW], 2);
    cr_expect_eq(leaks->answers[GP_RANK_NOTHING_GROWS], 1);
    uint32_t sum = 0;
    for (uint32_t group = 0; group < leaks->all.group_count; group++)
        sum += leaks->groups[group].count;
    cr_expect_eq(sum, 20);
    gp_rank_leaks_free(leaks);
}

static char *text_of(const struct gp_rank_leaks *leaks)
{
    static char text[16384];
    FILE *out = fmemopen(text, sizeof(text), "w");
    const struct gp_text_page page = {.out = out, .width = 100, .whole = true};
    gp_rank_leaks_text(&page, leaks);
    cr_assert_eq(fclose(out), 0);
    return text;
}

/* Each row that is not the usual one says what it has that that one has not. */
Test(rank_leaks, what_differs_is_said)
{
    static const char *const said[] = {
        [1] = "other (a.py:9) grows here, and not on other ranks; keep (a.py:3), which grows on other ranks, does not "
              "grow "
              "here",
        [2] = "keep (a.py:3) keeps 1.200 MiB per step, and 1.000 MiB on other ranks",
        [3] = "keep (a.py:3) keeps 819.2 KiB per step, and 1.000 MiB on other ranks",
        [4] = "keep (a.py:3) grows on GPU 0, and on the rank's fullest GPU on other ranks",
        [5] = "keep (a.py:3) grows on the host, and on the rank's fullest GPU on other ranks",
        [6] = "keep (a.py:3) is pitched memory that torch asked for, and linear memory of torch on other ranks",
        [7] = "keep (a.py:3) is linear memory that nccl asked for, and linear memory of torch on other ranks",
        [8] = "it has steps of 5.0 ms (repeats), and steps of 5.0 ms (marks) are on other ranks",
        [9] = "it has repeats of 5.0 ms (marks), and steps of 5.0 ms (marks) are on other ranks",
        [10] = "its GPU is Other GPU of 80.00 GiB, and GPU of 80.00 GiB on other ranks",
        [11] = "its GPU is GPU of 40.00 GiB, and GPU of 80.00 GiB on other ranks",
        [12] = "nothing grows here, and keep (a.py:3) leaks on other ranks",
        [15] = "more grows here, and not on other ranks",
        [16] = "it is not known whether it leaks here, and known on other ranks",
    };
    job_new(20);
    for (uint32_t i = 1; i < 17; i++)
        change(i);
    struct gp_rank_leaks *leaks = gp_rank_leaks_find(ranks, 20);
    char *text = text_of(leaks);
    for (uint32_t i = 1; i < 17; i++) {
        char head[32];
        snprintf(head, sizeof(head), "\nrank %u: ", i);
        char *row = strstr(text, head), *end = row ? strstr(row + 1, "\n\n") : NULL;
        cr_assert(row, "no row of rank %u in:\n%s", i, text);
        if (end)
            *end = '\0';
        char *unlike = strstr(row, "     unlike: ");
        if (said[i])
            cr_expect(unlike && strstr(unlike, said[i]), "no '%s' in: %s", said[i], row);
        else
            cr_expect(strstr(row, i == 13 ? ": it cannot be known: few" : ": it cannot be known: lost"), "%s", row);
        if (end)
            *end = '\n';
    }
    cr_expect(strstr(text, "\nranks 0,17-19: 1.000 MiB per step at keep (a.py:3)\n     20.00 MiB in 20 blocks ("), "%s",
              text);
    cr_expect(strstr(text,
                     "20 recordings of 20 ranks\n      16 leak\n       1 has candidates alone: it is not known whether "
                     "it leaks\n       2 cannot be known\n       1 does not leak"),
              "%s", text);
    cr_expect(strstr(text, "the first device is full in 100 s: that of rank 0\n"), "%s", text);
    gp_rank_leaks_free(leaks);
}

/* What the row does not name may differ: another GPU where nothing grows, or another number of the fullest GPU. */
Test(rank_leaks, what_is_not_named_may_differ)
{
    job_new(6);
    row_of(1)->device = 7;
    for (uint32_t i = 2; i < 4; i++)
        answer(i, GP_RANK_NOTHING_GROWS, "none");
    for (uint32_t i = 4; i < 6; i++)
        answer(i, GP_RANK_CANNOT_KNOW, "few");
    ranks[3].total_bytes /= 2;
    strcpy(growths[5].step_found, "time");
    struct gp_rank_leaks *leaks = gp_rank_leaks_find(ranks, 6);
    cr_expect_eq(leaks->all.group_count, 3);
    cr_expect_eq(group_of(leaks, 5), group_of(leaks, 4));
    cr_expect_eq(group_of(leaks, 1), group_of(leaks, 0));
    cr_expect_eq(group_of(leaks, 3), group_of(leaks, 2));
    gp_rank_leaks_free(leaks);
}

/* Stretches of time are as long as a recording makes them: bytes per second are compared. */
Test(rank_leaks, stretches_of_time_are_compared_by_the_second)
{
    job_new(4);
    for (uint32_t i = 0; i < 4; i++)
        growths[i].timed = true;
    row_of(1)->leak.bytes_per_step *= 3;
    row_of(2)->leak.bytes_per_second *= 1.2;
    struct gp_rank_leaks *leaks = gp_rank_leaks_find(ranks, 4);
    cr_expect_eq(leaks->all.group_count, 2);
    cr_expect_eq(group_of(leaks, 1), group_of(leaks, 0));
    cr_expect_neq(group_of(leaks, 2), group_of(leaks, 0));
    gp_rank_leaks_free(leaks);
}

/* Sites of one name are added; more names than are kept are counted, and equal ones in another order are alike. */
Test(rank_leaks, sites_of_one_name_and_many_names)
{
    job_new(2);
    struct gp_rank_grown again = *row_of(0);
    again.leak.confidence = 0.5;
    again.leak.seconds_to_oom = 50;
    for (uint32_t i = 0; i < 2; i++)
        gp_rank_growth_add(&growths[i], &again);
    cr_expect_eq(growths[0].count, 1);
    cr_expect_eq(growths[0].suspects, 1);
    cr_expect_eq(row_of(0)->sites, 2);
    cr_expect_eq(row_of(0)->leak.live_bytes, 40 * MIB);
    cr_expect_eq(row_of(0)->leak.live_count, 40);
    cr_expect_float_eq(row_of(0)->leak.bytes_per_step, 2 * MIB, 1);
    cr_expect_eq(row_of(0)->leak.confidence, 0.5);
    cr_expect_eq(row_of(0)->leak.seconds_to_oom, 50);
    for (uint32_t name = 0; name < 30; name++) /* the last ones in another order */
        for (uint32_t i = 0; i < 2; i++) {
            struct gp_rank_grown row = again;
            snprintf(row.name, sizeof(row.name), "site %u", i && name >= 20 ? 49 - name : name);
            gp_rank_growth_add(&growths[i], &row);
        }
    cr_expect_eq(growths[0].count, GP_RANK_GROWN);
    cr_expect_eq(growths[0].suspects, 31);
    struct gp_rank_leaks *leaks = gp_rank_leaks_find(ranks, 2);
    cr_expect_eq(leaks->all.group_count, 1);
    cr_expect_eq(leaks->groups[0].row_count, GP_RANK_GROWN / 2);
    gp_rank_leaks_free(leaks);
}

Test(rank_leaks, missing_and_repeated_ranks)
{
    job_new(6);
    for (uint32_t i = 0; i < 6; i++)
        ranks[i].world_size = 8;
    ranks[1].number = 0;
    ranks[5].number = 7;
    growths[2].early = growths[3].lossy = growths[4].lossy = true;
    struct gp_rank_leaks *leaks = gp_rank_leaks_find(ranks, 6);
    cr_expect_eq(leaks->numbers, 5);
    cr_expect_eq(leaks->all.count, 6);
    cr_expect_eq(leaks->all.missing_count, 3);
    cr_expect_eq(leaks->all.missing_spans, 2);
    cr_expect_eq(leaks->all.missing[0].first, 1);
    cr_expect_eq(leaks->all.missing[1].first, 5);
    cr_expect_eq(leaks->all.missing[1].last, 6);
    cr_expect_eq(leaks->early, 1);
    cr_expect_eq(leaks->lossy, 2);
    gp_rank_leaks_free(leaks);
    leaks = gp_rank_leaks_find(ranks, 0);
    cr_expect_eq(leaks->all.group_count, 0);
    gp_rank_leaks_free(leaks);
}
