/* SPDX-License-Identifier: MIT
 *
 * Fails for lack of memory, as its first argument says, and ends with the driver's error number:
 *   (none)  three eighths of the device in blocks of three sizes, then a request for seven eighths
 *   half    the same, then a request for seven sixteenths, which is there
 *   copes   the same request twice, and ends well
 *   pieces  blocks of 1.5 MiB over half of the device, 12 of 13 freed, then a request for half of it
 */
#include <cuda.h>
#include <string.h>

#include "finish.h"

#define PIECE (1536 * KIB)

static int ask(size_t bytes)
{
    CUdeviceptr pointer = 0;
    CUresult result = cuMemAlloc(&pointer, bytes);
    printf("asked for %zu: %d\n", bytes, (int)result);
    fflush(stdout);
    usleep(100000); /* a viewer that looks every millisecond may be kept waiting on a busy machine */
    return (int)result;
}

static int in_pieces(size_t total)
{
    static CUdeviceptr blocks[1 << 16];
    size_t count = total / 2 / PIECE, i;
    for (i = 0; i < count; i++)
        CHECK(cuMemAlloc(&blocks[i], PIECE));
    for (i = 0; i < count; i++)
        if (i % 13 != 0)
            CHECK(cuMemFree(blocks[i]));
    return ask(total / 2);
}

int main(int argc, char **argv)
{
    CUdevice device = program_start();
    size_t total = 0, i;
    CHECK(cuDeviceTotalMem(&total, device));
    total &= ~(16 * MIB - 1);
    if (argc > 1 && strcmp(argv[1], "pieces") == 0)
        return in_pieces(total);
    for (i = 0; i < 6; i++)
        program_alloc(total / 32 * (1 + i % 3));
    if (argc > 1 && strcmp(argv[1], "copes") == 0)
        return ask(total) == ask(total) ? 0 : 1;
    return ask(argc > 1 && strcmp(argv[1], "half") == 0 ? total / 16 * 7 : total / 8 * 7);
}
