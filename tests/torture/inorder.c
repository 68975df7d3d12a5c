/* SPDX-License-Identifier: MIT
 *
 * inorder.c: a thread's events keep their order across polls of a reader with a horizon. Run by hand and by `make check`;
 * usage: inorder [seconds].
 */
#include "torture/inorder_oracle.h"

int main(int argc, char **argv)
{
    uint64_t begin = gp_clock_ns(), seconds = argc > 1 ? strtoull(argv[1], NULL, 0) : 8;
    struct inorder_tally tally = inorder_run(begin + seconds * 1000000000ull);
    bool visited = tally.polls > 1000 && tally.chunks > 100;
    printf("inorder: %llu polls, %llu events, %llu full chunks, %llu wrong\n%d passed, %d failed\n",
           (unsigned long long)tally.polls, (unsigned long long)tally.events, (unsigned long long)tally.chunks,
           (unsigned long long)tally.wrong, visited + !tally.wrong, !visited + !!tally.wrong);
    return !visited || tally.wrong;
}
