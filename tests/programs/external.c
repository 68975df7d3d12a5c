/* SPDX-License-Identifier: MIT
 *
 * External memory: mapped buffers are imported, and stay valid after the object is destroyed until
 * they are freed. A handle type without a producer here is refused; the refusal must change
 * nothing.  On the simulated GPU a plain memfd stands for another API's memory. Leaves 1 MiB
 * imported (simulated GPU) and 1 MiB linear.
 */
#define _GNU_SOURCE /* memfd_create */
#include <cuda.h>
#include <sys/mman.h>

#include "finish.h"

int main(void)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC source;
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part;
    CUexternalMemory memory = NULL;
    CUdeviceptr kept = 0, gone = 0;
    int fd = memfd_create("external", MFD_CLOEXEC);
    program_start();
    program_alloc(MIB);
    if (fd < 0 || ftruncate(fd, (off_t)(4 * MIB)) != 0)
        return 1;
    memset(&source, 0, sizeof(source));
    source.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    source.handle.fd = fd;
    source.size = 4 * MIB;
    if (cuImportExternalMemory(&memory, &source) != CUDA_SUCCESS) {
        printf("no external memory here\n");
        return finish();
    }
    memset(&part, 0, sizeof(part));
    part.size = MIB;
    CHECK(cuExternalMemoryGetMappedBuffer(&kept, memory, &part));
    part.offset = 2 * MIB;
    part.size = 2 * MIB;
    CHECK(cuExternalMemoryGetMappedBuffer(&gone, memory, &part));
    CHECK(cuMemFree(gone));
    CHECK(cuDestroyExternalMemory(memory));
    return finish();
}
