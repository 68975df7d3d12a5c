/* SPDX-License-Identifier: MIT
 *
 * Every block starts at a multiple of 512 bytes, whatever the requests before it, and its last
 * requested byte can be written.  (The driver promises 256; libraries have come to rely on 512.)
 * Leaves forty blocks of linear memory.
 */
#include <cuda.h>

#include "finish.h"

#define BLOCKS 600

int main(void)
{
    static CUdeviceptr blocks[BLOCKS];
    size_t bytes = 1;
    int i, askew = 0;
    program_start();
    for (i = 0; i < BLOCKS; i++) {
        blocks[i] = program_alloc(bytes);
        askew += blocks[i] % 512 != 0;
        CHECK(cuMemsetD8(blocks[i] + bytes - 1, 1, 1));
        bytes = bytes * 21 / 20 + 37; /* to some 5 MiB, in odd steps */
        bytes = bytes > 5 * MIB ? 3 : bytes;
        if (i % 3 == 0) {
            CHECK(cuMemFree(blocks[i]));
            blocks[i] = 0;
        }
    }
    printf("askew: %d\n", askew);
    for (i = 0; i < BLOCKS - 60; i++)
        CHECK(cuMemFree(blocks[i]));
    return finish();
}
