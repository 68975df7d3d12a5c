/* SPDX-License-Identifier: MIT
 *
 * Runtime API: failing calls change no number, and the error state is the program's own.
 * Leaves 1 MiB linear.
 */
#include <cuda_runtime_api.h>

#include "finish.h"

int main(void)
{
    void *pointer = NULL, *kept = NULL;
    CHECK(cudaMalloc(&kept, MIB));
    REPORT("too much", cudaMalloc(&pointer, (size_t)1 << 50));
    REPORT("last error", cudaGetLastError());
    REPORT("last error again", cudaGetLastError());
    REPORT("size 0", cudaMalloc(&pointer, 0));
    REPORT("free unknown", cudaFree((void *)0x1000));
    REPORT("peek", cudaPeekAtLastError());
    REPORT("last error", cudaGetLastError());
    REPORT("no such device", cudaSetDevice(1000));
    cudaGetLastError();
    CHECK(cudaMalloc(&pointer, 2 * MIB));
    CHECK(cudaFree(pointer));
    return finish();
}
