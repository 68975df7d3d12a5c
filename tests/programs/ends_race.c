/* SPDX-License-Identifier: MIT
 *
 * ends_race destroy|release|reset|green: one thread makes contexts with 512 MiB in them and ends them, by
 * cuCtxDestroy, by the last release of the primary context, by its reset, or by the end of a green context that holds
 * the last reference. The other thread takes 768 MiB whenever there is room, so on a device of 1 GiB it gets them
 * inside the calls that end a context. Leaves 5 MiB.
 */
#include <cuda.h>
#include <pthread.h>

#include "make.h"

#define ROUNDS 200

static CUcontext takers;
static int x_over;

static void *take(void *unused)
{
    CUdeviceptr block = 0;
    CHECK(cuCtxSetCurrent(takers));
    while (!__atomic_load_n(&x_over, __ATOMIC_ACQUIRE))
        if (cuMemAlloc(&block, 768 * MIB) == CUDA_SUCCESS)
            CHECK(cuMemFree(block));
    return unused;
}

static void hold(void)
{
    CUdeviceptr block = 0;
    void *pinned = NULL;
    cuMemAlloc(&block, 512 * MIB); /* if there is room */
    cuMemAlloc(&block, 1 * MIB);
    cuMemHostAlloc(&pinned, MIB, 0);
}

static void round_of(const char *way)
{
    CUcontext context = NULL;
    CUgreenCtx green = NULL;
    CUdevResource all;
    CUdevResourceDesc shape = NULL;
    if (strcmp(way, "destroy") == 0) {
        context = context_make(0);
        hold();
        if (context != NULL)
            CHECK(cuCtxDestroy(context));
        return;
    }
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    hold();
    if (strcmp(way, "green") == 0 && cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS &&
        cuDevResourceGenerateDesc(&shape, &all, 1) == CUDA_SUCCESS)
        CHECK(cuGreenCtxCreate(&green, shape, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    if (strcmp(way, "reset") == 0)
        CHECK(cuDevicePrimaryCtxReset(0));
    else
        CHECK(cuDevicePrimaryCtxRelease(0));
    if (green != NULL)
        CHECK(cuGreenCtxDestroy(green));
}

int main(int argc, char **argv)
{
    pthread_t taker;
    int i;
    CHECK(cuInit(0));
    takers = context_make(0);
    if (pthread_create(&taker, NULL, take, NULL) != 0)
        return 3;
    for (i = 0; i < ROUNDS; i++)
        round_of(argc > 1 ? argv[1] : "destroy");
    __atomic_store_n(&x_over, 1, __ATOMIC_RELEASE);
    pthread_join(taker, NULL);
    CHECK(cuCtxSetCurrent(takers));
    program_alloc(5 * MIB);
    return finish();
}
