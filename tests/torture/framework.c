/* SPDX-License-Identifier: MIT
 *
 * framework.c: a framework's blocks and the owners of memory under many threads, against
 * framework_oracle.h. Usage: framework [seconds].
 */
#include "torture/framework_oracle.h"

int main(int argc, char **argv)
{
    uint64_t end = gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 8) * 1000000000ull;
    unsigned rounds = 0;
    oracle_start();
    do {
        oracle_round(rounds++);
    } while (gp_clock_ns() < end || rounds < 6);
    oracle_end();
    printf("framework: %u rounds, %llu reports, %llu questions; wrong: %llu sums, %llu segments, %llu owners\n", rounds,
           (unsigned long long)oracle_reports, (unsigned long long)oracle_questions,
           (unsigned long long)oracle_wrong_sums, (unsigned long long)oracle_wrong_segments,
           (unsigned long long)oracle_wrong_owners);
    unsigned failed = (oracle_wrong_sums || !oracle_reports) + (oracle_wrong_segments != 0) +
                      (oracle_wrong_owners || !oracle_questions);
    printf("%u passed, %u failed\n", 3 - failed, failed);
    return failed != 0;
}
