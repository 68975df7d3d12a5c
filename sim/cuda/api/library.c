/* SPDX-License-Identifier: MIT
 * Entry points of libraries and kernels (library.c). */
#include "cuda/context.h"
#include "cuda/module.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CUresult sim_library_load(CUlibrary *handle, const char *image, size_t size, bool preserved)
{
    struct sim_library *library = calloc(1, sizeof *library);
    char *copy = preserved ? NULL : calloc(1, size + 1);
    if (!library || (!preserved && !copy)) {
        free(library);
        free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (copy)
        image = memcpy(copy, image, size);
    *library = (struct sim_library){.next = sim_libraries, .image = image, .copy = copy, .size = size};
    sim_libraries = library;
    *handle = (CUlibrary)library;
    const char *mode = secure_getenv("CUDA_MODULE_LOADING");
    struct sim_module *module;
    if (mode && !strcmp(mode, "EAGER") && sim_context_peek())
        return sim_library_module(library, &module);
    return CUDA_SUCCESS;
}

SIM_API8(678, 12000, cuLibraryLoadData, CUlibrary *, library, const void *, code, CUjit_option *, jitOptions, void **,
         jitOptionsValues, unsigned int, numJitOptions, CUlibraryOption *, libraryOptions, void **, libraryOptionValues,
         unsigned int, numLibraryOptions)
{
    if (!library || !code || (numJitOptions && (!jitOptions || !jitOptionsValues)) ||
        (numLibraryOptions && (!libraryOptions || !libraryOptionValues)))
        return CUDA_ERROR_INVALID_VALUE;
    size_t size = sim_image_size(code);
    bool preserved = false;
    for (unsigned i = 0; i < numLibraryOptions; i++)
        if (libraryOptions[i] == CU_LIBRARY_BINARY_IS_PRESERVED)
            preserved = libraryOptionValues[i] != NULL;
    return size ? sim_library_load(library, code, size, preserved) : CUDA_ERROR_INVALID_IMAGE;
}

SIM_API8(679, 12000, cuLibraryLoadFromFile, CUlibrary *, library, const char *, fileName, CUjit_option *, jitOptions,
         void **, jitOptionsValues, unsigned int, numJitOptions, CUlibraryOption *, libraryOptions, void **,
         libraryOptionValues, unsigned int, numLibraryOptions)
{
    size_t size;
    if (!library || !fileName || (numJitOptions && (!jitOptions || !jitOptionsValues)) ||
        (numLibraryOptions && (!libraryOptions || !libraryOptionValues)))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numLibraryOptions; i++)
        if (libraryOptions[i] == CU_LIBRARY_BINARY_IS_PRESERVED)
            return CUDA_ERROR_INVALID_VALUE;
    char *image = sim_image_file(fileName, &size);
    if (!image)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = sim_library_load(library, image, size, false);
    free(image);
    return result;
}

static void sim_library_free(struct sim_library *library)
{
    free(library->declared);

    while (library->kernels) {
        struct sim_kernel *kernel = library->kernels;
        library->kernels = kernel->next;
        free(kernel->name);
        free(kernel);
    }
    free(library->copy);
    free(library);
}

SIM_API1(680, 12000, cuLibraryUnload, CUlibrary, library)
{
    struct sim_library *found = sim_library_find(library);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_library **at = &sim_libraries;
    while (*at != found)
        at = &(*at)->next;
    *at = found->next;
    for (uint32_t uid = 1; uid <= sim_context_newest(); uid++) {
        struct sim_context *context = sim_context_by_uid(uid);
        struct sim_module *module = context ? sim_library_loaded(found, context) : NULL;
        if (module)
            sim_module_end(module);
    }
    sim_library_free(found);
    return CUDA_SUCCESS;
}

static struct sim_kernel *sim_library_known(const struct sim_library *library, const char *name)
{
    struct sim_kernel *at = library->kernels;
    while (at && strcmp(at->name, name))
        at = at->next;
    return at;
}

static struct sim_kernel *sim_library_add(struct sim_library *library, const char *name)
{
    char *copy = strdup(name);
    struct sim_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel || !copy) {
        free(kernel);
        free(copy);
        return NULL;
    }
    *kernel = (struct sim_kernel){library->kernels, library, copy};
    library->kernels = kernel;
    return kernel;
}

SIM_API3(681, 12000, cuLibraryGetKernel, CUkernel *, pKernel, CUlibrary, library, const char *, name)
{
    struct sim_library *found = sim_library_find(library);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pKernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_kernel *kernel = sim_library_known(found, name);
    if (!kernel && !sim_image_kernel(found->image, found->size, name))
        return CUDA_ERROR_NOT_FOUND;
    if (!kernel && !(kernel = sim_library_add(found, name)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pKernel = (CUkernel)kernel;
    return CUDA_SUCCESS;
}

/* Makes a handle of each kernel.  Of a binary whose names cannot be seen nothing is known. */
static CUresult sim_library_enumerate(struct sim_library *library)
{
    static bool reported;
    size_t size = library->size, at = 0;
    char *cubin = sim_image_fat(library->image) ? sim_fat_cubin(library->image, library->size, 0, &size) : NULL;
    const char *image = cubin ? cubin : library->image;
    CUresult result = CUDA_SUCCESS;
    char name[512];
    if (!sim_image_text(image) && strncmp(image, ELFMAG, SELFMAG) != 0)
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS && !reported)
        fprintf(stderr, "gpuprof: sim: a library's kernels are asked for, and its code cannot be read: the answer is "
                        "CUDA_ERROR_NOT_SUPPORTED\n");
    reported |= result != CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && sim_image_kernel_next(image, size, &at, name))
        if (!sim_library_known(library, name) && !sim_library_add(library, name))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    free(cubin);
    library->enumerated = result == CUDA_SUCCESS;
    return result;
}

SIM_API2(739, 12040, cuLibraryGetKernelCount, unsigned int *, count, CUlibrary, lib)
{
    struct sim_library *found = sim_library_find(lib);
    if (!found || !count)
        return found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    CUresult result = found->enumerated ? CUDA_SUCCESS : sim_library_enumerate(found);
    if (result != CUDA_SUCCESS)
        return result;
    *count = 0;
    for (const struct sim_kernel *at = found->kernels; at; at = at->next)
        ++*count;
    return CUDA_SUCCESS;
}

SIM_API3(740, 12040, cuLibraryEnumerateKernels, CUkernel *, kernels, unsigned int, numKernels, CUlibrary, lib)
{
    struct sim_library *found = sim_library_find(lib);
    if (!found || !kernels || !numKernels)
        return found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    CUresult result = found->enumerated ? CUDA_SUCCESS : sim_library_enumerate(found);
    if (result != CUDA_SUCCESS)
        return result;
    for (struct sim_kernel *at = found->kernels; at && numKernels; at = at->next, numKernels--)
        *kernels++ = (CUkernel)at;
    return CUDA_SUCCESS;
}

/* No simulated device has the attribute UNIFIED_FUNCTION_POINTERS, so no symbol is found. */
SIM_API3(700, 12000, cuLibraryGetUnifiedFunction, void **, fptr, CUlibrary, library, const char *, symbol)
{
    if (!sim_library_find(library))
        return CUDA_ERROR_INVALID_HANDLE;
    return fptr && symbol ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}

SIM_API2(682, 12000, cuLibraryGetModule, CUmodule *, pMod, CUlibrary, library)
{
    struct sim_library *found = sim_library_find(library);
    struct sim_module *module;
    if (!found || !pMod)
        return found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_library_module(found, &module);
    if (result == CUDA_SUCCESS)
        *pMod = (CUmodule)module;
    return result;
}

static CUresult sim_library_variable(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name,
                                     bool managed)
{
    struct sim_library *found = sim_library_find(library);
    struct sim_module *module;
    if (!found || !name)
        return found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_library_module(found, &module);
    return result == CUDA_SUCCESS ? sim_module_variable(module, name, managed, dptr, bytes) : result;
}

SIM_API4(684, 12000, cuLibraryGetGlobal, CUdeviceptr *, dptr, size_t *, bytes, CUlibrary, library, const char *, name)
{
    return sim_library_variable(dptr, bytes, library, name, false);
}

SIM_API4(685, 12000, cuLibraryGetManaged, CUdeviceptr *, dptr, size_t *, bytes, CUlibrary, library, const char *, name)
{
    return sim_library_variable(dptr, bytes, library, name, true);
}

SIM_API2(683, 12000, cuKernelGetFunction, CUfunction *, pFunc, CUkernel, kernel)
{
    struct sim_kernel *found = sim_kernel_find(kernel);
    struct sim_function *function;
    if (!found || !pFunc)
        return found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_kernel_function(found, &function);
    if (result == CUDA_SUCCESS)
        *pFunc = (CUfunction)function;
    return result;
}

SIM_API2(719, 12030, cuKernelGetName, const char **, name, CUkernel, hfunc)
{
    const struct sim_kernel *found = sim_kernel_find(hfunc);
    if (!found || !name)
        return found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *name = found->name;
    return CUDA_SUCCESS;
}
