/* SPDX-License-Identifier: MIT
 *
 * framework_mutant.c: the negative control of tests/torture/framework.c: the list of objects changes without an odd
 * turn, so that a thread may read half of it. Passes only if the oracle catches it.
 */
#define GP_OWNER_MUTANT_TURN
#include "../../src/owner/owner.c"

/* Both files have a lock. */
#define lock framework_lock
#include "torture/framework_oracle.h"

int main(int argc, char **argv)
{
    uint64_t end = gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 20) * 1000000000ull;
    unsigned rounds = 0;
    bool caught;
    oracle_start();
    do {
        oracle_round(rounds++);
        caught = oracle_wrong_owners || oracle_wrong_segments;
    } while (!caught && gp_clock_ns() < end);
    oracle_end();
    printf("framework_mutant: %s in round %u\n%u passed, %u failed\n", caught ? "caught" : "not caught", rounds, caught,
           !caught);
    return !caught;
}
