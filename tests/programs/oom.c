/* SPDX-License-Identifier: MIT
 *
 * Out of memory, twice: the failed calls change no number, and a free makes room again.
 * Leaves three blocks of three eighths, one eighth and one eighth of the device.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    CUdevice device = program_start();
    CUdeviceptr first, pointer = 0;
    size_t total = 0;
    CHECK(cuDeviceTotalMem(&total, device));
    total &= ~(16 * MIB - 1);
    first = program_alloc(total / 4);
    program_alloc(total / 8 * 3);
    REPORT("more than there is", cuMemAlloc(&pointer, total));
    REPORT("more than is left", cuMemAlloc(&pointer, total / 2));
    CHECK(cuMemFree(first));
    program_alloc(total / 8);
    program_alloc(total / 8);
    return finish();
}
