/* SPDX-License-Identifier: MIT
 * Occupancy: how many blocks of a kernel a multiprocessor of the device holds at once, by threads
 * (whole warps), by number and by shared memory; and what follows from that. */
#include "cuda/sim.h"

static int sim_occupancy_limit(CUdevice_attribute attribute)
{
    return sim_device_attribute(sim_self.depth ? sim_self.stack[sim_self.depth - 1].device : 0, attribute);
}

static CUresult sim_occupancy(int *blocks, CUfunction handle, int block, size_t shared, unsigned flags)
{
    const struct sim_function *function = sim_function_find(handle);
    const size_t most = (size_t)sim_occupancy_limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    uint64_t fit;

    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!blocks || block <= 0 || flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
        return CUDA_ERROR_INVALID_VALUE;
    fit = (uint64_t)sim_occupancy_limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) /
          sim_round_up((uint64_t)block, 32);
    if (fit > (uint64_t)sim_occupancy_limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR))
        fit = (uint64_t)sim_occupancy_limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
    shared += (size_t)function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
    if (shared && most / shared < fit)
        fit = most / shared;
    *blocks = block > 1024 ? 0 : (int)fit;
    return CUDA_SUCCESS;
}

SIM_API4(374, 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor, int *, numBlocks, CUfunction, func, int, blockSize,
         size_t, dynamicSMemSize)
{
    return sim_occupancy(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

SIM_API5(451, 7000, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *, numBlocks, CUfunction, func, int,
         blockSize, size_t, dynamicSMemSize, unsigned int, flags)
{
    return sim_occupancy(numBlocks, func, blockSize, dynamicSMemSize, flags);
}

/* The block size with the most threads at once, the largest of equals.  The program's function says
 * how much shared memory a block of a size needs: it runs without the lock. */
static CUresult sim_occupancy_best(int *grid, int *block, CUfunction func, CUoccupancyB2DSize size_of, size_t shared,
                                   int limit, unsigned flags)
{
    int best = 0, best_blocks = 0, blocks = 0;

    if (!grid || !block || limit < 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (int size = limit && limit < 1024 ? limit : 1024; size > 0; size = (size - 1) / 32 * 32) {
        if (size_of) {
            sim_unlock();
            shared = size_of(size);
            sim_lock();
        }
        CUresult result = sim_occupancy(&blocks, func, size, shared, flags);
        if (result != CUDA_SUCCESS)
            return result;
        if (blocks * size > best_blocks * best) {
            best = size;
            best_blocks = blocks;
        }
    }
    *block = best;
    *grid = best_blocks * sim_occupancy_limit(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    return CUDA_SUCCESS;
}

SIM_API6(384, 6050, cuOccupancyMaxPotentialBlockSize, int *, minGridSize, int *, blockSize, CUfunction, func,
         CUoccupancyB2DSize, blockSizeToDynamicSMemSize, size_t, dynamicSMemSize, int, blockSizeLimit)
{
    return sim_occupancy_best(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit,
                              0);
}

SIM_API7(452, 7000, cuOccupancyMaxPotentialBlockSizeWithFlags, int *, minGridSize, int *, blockSize, CUfunction, func,
         CUoccupancyB2DSize, blockSizeToDynamicSMemSize, size_t, dynamicSMemSize, int, blockSizeLimit, unsigned int,
         flags)
{
    return sim_occupancy_best(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit,
                              flags);
}

SIM_API4(543, 10020, cuOccupancyAvailableDynamicSMemPerBlock, size_t *, dynamicSmemSize, CUfunction, func, int,
         numBlocks, int, blockSize)
{
    const struct sim_function *function = sim_function_find(func);
    size_t room, most = (size_t)sim_occupancy_limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    size_t fixed;

    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!dynamicSmemSize || numBlocks <= 0 || blockSize <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    fixed = (size_t)function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
    room = (size_t)sim_occupancy_limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / (unsigned)numBlocks;
    if (room > most)
        room = most;
    *dynamicSmemSize = room > fixed ? room - fixed : 0;
    return CUDA_SUCCESS;
}

/* ---- clusters ---------------------------------------------------------------------------------------------------- */
/* Eight blocks are what every device with clusters can run (programming guide); sixteen if the
 * kernel allows sizes that not every device has. */
static CUresult sim_cluster_check(CUfunction func, const CUlaunchConfig *config, const struct sim_function **function)
{
    *function = sim_function_find(func);
    if (!*function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_occupancy_limit(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API3(675, 11070, cuOccupancyMaxPotentialClusterSize, int *, clusterSize, CUfunction, func, const CUlaunchConfig *,
         config)
{
    const struct sim_function *function;
    int blocks, threads;
    CUresult result = sim_cluster_check(func, config, &function);

    if (result != CUDA_SUCCESS || !clusterSize)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    threads = (int)(config->blockDimX * config->blockDimY * config->blockDimZ);
    result = sim_occupancy(&blocks, func, threads, config->sharedMemBytes, 0);
    if (result == CUDA_SUCCESS)
        *clusterSize = !blocks ? 0 : function->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] ? 16 : 8;
    return result;
}

SIM_API3(676, 11070, cuOccupancyMaxActiveClusters, int *, numClusters, CUfunction, func, const CUlaunchConfig *, config)
{
    const struct sim_function *function;
    unsigned size = 1;
    int blocks, threads;
    CUresult result = sim_cluster_check(func, config, &function);

    if (result != CUDA_SUCCESS || !numClusters)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            size = config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
                   config->attrs[i].value.clusterDim.z;
    if (!size || size > (function->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] ? 16u : 8u))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    threads = (int)(config->blockDimX * config->blockDimY * config->blockDimZ);
    result = sim_occupancy(&blocks, func, threads, config->sharedMemBytes, 0);
    if (result == CUDA_SUCCESS)
        *numClusters = (int)((unsigned)(blocks * sim_occupancy_limit(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)) / size);
    return result;
}
