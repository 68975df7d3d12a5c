/* SPDX-License-Identifier: MIT
 *
 * cache_mutant.c: the negative control of tests/torture/cache.c. The cache runs on a device that
 * reports every fence as reached, so it never waits and hands out blocks while the device still
 * works in them. Passes only if the oracle catches that, for each kind of cache.
 */
#include "torture/cache_oracle.h"

/* This tests the oracle's verdict, not the memory accesses of a cache that was given false
 * fences. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_bugs=0";
}

static bool profile_run(unsigned p, uint64_t limit_ns, uint64_t seed)
{
    const struct profile *profile = &oracle_profiles[p];
    struct tally tally = {0};
    uint64_t end = gp_clock_ns() + limit_ns;
    do
        oracle_batch_run(profile, seed + tally.batches, true, &tally);
    while (tally.wrong == 0 && gp_clock_ns() < end);
    printf("  early reuse, %-11s %llu MiB: %s after %llu batches %s\n", profile->policy,
           (unsigned long long)(profile->capacity / MIB), tally.wrong ? "caught" : "not caught",
           (unsigned long long)tally.batches, tally.why);
    return tally.wrong != 0;
}

int main(int argc, char **argv)
{
    uint64_t limit_ns = (argc > 1 ? strtoull(argv[1], NULL, 0) : 12) * 1000000000ull;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : gp_clock_ns();
    unsigned passed = 0, failed = 0;
    printf("cache_mutant: seed %llu\n", (unsigned long long)seed);
    for (unsigned p = 0; p < GP_COUNT(oracle_profiles); p++)
        *(profile_run(p, limit_ns / GP_COUNT(oracle_profiles), seed) ? &passed : &failed) += 1;
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
