/* SPDX-License-Identifier: MIT
 *
 * Runtime API: stream-ordered memory from the default pool and from one of the program's own.
 * Leaves 2 MiB and 3 MiB used.
 */
#include <cuda_runtime_api.h>

#include "finish.h"

int main(void)
{
    struct cudaMemPoolProps shape;
    cudaMemPool_t pool = NULL;
    cudaStream_t stream = NULL;
    void *kept = NULL, *own = NULL, *gone = NULL;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMallocAsync(&kept, 2 * MIB, stream));
    CHECK(cudaMallocAsync(&gone, 6 * MIB, stream));
    CHECK(cudaFreeAsync(gone, stream));
    memset(&shape, 0, sizeof(shape));
    shape.allocType = cudaMemAllocationTypePinned;
    shape.location.type = cudaMemLocationTypeDevice;
    CHECK(cudaMemPoolCreate(&pool, &shape));
    CHECK(cudaMallocFromPoolAsync(&own, 3 * MIB, pool, stream));
    CHECK(cudaMallocFromPoolAsync(&gone, MIB, pool, stream));
    CHECK(cudaFree(gone));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    return finish();
}
