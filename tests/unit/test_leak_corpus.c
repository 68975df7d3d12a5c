/* SPDX-License-Identifier: MIT
 *
 * test_leak_corpus.c: what the analysis says of the programs of lib/leakcorpus.h: no leak is denied, and no program
 * that keeps nothing is accused.  LEAK_CORPUS_SEEDS=FROM-TO prints the table of docs/benchmarks.md for those seeds.
 */
#include <analyze/analyze.h>
#include <criterion/criterion.h>
#include <lib/full.h>
#include <lib/leakcorpus.h>
#include <stdio.h>
#include <stdlib.h>

struct counts {
    unsigned programs, first, candidate, later, denied, accused, doubted, clear;
};

static bool is_true(const struct leak_truth *truth, const struct gp_leak *leak)
{
    return leak->site && (leak->site == truth->sites[0] || leak->site == truth->sites[1]);
}

static void judge(uint32_t i, uint64_t seed, struct counts *counts)
{
    struct leak_truth truth;
    struct leak_program program = leak_corpus_program(i);
    struct gp_recording *recording = leak_corpus_make(i, seed, &truth);
    struct gp_steps *steps = gp_steps_find(recording);
    struct gp_leaks *leaks = steps ? gp_leaks_find(recording, steps, 0) : NULL;
    cr_assert(leaks);
    uint32_t all = leaks->count + leaks->candidates, at = 0;
    while (at < all && !is_true(&truth, &leaks->suspects[at]))
        at++;
    const char *said;
    counts->programs++;
    if (program.is_leaking)
        counts->first += at == 0 && leaks->count, counts->candidate += at == leaks->count && at < all,
            counts->later += at < all && at != 0 && at != leaks->count, counts->denied += at == all;
    else
        counts->accused += leaks->count > 0, counts->doubted += !leaks->count && all, counts->clear += !all;
    if (program.is_leaking)
        said = at == all            ? "DENIED"
               : at < leaks->count  ? at ? "later" : "suspect"
               : at == leaks->count ? "candidate"
                                    : "late candidate";
    else
        said = leaks->count ? "ACCUSED" : all ? "candidate" : "clear";
    if (getenv("LEAK_CORPUS_SEEDS"))
        fprintf(stderr, "%-60s seed %u: %s; %u %u, %u steps of %d \"%s\" told %d inside %d%s%s\n", program.name,
                (unsigned)seed, said, leaks->count, leaks->candidates, steps->count, (int)steps->source, steps->name,
                steps->told, steps->inside, *leaks->why ? ": " : "", leaks->why);
    free(leaks);
    free(steps);
    gp_recording_free(recording);
}

Test(leak_corpus, no_leak_is_denied_and_no_program_accused)
{
    unsigned from = 1, to = test_is_full() ? 20 : 2;
    const char *given = getenv("LEAK_CORPUS_SEEDS");
    struct counts counts[2] = {0};
    if (given)
        cr_assert_eq(sscanf(given, "%u-%u", &from, &to), 2);
    for (uint64_t seed = from; seed <= to; seed++)
        for (uint32_t i = 0; i < leak_corpus_count(); i++)
            judge(i, seed, &counts[leak_corpus_program(i).is_leaking]);
    if (given)
        fprintf(stderr,
                "%u leaking: %u first suspect, %u first candidate, %u later, %u denied\n%u healthy: %u accused, %u "
                "candidates, %u clear\n",
                counts[1].programs, counts[1].first, counts[1].candidate, counts[1].later, counts[1].denied,
                counts[0].programs, counts[0].accused, counts[0].doubted, counts[0].clear);
    cr_expect_eq(counts[1].denied, 0, "%u denied", counts[1].denied);
    cr_expect_eq(counts[0].accused, 0, "%u accused", counts[0].accused);
}
