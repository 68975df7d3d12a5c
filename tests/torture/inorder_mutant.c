/* SPDX-License-Identifier: MIT
 *
 * inorder_mutant.c: the negative control of tests/torture/inorder.c: the last commit of a chunk is a store like the others. It
 * passes only if the oracle catches it.
 */
#define GP_RING_MUTANT_LATE

/* The real ring is linked too: every torture program links core/base. */
#define gp_ring_init    gp_mutant_init
#define gp_ring_write   gp_mutant_write
#define gp_ring_written gp_mutant_written
#include "../../core/base/ring.c"

#include "torture/inorder_oracle.h"

int main(int argc, char **argv)
{
#ifdef __SANITIZE_THREAD__
    printf("inorder_mutant: what the sanitizer does at each store takes longer than the store waits\n");
    return 77;
#endif
    cpu_set_t processors = inorder_processors();
    if (CPU_COUNT(&processors) < 2) {
        printf("inorder_mutant: one processor sees its own stores in order\n");
        return 77;
    }
    uint64_t begin = gp_clock_ns(), seconds = argc > 1 ? strtoull(argv[1], NULL, 0) : 20;
    /* It ends as soon as it is caught, which takes some 10 ms on two processors. */
    struct inorder_tally tally = inorder_run(begin + (seconds < 60 ? 60 : seconds) * 1000000000ull);
    printf("inorder_mutant: %s after %llu polls\n%d passed, %d failed\n", tally.wrong ? "caught" : "not caught",
           (unsigned long long)tally.polls, tally.wrong != 0, tally.wrong == 0);
    return tally.wrong == 0;
}
