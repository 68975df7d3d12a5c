/* SPDX-License-Identifier: MIT
 * Launches as before CUDA 4.0: shape, shared memory and parameters are state of the function, and a
 * launch says only how many blocks there are.  Programs of today still call them. */
#include "cuda/stream.h"

#include <stdlib.h>
#include <string.h>

#define SIM_OLD_PARAMS 4096 /* the most bytes of parameters that a kernel had then */

struct sim_old_launch {
    unsigned x, y, z, shared;
    size_t size;
    char params[SIM_OLD_PARAMS];
};

/* NULL: no function.  Without a shape a block has one thread. */
static struct sim_old_launch *sim_old_of(CUfunction handle)
{
    struct sim_function *function = sim_function_find(handle);

    if (function && !function->old) {
        function->old = sim_grow(NULL, sizeof *function->old);
        *function->old = (struct sim_old_launch){.x = 1, .y = 1, .z = 1};
    }
    return function ? function->old : NULL;
}

SIM_API4(83, 2000, cuFuncSetBlockShape, CUfunction, hfunc, int, x, int, y, int, z)
{
    struct sim_old_launch *old = sim_old_of(hfunc);

    if (!old)
        return CUDA_ERROR_INVALID_HANDLE;
    if (x <= 0 || y <= 0 || z <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    old->x = (unsigned)x, old->y = (unsigned)y, old->z = (unsigned)z;
    return CUDA_SUCCESS;
}

SIM_API2(84, 2000, cuFuncSetSharedSize, CUfunction, hfunc, unsigned int, bytes)
{
    struct sim_old_launch *old = sim_old_of(hfunc);

    if (!old)
        return CUDA_ERROR_INVALID_HANDLE;
    old->shared = bytes;
    return CUDA_SUCCESS;
}

SIM_API2(110, 2000, cuParamSetSize, CUfunction, hfunc, unsigned int, numbytes)
{
    struct sim_old_launch *old = sim_old_of(hfunc);

    if (!old || numbytes > SIM_OLD_PARAMS)
        return old ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    old->size = numbytes;
    return CUDA_SUCCESS;
}

static CUresult sim_old_param(CUfunction handle, int offset, const void *value, size_t bytes)
{
    struct sim_old_launch *old = sim_old_of(handle);

    if (!old)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!value || offset < 0 || (size_t)offset > SIM_OLD_PARAMS || bytes > SIM_OLD_PARAMS - (size_t)offset)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(old->params + offset, value, bytes);
    return CUDA_SUCCESS;
}

SIM_API3(111, 2000, cuParamSeti, CUfunction, hfunc, int, offset, unsigned int, value)
{
    return sim_old_param(hfunc, offset, &value, sizeof value);
}

SIM_API3(112, 2000, cuParamSetf, CUfunction, hfunc, int, offset, float, value)
{
    return sim_old_param(hfunc, offset, &value, sizeof value);
}

SIM_API4(113, 2000, cuParamSetv, CUfunction, hfunc, int, offset, void *, ptr, unsigned int, numbytes)
{
    return sim_old_param(hfunc, offset, ptr, numbytes);
}

static CUresult sim_old_run(CUfunction handle, int width, int height, CUstream stream)
{
    struct sim_old_launch *old = sim_old_of(handle);

    if (!old)
        return CUDA_ERROR_INVALID_HANDLE;
    if (width <= 0 || height <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUlaunchConfig config = {.gridDimX = (unsigned)width,
                             .gridDimY = (unsigned)height,
                             .gridDimZ = 1,
                             .blockDimX = old->x,
                             .blockDimY = old->y,
                             .blockDimZ = old->z,
                             .sharedMemBytes = old->shared,
                             .hStream = stream};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, old->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &old->size,
                     CU_LAUNCH_PARAM_END};
    return sim_launch(&config, handle, NULL, extra);
}

SIM_API1(115, 2000, cuLaunch, CUfunction, f)
{
    return sim_old_run(f, 1, 1, NULL);
}

SIM_API3(116, 2000, cuLaunchGrid, CUfunction, f, int, grid_width, int, grid_height)
{
    return sim_old_run(f, grid_width, grid_height, NULL);
}

SIM_API4(117, 2000, cuLaunchGridAsync, CUfunction, f, int, grid_width, int, grid_height, CUstream, hStream)
{
    return sim_old_run(f, grid_width, grid_height, hStream);
}
