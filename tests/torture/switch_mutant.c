/* SPDX-License-Identifier: MIT
 *
 * switch_mutant.c: the negative control of tests/torture/switch.c: a block that was requested while
 * stacks were off is forgotten if they are on again when it is counted. Passes only if the oracle
 * catches it.
 */
#define GP_SITE_MUTANT_INSIDE
#include "../../src/stack/site.c"

#include "torture/switch_oracle.h"

int main(int argc, char **argv)
{
    uint64_t end = gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 20) * 1000000000ull;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : gp_clock_ns();
    unsigned rounds = 0, caught = 0;
    printf("switch_mutant: seed %llu\n", (unsigned long long)seed);
    do {
        caught = switch_fork(seed++);
        rounds++;
    } while (!caught && gp_clock_ns() < end);
    printf("switch_mutant: %s in round %u\n%u passed, %u failed\n", caught ? "caught" : "not caught", rounds,
           caught != 0, caught == 0);
    return caught == 0;
}
