/* SPDX-License-Identifier: MIT
 *
 * A program that sizes its batches by cuMemGetInfo: allocations lower the free bytes, frees raise
 * them, and as much as the driver reports as free can be allocated.  Prints whether the figures are
 * within one 32 MiB batch of the truth. Leaves 8 MiB linear.
 */
#include <cuda.h>

#include "finish.h"

#define BATCH   (32 * MIB)
#define BATCHES 4096 /* 128 GiB: ends the loop on the largest devices too */

static size_t free_now(void)
{
    size_t left = 0, total = 0;
    CHECK(cuMemGetInfo(&left, &total));
    if (left > total)
        printf("more free than there is\n");
    return left;
}

static int near_to(size_t a, size_t b)
{
    return a < b ? b - a <= BATCH : a - b <= BATCH;
}

static size_t take(CUdeviceptr *blocks, size_t count)
{
    size_t i;
    for (i = 0; i < count && cuMemAlloc(&blocks[i], BATCH) == CUDA_SUCCESS; i++) {
    }
    return i;
}

static void drop(CUdeviceptr *blocks, size_t count)
{
    while (count > 0)
        CHECK(cuMemFree(blocks[--count]));
}

int main(void)
{
    static CUdeviceptr blocks[BATCHES], small[256];
    size_t before, fits, taken, i;
    int round;
    program_start();
    program_alloc(8 * MIB);
    before = free_now();
    taken = take(blocks, 4);
    printf("taken: %d\n", near_to(before - free_now(), taken * BATCH));
    drop(blocks, taken);
    printf("back: %d\n", near_to(before, free_now()));
    for (round = 0; round < 3; round++) {
        fits = free_now() / BATCH;
        fits = fits < BATCHES ? fits : BATCHES;
        taken = take(blocks, fits);
        printf("round %d: %d of what fits\n", round, taken + 1 >= fits);
        drop(blocks, taken);
        printf("back: %d\n", near_to(before, free_now()));
    }
    for (i = 0; i < 256; i++)
        small[i] = program_alloc(1000 * (i + 1));
    printf("small ones: %d\n", near_to(before - free_now(), 33 * MIB)); /* 1000 x (1 + .. + 256) bytes = 31.4 MiB */
    for (i = 0; i < 256; i++)
        CHECK(cuMemFree(small[i]));
    printf("back: %d\n", near_to(before, free_now()));
    return finish();
}
