/* SPDX-License-Identifier: MIT
 *
 * Runtime API: cudaDeviceReset frees everything that the primary context owned, without a free
 * call. Leaves 1 MiB linear.
 */
#include <cuda_runtime_api.h>

#include "finish.h"

int main(void)
{
    void *pointer = NULL;
    CHECK(cudaMalloc(&pointer, 8 * MIB));
    CHECK(cudaMallocHost(&pointer, 2 * MIB));
    CHECK(cudaMallocManaged(&pointer, MIB, cudaMemAttachGlobal));
    CHECK(cudaDeviceReset());
    CHECK(cudaMalloc(&pointer, MIB));
    return finish();
}
