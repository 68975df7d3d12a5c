/* SPDX-License-Identifier: MIT
 *
 * Large blocks of every kind that owns device memory, in multiples of 2 MiB, so that the driver
 * rounds nothing.  Holds with a bare context first, then with everything live; prints at each hold
 * the device memory in use according to the driver.
 */
#include <cuda.h>

#include "../programs/finish.h"
#include "../programs/vmm.h"

static void used_print(const char *when)
{
    size_t unused = 0, total = 0;

    CHECK(cuMemGetInfo(&unused, &total));
    printf("%s %zu\n", when, total - unused);
    fflush(stdout);
}

int main(void)
{
    CUDA_ARRAY_DESCRIPTOR shape;
    CUdeviceptr range, pointer = 0;
    CUarray array = NULL;
    CUstream stream = NULL;
    size_t pitch = 0;
    CUdevice device = program_start();

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&pointer, 2 * MIB, stream)); /* the pool's first block, before the measurement */
    CHECK(cuMemFreeAsync(pointer, stream));
    CHECK(cuStreamSynchronize(stream));
    used_print("before");
    program_hold();

    program_alloc(1024 * MIB);
    CHECK(cuMemAllocPitch(&pointer, &pitch, 4096, 128 * 1024, 4));
    memset(&shape, 0, sizeof(shape));
    shape.Width = 8192;
    shape.Height = 8192;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    CHECK(cuArrayCreate(&array, &shape));
    range = vmm_reserve(512 * MIB);
    CHECK(cuMemMap(range, 512 * MIB, 0, vmm_create(device, 512 * MIB), 0));
    vmm_allow(device, range, 512 * MIB);
    CHECK(cuMemAllocAsync(&pointer, 512 * MIB, stream));
    CHECK(cuStreamSynchronize(stream));
    used_print("after");
    return finish();
}
