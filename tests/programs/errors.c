/* SPDX-License-Identifier: MIT
 *
 * Calls that fail and calls that do nothing change no number: unknown pointers, double free, NULL,
 * size 0 (which succeeds for host memory), too much. Leaves 1 MiB linear.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    CUdeviceptr pointer = 0, kept;
    size_t pitch = 0;
    void *host = &pitch;
    REPORT("before cuInit", cuMemAlloc(&pointer, MIB));
    CHECK(cuInit(0));
    REPORT("without a context", cuMemAlloc(&pointer, MIB));
    program_start();
    kept = program_alloc(MIB);
    REPORT("size 0", cuMemAlloc(&pointer, 0));
    REPORT("pitch size 0", cuMemAllocPitch(&pointer, &pitch, 0, 1, 4));
    REPORT("host size 0", cuMemAllocHost(&host, 0));
    printf("no host memory: %d\n", host == NULL);
    REPORT("whole address space", cuMemAlloc(&pointer, ~(size_t)0 - MIB));
    REPORT("no pointer", cuMemAlloc(NULL, MIB));
    REPORT("free NULL", cuMemFree(0));
    REPORT("free unknown", cuMemFree((CUdeviceptr)0x1000));
    REPORT("free inside", cuMemFree(kept + 4096));
    pointer = program_alloc(2 * MIB);
    CHECK(cuMemFree(pointer));
    REPORT("double free", cuMemFree(pointer));
    REPORT("unregister unknown", cuMemHostUnregister(&pitch));
    REPORT("close unknown", cuIpcCloseMemHandle((CUdeviceptr)0x1000));
    return finish();
}
