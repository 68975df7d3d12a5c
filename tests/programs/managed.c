/* SPDX-License-Identifier: MIT
 *
 * Managed memory is a row of its own: it is virtual, and neither allocated nor reserved.
 * Leaves 3 MiB managed and 1 MiB linear live.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    CUdeviceptr kept = 0, gone = 0;
    program_start();
    CHECK(cuMemAllocManaged(&kept, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemAllocManaged(&gone, 5 * MIB, CU_MEM_ATTACH_HOST));
    program_alloc(MIB);
    if (kept != 0)
        memset((void *)kept, 7, 4096); /* the host may touch it */
    CHECK(cuMemFree(gone));
    REPORT("size 0", cuMemAllocManaged(&gone, 0, CU_MEM_ATTACH_GLOBAL));
    REPORT("no flags", cuMemAllocManaged(&gone, MIB, 0));
    return finish();
}
