/* SPDX-License-Identifier: MIT
 *
 * Two devices: copies between them without peer access, with it, and kernels that name the other's
 * memory; blocks allocated before and after peer access was enabled, and reused blocks.  The kernel
 * is empty: the simulated device checks the memory that it may access. Leaves 3 x (64 KiB + 4 MiB)
 * linear on each device.
 */
#include <cuda.h>

#include "finish.h"
#include "pattern.h"

static const char image[] = ".version 6.4\n.target sm_50\n.address_size 64\n"
                            ".visible .entry touch(.param .u64 at)\n{\n    ret;\n}\n";
static const size_t sizes[] = {64 * KIB, 4 * MIB};

struct side {
    CUcontext context;
    CUfunction touch;
    CUdeviceptr blocks[3][2]; /* before, after, reused */
};

static void side_alloc(struct side *side, int row)
{
    CHECK(cuCtxSetCurrent(side->context));
    side->blocks[row][0] = program_alloc(sizes[0]);
    side->blocks[row][1] = program_alloc(sizes[1]);
}

static void side_start(struct side *side, CUdevice device)
{
    CUmodule module = NULL;
    CHECK(cuDevicePrimaryCtxRetain(&side->context, device));
    CHECK(cuCtxSetCurrent(side->context));
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&side->touch, module, "touch"));
    side_alloc(side, 0);
}

/* A copy from the other device, in both forms, arrives. */
static size_t copies(struct side *self, struct side *other, int row)
{
    size_t wrong = 0;
    int i;
    for (i = 0; i < 2; i++) {
        CHECK(cuCtxSetCurrent(other->context));
        pattern_fill(other->blocks[row][i], sizes[i], 31, NULL);
        CHECK(cuCtxSynchronize());
        CHECK(cuCtxSetCurrent(self->context));
        CHECK(cuMemcpyDtoD(self->blocks[row][i], other->blocks[row][i], sizes[i]));
        wrong += pattern_wrong(self->blocks[row][i], sizes[i], 31, NULL);
        pattern_fill(self->blocks[row][i], sizes[i], 0, NULL);
        CHECK(cuMemcpyPeerAsync(self->blocks[row][i], self->context, other->blocks[row][i], other->context, sizes[i],
                                NULL));
        wrong += pattern_wrong(self->blocks[row][i], sizes[i], 31, NULL);
    }
    return wrong;
}

static void kernels(struct side *self, struct side *other, int row)
{
    void *params[1];
    int i;
    CHECK(cuCtxSetCurrent(self->context));
    for (i = 0; i < 2; i++) {
        params[0] = &other->blocks[row][i];
        CHECK(cuLaunchKernel(self->touch, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    }
    CHECK(cuCtxSynchronize());
}

static void side_reuse(struct side *side)
{
    int i;
    side_alloc(side, 2);
    for (i = 0; i < 2; i++)
        CHECK(cuMemFree(side->blocks[2][i]));
    side_alloc(side, 2);
}

int main(void)
{
    struct side sides[2] = {{0}};
    int count = 0, able = 0, i, row;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&count));
    if (count < 2) {
        printf("one device\n");
        return finish();
    }
    for (i = 0; i < 2; i++)
        side_start(&sides[i], i);
    printf("without access: %zu wrong\n", copies(&sides[0], &sides[1], 0) + copies(&sides[1], &sides[0], 0));
    CHECK(cuDeviceCanAccessPeer(&able, 0, 1));
    printf("able: %d\n", able);
    for (i = 0; able && i < 2; i++) {
        CHECK(cuCtxSetCurrent(sides[i].context));
        CHECK(cuCtxEnablePeerAccess(sides[1 - i].context, 0));
        REPORT("enabled twice", cuCtxEnablePeerAccess(sides[1 - i].context, 0));
    }
    for (i = 0; i < 2; i++) {
        side_alloc(&sides[i], 1);
        side_reuse(&sides[i]);
    }
    for (row = 0; row < 3; row++) {
        printf("with access: %zu wrong\n", copies(&sides[0], &sides[1], row) + copies(&sides[1], &sides[0], row));
        for (i = 0; able && i < 2; i++)
            kernels(&sides[i], &sides[1 - i], row);
    }
    for (i = 0; able && i < 2; i++) {
        CHECK(cuCtxSetCurrent(sides[i].context));
        CHECK(cuCtxDisablePeerAccess(sides[1 - i].context));
    }
    return finish();
}
