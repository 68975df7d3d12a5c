/* SPDX-License-Identifier: MIT
 *
 * Contexts whose handles come again: created, destroyed and created, primary ones retained twice,
 * reset and retained again, a failed destroy, a green one on top, a stream that outlives its
 * context's number, a module. Leaves 5 MiB linear.
 */
#include <cuda.h>
#include <elf.h>

#include "make.h"

static void created(CUdevice device)
{
    int round;
    for (round = 0; round < 20; round++) {
        CUcontext context = context_make(device);
        program_alloc(MIB);
        program_alloc(100);
        REPORT("destroy nothing", cuCtxDestroy(NULL)); /* a made-up handle ends the program in a real driver */
        CHECK(cuCtxDestroy(context));
    }
}

static void primary(CUdevice device)
{
    CUcontext context = NULL;
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    program_alloc(2 * MIB);
    CHECK(cuDevicePrimaryCtxRelease(device));
    program_alloc(MIB);
    CHECK(cuDevicePrimaryCtxRelease(device));
    REPORT("release again", cuDevicePrimaryCtxRelease(device));
    CHECK(cuDevicePrimaryCtxReset(device));

    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    program_alloc(3 * MIB);
    CHECK(cuDevicePrimaryCtxReset(device));
    REPORT("release after reset", cuDevicePrimaryCtxRelease(device));
}

static void module(void)
{
    struct {
        Elf64_Ehdr header;
        Elf64_Shdr section;
        char code[4096 - sizeof(Elf64_Ehdr) - sizeof(Elf64_Shdr)];
    } image;
    CUmodule first = NULL, second = NULL;

    memset(&image, 0, sizeof(image));
    memcpy(image.header.e_ident, ELFMAG, SELFMAG);
    image.header.e_ident[EI_CLASS] = ELFCLASS64;
    image.header.e_shoff = sizeof(image.header);
    image.header.e_shentsize = sizeof(image.section);
    image.header.e_shnum = 1;
    image.section.sh_type = SHT_PROGBITS;
    image.section.sh_offset = sizeof(image.header) + sizeof(image.section);
    image.section.sh_size = sizeof(image.code);
    /* A real driver wants real code. */
    if (cuModuleLoadData(&first, &image) == CUDA_SUCCESS && cuModuleLoadData(&second, &image) == CUDA_SUCCESS)
        CHECK(cuModuleUnload(first));
}

int main(void)
{
    CUcontext context = NULL;
    CUstream stream = NULL;
    CUdevice device = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    created(device);
    primary(device);
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamDestroy(stream));
    module();
    program_alloc(5 * MIB);
    return finish();
}
