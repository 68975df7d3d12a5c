/* SPDX-License-Identifier: MIT
 *
 * reader_mutant.c: the negative control of tests/torture/reader.c: whether a viewer reads is looked at before the block
 * enters or leaves the map, and not after. Passes only if the oracle catches it.
 */
#include "torture/reader_mutant.h"

#define gp_map_insert(...) (mutant_heard = mutant_look(), gp_map_insert(__VA_ARGS__))
#define gp_map_take(...)   (mutant_heard = mutant_look(), gp_map_take(__VA_ARGS__))
#include "torture/reader_oracle.h"

int main(int argc, char **argv)
{
    return reader_mutant_main("reader_mutant", argc, argv);
}
