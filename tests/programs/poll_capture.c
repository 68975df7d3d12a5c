/* SPDX-License-Identifier: MIT
 *
 * Captures, in the mode that forbids unsafe calls to all threads, while gpuprof has a reason to ask the driver about a
 * pool. Prints how each capture ends. On the simulated GPU with capture=strict the first one cannot survive a question.
 */
#include <cuda.h>
#include <time.h>

#include "finish.h"

int main(void)
{
    struct timespec time = {0, 350000000};
    CUdeviceptr pointer = 0;
    CUstream stream, other;
    CUgraph graph = NULL;
    int i;
    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (i = 0; i < 4; i++) {
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CHECK(cuMemAllocAsync(&pointer, MIB, other));
        nanosleep(&time, NULL);
        REPORT("capture", cuStreamEndCapture(stream, &graph));
    }
    return finish();
}
