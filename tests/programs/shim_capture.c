/* SPDX-License-Identifier: MIT
 *
 * Calls that a capture forbids: cuMemAlloc and cuMemFree in every capture mode, on the capturing
 * thread and on another one in each mode of its own, with blocks that a cache could serve and
 * without.  Prints the result codes and the state of the capture.  Then runs a captured graph in
 * memory allocated before it, between frees of other blocks. Leaves 6 MiB linear and one graph.
 */
#include <cuda.h>

#include "finish.h"
#include "pattern.h"
#include "threads.h"

static const char *const mode_names[] = {"global", "thread-local", "relaxed"};
static CUstreamCaptureMode thread_mode;
static CUresult thread_alloc_result, thread_free_result;
static CUdeviceptr thread_block;
static size_t case_bytes;

/* Blocks that wait for work and idle blocks, from which a cache would serve the next call. */
static void warm(CUstream stream, size_t bytes)
{
    CUdeviceptr blocks[4];
    int i;
    for (i = 0; i < 4; i++) {
        blocks[i] = program_alloc(bytes);
        pattern_fill(blocks[i], bytes, 3, i < 2 ? stream : NULL);
    }
    for (i = 0; i < 4; i++)
        CHECK(cuMemFree(blocks[i]));
}

/* The capture's end, and whether the stream works again. */
static void end_report(const char *what, CUstream stream)
{
    CUgraph graph = NULL;
    int code = (int)cuStreamEndCapture(stream, &graph);
    printf("%s: end %d, graph %d\n", what, code, graph != NULL);
    if (graph != NULL)
        CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamSynchronize(stream));
}

static void here(CUstream stream, CUstreamCaptureMode mode, size_t bytes)
{
    CUdeviceptr kept = program_alloc(bytes), inside = 0;
    char what[64];
    int code;
    snprintf(what, sizeof(what), "%s %zu KiB alloc", mode_names[mode], bytes / KIB);
    warm(stream, bytes);
    CHECK(cuStreamBeginCapture(stream, mode));
    code = (int)cuMemAlloc(&inside, bytes);
    printf("%s: %d\n", what, code);
    end_report(what, stream);
    if (code == 0)
        CHECK(cuMemFree(inside));
    snprintf(what, sizeof(what), "%s %zu KiB free", mode_names[mode], bytes / KIB);
    CHECK(cuStreamBeginCapture(stream, mode));
    code = (int)cuMemFree(kept);
    printf("%s: %d\n", what, code);
    end_report(what, stream);
    if (code != 0)
        CHECK(cuMemFree(kept)); /* a free that failed freed nothing */
}

static void thread_try(unsigned number)
{
    CUstreamCaptureMode mode = thread_mode;
    (void)number;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    thread_alloc_result = cuMemAlloc(&thread_block, case_bytes);
    thread_free_result = thread_alloc_result == CUDA_SUCCESS ? cuMemFree(thread_block) : CUDA_SUCCESS;
}

static void there(CUstream stream, CUstreamCaptureMode mode, CUstreamCaptureMode other, size_t bytes)
{
    struct thread_arg thread;
    char what[64];
    thread_mode = other;
    case_bytes = bytes;
    warm(stream, bytes);
    CHECK(cuStreamBeginCapture(stream, mode));
    threads_start(&thread, 1, thread_try);
    threads_join(&thread, 1);
    snprintf(what, sizeof(what), "%s capture, %s thread", mode_names[mode], mode_names[other]);
    printf("%s: alloc %d, free %d\n", what, (int)thread_alloc_result, (int)thread_free_result);
    end_report(what, stream);
}

/* The graph writes to memory taken before the capture; blocks around it come and go. */
static void graph_runs(CUstream stream)
{
    CUdeviceptr target = program_alloc(4 * MIB), other;
    CUgraph graph = NULL;
    CUgraphExec run = NULL;
    size_t wrong = 0;
    int i;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    pattern_fill(target, 4 * MIB, 4711, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&run, graph, 0));
    for (i = 0; i < 4; i++) {
        other = program_alloc(4 * MIB);
        CHECK(cuGraphLaunch(run, stream));
        pattern_fill(other, 4 * MIB, 1, stream);
        CHECK(cuMemFree(other));
        wrong += pattern_wrong(target, 4 * MIB, 4711, stream);
        pattern_fill(target, 4 * MIB, 0, stream);
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(run));
    printf("graph: %zu wrong\n", wrong);
}

int main(void)
{
    static const size_t sizes[] = {16 * KIB, 4 * MIB};
    CUstream streams[2] = {NULL,
                           NULL}; /* a blocking one too: its capture is broken by whatever touches the legacy one */
    int mode, other;
    size_t i;
    program_start();
    CHECK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    program_alloc(2 * MIB);
    for (i = 0; i < 2; i++) {
        for (mode = 0; mode < 3; mode++) {
            here(streams[i], (CUstreamCaptureMode)mode, sizes[i]);
            for (other = 0; other < 3; other++)
                there(streams[i], (CUstreamCaptureMode)mode, (CUstreamCaptureMode)other, sizes[i]);
        }
    }
    graph_runs(streams[0]);
    return finish();
}
