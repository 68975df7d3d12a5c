/* SPDX-License-Identifier: MIT
 *
 * make.h: a pool and a context of a device, as several programs make them.
 */
#ifndef GP_TEST_PROGRAMS_MAKE_H
#define GP_TEST_PROGRAMS_MAKE_H

#include <cuda.h>

#include "finish.h"

static PROGRAM_UNUSED CUmemoryPool pool_make(CUdevice device)
{
    CUmemPoolProps shape;
    CUmemoryPool pool = NULL;
    memset(&shape, 0, sizeof(shape));
    shape.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shape.location.id = device;
    CHECK(cuMemPoolCreate(&pool, &shape));
    return pool;
}

static PROGRAM_UNUSED CUcontext context_make(CUdevice device)
{
    CUcontext context = NULL;

#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(&context, NULL, 0, device));
#else
    CHECK(cuCtxCreate(&context, 0, device));
#endif
    return context;
}

#endif
