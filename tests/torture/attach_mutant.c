/* SPDX-License-Identifier: MIT
 *
 * attach_mutant.c: the negative control of tests/torture/attach.c: a thread that has announced itself does not look
 * again whether the library is on. Passes only if the oracle catches it.
 */
#define GP_THREAD_MUTANT_LOOK
#include "../../core/base/thread.c"

#include "torture/attach_oracle.h"

int main(int argc, char **argv)
{
    uint64_t end = gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 20) * 1000000000ull;
    if (end < gp_clock_ns() + 10000000000ull)
        end = gp_clock_ns() + 10000000000ull; /* it ends as soon as it is caught */
    unsigned lives = attach_lives(end);
    bool caught = x_wrong != 0;
    printf("attach_mutant: %s in life %u\n%u passed, %u failed\n", caught ? "caught" : "not caught", lives, caught,
           !caught);
    return !caught;
}
