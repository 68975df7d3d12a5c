/* SPDX-License-Identifier: MIT
 * Runtime calls about kernels other than launches: attributes, occupancy; and the switches of a
 * profiler, which have no effect here.  Called by programs. */
#include "cudart/runtime.h"

RT_API(RT_CONTEXT, 15, cudaFuncGetAttributes, struct cudaFuncAttributes *, attr, const void *, func)
{
    CUfunction function;
    CUresult result = CUDA_SUCCESS;
    cudaError_t status = rt_kernel_function(func, &function);
    int shared = 0, constant = 0, local = 0;

    if (status != cudaSuccess || !attr)
        return status != cudaSuccess ? status : cudaErrorInvalidValue;
    memset(attr, 0, sizeof *attr);
    const struct {
        CUfunction_attribute attribute;
        int *to;
    } wanted[] = {
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &shared},
        {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &constant},
        {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &local},
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &attr->maxThreadsPerBlock},
        {CU_FUNC_ATTRIBUTE_NUM_REGS, &attr->numRegs},
        {CU_FUNC_ATTRIBUTE_PTX_VERSION, &attr->ptxVersion},
        {CU_FUNC_ATTRIBUTE_BINARY_VERSION, &attr->binaryVersion},
        {CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, &attr->cacheModeCA},
        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &attr->maxDynamicSharedSizeBytes},
        {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &attr->preferredShmemCarveout},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0] && !result; i++)
        result = D->cuFuncGetAttribute(wanted[i].to, wanted[i].attribute, function);
    attr->sharedSizeBytes = (size_t)shared;
    attr->constSizeBytes = (size_t)constant;
    attr->localSizeBytes = (size_t)local;
    return rt_error_from(result);
}

/* The attributes have the driver's numbers. */
RT_API(RT_CONTEXT, 273, cudaFuncSetAttribute, const void *, func, enum cudaFuncAttribute, attr, int, value)
{
    CUfunction function;
    cudaError_t status = rt_kernel_function(func, &function);

    if (status != cudaSuccess)
        return status;
    return rt_error_from(D->cuFuncSetAttribute(function, (CUfunction_attribute)attr, value));
}

static cudaError_t rt_occupancy(const struct rt_driver *D, int *count, const void *func, int block, size_t shared,
                                unsigned int flags)
{
    CUfunction function;
    cudaError_t status = rt_kernel_function(func, &function);

    if (status != cudaSuccess)
        return status;
    return rt_error_from(
        D->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, function, block, shared, flags));
}

RT_API(RT_CONTEXT, 210, cudaOccupancyMaxActiveBlocksPerMultiprocessor, int *, numBlocks, const void *, func, int,
       blockSize, size_t, dynamicSMemSize)
{
    return rt_occupancy(D, numBlocks, func, blockSize, dynamicSMemSize, 0);
}

RT_API(RT_CONTEXT, 251, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *, numBlocks, const void *, func,
       int, blockSize, size_t, dynamicSMemSize, unsigned int, flags)
{
    return rt_occupancy(D, numBlocks, func, blockSize, dynamicSMemSize, flags);
}

RT_API(RT_CONTEXT, 329, cudaOccupancyAvailableDynamicSMemPerBlock, size_t *, dynamicSmemSize, const void *, func, int,
       numBlocks, int, blockSize)
{
    CUfunction function;
    cudaError_t status = rt_kernel_function(func, &function);

    if (status != cudaSuccess)
        return status;
    return rt_error_from(D->cuOccupancyAvailableDynamicSMemPerBlock(dynamicSmemSize, function, numBlocks, blockSize));
}

RT_API(RT_CONTEXT, 432, cudaOccupancyMaxPotentialClusterSize, int *, clusterSize, const void *, func,
       const cudaLaunchConfig_t *, launchConfig)
{
    CUlaunchConfig config;
    CUfunction function;
    cudaError_t status = rt_launch_config(launchConfig, &config);

    if (status == cudaSuccess)
        status = rt_kernel_function(func, &function);
    return status == cudaSuccess ? rt_error_from(D->cuOccupancyMaxPotentialClusterSize(clusterSize, function, &config))
                                 : status;
}

RT_API(RT_CONTEXT, 433, cudaOccupancyMaxActiveClusters, int *, numClusters, const void *, func,
       const cudaLaunchConfig_t *, launchConfig)
{
    CUlaunchConfig config;
    CUfunction function;
    cudaError_t status = rt_launch_config(launchConfig, &config);

    if (status == cudaSuccess)
        status = rt_kernel_function(func, &function);
    return status == cudaSuccess ? rt_error_from(D->cuOccupancyMaxActiveClusters(numClusters, function, &config))
                                 : status;
}

/* The preferences have the driver's numbers. */
RT_API(RT_CONTEXT, 14, cudaFuncSetCacheConfig, const void *, func, int, cacheConfig)
{
    CUfunction function;
    cudaError_t status = rt_kernel_function(func, &function);

    return status == cudaSuccess ? rt_error_from(D->cuFuncSetCacheConfig(function, (CUfunc_cache)cacheConfig)) : status;
}

RT_API(RT_CONTEXT, 182, cudaFuncSetSharedMemConfig, const void *, func, int, config)
{
    CUfunction function;
    cudaError_t status = rt_kernel_function(func, &function);

    return status == cudaSuccess ? rt_error_from(D->cuFuncSetSharedMemConfig(function, (CUsharedconfig)config))
                                 : status;
}

RT_API0(RT_CONTEXT, 171, cudaProfilerStart)
{
    return rt_error_from(D->cuProfilerStart());
}

RT_API0(RT_CONTEXT, 172, cudaProfilerStop)
{
    return rt_error_from(D->cuProfilerStop());
}
