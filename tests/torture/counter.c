/* SPDX-License-Identifier: MIT
 *
 * counter.c: runs base/counter.c under many threads.  Arguments: seconds (default 15), seed.  Threads run freely, and
 * every operation takes a ticket inside its critical section.  The batch is then replayed in ticket order, and every
 * returned value is compared (counter_oracle.h).  counter_mutant.c shows that a wrong counter is caught.
 */
#include "base/compiler.h"
#include "torture/counter_oracle.h"

static unsigned passed, failed;

static void verdict(bool good, const char *what)
{
    printf("  %s: %s\n", good ? "ok  " : "FAIL", what);
    *(good ? &passed : &failed) += 1;
}

/* ---- replay ------------------------------------------------------------------------------------------------------ */

static void part_replay(double seconds, uint64_t seed)
{
    struct tally all = {0};
    char what[200];
    unsigned count = GP_COUNT(oracle_profiles);
    for (unsigned p = 0; p < count; p++) {
        struct tally tally = {0};
        uint64_t end = gp_clock_ns() + (uint64_t)(seconds * 1e9 / count);
        for (uint64_t batch = 0; gp_clock_ns() < end; batch++)
            oracle_batch_run(&oracle_profiles[p], batch % 4 ? 1000 : OPS_MAX, seed + batch * 7919 + p, &tally);
        snprintf(what, sizeof what, "%-26s %9llu rounds, %llu wrong; %llu operations, %llu %% on shards", //
                 oracle_profiles[p].name, (unsigned long long)tally.rounds, (unsigned long long)tally.wrong,
                 (unsigned long long)tally.ops, (unsigned long long)(tally.fast * 100 / (tally.ops + 1)));
        /* A replay that never left the slow path would prove nothing. */
        verdict(tally.rounds && !tally.wrong && !tally.incomplete && tally.fast, what);
        all.rounds += tally.rounds;
        all.ops += tally.ops;
        all.wrong += tally.wrong;
    }
    printf("replay: %llu rounds, %llu operations, %llu wrong\n", (unsigned long long)all.rounds,
           (unsigned long long)all.ops, (unsigned long long)all.wrong);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 15;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : gp_clock_ns();
    printf("counter: seed %llu\n", (unsigned long long)seed);
    setvbuf(stdout, NULL, _IOLBF, 0);
    part_replay(seconds, seed);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
