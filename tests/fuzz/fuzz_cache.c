/* SPDX-License-Identifier: MIT
 *
 * fuzz_cache.c: turns the input into a policy, a device and operations on the caching allocator, and checks it after
 * each operation against the model of lib/cachemodel.h.  Aborts at the first difference and prints it.
 *
 *   clang -fsanitize=fuzzer,address,undefined -Iinclude -Icore -Isrc -Itests ... : libFuzzer
 *   any compiler with -DGP_FUZZ_REPLAY: runs the files and folders named as arguments, then inputs of its own making.
 * Prints "N inputs".
 *
 * Input: place, device, switches, limit (a byte each), then operations of CACHEMODEL_STEP bytes.
 */
#include "lib/cachemodel.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB       (1ull << 20)
#define MOST      4000 /* operations; cases that need more are left to the random test */
#define HEAD      4
#define OWN_TRIES 32 /* inputs for each place that the replaying main makes itself */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cachemodel model;
static uint64_t steps, allocs, frees, ooms, refused;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t capacities[] = {32 * MIB, 128 * MIB, 512 * MIB, 4096 * MIB};
    if (size < HEAD)
        return 0;
    struct cachemodel_setup setup = cachemodel_places[data[0] % CACHEMODEL_PLACES];
    setup.capacity = capacities[data[1] % 4];
    setup.failures = data[2] & 1;
    setup.captures = data[2] & 2;
    setup.gone_live = data[2] & 4;
    setup.below_peak = data[3] & 128;
    setup.check_every = data[2] & 16 ? 1 + (data[2] >> 5) * 16 : 1;
    setup.limit_bytes = data[3] % 2 ? data[3] * 4 * MIB : 0;
    if (cachemodel_init(&model, &setup) != 0)
        abort();
    bool right = true;
    for (size_t at = HEAD; right && at + CACHEMODEL_STEP <= size && model.steps < MOST; at += CACHEMODEL_STEP)
        right = cachemodel_step(&model, data + at);
    right = cachemodel_fini(&model, !(data[2] & 8)) && right;
    steps += model.steps;
    allocs += model.allocs;
    frees += model.frees;
    ooms += model.ooms;
    refused += model.refused;
    if (!right) {
        fprintf(stderr, "fuzz_cache: %s %s: %s\n", setup.policy, setup.conf ? setup.conf : "", model.why);
        abort();
    }
    return 0;
}

#ifdef GP_FUZZ_REPLAY
#include "fuzz/files.h"

/* Random operations of a fixed seed, with every switch in turn. */
static void make(unsigned place, unsigned number)
{
    static uint8_t data[HEAD + 200 * CACHEMODEL_STEP];
    uint64_t state = (uint64_t)place << 32 | number;
    for (size_t i = 0; i < sizeof data; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        data[i] = (uint8_t)(state >> 56);
    }
    data[0] = (uint8_t)place;
    data[2] = (uint8_t)number;
    LLVMFuzzerTestOneInput(data, sizeof data);
    inputs++;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    for (unsigned place = 0; place < CACHEMODEL_PLACES; place++)
        for (unsigned number = 0; number < OWN_TRIES; number++)
            make(place, number);
    printf("%llu inputs: %llu operations, %llu allocations, %llu frees, %llu out of memory, %llu refused\n",
           (unsigned long long)inputs, (unsigned long long)steps, (unsigned long long)allocs, (unsigned long long)frees,
           (unsigned long long)ooms, (unsigned long long)refused);
    return allocs && frees && ooms && refused ? 0 : 1;
}
#endif
