/* SPDX-License-Identifier: MIT
 * Entry points of modules (module.c). */
#include "cuda/module.h"

#include <stdlib.h>
#include <string.h>

static CUresult sim_module_data(CUmodule *handle, const void *image)
{
    struct sim_module *module;
    if (!handle || !image)
        return CUDA_ERROR_INVALID_VALUE;
    size_t size = sim_image_size(image);
    if (size == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    CUresult result = sim_module_load(image, size, NULL, &module);
    if (result == CUDA_SUCCESS)
        *handle = (CUmodule)module;
    return result;
}

SIM_API2(18, 2000, cuModuleLoad, CUmodule *, module, const char *, fname)
{
    struct sim_module *loaded;
    size_t size;
    if (!module || !fname)
        return CUDA_ERROR_INVALID_VALUE;
    char *image = sim_image_file(fname, &size);
    if (!image)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = sim_module_load(image, size, NULL, &loaded);
    free(image);
    if (result == CUDA_SUCCESS)
        *module = (CUmodule)loaded;
    return result;
}

SIM_API2(19, 2000, cuModuleLoadData, CUmodule *, module, const void *, image)
{
    return sim_module_data(module, image);
}

SIM_API5(20, 2010, cuModuleLoadDataEx, CUmodule *, module, const void *, image, unsigned int, numOptions,
         CUjit_option *, options, void **, optionValues)
{
    if (numOptions && (!options || !optionValues))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_module_data(module, image);
}

SIM_API2(21, 2000, cuModuleLoadFatBinary, CUmodule *, module, const void *, fatCubin)
{
    return sim_module_data(module, fatCubin);
}

SIM_API1(22, 2000, cuModuleUnload, CUmodule, hmod)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_module *module = sim_module_find(hmod);
    if (!module || module->library) /* a library's modules go with the library */
        return CUDA_ERROR_INVALID_HANDLE;
    sim_module_end(module);
    return CUDA_SUCCESS;
}

SIM_API3(23, 2000, cuModuleGetFunction, CUfunction *, hfunc, CUmodule, hmod, const char *, name)
{
    struct sim_function *function;
    struct sim_module *module = sim_module_find(hmod);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!hfunc || !name)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_module_function(module, name, &function);
    if (result == CUDA_SUCCESS)
        *hfunc = (CUfunction)function;
    return result;
}

SIM_API4(241, 3020, cuModuleGetGlobal_v2, CUdeviceptr *, dptr, size_t *, bytes, CUmodule, hmod, const char *, name)
{
    struct sim_module *module = sim_module_find(hmod);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_module_variable(module, name, false, dptr, bytes);
}

SIM_API1(673, 11070, cuModuleGetLoadingMode, CUmoduleLoadingMode *, mode)
{
    const char *wanted = secure_getenv("CUDA_MODULE_LOADING");
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = wanted && !strcmp(wanted, "EAGER") ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}
