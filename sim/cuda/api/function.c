/* SPDX-License-Identifier: MIT
 * Functions of modules: lookup by handle and their attributes.  Launches are in launch.c. */
#include "cuda/module.h"

static CUresult sim_attribute(struct sim_function *function, CUfunction_attribute attribute, int **value)
{
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
        function->attributes[attribute] = (int)sim_function_stack(function);
    *value = &function->attributes[attribute];
    return CUDA_SUCCESS;
}

/* The attributes that a program may set; the others are facts of the code. */
static bool sim_attribute_settable(CUfunction_attribute attribute)
{
    return attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
           attribute >= CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
}

SIM_API3(85, 2020, cuFuncGetAttribute, int *, pi, CUfunction_attribute, attrib, CUfunction, hfunc)
{
    int *value;
    CUresult result = sim_attribute(sim_function_find(hfunc), attrib, &value);
    if (result == CUDA_SUCCESS && !pi)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *pi = *value;
    return result;
}

SIM_API3(481, 9000, cuFuncSetAttribute, CUfunction, hfunc, CUfunction_attribute, attrib, int, value)
{
    int *at;
    CUresult result = sim_attribute(sim_function_find(hfunc), attrib, &at);
    if (result == CUDA_SUCCESS && !sim_attribute_settable(attrib))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *at = value;
    return result;
}

SIM_API4(686, 12000, cuKernelGetAttribute, int *, pi, CUfunction_attribute, attrib, CUkernel, kernel, CUdevice, dev)
{
    int *value;
    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = sim_attribute(sim_function_find((CUfunction)kernel), attrib, &value);
    if (result == CUDA_SUCCESS && !pi)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *pi = *value;
    return result;
}

SIM_API4(687, 12000, cuKernelSetAttribute, CUfunction_attribute, attrib, int, val, CUkernel, kernel, CUdevice, dev)
{
    int *at;
    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = sim_attribute(sim_function_find((CUfunction)kernel), attrib, &at);
    if (result == CUDA_SUCCESS && !sim_attribute_settable(attrib))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *at = val;
    return result;
}

/* The preference has no effect here, but a wrong handle or value is one. */
static CUresult sim_cache_config(CUfunction handle, CUfunc_cache config)
{
    if (!sim_function_find(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    return config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API2(86, 3000, cuFuncSetCacheConfig, CUfunction, hfunc, CUfunc_cache, config)
{
    return sim_cache_config(hfunc, config);
}

SIM_API3(688, 12000, cuKernelSetCacheConfig, CUkernel, kernel, CUfunc_cache, config, CUdevice, dev)
{
    return sim_device_get(dev) ? sim_cache_config((CUfunction)kernel, config) : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API2(718, 12030, cuFuncGetName, const char **, name, CUfunction, hfunc)
{
    const struct sim_function *function = sim_function_find(hfunc);
    if (!function || !name)
        return function ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *name = function->name;
    return CUDA_SUCCESS;
}

/* ---- where a function is from ------------------------------------------------------------------------------------ */

/* A function of a module is loaded with it. */
SIM_API2(566, 11000, cuFuncGetModule, CUmodule *, hmod, CUfunction, hfunc)
{
    const struct sim_function *function = sim_function_find(hfunc);
    if (!function || !hmod)
        return function ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *hmod = (CUmodule)function->module;
    return CUDA_SUCCESS;
}

SIM_API2(741, 12040, cuFuncIsLoaded, CUfunctionLoadingState *, state, CUfunction, function)
{
    const struct sim_function *found = sim_function_find(function);
    if (!found || !state)
        return found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

SIM_API1(742, 12040, cuFuncLoad, CUfunction, function)
{
    return sim_function_find(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API2(754, 12050, cuKernelGetLibrary, CUlibrary *, pLib, CUkernel, kernel)
{
    const struct sim_kernel *found = sim_kernel_find(kernel);
    if (!found || !pLib)
        return found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *pLib = (CUlibrary)found->library;
    return CUDA_SUCCESS;
}

/* ---- banks of shared memory: fixed since compute capability 5.0 -------------------------------------------------- */

SIM_API1(337, 4020, cuCtxGetSharedMemConfig, CUsharedconfig *, pConfig)
{
    if (!pConfig)
        return CUDA_ERROR_INVALID_VALUE;
    *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
}

SIM_API1(336, 4020, cuCtxSetSharedMemConfig, CUsharedconfig, config)
{
    return (unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API2(338, 4020, cuFuncSetSharedMemConfig, CUfunction, hfunc, CUsharedconfig, config)
{
    if (!sim_function_find(hfunc))
        return CUDA_ERROR_INVALID_HANDLE;
    return (unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
