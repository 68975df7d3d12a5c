/* SPDX-License-Identifier: MIT
 *
 * site_mutant.c: the negative control of tests/torture/site.c: other threads may run between a
 * site's change and its check of the peak. Passes only if the oracle catches it.
 */
#define GP_SITE_MUTANT_GAP
#include "../../src/stack/live.c"

/* live.c's names come first: the oracle uses some of the same names. */
#include "torture/site_oracle.h"

int main(int argc, char **argv)
{
    uint64_t end = gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 20) * 1000000000ull;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : gp_clock_ns();
    unsigned rounds = 0, caught = 0;
    printf("site_mutant: seed %llu\n", (unsigned long long)seed);
    oracle_start();
    do {
        /* Judged by the sums alone: a call that passes the gate twice has two tickets, so the
         * replay cannot be right. */
        oracle_live(seed++);
        caught = oracle_last_wrong_sums;
        rounds++;
    } while (!caught && gp_clock_ns() < end);
    printf("site_mutant: %s in round %u\n%u passed, %u failed\n", caught ? "caught" : "not caught", rounds, caught != 0,
           caught == 0);
    return caught == 0;
}
