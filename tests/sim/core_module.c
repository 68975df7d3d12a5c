/* SPDX-License-Identifier: MIT
 * Selftest: modules, libraries, kernels and variables. */
#include "core_check.h"

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

int main(void)
{
    check_begin(0);
    modules();
    libraries();
    return check_done();
}
