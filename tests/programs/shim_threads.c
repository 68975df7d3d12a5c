/* SPDX-License-Identifier: MIT
 *
 * Several threads with several streams each allocate, fill, check and free, and hand every fourth
 * block to the next thread, which checks and frees it.  Twice, so the second set of threads finds
 * the first set's blocks in caches. `shim_threads --threads N --steps N`.  Leaves nothing but 1 MiB
 * linear.
 */
#include <cuda.h>

#include "finish.h"
#include "pattern.h"
#include "threads.h"

#define STREAMS 3
#define LIVE    12
#define SHELF   8

struct piece {
    CUdeviceptr at;
    size_t bytes;
    unsigned value;
};

static struct piece *shelf[SHELF]; /* exchanged atomically: a pointer belongs to the thread that took it out */
static size_t wrong_bytes;
static unsigned steps = 200;

static struct piece *piece_make(unsigned *random, unsigned value, CUstream stream)
{
    struct piece *piece = calloc(1, sizeof(*piece));
    piece->bytes =
        random_next(random) % 8 == 0 ? 1 + random_next(random) % (3 * MIB) : 1 + random_next(random) % (64 * KIB);
    piece->value = value * 2654435761u; /* Knuth's multiplier: neighbours differ in every byte */
    piece->at = program_alloc(piece->bytes);
    if (piece->at != 0)
        pattern_fill(piece->at, piece->bytes, piece->value, stream);
    return piece;
}

/* The thread that handed it over has waited for its stream.  Every second block is freed with work
 * in flight. */
static void piece_drop(struct piece *piece, CUstream stream)
{
    if (piece == NULL)
        return;
    if (piece->at != 0) {
        size_t wrong = pattern_wrong(piece->at, piece->bytes, piece->value, stream);
        __atomic_add_fetch(&wrong_bytes, wrong, __ATOMIC_RELAXED);
        if (piece->bytes % 2 == 0)
            pattern_fill(piece->at, piece->bytes, 0, stream);
        CHECK(cuMemFree(piece->at));
    }
    free(piece);
}

static void thread_body(unsigned number)
{
    CUstream streams[STREAMS] = {CU_STREAM_PER_THREAD, NULL, NULL};
    struct piece *live[LIVE] = {NULL};
    unsigned random = number + 1, step, at, i;
    CHECK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&streams[2], CU_STREAM_NON_BLOCKING));
    for (step = 0; step < steps; step++) {
        at = random_next(&random) % LIVE;
        if (live[at] == NULL) {
            live[at] = piece_make(&random, number * 100000 + step + 1, streams[at % STREAMS]);
        } else if (step % 4 == 0) {
            CHECK(cuStreamSynchronize(streams[at % STREAMS]));
            live[at] = __atomic_exchange_n(&shelf[random_next(&random) % SHELF], live[at], __ATOMIC_ACQ_REL);
        } else {
            piece_drop(live[at], streams[at % STREAMS]);
            live[at] = NULL;
        }
    }
    for (i = 0; i < LIVE; i++)
        piece_drop(live[i], streams[i % STREAMS]);
    CHECK(cuStreamDestroy(streams[1]));
    CHECK(cuStreamDestroy(streams[2]));
}

int main(int argc, char **argv)
{
    struct thread_arg threads[32];
    unsigned count = 4, round, i;
    for (i = 1; i + 1 < (unsigned)argc; i += 2)
        if (strcmp(argv[i], "--threads") == 0)
            count = (unsigned)atoi(argv[i + 1]) % 33;
        else if (strcmp(argv[i], "--steps") == 0)
            steps = (unsigned)atoi(argv[i + 1]);
    program_start();
    program_alloc(MIB);
    for (round = 0; round < 2; round++) {
        threads_start(threads, count, thread_body);
        threads_join(threads, count);
    }
    for (i = 0; i < SHELF; i++)
        piece_drop(shelf[i], NULL);
    printf("%zu wrong\n", wrong_bytes);
    return finish();
}
