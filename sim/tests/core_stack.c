/* SPDX-License-Identifier: MIT
 * Selftest: the stack of kernels.  A context keeps it for each thread that the device can hold: what the program's limit
 * says, or what the kernel with the largest needs, as its PTX or its cubin says. */
#define _GNU_SOURCE
#include "core_check.h"

#include <elf.h>
#include <stddef.h>

#define MIB     ((size_t)1 << 20)
#define THREADS ((size_t)132 * 2048) /* of an H100 */
#define BARE    (528 * MIB)
#define SIXTH   (88 * MIB)

static const char ptx[] = ".version 8.0\n.target sm_90\n"
                          ".visible .entry little()\n{\n.local .align 4 .b8 __local_depot0[256];\nret;\n}\n"
                          ".visible .entry large()\n{\n.local .align 8 .b8 \t__local_depot1[9216];\nret;\n}\n"
                          ".visible .entry none()\n{\nret;\n}\n";

/* As compilers write it: symbol 1 is the kernel, and .nv.info has its stack beside other facts of it. */
struct stack_cubin {
    Elf64_Ehdr header;
    Elf64_Shdr sections[7];
    char names[80], strings[16];
    Elf64_Sym symbols[2];
    struct {
        uint8_t format, attribute;
        uint16_t size;
        uint32_t symbol, value;
    } facts[3];
    uint32_t code[4];
};

#define SECTION(_name, _type, _member)                                                                                 \
    {                                                                                                                  \
        .sh_name = (_name), .sh_type = (_type), .sh_offset = offsetof(struct stack_cubin, _member),                    \
        .sh_size = sizeof((struct stack_cubin *)NULL)->_member                                                         \
    }

static struct stack_cubin cubin_make(uint32_t stack)
{
    return (struct stack_cubin){
        .header = {.e_ident = ELFMAG "\2\1\1",
                   .e_machine = 190,
                   .e_ehsize = sizeof(Elf64_Ehdr),
                   .e_shoff = offsetof(struct stack_cubin, sections),
                   .e_shentsize = sizeof(Elf64_Shdr),
                   .e_shnum = 7,
                   .e_shstrndx = 1},
        .sections = {{0},
                     SECTION(1, SHT_STRTAB, names),
                     SECTION(8, SHT_STRTAB, strings),
                     SECTION(16, SHT_SYMTAB, symbols),
                     SECTION(24, 0x70000000, facts),
                     SECTION(33, SHT_PROGBITS, code),
                     SECTION(44, 0x70000000, code)}, /* no parameters */
        .names = "\0.names\0.strtab\0.symtab\0.nv.info\0.text.deep\0.nv.info.deep",
        .strings = "\0deep",
        .symbols = {{0}, {.st_name = 1}},
        .facts = {{4, 0x2f, 8, 1, 40}, {4, 0x12, 8, 1, stack}, {4, 0x11, 8, 1, stack / 2}},
    };
}

static size_t held(void)
{
    size_t left, total;
    CHECK_OK(cuMemGetInfo(&left, &total));
    return total - left;
}

static CUresult launch(CUfunction f)
{
    return cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}

static void kernels(size_t before)
{
    int bytes = -1;
    CUfunction large = check_function(ptx, "large");
    const size_t code = held() - before;
    CHECK_OK(cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, large));
    CHECK_EQ(bytes, 9216);
    CHECK_OK(launch(check_function(ptx, "none")));
    CHECK_OK(launch(check_function(ptx, "little"))); /* within the default */
    CHECK_EQ(held() - before, 3 * code + SIXTH);
    CHECK_OK(launch(large));
    CHECK_EQ(held() - before, 3 * code + THREADS * (9216 - 1024));
    CHECK_OK(launch(large)); /* once */
    CHECK_EQ(held() - before, 3 * code + THREADS * (9216 - 1024));
}

static void limits(size_t before)
{
    const size_t other = held() - before - THREADS * (9216 - 1024);
    CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048)); /* what kernels took goes too */
    CHECK_EQ(held() - before, other + THREADS * 1024);
    CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 0));
    CHECK_EQ(held() - before, other - THREADS * 1024);
    CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
    CHECK_EQ(held() - before, other);
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024 * MIB), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(held() - before, other);
}

static void compiled(size_t before)
{
    const struct stack_cubin cubin = cubin_make(4096), wrong = cubin_make(1u << 30);
    int bytes = -1;
    CUfunction deep = check_function(&cubin, "deep");
    const size_t other = held() - before;
    CHECK_OK(cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, deep));
    CHECK_EQ(bytes, 4096);
    CHECK_OK(launch(deep));
    CHECK_EQ(held() - before, other + THREADS * (4096 - 1024));
    CHECK_OK(cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, check_function(&wrong, "deep")));
    CHECK_EQ(bytes, 0); /* more than any thread can have: not known */
}

/* It is device memory: without it the kernel does not start. */
static void refused(void)
{
    CUdeviceptr all;
    size_t left, total;
    CUfunction large = check_function(ptx, "large");
    CHECK_OK(cuMemGetInfo(&left, &total));
    CHECK_OK(cuMemAlloc(&all, left - 1024 * MIB));
    CHECK_EQ(launch(large), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_OK(cuMemFree(all));
    CHECK_OK(launch(large));
}

int main(void)
{
    setenv("GPUPROF_SIM", "gpu=h100-80g", 1);
    check_begin(0);
    const size_t before = held();
    CHECK_EQ(before, BARE);
    kernels(before);
    limits(before);
    compiled(before);
    CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
    refused();
    return check_done();
}
