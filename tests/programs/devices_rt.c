/* SPDX-License-Identifier: MIT
 *
 * Runtime API: every device in turn, and memory of one freed while another is current.
 * Leaves (i + 1) x 64 KiB linear on device i.
 */
#include <cuda_runtime_api.h>

#include "finish.h"

int main(void)
{
    void *pointer = NULL, *elsewhere = NULL;
    int count = 0, i;
    CHECK(cudaGetDeviceCount(&count));
    for (i = 0; i < count; i++) {
        CHECK(cudaSetDevice(i));
        CHECK(cudaMalloc(&pointer, (size_t)(i + 1) * 64 * KIB));
        if (elsewhere != NULL) {
            CHECK(cudaFree(elsewhere));
            elsewhere = NULL;
        }
        CHECK(cudaMalloc(&elsewhere, MIB));
    }
    CHECK(cudaFree(elsewhere));
    return finish();
}
