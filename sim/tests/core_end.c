/* SPDX-License-Identifier: MIT
 * Selftest: the end of the process: handlers of exit() that were registered after cuInit come before the driver's, those
 * from before it come too late. */
#include "core_check.h"

static CUdeviceptr memory;

static void in_time(void)
{
    CHECK_OK(cuMemFree(memory));
    CHECK_OK(cuMemAlloc(&memory, 4096));
}

static void too_late(void)
{
    const char *name = NULL;
    CUcontext context;

    CHECK_EQ(cuMemFree(memory), CUDA_ERROR_DEINITIALIZED);
    CHECK_EQ(cuMemAlloc(&memory, 4096), CUDA_ERROR_DEINITIALIZED);
    CHECK_EQ(cuCtxGetCurrent(&context), CUDA_ERROR_DEINITIALIZED);
    CHECK_OK(cuGetErrorName(CUDA_ERROR_DEINITIALIZED, &name));
    CHECK(name && !strcmp(name, "CUDA_ERROR_DEINITIALIZED"));
    CHECK_EQ(check_kind(0, "linear", "current_bytes"), 4096);
    check_done();
    fflush(stdout);
    _exit(check_failed != 0);
}

int main(void)
{
    atexit(too_late);
    check_begin(0);
    atexit(in_time);
    CHECK_OK(cuMemAlloc(&memory, 4096));
    exit(1); /* too_late has the status */
}
