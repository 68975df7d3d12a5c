/* SPDX-License-Identifier: MIT
 *
 * Runtime API: cudaMalloc and its family run over driver calls on the same thread; each allocation
 * counts once. Leaves 1 MiB + 3000 B linear, a pitched block of 500 x 20 and a three-dimensional
 * one.
 */
#include <cuda_runtime_api.h>

#include "finish.h"

int main(void)
{
    struct cudaPitchedPtr box;
    void *kept = NULL, *small = NULL, *gone = NULL, *pitched = NULL;
    size_t pitch = 0;
    CHECK(cudaMalloc(&kept, MIB));
    CHECK(cudaMalloc(&gone, 5 * MIB));
    CHECK(cudaMalloc(&small, 3000));
    CHECK(cudaMemset(gone, 1, 5 * MIB));
    CHECK(cudaFree(gone));
    CHECK(cudaFree(NULL));
    CHECK(cudaMallocPitch(&pitched, &pitch, 500, 20));
    memset(&box, 0, sizeof(box));
    CHECK(cudaMalloc3D(&box, (struct cudaExtent){300, 10, 4}));
    printf("pitch: %d %d\n", pitch >= 500, box.pitch >= 300);
    CHECK(cudaDeviceSynchronize());
    return finish();
}
