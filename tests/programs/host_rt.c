/* SPDX-License-Identifier: MIT
 *
 * Runtime API: pinned, registered and managed memory.
 * Leaves 1 MiB pinned, 64 KiB registered and 2 MiB managed.
 */
#include <cuda_runtime_api.h>

#include "finish.h"

int main(void)
{
    static char buffer[256 * 1024] __attribute__((aligned(4096)));
    void *kept = NULL, *gone = NULL, *managed = NULL, *spare = NULL;
    CHECK(cudaMallocHost(&kept, MIB));
    CHECK(cudaHostAlloc(&gone, 3 * MIB, cudaHostAllocMapped));
    CHECK(cudaFreeHost(gone));
    CHECK(cudaHostRegister(buffer, 64 * KIB, cudaHostRegisterDefault));
    CHECK(cudaHostRegister(buffer + 128 * KIB, 64 * KIB, cudaHostRegisterDefault));
    CHECK(cudaHostUnregister(buffer + 128 * KIB));
    CHECK(cudaMallocManaged(&managed, 2 * MIB, cudaMemAttachGlobal));
    CHECK(cudaMallocManaged(&spare, MIB, cudaMemAttachGlobal));
    CHECK(cudaFree(spare));
    printf("host: %d %d\n", kept != NULL, managed != NULL);
    return finish();
}
