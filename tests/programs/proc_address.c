/* SPDX-License-Identifier: MIT
 *
 * Entry points asked from the driver by name, version and flags, as the runtime and PyTorch do.
 * Leaves 1 MiB linear and 2 MiB from the pool.
 */
#include <cuda.h>

#include "finish.h"

typedef CUresult (*alloc_fn)(CUdeviceptr *, size_t);
typedef CUresult (*alloc_async_fn)(CUdeviceptr *, size_t, CUstream);
typedef CUresult (*free_fn)(CUdeviceptr);

static void *entry(const char *name, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    void *function = NULL;
    CHECK(cuGetProcAddress(name, &function, version, flags, &found));
    printf("%s %d: %s\n", name, version, function != NULL ? "found" : "not found");
    return function;
}

int main(void)
{
    CUdeviceptr kept = 0, gone = 0, pooled = 0;
    program_start();
    alloc_fn alloc = (alloc_fn)entry("cuMemAlloc", 3020, CU_GET_PROC_ADDRESS_DEFAULT);
    free_fn release = (free_fn)entry("cuMemFree", 12000, CU_GET_PROC_ADDRESS_DEFAULT);
    alloc_async_fn alloc_async =
        (alloc_async_fn)entry("cuMemAllocAsync", 11020, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);

    entry("cuMemNoSuchThing", 12000, CU_GET_PROC_ADDRESS_DEFAULT);
    entry("cuMemAllocAsync", 11010, CU_GET_PROC_ADDRESS_DEFAULT);
    if (alloc == NULL || release == NULL || alloc_async == NULL)
        return finish();
    CHECK(alloc(&kept, MIB));
    CHECK(alloc(&gone, 3 * MIB));
    CHECK(alloc_async(&pooled, 2 * MIB, NULL));
    CHECK(release(gone));
    return finish();
}
