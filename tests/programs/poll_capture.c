/* SPDX-License-Identifier: MIT
 *
 * Captures, in the mode that forbids unsafe calls to all threads, while gpuprof has a reason to ask
 * the driver about a pool: an allocation by this thread, whose relaxed mode keeps it from ending the
 * capture. Prints how each capture ends. On the simulated GPU with capture=strict the first one
 * cannot survive a question.
 */
#include <cuda.h>
#include <time.h>

#include "finish.h"

static void alloc_in(CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr pointer = 0;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(cuMemAllocAsync(&pointer, MIB, stream));
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
}

int main(void)
{
    struct timespec time = {0, 350000000};
    CUstream stream, other;
    CUgraph graph = NULL;
    int i;
    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (i = 0; i < 4; i++) {
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        alloc_in(other);
        nanosleep(&time, NULL);
        REPORT("capture", cuStreamEndCapture(stream, &graph));
    }
    return finish();
}
