/* SPDX-License-Identifier: MIT
 *
 * listen_mutant.c: the negative control of tests/torture/listen.c: whether somebody reads is looked at before the cache
 * has changed, and not after. Passes only if the oracle catches it.
 */
#include "account/account.h"
#include "cache/cache.h"
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

#define gp_event_heard()      mutant_heard
#define gp_cache_alloc(...)   (mutant_heard = mutant_look(), gp_cache_alloc(__VA_ARGS__))
#define gp_cache_release(...) (mutant_heard = mutant_look(), gp_cache_release(__VA_ARGS__))
#include "torture/listen_oracle.h"

int main(int argc, char **argv)
{
    unsigned rounds;
    listen_rounds(gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 20) * 1000000000ull, 1, true, &rounds);
    printf("listen_mutant: %s in round %u\n%u passed, %u failed\n", listen_wrong ? "caught" : "not caught", rounds,
           listen_wrong != 0, !listen_wrong);
    return !listen_wrong;
}
