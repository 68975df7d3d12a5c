/* SPDX-License-Identifier: MIT
 *
 * Memory of a pool that lives for less time than there is between two polls. Leaves 1 MiB linear.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    CUdeviceptr pointer = 0;
    program_start();
    program_alloc(MIB);
    CHECK(cuMemAllocAsync(&pointer, 100 * MIB, NULL));
    CHECK(cuMemFreeAsync(pointer, NULL));
    CHECK(cuCtxSynchronize());
    return finish();
}
