/* SPDX-License-Identifier: MIT
 *
 * One of the ranks of a job: each holds 64 MiB of weights, and in each of 20 steps 32 MiB of
 * activations.  The rank whose number is the argument (none without one) also keeps 48 MiB in
 * gather_on_one, and 1 MiB more with every step.  With the argument `stray` each rank holds 64 MiB on the
 * GPU of its number for a second, and rank 1 also 20 MiB on the first one.
 */
#include <cuda.h>

#include "api.h"
#include "finish.h"
#include <time.h>
#include <unistd.h>

static __attribute__((noinline)) CUdeviceptr load_weights(void)
{
    CUdeviceptr pointer = 0;
    CHECK(cuMemAlloc(&pointer, 64 * MIB));
    return pointer;
}

static __attribute__((noinline)) CUdeviceptr gather_on_one(size_t bytes)
{
    CUdeviceptr pointer = 0;
    CHECK(cuMemAlloc(&pointer, bytes));
    return pointer;
}

static __attribute__((noinline)) void step(int extra)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    CUdeviceptr activations = 0;
    CHECK(cuMemAlloc(&activations, 32 * MIB));
    if (extra)
        gather_on_one(MIB);
    nanosleep(&pause, NULL);
    CHECK(cuMemFree(activations));
}

static __attribute__((noinline)) CUdeviceptr scratch_on_first(void)
{
    CUdeviceptr pointer = 0;
    CUcontext context;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&pointer, 20 * MIB));
    return pointer;
}

static int stray(int rank)
{
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, rank));
    CHECK(cuCtxSetCurrent(context));
    load_weights();
    if (rank == 1)
        scratch_on_first();
    sleep(1); /* the ranks are there together */
    return finish();
}

int main(int argc, char **argv)
{
    const char *rank = getenv("RANK");
    int extra = argc > 1 && rank && strcmp(rank, argv[1]) == 0;
    if (rank && argc > 1 && strcmp(argv[1], "stray") == 0)
        return stray(atoi(rank));
    program_start();
    int marks = api_load();

    load_weights();
    if (extra)
        gather_on_one(48 * MIB);
    for (int i = 0; i < 20; i++) {
        step(extra);
        if (marks)
            api_gpuprof_mark("step");
    }
    return finish();
}
