/* SPDX-License-Identifier: MIT
 *
 * listen.c: readers of events come and go while threads allocate from our cache, against listen_oracle.h. Usage: listen
 * [seconds].
 */
#include "torture/listen_oracle.h"

int main(int argc, char **argv)
{
    unsigned rounds;
    listen_rounds(gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 8) * 1000000000ull, 20, false, &rounds);
    bool passed = !listen_wrong && listen_events && listen_walked && !lost[GP_LOST_RING];
    printf("listen: %u rounds, %llu events, %llu blocks in walks; %llu rounds wrong\n", rounds,
           (unsigned long long)listen_events, (unsigned long long)listen_walked, (unsigned long long)listen_wrong);
    printf("%u passed, %u failed\n", passed, !passed);
    return !passed;
}
