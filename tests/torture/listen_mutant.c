/* SPDX-License-Identifier: MIT
 *
 * listen_mutant.c: the negative control of tests/torture/listen.c: whether a viewer reads is looked at before the cache
 * has changed, and not after. Passes only if the oracle catches it.
 */
#include "torture/reader_mutant.h"

#include "cache/cache.h"

#define gp_cache_alloc(...)   (mutant_heard = mutant_look(), gp_cache_alloc(__VA_ARGS__))
#define gp_cache_release(...) (mutant_heard = mutant_look(), gp_cache_release(__VA_ARGS__))
#include "torture/listen_oracle.h"

int main(int argc, char **argv)
{
    return reader_mutant_main("listen_mutant", argc, argv);
}
