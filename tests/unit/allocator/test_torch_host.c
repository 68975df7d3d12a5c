/* SPDX-License-Identifier: MIT
 *
 * test_torch_host.c: what is found out about the PyTorch in the process, and how its error is raised: which of its
 * functions are called, in which order, with which arguments.  PyTorch is tests/lib/preload/c10.c.
 */
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "base/compiler.h"
#include "lib/build.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *folder;
static jmp_buf thrown;
static char *said;         /* c10_log */
static const void *caller; /* in libtorch */

static void leave(void)
{
    longjmp(thrown, 1);
}

static void *library(const char *name, const char *option, int mode)
{
    char path[128];
    if (!folder)
        folder = build_folder();
    cr_assert_not_null(folder);
    cr_assert_eq(build_shared(folder, "c10.c", name, option), 0);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    void *handle = dlopen(path, RTLD_NOW | mode);
    cr_assert_not_null(handle, "%s", dlerror());
    return handle;
}

/* An allocator of that class is PyTorch's. */
static void set_allocator(void *c10, void *table)
{
    static void *objects[2];
    static unsigned count;
    void (*set)(void *);
    *(void **)&set = dlsym(c10, "c10_set_allocator");
    objects[count % 2] = table;
    set(table ? &objects[count % 2] : NULL);
    count++;
}

static void done(void)
{
    if (folder)
        build_remove(folder);
}

TestSuite(torch_host, .fini = done, .timeout = 120);

/* ---- role ------------------------------------------------------------------------------------------------------------ */

Test(torch_host, a_pluggable_allocator_is_one_whose_class_is_elsewhere)
{
    static void *table[4];
    cr_expect_eq(gp_torch_role(), GP_TORCH_ALONE);
    void *c10 = library("libc10_cuda.so.2", NULL, RTLD_LOCAL);
    cr_expect_eq(gp_torch_role(), GP_TORCH_ALONE, "it has no allocator yet");
    set_allocator(c10, table);
    cr_expect_eq(gp_torch_role(), GP_TORCH_CURRENT);
    set_allocator(c10, dlsym(c10, "c10_native_table"));
    cr_expect_eq(gp_torch_role(), GP_TORCH_CURRENT, "the answer holds for good");
}

Test(torch_host, a_native_allocator_asks_for_segments)
{
    void *c10 = library("libc10_cuda.so", NULL, RTLD_LOCAL);
    set_allocator(c10, dlsym(c10, "c10_native_table"));
    cr_expect_eq(gp_torch_role(), GP_TORCH_POOL);
    set_allocator(c10, &folder);
    cr_expect_eq(gp_torch_role(), GP_TORCH_POOL);
}

/* The class of a library whose name begins otherwise, or only like the folder. */
Test(torch_host, a_library_counts_by_its_files_name)
{
    void *c10 = library("libc10_cuda.so", NULL, RTLD_LOCAL), *near = library("libc10_cud.so", NULL, RTLD_LOCAL);
    set_allocator(c10, dlsym(near, "c10_native_table"));
    cr_expect_eq(gp_torch_role(), GP_TORCH_CURRENT);
}

/* A program in C++ may have the only copy of the variable in use. */
Test(torch_host, the_programs_copy_of_the_variable_comes_first)
{
    void *own = library("libprogram.so", NULL, RTLD_GLOBAL), *c10 = library("libc10_cuda.so", NULL, RTLD_LOCAL);
    set_allocator(c10, dlsym(c10, "c10_native_table"));
    set_allocator(own, dlsym(own, "c10_native_table"));
    cr_expect_eq(gp_torch_role(), GP_TORCH_CURRENT);
}

Test(torch_host, a_library_without_the_variable_is_no_pytorch)
{
    library("libc10_cuda.so", "-DLACKS_ALLOCATOR", RTLD_LOCAL);
    cr_expect_eq(gp_torch_role(), GP_TORCH_ALONE);
}

/* The first calls look; a program that has no PyTorch by then gets none. */
Test(torch_host, pytorch_is_looked_for_64_times)
{
    void *c10 = library("libc10_cuda.so", NULL, RTLD_LOCAL);
    for (unsigned i = 0; i < 63; i++)
        cr_expect_eq(gp_torch_role(), GP_TORCH_ALONE);
    set_allocator(c10, dlsym(c10, "c10_native_table"));
    cr_expect_eq(gp_torch_role(), GP_TORCH_POOL);
}

Test(torch_host, pytorch_is_not_looked_for_a_65th_time)
{
    void *c10 = library("libc10_cuda.so", NULL, RTLD_LOCAL);
    for (unsigned i = 0; i < 64; i++)
        cr_expect_eq(gp_torch_role(), GP_TORCH_ALONE);
    set_allocator(c10, dlsym(c10, "c10_native_table"));
    cr_expect_eq(gp_torch_role(), GP_TORCH_ALONE);
}

/* ---- error ------------------------------------------------------------------------------------------------------------- */

/* PyTorch with a pluggable allocator, and one of its libraries that calls us. */
static void *pytorch(const char *option)
{
    static void *table[4];
    void *c10 = library("libc10_cuda.so", option, RTLD_LOCAL), *torch = library("libtorch_cuda.so", NULL, RTLD_LOCAL);
    set_allocator(c10, table);
    caller = dlsym(torch, "c10_address");
    said = dlsym(c10, "c10_log");
    *(void (**)(void))dlsym(c10, "c10_leave") = leave;
    *(void (**)(void))dlsym(torch, "c10_leave") = leave;
    return c10;
}

/* Returns whether it was thrown. */
static bool raised(uint32_t error, uint64_t bytes, int device, const void *from)
{
    said[0] = '\0';
    if (setjmp(thrown))
        return true;
    gp_torch_raise(error, bytes, device, from);
    return false;
}

#define BEGIN "object; text; error at gpuprof_torch_alloc, gpuprof, 0: CUDA out of memory. Tried to allocate "
#define END   " from gpuprof's allocator, which has given back all idle memory.; end of text; throw"

Test(torch_host, an_error_without_memory_is_pytorchs_own)
{
    static const struct {
        uint64_t bytes;
        int device;
        const char *said;
    } rows[] = {
        {1, 0, BEGIN "1.00 bytes on GPU 0" END},        {1023, 3, BEGIN "1023.00 bytes on GPU 3" END},
        {1024, 1, BEGIN "1.00 KiB on GPU 1" END},       {(1ull << 20) - 1024, 1, BEGIN "1023.00 KiB on GPU 1" END},
        {1ull << 20, 1, BEGIN "1.00 MiB on GPU 1" END}, {3ull << 29, 1, BEGIN "1.50 GiB on GPU 1" END},
        {5ull << 40, 1, BEGIN "5.00 TiB on GPU 1" END}, {1ull << 50, 1, BEGIN "1.00 PiB on GPU 1" END},
        {1ull << 60, 1, BEGIN "1.00 EiB on GPU 1" END}, {UINT64_MAX, 1, BEGIN "16.00 EiB on GPU 1" END},
    };
    pytorch(NULL);
    for (unsigned i = 0; i < GP_COUNT(rows); i++) {
        cr_expect(raised(GP_CU_OUT_OF_MEMORY, rows[i].bytes, rows[i].device, caller));
        cr_expect_str_eq(said, rows[i].said);
    }
}

Test(torch_host, another_error_is_a_runtime_error)
{
    pytorch(NULL);
    cr_expect(raised(719, 3 << 20, 2, caller));
    cr_expect_str_eq(said, "fail at gpuprof_torch_alloc, gpuprof, 0: CUDA error 719: gpuprof's allocator could not "
                           "allocate 3.00 MiB on GPU 2.");
}

Test(torch_host, a_pytorch_from_before_gcc_5)
{
    pytorch("-DOLD");
    cr_expect(raised(GP_CU_OUT_OF_MEMORY, 1024, 1, caller));
    cr_expect_str_eq(said, BEGIN "1.00 KiB on GPU 1" END);
}

/* Without PyTorch's class the standard error, and of another error the one that PyTorch has. */
Test(torch_host, a_pytorch_that_lacks_a_name)
{
    static const char *const lacks[] = {"-DLACKS_MAKE_ERROR", "-DLACKS_MAKE_TEXT", "-DLACKS_END_TEXT", "-DLACKS_TYPE",
                                        "-DLACKS_TABLE",      "-DLACKS_ALLOCATE",  "-DLACKS_RAISE"};
    for (unsigned i = 0; i < GP_COUNT(lacks); i++) {
        void *c10 = pytorch(lacks[i]);
        cr_expect(raised(GP_CU_OUT_OF_MEMORY, 1024, 1, caller), "%s", lacks[i]);
        cr_expect_str_eq(said, "bad_alloc", "%s: %s", lacks[i], said);
        dlclose(c10);
        cr_assert_null(dlsym(RTLD_DEFAULT, "c10_log"));
        build_remove(folder);
        folder = NULL;
    }
}

Test(torch_host, a_pytorch_that_lacks_the_general_error)
{
    pytorch("-DLACKS_FAIL");
    cr_expect(raised(719, 1024, 1, caller));
    cr_expect_str_eq(said,
                     "object; text; error at gpuprof_torch_alloc, gpuprof, 0: CUDA error 719: gpuprof's allocator "
                     "could not allocate 1.00 KiB on GPU 1.; end of text; throw");
}

Test(torch_host, a_pytorch_that_lacks_every_error)
{
    pytorch("-DLACKS_ALL");
    cr_expect_not(raised(GP_CU_OUT_OF_MEMORY, 1024, 1, caller));
    cr_expect_str_eq(said, "");
}

/* A caller in C, or a program in which PyTorch checks the pointer itself, gets NULL. */
Test(torch_host, nothing_is_raised_where_pytorch_would_check)
{
    void *c10 = pytorch(NULL);
    cr_expect_not(raised(GP_CU_OUT_OF_MEMORY, 1024, 1, (void *)(uintptr_t)leave));
    cr_expect_not(raised(GP_CU_OUT_OF_MEMORY, 1024, 1, dlsym(c10, "c10_address")));
    cr_expect_not(raised(GP_CU_OUT_OF_MEMORY, 1024, 1, NULL));
    cr_expect_str_eq(said, "");
    cr_expect(raised(GP_CU_OUT_OF_MEMORY, 1024, 1, caller));
}

Test(torch_host, nothing_is_raised_below_a_native_allocator)
{
    void *c10 = pytorch(NULL);
    set_allocator(c10, dlsym(c10, "c10_native_table"));
    cr_expect_not(raised(GP_CU_OUT_OF_MEMORY, 1024, 1, caller));
    cr_expect_str_eq(said, "");
}
