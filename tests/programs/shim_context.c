/* SPDX-License-Identifier: MIT
 *
 * Contexts die with blocks in use and with freed ones that a cache may hold: by destruction, by the
 * last release of the primary context and by its reset.  Only their memory is gone, and memory
 * allocated afterwards is sound. Leaves 12 KiB + 6 MiB linear in the last primary context.
 */
#include <cuda.h>

#include "make.h"
#include "pattern.h"

#define BLOCKS 6
static const size_t sizes[BLOCKS] = {4 * KIB, 8 * KIB, 500 * KIB, 2 * MIB, 4 * MIB, 30 * MIB};

/* Work in flight, every second block freed. */
static void use(CUdeviceptr *blocks, unsigned value)
{
    CUstream stream = NULL;
    int i;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (i = 0; i < BLOCKS; i++) {
        blocks[i] = program_alloc(sizes[i]);
        pattern_fill(blocks[i], sizes[i], value + (unsigned)i, i % 2 == 0 ? stream : NULL);
    }
    for (i = 1; i < BLOCKS; i += 2)
        CHECK(cuMemFree(blocks[i]));
}

static size_t still_there(const CUdeviceptr *blocks, unsigned value)
{
    size_t wrong = 0;
    int i;
    CHECK(cuCtxSynchronize());
    for (i = 0; i < BLOCKS; i += 2)
        wrong += pattern_wrong(blocks[i], sizes[i], value + (unsigned)i, NULL);
    return wrong;
}

static void destroyed(CUdevice device, const CUdeviceptr *kept)
{
    CUdeviceptr blocks[BLOCKS];
    CUcontext doomed, primary = NULL;
    int round;
    CHECK(cuCtxGetCurrent(&primary));
    for (round = 0; round < 3; round++) {
        doomed = context_make(device);
        use(blocks, 50);
        printf("own: %zu wrong\n", still_there(blocks, 50));
        if (round == 1)
            CHECK(cuCtxSetCurrent(primary)); /* destroyed while another one is current */
        CHECK(cuCtxDestroy(doomed));
        CHECK(cuCtxSetCurrent(primary));
        REPORT("free of what went", cuMemFree(blocks[4]));
        printf("the others': %zu wrong\n", still_there(kept, 10));
    }
}

/* Two contexts take turns: a block belongs to the one that was current. */
static void turns(CUdevice device)
{
    CUdeviceptr first[BLOCKS], second[BLOCKS];
    CUcontext one = context_make(device), two = context_make(device);
    CHECK(cuCtxSetCurrent(one));
    use(first, 20);
    CHECK(cuCtxSetCurrent(two));
    use(second, 30);
    CHECK(cuMemFree(first[0])); /* of the other context: the driver allows it */
    first[0] = program_alloc(sizes[0]);
    CHECK(cuCtxDestroy(two));
    CHECK(cuCtxSetCurrent(one));
    REPORT("free of what went", cuMemFree(first[0]));
    first[0] = program_alloc(sizes[0]);
    pattern_fill(first[0], sizes[0], 20, NULL);
    printf("turns: %zu wrong\n", still_there(first, 20));
    CHECK(cuCtxDestroy(one));
}

int main(void)
{
    CUdeviceptr kept[BLOCKS];
    CUcontext context = NULL;
    CUdevice device = program_start();
    int round;
    use(kept, 10);
    destroyed(device, kept);
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuDevicePrimaryCtxRelease(device));
    turns(device);
    for (round = 0; round < 2; round++) {
        CHECK(round == 0 ? cuDevicePrimaryCtxRelease(device) : cuDevicePrimaryCtxReset(device));
        CHECK(cuDevicePrimaryCtxRetain(&context, device));
        CHECK(cuCtxSetCurrent(context));
        use(kept, 60);
        printf("again: %zu wrong\n", still_there(kept, 60));
    }
    CHECK(cuMemFree(kept[2]));
    CHECK(cuMemFree(kept[0]));
    kept[0] = program_alloc(12 * KIB);
    CHECK(cuMemFree(kept[4]));
    kept[1] = program_alloc(6 * MIB);
    printf("live: %d\n", kept[0] != 0 && kept[1] != 0);
    return finish();
}
