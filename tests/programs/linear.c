/* SPDX-License-Identifier: MIT
 *
 * Linear memory: sizes around the driver's rounding steps, peak above what stays.
 * Leaves five of the seven live (1, 512, 4097, 1 MiB + 1, 3 MiB + 5); at the peak all seven are.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    static const size_t sizes[] = {1, 512, 4097, MIB, MIB + 1, 3 * MIB + 5, 10 * MIB};
    CUdeviceptr pointers[7];
    unsigned i, round;
    program_start();
    for (round = 0; round < 3; round++) {
        for (i = 0; i < 7; i++)
            pointers[i] = program_alloc(sizes[i]);
        CHECK(cuMemsetD8(pointers[6], 0x5a, sizes[6]));
        for (i = round == 2 ? 3 : 0; i < 7; i++) {
            if (round == 2 && (i == 4 || i == 5))
                continue;
            CHECK(cuMemFree(pointers[i]));
        }
    }
    printf("linear done\n");
    return finish();
}
