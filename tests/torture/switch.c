/* SPDX-License-Identifier: MIT
 *
 * switch.c: stacks are switched on and off while threads allocate and free: see switch_oracle.h.
 * Usage: switch [seconds] [seed].
 */
#include "torture/switch_oracle.h"

int main(int argc, char **argv)
{
    uint64_t end = gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 8) * 1000000000ull;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : gp_clock_ns();
    unsigned passed = 0, failed = 0;
    printf("switch: seed %llu\n", (unsigned long long)seed);
    do {
        unsigned wrong = switch_fork(seed++);
        if (wrong)
            printf("switch: seed %llu: %u wrong\n", (unsigned long long)seed - 1, wrong);
        failed += wrong != 0;
        passed += wrong == 0;
    } while (gp_clock_ns() < end);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
