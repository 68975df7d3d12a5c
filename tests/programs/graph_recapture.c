/* SPDX-License-Identifier: MIT
 *
 * A graph that is captured again (CUDA 13.3) keeps its memory: the allocation calls give the
 * addresses of the first capture, in the stream itself and in one that joined it.  The first capture
 * is begun with the call of CUDA 10.0. Leaves one graph of 3 MiB and 2 MiB, and 1 MiB from the pool.
 */
#include <cuda.h>

#include "finish.h"
#include "later.h"

typedef CUresult (*begin_fn)(CUstream);
typedef CUresult (*again_fn)(CUstream, CUstreamCaptureMode, CUgraph, void *, void *);

static CUstream stream, joined;

static void work(CUdeviceptr *first, CUdeviceptr *second)
{
    CUevent fork = NULL, join = NULL;
    CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAllocAsync(first, 3 * MIB, stream));
    CHECK(cuEventRecord(fork, stream));
    CHECK(cuStreamWaitEvent(joined, fork, 0));
    CHECK(cuMemAllocAsync(second, 2 * MIB, joined));
    CHECK(cuEventRecord(join, joined));
    CHECK(cuStreamWaitEvent(stream, join, 0));
}

static CUgraph end(const char *what)
{
    CUgraph graph = NULL;
    REPORT(what, cuStreamEndCapture(stream, &graph));
    return graph;
}

int main(void)
{
    CUdeviceptr first = 0, second = 0, first_again = 0, second_again = 0, plain = 0;
    CUgraph graph, same, broken;
    begin_fn begin;
    again_fn again;

    later_start(13030);
    begin = (begin_fn)later("cuStreamBeginCapture", 10000);
    again = (again_fn)later("cuStreamBeginRecaptureToGraph", 13030);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));

    CHECK(LATER(begin, stream));
    work(&first, &second);
    graph = end("first");
    CHECK(LATER(again, stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, NULL, NULL));
    work(&first_again, &second_again);
    same = end("again");
    if (same != NULL) { /* after a failed capture addresses are anybody's */
        printf("same: %d %d %d\n", same == graph, first == first_again, second == second_again);
    }

    CHECK(LATER(begin, stream));
    work(&first_again, &second_again);
    broken = end("another");
    CHECK(LATER(again, stream, CU_STREAM_CAPTURE_MODE_RELAXED, broken, NULL, NULL));
    REPORT("another size", cuMemAllocAsync(&first_again, 5 * MIB, stream)); /* the graph is of no use any more */
    end("other memory");
    CHECK(cuGraphDestroy(broken));
    CHECK(cuMemAllocAsync(&plain, MIB, stream));
    CHECK(cuStreamSynchronize(stream));
    return finish();
}
