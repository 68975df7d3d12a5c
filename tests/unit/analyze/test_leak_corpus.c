/* SPDX-License-Identifier: MIT
 *
 * test_leak_corpus.c: what the analysis says of the programs of lib/leakcorpus.h: no leak is denied, and no program
 * that keeps nothing is accused.  LEAK_CORPUS_SEEDS=FROM-TO prints what is said of each for those seeds, and the sums that
 * docs/benchmarks.md has.
 */
#include <analyze/analyze.h>
#include <criterion/criterion.h>
#include <lib/full.h>
#include <lib/leakcorpus.h>
#include <stdio.h>
#include <stdlib.h>

/* What is said of a program. */
enum said { SUSPECT, CANDIDATE, LATER, NOTHING, VERDICTS };
static const char *const said_of_leaks[VERDICTS] = {"first suspect", "first candidate", "named later", "DENIED"};
static const char *const said_of_others[VERDICTS] = {"ACCUSED", "candidate", "", "clear"};

static bool is_true(const struct leak_truth *truth, const struct gp_leak *leak)
{
    return leak->site && (leak->site == truth->sites[0] || leak->site == truth->sites[1]);
}

static enum said said_of(const struct gp_leaks *leaks, bool is_leaking, const struct leak_truth *truth)
{
    uint32_t all = leaks->count + leaks->candidates, at = 0;
    if (!is_leaking)
        return leaks->count ? SUSPECT : all ? CANDIDATE : NOTHING;
    while (at < all && !is_true(truth, &leaks->suspects[at]))
        at++;
    if (at == all)
        return NOTHING;
    return at ? LATER : leaks->count ? SUSPECT : CANDIDATE;
}

static enum said judge(uint32_t i, uint64_t seed)
{
    struct leak_truth truth;
    struct leak_program program = leak_corpus_program(i);
    struct gp_recording *recording = leak_corpus_make(i, seed, &truth);
    struct gp_steps *steps = gp_steps_find(recording);
    struct gp_leaks *leaks = steps ? gp_leaks_find(recording, steps, 0) : NULL;
    cr_assert(leaks);
    enum said said = said_of(leaks, program.is_leaking, &truth);
    if (getenv("LEAK_CORPUS_SEEDS"))
        fprintf(stderr, "%-48s seed %u: %s; %u suspects, %u candidates, %u steps of %d \"%s\" %s\n", program.name,
                (unsigned)seed, (program.is_leaking ? said_of_leaks : said_of_others)[said], leaks->count,
                leaks->candidates, steps->count, (int)steps->source, steps->name, leaks->why);
    cr_expect(program.is_leaking ? said != NOTHING : said != SUSPECT, "%s, seed %u: %s", program.name, (unsigned)seed,
              (program.is_leaking ? said_of_leaks : said_of_others)[said]);
    free(leaks);
    free(steps);
    gp_recording_free(recording);
    return said;
}

Test(leak_corpus, no_leak_is_denied_and_no_program_accused, .timeout = 600)
{
    unsigned from = 1, to = test_is_full() ? 20 : 2, counts[2][VERDICTS] = {{0}};
    const char *given = getenv("LEAK_CORPUS_SEEDS");
    if (given)
        cr_assert_eq(sscanf(given, "%u-%u", &from, &to), 2);
    for (uint64_t seed = from; seed <= to; seed++)
        for (uint32_t i = 0; i < leak_corpus_count(); i++)
            counts[leak_corpus_program(i).is_leaking][judge(i, seed)]++;
    for (int said = SUSPECT; given && said < VERDICTS; said++)
        fprintf(stderr, "leaking: %5u %-16s  others: %5u %s\n", counts[1][said], said_of_leaks[said], counts[0][said],
                said_of_others[said]);
}

/* The corpus is what docs/benchmarks.md says that it is. */
Test(leak_corpus, has_programs_of_both_kinds)
{
    unsigned leaking = 0;
    for (uint32_t i = 0; i < leak_corpus_count(); i++)
        leaking += leak_corpus_program(i).is_leaking;
    cr_assert_geq(leaking, 40);
    cr_assert_geq(leak_corpus_count() - leaking, 80);
}
