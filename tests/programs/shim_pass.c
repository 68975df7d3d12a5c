/* SPDX-License-Identifier: MIT
 *
 * Memory of every kind other than linear: each is freed by its own call or by cuMemFree where the
 * driver takes it, and refused where the driver refuses it.  Linear memory may be freed in stream
 * order too. Leaves 2 MiB managed, 1 MiB pinned, 3 MiB linear and what the default pool keeps.
 */
#include <cuda.h>

#include "make.h"
#include "pattern.h"

static void managed(void)
{
    CUdeviceptr block = 0;
    unsigned is = 0;
    CHECK(cuMemAllocManaged(&block, 2 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_MANAGED, block));
    printf("managed: %u\n", is);
    CHECK(cuMemFree(block));
    CHECK(cuMemAllocManaged(&block, 2 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemsetD8(block, 7, 2 * MIB));
    CHECK(cuCtxSynchronize());
    printf("managed byte: %d\n", block != 0 ? ((volatile unsigned char *)block)[MIB] : -1);
}

static void host(void)
{
    static unsigned char page[8192] __attribute__((aligned(4096)));
    void *pinned = NULL;
    CHECK(cuMemHostAlloc(&pinned, MIB, 0));
    REPORT("cuMemFree of pinned memory", cuMemFree((CUdeviceptr)pinned));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemHostAlloc(&pinned, MIB, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostRegister(page, sizeof(page), 0));
    REPORT("cuMemFree of registered memory", cuMemFree((CUdeviceptr)page));
    CHECK(cuMemHostUnregister(page));
    REPORT("cuMemFreeHost of linear memory", cuMemFreeHost((void *)program_alloc(MIB)));
}

static void array(void)
{
    CUDA_ARRAY_DESCRIPTOR shape;
    CUarray made = NULL;
    CUdeviceptr pitched = 0;
    size_t pitch = 0;
    memset(&shape, 0, sizeof(shape));
    shape.Width = 256;
    shape.Height = 64;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 4;
    CHECK(cuArrayCreate(&made, &shape));
    CHECK(cuArrayDestroy(made));
    CHECK(cuMemAllocPitch(&pitched, &pitch, 1000, 300, 16));
    CHECK(cuMemsetD2D8(pitched, pitch, 9, 1000, 300));
    printf("pitch: %d\n", pitch >= 1000);
    CHECK(cuMemFree(pitched));
}

static void pools(CUstream stream)
{
    CUmemoryPool pool = NULL;
    CUdeviceptr async = 0, pooled = 0;
    size_t wrong;
    pool = pool_make(0);
    CHECK(cuMemAllocAsync(&async, MIB, stream));
    CHECK(cuMemAllocFromPoolAsync(&pooled, 3 * MIB, pool, stream));
    pattern_fill(async, MIB, 5, stream);
    pattern_fill(pooled, 3 * MIB, 6, stream);
    wrong = pattern_wrong(async, MIB, 5, stream) + pattern_wrong(pooled, 3 * MIB, 6, stream);
    printf("pools: %zu wrong\n", wrong);
    CHECK(cuMemFree(async));
    CHECK(cuMemFreeAsync(pooled, stream));
    CHECK(cuStreamSynchronize(stream));
    REPORT("pool memory freed twice", cuMemFree(async));
    CHECK(cuMemPoolDestroy(pool));
}

/* cuMemAlloc, cuMemFreeAsync: the free comes after the stream's work, and the block may come again
 * at once. */
static void stream_ordered(CUstream stream)
{
    static const size_t sizes[] = {8 * KIB, 3 * MIB, 17 * MIB};
    CUdeviceptr block, next;
    size_t wrong = 0, i;
    for (i = 0; i < 3; i++) {
        block = program_alloc(sizes[i]);
        pattern_fill(block, sizes[i], 1, stream);
        CHECK(cuMemFreeAsync(block, stream));
        next = program_alloc(sizes[i]);
        CHECK(cuStreamSynchronize(stream));
        pattern_fill(next, sizes[i], 2, NULL);
        wrong += pattern_wrong(next, sizes[i], 2, NULL);
        CHECK(cuMemFreeAsync(next, NULL));
    }
    CHECK(cuCtxSynchronize());
    printf("stream-ordered: %zu wrong\n", wrong);
}

static void unknown(void)
{
    CUdeviceptr reserved = 0;
    int local = 0;
    REPORT("free of a made-up address", cuMemFree(0x1234000));
    REPORT("free of a local variable", cuMemFree((CUdeviceptr)&local));
    CHECK(cuMemAddressReserve(&reserved, 2 * MIB, 0, 0, 0));
    REPORT("free of a reservation", cuMemFree(reserved));
    CHECK(cuMemAddressFree(reserved, 2 * MIB));
}

int main(void)
{
    CUstream stream = NULL;
    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    program_alloc(2 * MIB);
    managed();
    host();
    array();
    pools(stream);
    stream_ordered(stream);
    unknown();
    return finish();
}
