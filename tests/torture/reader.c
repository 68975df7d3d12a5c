/* SPDX-License-Identifier: MIT
 *
 * reader.c: readers of events come and go while frameworks allocate, against reader_oracle.h. Usage: reader [seconds].
 */
#include "torture/reader_oracle.h"

int main(int argc, char **argv)
{
    unsigned rounds;
    reader_rounds(gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 8) * 1000000000ull, 20, false, &rounds);
    bool passed = !reader_wrong && reader_events && reader_walked && !lost[GP_LOST_MISSED_FREE] && !lost[GP_LOST_RING];
    printf("reader: %u rounds, %llu events, %llu blocks in walks; %llu rounds wrong\n", rounds,
           (unsigned long long)reader_events, (unsigned long long)reader_walked, (unsigned long long)reader_wrong);
    printf("%u passed, %u failed\n", passed, !passed);
    return !passed;
}
