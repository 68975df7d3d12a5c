/* SPDX-License-Identifier: MIT
 *
 * reader_mutant.c: the negative control of tests/torture/reader.c: whether somebody reads is looked at before the block
 * enters or leaves the map, and not after. Passes only if the oracle catches it.
 */
#include "account/account.h"
#include <unistd.h>

static __thread bool mutant_heard;

static bool mutant_look(void)
{
    static __thread unsigned looks;
    bool heard = gp_event_heard();
    if (looks++ % 64 == 0)
        usleep(20000); /* longer than the reader's start takes, also under a sanitizer: it falls into it */
    return heard;
}

#define gp_event_heard()   mutant_heard
#define gp_map_insert(...) (mutant_heard = mutant_look(), gp_map_insert(__VA_ARGS__))
#define gp_map_take(...)   (mutant_heard = mutant_look(), gp_map_take(__VA_ARGS__))
#include "torture/reader_oracle.h"

int main(int argc, char **argv)
{
    unsigned rounds;
    reader_rounds(gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 20) * 1000000000ull, 1, true, &rounds);
    printf("reader_mutant: %s in round %u\n%u passed, %u failed\n", reader_wrong ? "caught" : "not caught", rounds,
           reader_wrong != 0, !reader_wrong);
    return !reader_wrong;
}
