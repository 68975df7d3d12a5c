/* SPDX-License-Identifier: MIT
 *
 * attach.c: no thread is inside the library once it is detached; see attach_oracle.h.
 */
#include "torture/attach_oracle.h"

int main(int argc, char **argv)
{
    uint64_t end = gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 20) * 1000000000ull;
    unsigned lives = attach_lives(end);
    bool good = !x_wrong && !x_unfinished && x_entered;
    printf("attach: %u lives, entered %u times, %u wrong, %u not left in time\n%u passed, %u failed\n", lives,
           x_entered, x_wrong, x_unfinished, good, !good);
    return !good;
}
