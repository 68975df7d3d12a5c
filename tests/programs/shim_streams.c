/* SPDX-License-Identifier: MIT
 *
 * A block used by one stream, freed by the host without waiting, and the next allocation used by
 * another stream: every pair of non-blocking, blocking, legacy and per-thread default streams, and
 * one that is destroyed first. cuMemFree promises that the work is done, so no order between the
 * streams is made here.  `shim_streams --rounds N`. Leaves 1 MiB linear.
 */
#include <cuda.h>

#include "finish.h"
#include "pattern.h"

#define KINDS 5
#define SIZES 5
static const size_t sizes[SIZES] = {512, 4 * KIB, 300 * KIB, 3 * MIB, 9 * MIB};
static unsigned next_value = 1;

static size_t hand_over(CUstream from, CUstream to, size_t bytes)
{
    unsigned value = next_value++;
    CUdeviceptr first = program_alloc(bytes), second;
    size_t wrong;
    pattern_fill(first, bytes, ~value, from);
    CHECK(cuMemFree(first));
    second = program_alloc(bytes);
    pattern_fill(second, bytes, value, to);
    wrong = pattern_wrong(second, bytes, value, to);
    CHECK(cuMemFree(second));
    return wrong;
}

/* Several blocks in flight, freed in one go, taken up by a stream each. */
static size_t crowd(const CUstream *streams, size_t bytes)
{
    CUdeviceptr blocks[3 * KINDS];
    size_t wrong = 0;
    int round, i;
    for (round = 0; round < 3; round++) {
        for (i = 0; i < 3 * KINDS; i++) {
            blocks[i] = program_alloc(bytes);
            pattern_fill(blocks[i], bytes, next_value + (unsigned)i, streams[(i + round) % KINDS]);
        }
        for (i = 0; round == 2 && i < 3 * KINDS; i++)
            wrong += pattern_wrong(blocks[i], bytes, next_value + (unsigned)i, streams[(i + round) % KINDS]);
        for (i = 0; i < 3 * KINDS; i++)
            CHECK(cuMemFree(blocks[i]));
        next_value += 3 * KINDS;
    }
    return wrong;
}

static size_t destroyed(CUstream to, size_t bytes)
{
    CUstream gone = NULL;
    CUdeviceptr first = program_alloc(bytes), second;
    size_t wrong;
    CHECK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    pattern_fill(first, bytes, 0xdead, gone);
    CHECK(cuStreamDestroy(gone));
    CHECK(cuMemFree(first));
    second = program_alloc(bytes);
    pattern_fill(second, bytes, 0xbeef, to);
    wrong = pattern_wrong(second, bytes, 0xbeef, to);
    CHECK(cuMemFree(second));
    return wrong;
}

int main(int argc, char **argv)
{
    static const char *const names[KINDS] = {"non-blocking", "second non-blocking", "blocking", "legacy", "per-thread"};
    CUstream streams[KINDS] = {NULL, NULL, NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    int rounds = argc > 2 && strcmp(argv[1], "--rounds") == 0 ? atoi(argv[2]) : 1, round, from, to;
    size_t s, wrong;
    program_start();
    CHECK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&streams[2], CU_STREAM_DEFAULT));
    program_alloc(MIB);
    for (from = 0; from < KINDS; from++) {
        for (wrong = 0, round = 0; round < rounds; round++) {
            for (to = 0; to < KINDS; to++) {
                /* The largest, which takes most of the time, once from each and once to each. */
                for (s = 0; s < SIZES - ((from + to) % KINDS != 0); s++)
                    wrong += hand_over(streams[from], streams[to], sizes[s]);
            }
        }
        printf("from %s: %zu wrong\n", names[from], wrong);
    }
    printf("crowd: %zu wrong\n", crowd(streams, 64 * KIB) + crowd(streams, 3 * MIB));
    for (wrong = 0, to = 0; to < KINDS; to++)
        wrong += destroyed(streams[to], 40 * KIB) + destroyed(streams[to], 5 * MIB);
    printf("from a destroyed stream: %zu wrong\n", wrong);
    return finish();
}
