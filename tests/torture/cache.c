/* SPDX-License-Identifier: MIT
 *
 * cache.c: runs the caching allocator under many threads and checks it with cache_oracle.h.
 * Arguments: seconds (default 24), seed.
 */
#include "torture/cache_oracle.h"

static bool profile_run(unsigned p, uint64_t limit_ns, uint64_t seed)
{
    const struct profile *profile = &oracle_profiles[p];
    struct tally tally = {0};
    uint64_t end = gp_clock_ns() + limit_ns;
    do
        oracle_batch_run(profile, seed + tally.batches, false, &tally);
    while (tally.wrong == 0 && gp_clock_ns() < end);
    printf(
        "  %s: %-11s %u threads, %llu MiB%s%s: %llu batches, %llu allocations (%llu in order with pending work), %llu "
        "crossed, %llu recorded, %llu out of memory%s%s\n",
        tally.wrong ? "FAIL" : "ok  ", profile->policy, profile->threads, (unsigned long long)(profile->capacity / MIB),
        profile->conf ? ", " : "", profile->conf ? profile->conf : "", (unsigned long long)tally.batches,
        (unsigned long long)tally.allocs, (unsigned long long)tally.ordered, (unsigned long long)tally.crossed,
        (unsigned long long)tally.recorded, (unsigned long long)tally.ooms, tally.wrong ? ": " : "", tally.why);
    fflush(stdout);
    return tally.wrong == 0 && tally.allocs > 0 && tally.crossed > 0;
}

int main(int argc, char **argv)
{
    uint64_t limit_ns = (argc > 1 ? strtoull(argv[1], NULL, 0) : 24) * 1000000000ull;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : gp_clock_ns();
    unsigned passed = 0, failed = 0;
    printf("cache: seed %llu\n", (unsigned long long)seed);
    for (unsigned p = 0; p < GP_COUNT(oracle_profiles); p++)
        *(profile_run(p, limit_ns / GP_COUNT(oracle_profiles), seed) ? &passed : &failed) += 1;
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
