/* SPDX-License-Identifier: MIT
 *
 * Random sizes and lifetimes: every block is filled with a number of its own and read back before
 * it goes, so two live blocks that share a byte are found.  `shim_pattern --seed N --steps N`.
 * Leaves the blocks that are live at the end.
 */
#include <cuda.h>

#include "finish.h"
#include "pattern.h"

#define LIVE    64
#define STREAMS 3

struct piece {
    CUdeviceptr at;
    size_t bytes;
    unsigned value;
    CUstream stream;
};

/* Mostly small, as programs are: powers of two, odd sizes, some of several MiB. */
static size_t random_size(unsigned *random)
{
    unsigned kind = random_next(random) % 16;
    if (kind == 0)
        return 1 + random_next(random) % (6 * MIB);
    if (kind < 4)
        return 1 + random_next(random) % MIB;
    return kind < 10 ? (size_t)256 << random_next(random) % 10 : 1 + random_next(random) % (16 * KIB);
}

/* The work that used the block may still run when it goes, on half of them. */
static size_t piece_drop(struct piece *piece, unsigned *random)
{
    size_t wrong = pattern_wrong(piece->at, piece->bytes, piece->value, piece->stream);
    if (random_next(random) % 2 == 0)
        pattern_fill(piece->at, piece->bytes, 0, piece->stream);
    CHECK(cuMemFree(piece->at));
    piece->at = 0;
    return wrong;
}

static void piece_make(struct piece *piece, unsigned *random, unsigned value, CUstream stream)
{
    piece->bytes = random_size(random);
    piece->value = value * 2654435761u; /* Knuth's multiplier: neighbours differ in every byte */
    piece->stream = stream;
    piece->at = program_alloc(piece->bytes);
    if (piece->at != 0)
        pattern_fill(piece->at, piece->bytes, piece->value, stream);
}

int main(int argc, char **argv)
{
    struct piece pieces[LIVE] = {{0}};
    CUstream streams[STREAMS] = {NULL};
    unsigned random = 1, steps = 600, step, i;
    size_t wrong = 0;
    for (i = 1; i + 1 < (unsigned)argc; i += 2)
        if (strcmp(argv[i], "--seed") == 0)
            random = (unsigned)atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--steps") == 0)
            steps = (unsigned)atoi(argv[i + 1]);
    program_start();
    for (i = 1; i < STREAMS; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (step = 0; step < steps; step++) {
        struct piece *piece = &pieces[random_next(&random) % LIVE];
        if (piece->at != 0)
            wrong += piece_drop(piece, &random);
        else
            piece_make(piece, &random, step + 1, streams[random_next(&random) % STREAMS]);
    }
    for (i = 0; i < LIVE; i++)
        if (pieces[i].at != 0)
            wrong += pattern_wrong(pieces[i].at, pieces[i].bytes, pieces[i].value, pieces[i].stream);
    printf("%zu wrong\n", wrong);
    return finish();
}
