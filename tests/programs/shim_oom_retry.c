/* SPDX-License-Identifier: MIT
 *
 * Fills the device with blocks of one size, frees all of them, and asks for one that needs the
 * memory of many: it must be there, whatever was cached.  In every order of sizes; a request beyond
 * the device fails as the driver says. Leaves 4 KiB linear.
 */
#include <cuda.h>

#include "finish.h"
#include "pattern.h"

#define BLOCKS 65536

static CUdeviceptr blocks[BLOCKS];

/* Until the driver says no; the code of that is returned. */
static CUresult fill(size_t bytes, size_t *count)
{
    CUresult result = CUDA_SUCCESS;
    for (*count = 0; *count < BLOCKS && result == CUDA_SUCCESS; *count += result == CUDA_SUCCESS)
        result = cuMemAlloc(&blocks[*count], bytes);
    return result;
}

static void round_of(size_t bytes, size_t large, CUstream stream)
{
    size_t count, i;
    CUdeviceptr block = 0;
    int full = (int)fill(bytes, &count);
    printf("%zu KiB: full %d\n", bytes / KIB, full);
    for (i = 0; i < count; i += 7) /* work that no one waits for */
        CHECK(cuMemsetD8Async(blocks[i], 1, 64 * KIB, stream));
    for (i = 0; i < count; i++)
        CHECK(cuMemFree(blocks[i]));
    REPORT("one large", cuMemAlloc(&block, large));
    if (block != 0) {
        pattern_fill(block, 2 * MIB, 5, NULL);
        pattern_fill(block + large - 2 * MIB, 2 * MIB, 6, NULL);
        printf("usable: %d\n", pattern_wrong(block, 2 * MIB, 5, NULL) == 0 &&
                                   pattern_wrong(block + large - 2 * MIB, 2 * MIB, 6, NULL) == 0);
        CHECK(cuMemFree(block));
    }
}

int main(void)
{
    static const size_t sizes[] = {64 * KIB, 700 * KIB, 4 * MIB, 30 * MIB, 200 * MIB};
    size_t left = 0, total = 0, large, i;
    CUdeviceptr none = 0;
    CUstream stream = NULL;
    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemGetInfo(&left, &total));
    program_alloc(4 * KIB);
    large = left / 10 * 9 / MIB * MIB;
    if (large < 4 * MIB)
        return finish();
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        round_of(sizes[i], large, stream);
    REPORT("beyond the device", cuMemAlloc(&none, total + MIB));
    REPORT("more than is free", cuMemAlloc(&none, left + 64 * MIB));
    return finish();
}
