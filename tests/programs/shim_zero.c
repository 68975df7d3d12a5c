/* SPDX-License-Identifier: MIT
 *
 * Invalid calls fail with the driver's own code and change nothing: 0 bytes, a NULL result pointer,
 * sizes beyond every device, blocks freed twice, from the middle, or never allocated; no context.
 * Leaves 3 KiB linear.
 */
#include <cuda.h>

#include "finish.h"

static void before_init(void)
{
    CUdeviceptr none = 0;
    REPORT("before cuInit: alloc", cuMemAlloc(&none, KIB));
    REPORT("before cuInit: free", cuMemFree(0x1000));
    CHECK(cuInit(0));
    REPORT("no context: alloc", cuMemAlloc(&none, KIB));
    REPORT("no context: free", cuMemFree(0x1000));
}

static void sizes(void)
{
    static const size_t large[] = {(size_t)1 << 50, (size_t)1 << 60, (size_t)1 << 62,     (size_t)1 << 63,
                                   ~(size_t)0,      ~(size_t)511,    ~(size_t)0 - 2 * MIB};
    CUdeviceptr none = 77;
    size_t i;
    REPORT("no bytes", cuMemAlloc(&none, 0));
    printf("pointer %llu\n", (unsigned long long)none);
    REPORT("no place", cuMemAlloc(NULL, KIB));
    REPORT("neither", cuMemAlloc(NULL, 0));
    for (i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        none = 77;
        REPORT("too large", cuMemAlloc(&none, large[i]));
        printf("pointer %llu\n", (unsigned long long)none);
    }
}

static void frees(size_t bytes)
{
    CUdeviceptr block = program_alloc(bytes), again;
    REPORT("free of nothing", cuMemFree(0));
    REPORT("free of the middle", cuMemFree(block + bytes / 2));
    REPORT("free of the second half-kilobyte", cuMemFree(block + 512));
    REPORT("free", cuMemFree(block));
    REPORT("free again", cuMemFree(block));
    REPORT("free of the middle of what is free", cuMemFree(block + bytes / 2));
    again = program_alloc(bytes);
    REPORT("set", cuMemsetD8(again, 1, bytes));
    REPORT("free", cuMemFree(again));
    REPORT("free again", cuMemFree(again));
}

int main(void)
{
    before_init();
    program_start();
    sizes();
    frees(2 * KIB);
    frees(MIB);
    frees(6 * MIB);
    program_alloc(3 * KIB);
    return finish();
}
