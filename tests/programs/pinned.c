/* SPDX-License-Identifier: MIT
 *
 * Pinned and registered host memory: the host's device, not a GPU's.
 * Leaves 2 MiB pinned and 64 KiB registered live.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    static char buffer[512 * 1024] __attribute__((aligned(4096)));
    void *by_alloc_host = NULL, *by_host_alloc = NULL, *spare = NULL;
    program_start();
    CHECK(cuMemAllocHost(&by_alloc_host, MIB));
    CHECK(cuMemHostAlloc(&by_host_alloc, 2 * MIB, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostAlloc(&spare, 3 * MIB, CU_MEMHOSTALLOC_WRITECOMBINED));
    if (by_host_alloc != NULL)
        memset(by_host_alloc, 1, 4096);
    CHECK(cuMemFreeHost(spare));
    CHECK(cuMemFreeHost(by_alloc_host));

    CHECK(cuMemHostRegister(buffer, 64 * KIB, CU_MEMHOSTREGISTER_PORTABLE));
    CHECK(cuMemHostRegister(buffer + 128 * KIB, 128 * KIB, 0));
    REPORT("registered twice", cuMemHostRegister(buffer, 64 * KIB, 0));
    CHECK(cuMemHostUnregister(buffer + 128 * KIB));
    REPORT("not registered", cuMemHostUnregister(buffer + 256 * KIB));
    REPORT("not pinned", cuMemFreeHost(buffer + 256 * KIB));
    return finish();
}
