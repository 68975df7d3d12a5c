/* SPDX-License-Identifier: MIT
 *
 * test_analyze_nomem.c: memory is out at each allocation of each analysis in turn.  The analysis says so, gives back all
 * that it took, and harms nothing that it was given.
 */
#include <analyze/analyze.h>
#include <analyze/fit.h>
#include <analyze/flow.h>
#include <analyze/rankleaks.h>
#include <analyze/ranks.h>
#include <analyze/report.h>
#include <cache/policy.h>
#include <errno.h>
#include <lib/analyses.h>
#include <read/recording/recording.h>

#include "checked_memory.h"
#include "tiny_fixture.h"

/* The C library's takes memory for many elements, and can do without. */
void qsort(void *base, size_t count, size_t bytes, int (*order)(const void *, const void *))
{
    char *first = base, kept[1024];
    cr_assert_leq(bytes, sizeof(kept));
    for (size_t i = 1; i < count; i++) {
        size_t to = i;
        memcpy(kept, first + i * bytes, bytes);
        for (; to > 0 && order(first + (to - 1) * bytes, kept) > 0; to--)
            memcpy(first + to * bytes, first + (to - 1) * bytes, bytes);
        memcpy(first + to * bytes, kept, bytes);
    }
}

struct nomem_case {
    struct gp_recording *recording;
    struct gp_flow *flow;
    struct gp_steps *steps;
};

/* Each of these: whether there was a result. */

static bool make_flow(const struct nomem_case *is)
{
    struct gp_flow *flow = gp_flow_new(is->recording);
    gp_flow_free(flow);
    return flow;
}

static bool find_steps(const struct nomem_case *is)
{
    struct gp_steps *steps = gp_steps_find(is->recording);
    bool ok = steps;
    cr_expect(!ok || (steps->count == is->steps->count && steps->source == is->steps->source), "other steps");
    free(steps);
    return ok;
}

static bool choose_steps(const struct nomem_case *is)
{
    char third[32];
    snprintf(third, sizeof(third), "%lluns",
             (unsigned long long)(is->recording->end_ns - is->recording->begin_ns) / 3 + 1);
    const char *const names[] = {"step", "iter", third};
    for (unsigned i = 0; i < 3; i++) {
        struct gp_steps *steps = NULL;
        int rc = gp_steps_choose(is->recording, names[i], &steps);
        cr_expect_eq(rc == 0, steps != NULL);
        free(steps);
        if (rc == -ENOMEM)
            return false;
    }
    return true;
}

static bool name_steps(const struct nomem_case *is)
{
    struct gp_step_name name;
    for (uint32_t i = 0; gp_steps_name(is->recording, i, &name); i++)
        continue;
    return true;
}

static bool find_leaks(const struct nomem_case *is)
{
    struct gp_leaks *leaks = gp_leaks_find(is->recording, is->steps, 0);
    free(leaks);
    return leaks;
}

static bool find_churn(const struct nomem_case *is)
{
    struct gp_churn *churn = analysis_churn(is->recording, is->steps);
    free(churn);
    return churn;
}

static bool find_forecast(const struct nomem_case *is)
{
    struct gp_forecast_run *run = analysis_forecast(is->recording, is->steps, 0);
    free(run);
    return run;
}

static bool find_peak(const struct nomem_case *is)
{
    struct gp_peak *peak = analysis_peak(is->recording, 0, 0);
    struct gp_bill_peak_owners *owners = peak ? gp_bill_peak_owners(is->recording, peak) : NULL;
    free(owners);
    free(peak);
    return owners;
}

static bool find_segments(const struct nomem_case *is)
{
    struct gp_segments *map = gp_segments_at(is->recording, 0, 0);
    struct gp_holders *holders = map ? gp_holders_find(map) : NULL;
    free(holders);
    free(map);
    return holders;
}

static bool find_sizes(const struct nomem_case *is)
{
    struct gp_sizes *sizes = analysis_sizes(is->recording, 0);
    struct gp_bill *bill = sizes ? analysis_bill(is->recording, 0) : NULL;
    free(sizes);
    free(bill);
    return bill;
}

static bool find_series(const struct nomem_case *is)
{
    struct gp_series *one = gp_series_allocated(is->recording, 0, GP_KIND_NONE, 9);
    struct gp_series *other = one ? gp_series_reserved(is->recording, 0, 9) : NULL;
    struct gp_series *last = other ? gp_flow_requested(is->flow, 0, 9) : NULL;
    free(one);
    free(other);
    free(last);
    return last;
}

static bool find_fragmentation(const struct nomem_case *is)
{
    struct gp_fragmentation *found = analysis_fragmentation(is->recording, 0, 9);
    free(found);
    return found;
}

static bool find_history(const struct nomem_case *is)
{
    const struct gp_history_limits limits = {0, 4, 5, 3};
    struct gp_past *past = gp_history_flow(is->flow, 0, NULL, &limits);
    gp_history_free(past);
    return past;
}

static bool find_phases(const struct nomem_case *is)
{
    struct gp_use_table *uses = gp_uses_find(is->flow, is->steps, NULL, NULL, 0);
    struct gp_phases *phases = uses ? gp_phases_find(is->flow, is->steps, uses, 0) : NULL;
    gp_phases_free(phases);
    gp_uses_free(uses);
    return phases;
}

static bool compare_two(const struct nomem_case *is)
{
    const struct gp_recording *const both[2] = {is->recording, is->recording};
    static const uint32_t row[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    const uint32_t *const rows[2] = {row, row};
    struct gp_diff *diff = gp_diff_find(both, rows, 4);
    free(diff);
    return diff;
}

static bool match_two(const struct nomem_case *is)
{
    static const uint32_t lines[][2] = {{1, 2}, {3, 2}, {9, 2}, {4, 2}, {5, 5}};
    struct gp_diff_site sites[5];
    const struct gp_diff_site *const both[2] = {sites, sites + 3};
    uint32_t one[3], other[2], *rows[2] = {one, other}, counts[2] = {3, 2}, row_count;
    (void)is;
    for (unsigned i = 0; i < 5; i++)
        sites[i] = (struct gp_diff_site){.stack = "stack", .lines = lines[i], .line_count = 2};
    return gp_diff_match(both, counts, rows, &row_count);
}

static bool compare_ranks(const struct nomem_case *is)
{
    struct gp_rank_site sites[3][2];
    struct gp_job_rank ranks[3];
    memset(sites, 0, sizeof(sites));
    memset(ranks, 0, sizeof(ranks));
    for (unsigned i = 0; i < 3; i++) {
        snprintf(sites[i][0].name, GP_RANK_NAME, "line %u", i);
        snprintf(sites[i][1].name, GP_RANK_NAME, "line %u", 2 * i);
        sites[i][0].peak_bytes = sites[i][1].peak_bytes = i + 1;
        ranks[i].sites = sites[i];
        ranks[i].site_count = 2;
        ranks[i].begin_ns = ranks[i].begin_unix_ns = is->recording->begin_ns;
        ranks[i].end_ns = is->recording->end_ns;
    }
    struct gp_ranks *all = gp_ranks_find(ranks, 3);
    gp_ranks_free(all);
    return all;
}

static bool compare_leaks(const struct nomem_case *is)
{
    static struct gp_rank_growth growths[3];
    struct gp_job_rank ranks[3];
    (void)is;
    memset(ranks, 0, sizeof(ranks));
    for (unsigned i = 0; i < 3; i++)
        ranks[i] = (struct gp_job_rank){
            .file = "x", .number = (int32_t)i, .from = GP_RANK_RECORDED, .world_size = 5, .growth = &growths[i]};
    struct gp_rank_leaks *leaks = gp_rank_leaks_find(ranks, 3);
    gp_rank_leaks_free(leaks);
    return leaks;
}

static bool make_report(const struct nomem_case *is)
{
    struct gp_report report;
    if (gp_report_init(&report, is->recording, NULL, "x") != 0) {
        static const struct gp_report none;
        cr_expect_eq(memcmp(&report, &none, sizeof(none)), 0);
        return false;
    }
    int rc = gp_report_run(&report, GP_REPORT_DOCUMENT | GP_REPORT_HOLDERS | GP_REPORT_HELD, GP_DETAIL_PLOT);
    cr_expect(rc == 0 || rc == -ENOMEM);
    gp_report_fini(&report);
    return rc == 0;
}

static bool play_requests(const struct nomem_case *is)
{
    static const char *const policies[] = {"off", "caching", "pytorch"};
    bool ok = true;
    for (unsigned i = 0; ok && i < 3; i++) {
        const struct gp_fit_setup setup = {.policy = gp_policy_find(policies[i]), .yields = true};
        struct gp_fit_trace *trace = gp_fit_trace_new(is->flow, 0, i == 0);
        struct gp_fit_end end;
        ok = trace && gp_fit_play(trace, &setup, GIB, &end) == 0;
        gp_fit_trace_free(trace);
    }
    return ok;
}

static bool judge_fit(const struct nomem_case *is)
{
    static const struct gp_fit_question question = {
        .gpu_bytes = 30 * MIB, .tenants = 1, .context_bytes = 0, .allocator = "off"};
    struct gp_fit_result result;
    int rc = gp_fit_judge(is->flow, 0, &question, &result);
    rc = rc ? rc : gp_fit_judge_held(is->flow, &result);
    gp_fit_result_fini(&result);
    return rc == 0;
}

static const struct nomem_analysis {
    const char *name;
    bool (*find)(const struct nomem_case *is);
    bool loose; /* it may do with less memory, and then have a result, or none for another reason */
} analyses[] = {{"flow", make_flow, false},
                {"steps", find_steps, false},
                {"chosen steps", choose_steps, false},
                {"names of steps", name_steps, true},
                {"leaks", find_leaks, false},
                {"churn", find_churn, false},
                {"forecast", find_forecast, false},
                {"peak", find_peak, false},
                {"segments", find_segments, false},
                {"sizes and bill", find_sizes, false},
                {"series", find_series, false},
                {"fragmentation", find_fragmentation, false},
                {"history", find_history, false},
                {"phases", find_phases, false},
                {"diff", compare_two, false},
                {"match", match_two, false},
                {"ranks", compare_ranks, false},
                {"leaks of ranks", compare_leaks, false},
                {"report", make_report, false},
                {"fit", play_requests, true}, /* a cache that gets no memory for a segment serves without */
                {"judge", judge_fit, true}};

/* The number of its allocations. */
static long fail_each(const struct nomem_case *is, const struct nomem_analysis *analysis)
{
    cr_assert(analysis->find(is), "%s", analysis->name); /* what is made once is there from now on */
    for (long number = 0;; number++) {
        long before = memory_held;
        memory_failed = false;
        memory_after = number;
        bool found = analysis->find(is);
        memory_after = -1;
        cr_expect_eq(memory_held, before, "%s, allocation %ld: %ld blocks more", analysis->name, number,
                     memory_held - before);
        if (!memory_failed) {
            cr_expect(found, "%s", analysis->name);
            return number;
        }
        cr_expect(!found || analysis->loose, "%s, allocation %ld: a result without memory", analysis->name, number);
    }
}

Test(nomem, each_allocation_of_each_analysis_fails, .timeout = 120)
{
    static const unsigned numbers[] = {2, 14, 33, 47, 58, 61, 90};
    long count = 0;
    for (unsigned i = 0; MEMORY_CHECKED && i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct nomem_case is = {.recording = tiny_make(numbers[i])};
        is.flow = gp_flow_new(is.recording);
        is.steps = gp_steps_find(is.recording);
        cr_assert(is.flow && is.steps);
        for (unsigned k = 0; k < sizeof(analyses) / sizeof(analyses[0]); k++)
            count += fail_each(&is, &analyses[k]);
        free(is.steps);
        gp_flow_free(is.flow);
        gp_recording_free(is.recording);
    }
    cr_expect(!MEMORY_CHECKED || count > 500, "%ld", count);
}

/* A part is made of a recording itself: without memory it is still one that can be freed. */
Test(nomem, each_allocation_of_a_cut_fails, .timeout = 60)
{
    for (unsigned number = 0; MEMORY_CHECKED && number < 20; number++) {
        int rc = -ENOMEM;
        for (long at = 0; rc; at++) {
            long before = memory_held;
            struct gp_recording *part = tiny_make(number);
            uint64_t span = part->end_ns - part->begin_ns;
            memory_after = at;
            memory_failed = false;
            rc = gp_recording_cut(part, part->begin_ns + span / 3, part->begin_ns + span / 2);
            memory_after = -1;
            cr_assert_eq(rc, memory_failed ? -ENOMEM : 0, "recording %u, allocation %ld", number, at);
            gp_recording_free(part);
            cr_expect_eq(memory_held, before, "recording %u, allocation %ld: %ld blocks more", number, at,
                         memory_held - before);
        }
    }
}
