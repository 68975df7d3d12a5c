/* SPDX-License-Identifier: MIT
 * Selftest: modules, libraries, kernels and variables. */
#include "core_check.h"

#include <sys/mman.h>

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .global .align 4 .b8 table[4096];\n.global .f32 scale;\n"
                          ".visible .entry add(.param .u64 a)\n{\n ld.global.f32 %f1, [%r1];\n ret;\n}\n";

static void modules(void)
{
    CUmodule module;
    CUfunction function, again;
    CUdeviceptr p;
    size_t bytes, before, after, total;
    int value = 5, seen = 0;
    CHECK_OK(cuMemGetInfo(&before, &total));
    CHECK_OK(cuModuleLoadData(&module, ptx));
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK(after < before);
    CHECK_OK(cuModuleGetFunction(&function, module, "add"));
    CHECK_OK(cuModuleGetFunction(&again, module, "add"));
    CHECK(function == again);
    CHECK_EQ(cuModuleGetFunction(&again, module, "ad"), CUDA_ERROR_NOT_FOUND);
    CHECK_OK(cuModuleGetGlobal(&p, &bytes, module, "table"));
    CHECK_EQ(bytes, 4096);
    CHECK_OK(cuMemcpyHtoD(p + 8, &value, sizeof value));
    CHECK_OK(cuMemcpyDtoH(&seen, p + 8, sizeof seen));
    CHECK_EQ(seen, 5);
    CHECK_OK(cuModuleGetGlobal(&p, &bytes, module, "scale"));
    CHECK_EQ(bytes, 4);
    CHECK_EQ(cuModuleGetGlobal(&p, &bytes, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(check_reserved(0, "\"current\":"), 0);
    CHECK_OK(cuModuleUnload(module));
    CHECK_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(after, before);
    CHECK_EQ(cuModuleLoadData(&module, ""), CUDA_ERROR_INVALID_IMAGE);
    CHECK_EQ(cuModuleLoad(&module, "/nonexistent/file"), CUDA_ERROR_FILE_NOT_FOUND);
}

static void libraries(void)
{
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CUmodule module;
    const char *name = NULL;
    size_t before, after, total;
    CHECK_OK(cuMemGetInfo(&before, &total));
    CHECK_OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    CHECK_OK(cuLibraryGetKernel(&kernel, library, "add"));
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(after, before); /* lazy */
    CHECK_OK(cuKernelGetFunction(&function, kernel));
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK(after < before);
    CHECK_OK(cuFuncGetName(&name, function));
    CHECK(name && !strcmp(name, "add"));
    CHECK_OK(cuLibraryGetModule(&module, library));
    CHECK_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuLibraryUnload(library));
    CHECK_EQ(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(after, before);
}

/* All kernels, which nobody has named yet; "mul" is declared before it is defined. */
static void kernels(void)
{
    static const char image[] = ".version 8.0\n.target sm_90\n.address_size 64\n.extern .entry mul();\n"
                                ".visible .entry add(.param .u64 a) { ret; }\n.entry\tmul() { ret; }\n";
    CUlibrary library;
    CUkernel all[3] = {NULL, NULL, (CUkernel)all}, add, mul;
    CUfunction function;
    unsigned count = 0;
    void *pointer = NULL;
    CHECK_OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    CHECK_OK(cuLibraryGetKernel(&mul, library, "mul"));
    CHECK_OK(cuLibraryGetKernelCount(&count, library));
    CHECK_EQ(count, 2);
    CHECK_OK(cuLibraryEnumerateKernels(all, 3, library));
    CHECK_OK(cuLibraryGetKernel(&add, library, "add"));
    CHECK((all[0] == add && all[1] == mul) || (all[0] == mul && all[1] == add));
    CHECK(all[2] == (CUkernel)all);
    CHECK_OK(cuKernelGetFunction(&function, all[0]));
    all[1] = NULL;
    CHECK_OK(cuLibraryEnumerateKernels(all, 1, library));
    CHECK(all[0] && !all[1]);
    CHECK_EQ(cuLibraryGetKernelCount(NULL, library), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLibraryEnumerateKernels(NULL, 1, library), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLibraryGetUnifiedFunction(&pointer, library, "add"), CUDA_ERROR_NOT_FOUND);
    CHECK_OK(cuLibraryUnload(library));
    CHECK_EQ(cuLibraryGetKernelCount(&count, library), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuLibraryEnumerateKernels(all, 1, library), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuLibraryGetUnifiedFunction(&pointer, library, "add"), CUDA_ERROR_INVALID_HANDLE);
}

static long long resident_bytes(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%*d %lld", &pages) == 1);
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* A large binary that the program keeps costs no host memory, neither as a library nor as its module. */
static void preserved(void)
{
    const size_t size = 64 << 20;
    struct check_fat head = CHECK_FAT(size - sizeof head);
    CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
    void *value = (void *)1;
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    char *image = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(image != MAP_FAILED);
    memset(image, 1, size);
    memcpy(image, &head, sizeof head);
    const long long before = resident_bytes();
    CHECK_OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, &option, &value, 1));
    CHECK_OK(cuLibraryGetKernel(&kernel, library, "anything"));
    CHECK_OK(cuKernelGetFunction(&function, kernel));
    CHECK(resident_bytes() - before < 8 * CHECK_MIB);
    CHECK_OK(cuLibraryUnload(library));
    /* One that it does not keep is copied, once. */
    CHECK_OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    memset(image, 0, size);
    CHECK_OK(cuLibraryGetKernel(&kernel, library, "anything"));
    CHECK_OK(cuKernelGetFunction(&function, kernel));
    CHECK(resident_bytes() - before < 72 * CHECK_MIB);
    CHECK_OK(cuLibraryUnload(library));
    CHECK_EQ(cuLibraryLoadFromFile(&library, "/etc/passwd", NULL, NULL, 0, &option, &value, 1),
             CUDA_ERROR_INVALID_VALUE);
    munmap(image, size);
}

/* Descriptions of tensors for the copy engine: the rules of cuTensorMapEncodeTiled. */
static void tensors(void)
{
    static _Alignas(128) CUtensorMap map[2];
    cuuint64_t sizes[] = {64, 1, 4, 1 << 20}, strides[] = {512, 128, 512};
    cuuint32_t box[] = {64, 192, 1, 1}, steps[] = {1, 1, 1, 1};
    CUdeviceptr p;
    CHECK_OK(cuMemAlloc(&p, 4096));
#define ENCODE(to, type, rank, at, interleave, swizzle)                                                                \
    cuTensorMapEncodeTiled(to, type, rank, (void *)(at), sizes, strides, box, steps, interleave, swizzle,              \
                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
#define BF16(rank) ENCODE(&map[0], CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, p, 0, CU_TENSOR_MAP_SWIZZLE_128B)
    CHECK_OK(BF16(4));
    CHECK_EQ(ENCODE((CUtensorMap *)((char *)map + 32), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, p, 0, 3),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(ENCODE(&map[0], CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, p + 8, 0, 3), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(BF16(0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(BF16(6), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(ENCODE(&map[0], CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, p, 0, CU_TENSOR_MAP_SWIZZLE_64B),
             CUDA_ERROR_INVALID_VALUE); /* the box is 128 bytes wide */
    CHECK_EQ(ENCODE(&map[0], CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p, CU_TENSOR_MAP_INTERLEAVE_16B, 3),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(ENCODE(&map[0], CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, p, CU_TENSOR_MAP_INTERLEAVE_32B, 3),
             CUDA_ERROR_INVALID_VALUE);
    strides[1] = 100;
    CHECK_EQ(BF16(4), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(BF16(2)); /* has one stride */
    strides[1] = 128, box[1] = 257;
    CHECK_EQ(BF16(4), CUDA_ERROR_INVALID_VALUE);
    box[1] = 192, steps[2] = 9;
    CHECK_EQ(BF16(4), CUDA_ERROR_INVALID_VALUE);
    steps[2] = 1, steps[0] = 0; /* is ignored */
    CHECK_OK(BF16(4));
    sizes[3] = 0;
    CHECK_EQ(BF16(4), CUDA_ERROR_INVALID_VALUE);
    sizes[3] = 1ull << 32;
    CHECK_OK(BF16(4));
    sizes[3] = 7, map[1] = map[0];
    CHECK_OK(BF16(4));
    CHECK(memcmp(&map[0], &map[1], sizeof map[0]) != 0);
    CHECK_OK(cuTensorMapReplaceAddress(&map[0], (void *)(p + 1024)));
    CHECK_EQ(cuTensorMapReplaceAddress(&map[0], (void *)(p + 4)), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFree(p));
}

int main(void)
{
    check_begin(0);
    tensors();
    modules();
    libraries();
    kernels();
    preserved();
    return check_done();
}
