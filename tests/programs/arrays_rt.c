/* SPDX-License-Identifier: MIT
 *
 * Runtime API: CUDA arrays, plain, three-dimensional and mipmapped.
 * Leaves the three-dimensional and the mipmapped array.
 */
#include <cuda_runtime_api.h>

#include "finish.h"

int main(void)
{
    struct cudaChannelFormatDesc format = {8, 8, 8, 8, cudaChannelFormatKindUnsigned};
    struct cudaChannelFormatDesc wide = {32, 0, 0, 0, cudaChannelFormatKindFloat};
    cudaArray_t flat = NULL, cube = NULL;
    cudaMipmappedArray_t pyramid = NULL;
    CHECK(cudaMallocArray(&flat, &format, 640, 480, cudaArrayDefault));
    CHECK(cudaMalloc3DArray(&cube, &wide, (struct cudaExtent){64, 64, 64}, cudaArrayDefault));
    CHECK(cudaMallocMipmappedArray(&pyramid, &format, (struct cudaExtent){512, 512, 0}, 4, cudaArrayDefault));
    CHECK(cudaFreeArray(flat));
    printf("arrays: %d %d\n", cube != NULL, pyramid != NULL);
    return finish();
}
