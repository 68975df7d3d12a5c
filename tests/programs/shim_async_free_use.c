/* SPDX-License-Identifier: MIT
 *
 * Work is still running when the memory is freed: long chains of sets and copies on several
 * streams, a copy out to pinned memory, and work that another thread put into its own default
 * stream.  Whatever comes next at the same address must wait for it. Leaves 64 KiB pinned and 2 MiB
 * linear.
 */
#include <cuda.h>

#include "finish.h"
#include "pattern.h"
#include "threads.h"

#define BIG     (32 * MIB)
#define STREAMS 4
static CUdeviceptr shared;

/* Many sets after one another: with virtual latencies the last is far from done when the call
 * returns. */
static void chain(CUdeviceptr at, CUstream stream)
{
    unsigned i;
    for (i = 0; i < 8; i++) {
        CHECK(cuMemsetD8Async(at + i * (BIG / 8), (unsigned char)i, BIG / 8, stream));
        CHECK(cuMemcpyDtoDAsync(at, at + BIG / 2, BIG / 4, stream));
    }
}

static size_t chains(const CUstream *streams)
{
    CUdeviceptr blocks[STREAMS];
    size_t wrong = 0;
    int i;
    for (i = 0; i < STREAMS; i++) {
        blocks[i] = program_alloc(BIG);
        chain(blocks[i], streams[i]);
    }
    for (i = 0; i < STREAMS; i++)
        CHECK(cuMemFree(blocks[i]));
    for (i = 0; i < STREAMS; i++) { /* whatever comes back goes to the next stream */
        blocks[i] = program_alloc(BIG);
        pattern_fill(blocks[i], BIG, 77u + (unsigned)i, streams[(i + 1) % STREAMS]);
    }
    for (i = 0; i < STREAMS; i++) {
        wrong += pattern_wrong(blocks[i], BIG, 77u + (unsigned)i, streams[(i + 1) % STREAMS]);
        CHECK(cuMemFree(blocks[i]));
    }
    return wrong;
}

/* The copy has the original bytes, although the source is freed and overwritten at once. */
static size_t copied_out(const CUstream *streams)
{
    unsigned char *out = NULL;
    CUdeviceptr source = program_alloc(64 * KIB), next;
    size_t wrong = 0, i;
    CHECK(cuMemHostAlloc((void **)&out, 64 * KIB, 0));
    CHECK(cuMemsetD8Async(source, 0x5a, 64 * KIB, streams[0]));
    if (out != NULL)
        CHECK(cuMemcpyDtoHAsync(out, source, 64 * KIB, streams[0]));
    CHECK(cuMemFree(source));
    next = program_alloc(64 * KIB);
    CHECK(cuMemsetD8Async(next, 0xa5, 64 * KIB, streams[1]));
    CHECK(cuStreamSynchronize(streams[0]));
    CHECK(cuStreamSynchronize(streams[1]));
    for (i = 0; out != NULL && i < 64 * KIB; i++)
        wrong += out[i] != 0x5a;
    CHECK(cuMemFree(next));
    return wrong;
}

static void thread_use(unsigned number)
{
    pattern_fill(shared, BIG, number, CU_STREAM_PER_THREAD);
}

static size_t other_thread(void)
{
    struct thread_arg thread;
    size_t wrong;
    shared = program_alloc(BIG);
    threads_start(&thread, 1, thread_use);
    threads_join(&thread, 1);
    CHECK(cuMemFree(shared));
    shared = program_alloc(BIG);
    pattern_fill(shared, BIG, 99, CU_STREAM_PER_THREAD);
    wrong = pattern_wrong(shared, BIG, 99, CU_STREAM_PER_THREAD);
    CHECK(cuMemFree(shared));
    return wrong;
}

int main(void)
{
    CUstream streams[STREAMS] = {NULL};
    size_t wrong = 0;
    int i;
    program_start();
    for (i = 0; i < STREAMS; i++)
        CHECK(cuStreamCreate(&streams[i], i % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    program_alloc(2 * MIB);
    for (i = 0; i < 2; i++)
        wrong += chains(streams);
    printf("chains: %zu wrong\n", wrong);
    printf("copied out: %zu wrong\n", copied_out(streams));
    printf("other thread: %zu wrong\n", other_thread());
    return finish();
}
