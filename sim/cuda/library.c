/* SPDX-License-Identifier: MIT
 * Libraries: code without a context.  A module of it appears in a context when a kernel or variable
 * is first asked for there (lazy loading), or at once with CUDA_MODULE_LOADING=EAGER and a current
 * context.  api/library.c has the entry points. */
#include "cuda/context.h"
#include "cuda/module.h"
#include "cuda/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A launch takes a CUkernel where a CUfunction is meant; it means the function in the current
 * context. */
CUresult sim_function_get(CUfunction handle, struct sim_function **out)
{
    for (uint32_t uid = 1; handle && uid <= sim_context_newest(); uid++) {
        struct sim_context *context = sim_context_by_uid(uid);
        for (struct sim_module *module = context ? context->modules : NULL; module; module = module->next)
            for (struct sim_function *at = module->functions; at; at = at->next)
                if ((CUfunction)at == handle) {
                    *out = at;
                    return CUDA_SUCCESS;
                }
    }
    struct sim_kernel *kernel = sim_kernel_find((CUkernel)handle);
    return kernel ? sim_kernel_function(kernel, out) : CUDA_ERROR_INVALID_HANDLE;
}

struct sim_function *sim_function_find(CUfunction handle)
{
    struct sim_function *function;
    return sim_function_get(handle, &function) == CUDA_SUCCESS ? function : NULL;
}

struct sim_library *sim_libraries;

struct sim_library *sim_library_find(CUlibrary handle)
{
    for (struct sim_library *at = sim_libraries; at; at = at->next)
        if ((CUlibrary)at == handle)
            return at;
    return NULL;
}

struct sim_kernel *sim_kernel_find(CUkernel handle)
{
    for (struct sim_library *library = sim_libraries; library; library = library->next)
        for (struct sim_kernel *at = library->kernels; at; at = at->next)
            if ((CUkernel)at == handle)
                return at;
    return NULL;
}

struct sim_module *sim_library_loaded(const struct sim_library *library, const struct sim_context *context)
{
    for (struct sim_module *at = context->modules; at; at = at->next)
        if (at->library == library)
            return at;
    return NULL;
}

/* The library's module in the current context. */
CUresult sim_library_module(struct sim_library *library, struct sim_module **out)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    *out = sim_library_loaded(library, sim_context_owner(context));
    return *out ? CUDA_SUCCESS : sim_module_load(library->image, library->size, library, out);
}

/* Of a library that has no kernels here.  Its image is pages that nobody writes, so it takes none of the host. */
struct sim_stand_in {
    struct sim_stand_in *next;
    const char *name;
    struct sim_library library;
};
static struct sim_stand_in *sim_stand_ins;

CUresult sim_library_stand_in(const char *name, size_t bytes)
{
    struct sim_stand_in *at = sim_stand_ins;
    struct sim_module *module;
    while (at && strcmp(at->name, name) != 0)
        at = at->next;
    if (!at) {
        void *image = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        at = image == MAP_FAILED ? NULL : calloc(1, sizeof *at);
        if (!at)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *at = (struct sim_stand_in){sim_stand_ins, name, {.image = image, .size = bytes}};
        sim_stand_ins = at;
    }
    return sim_library_module(&at->library, &module);
}

CUresult sim_kernel_function(struct sim_kernel *kernel, struct sim_function **out)
{
    struct sim_module *module;
    CUresult result = sim_library_module(kernel->library, &module);
    return result == CUDA_SUCCESS ? sim_module_function(module, kernel->name, out) : result;
}

/* Of the tool table: called by the simulated runtime, without the lock, before any module of the
 * library is there. */
int sim_library_declare(CUlibrary handle, const char *name, size_t size, int managed)
{
    struct sim_variable variable = {.size = size, .managed = managed};
    if (!size || strlen(name) >= sizeof variable.name)
        return -EINVAL;
    strcpy(variable.name, name);
    sim_lock();
    struct sim_library *library = sim_library_find(handle);
    if (library) {
        library->declared = sim_grow(library->declared, (library->declared_count + 1) * sizeof *library->declared);
        library->declared[library->declared_count++] = variable;
    }
    sim_unlock();
    return library ? 0 : -EINVAL;
}
