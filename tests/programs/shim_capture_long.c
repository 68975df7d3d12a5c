/* SPDX-License-Identifier: MIT
 *
 * A capture that stays open, on a blocking stream and on a non-blocking one, while another thread,
 * whose mode allows it, takes and frees more than the device holds, in all: it must always find
 * memory, its blocks must be sound, and the capture must end well. Leaves 4 MiB linear.
 */
#include <cuda.h>

#include "finish.h"
#include "pattern.h"
#include "threads.h"

#define ROUNDS 40
static const size_t sizes[] = {64 * MIB, 12 * KIB, 3 * MIB};
static CUstreamCaptureMode thread_mode;

static void thread_work(unsigned number)
{
    CUstreamCaptureMode mode = thread_mode;
    CUstream stream = NULL;
    CUdeviceptr block;
    unsigned round, i;
    (void)number;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < 3; i++) {
            block = program_alloc(sizes[i]);
            /* The first bytes and the last ones stand for all: 64 MiB forty times over would only
             * take time. */
            pattern_fill(block, 4 * KIB, round, stream);
            pattern_fill(block + sizes[i] - 4 * KIB, 4 * KIB, round + 1, stream);
            CHECK(cuStreamSynchronize(stream));
            pattern_fill(block, 4 * KIB, round, stream); /* in flight when it goes */
            CHECK(cuMemFree(block));
        }
    }
    CHECK(cuStreamDestroy(stream));
}

static void capture(CUstream stream, const char *what, CUdeviceptr target)
{
    struct thread_arg thread;
    CUgraph graph = NULL;
    CUgraphExec run = NULL;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    pattern_fill(target, MIB, 17, stream);
    threads_start(&thread, 1, thread_work);
    threads_join(&thread, 1);
    pattern_fill(target + MIB, MIB, 18, stream);
    REPORT(what, cuStreamEndCapture(stream, &graph));
    if (graph != NULL) {
        CHECK(cuGraphInstantiate(&run, graph, 0));
        CHECK(cuGraphLaunch(run, stream));
        printf("%s: %zu wrong\n", what,
               pattern_wrong(target, MIB, 17, stream) + pattern_wrong(target + MIB, MIB, 18, stream));
        CHECK(cuGraphExecDestroy(run));
        CHECK(cuGraphDestroy(graph));
    }
}

int main(void)
{
    CUstream streams[2] = {NULL, NULL};
    CUdeviceptr target;
    program_start();
    CHECK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    target = program_alloc(4 * MIB);
    thread_mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    capture(streams[0], "non-blocking, thread-local", target);
    capture(streams[1], "blocking, thread-local", target);
    thread_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    capture(streams[0], "non-blocking, relaxed", target);
    capture(streams[1], "blocking, relaxed", target);
    return finish();
}
