/* SPDX-License-Identifier: MIT
 *
 * CUDA arrays in one, two and three dimensions, layered, and mipmapped.  A level's handle owns
 * nothing. Leaves the two-dimensional, the layered and the mipmapped array live.
 */
#include <cuda.h>

#include "finish.h"

static CUarray array_make(size_t width, size_t height, size_t depth, CUarray_format format, unsigned channels,
                          unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUarray array = NULL;
    memset(&shape, 0, sizeof(shape));
    shape.Width = width;
    shape.Height = height;
    shape.Depth = depth;
    shape.Format = format;
    shape.NumChannels = channels;
    shape.Flags = flags;
    CHECK(cuArray3DCreate(&array, &shape));
    return array;
}

int main(void)
{
    CUDA_ARRAY_DESCRIPTOR flat;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUarray line = NULL, plane = NULL, cube, layered, level = NULL;
    CUmipmappedArray pyramid = NULL;
    program_start();
    memset(&flat, 0, sizeof(flat));
    flat.Width = 4096;
    flat.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    flat.NumChannels = 1;
    CHECK(cuArrayCreate(&line, &flat));
    flat.Height = 512;
    flat.Format = CU_AD_FORMAT_FLOAT;
    flat.NumChannels = 4;
    CHECK(cuArrayCreate(&plane, &flat));
    cube = array_make(64, 32, 16, CU_AD_FORMAT_HALF, 2, 0);
    layered = array_make(128, 128, 6, CU_AD_FORMAT_SIGNED_INT16, 1, CUDA_ARRAY3D_LAYERED);

    memset(&shape, 0, sizeof(shape));
    shape.Width = 1000;
    shape.Height = 250;
    shape.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    shape.NumChannels = 4;
    CHECK(cuMipmappedArrayCreate(&pyramid, &shape, 5));
    CHECK(cuMipmappedArrayGetLevel(&level, pyramid, 2));

    CHECK(cuArrayDestroy(line));
    CHECK(cuArrayDestroy(cube));
    shape.NumChannels = 3;
    REPORT("three channels", cuMipmappedArrayCreate(&pyramid, &shape, 1));
    printf("handles: %d %d\n", plane != NULL, layered != NULL);
    return finish();
}
