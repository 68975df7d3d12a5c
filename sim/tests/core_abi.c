/* SPDX-License-Identifier: MIT
 * Selftest: sizes, offsets and numbers of cuda.h that programs built with NVIDIA's header depend on. */
#include <stddef.h>

#include "core_check.h"

static void sizes(void)
{
    CHECK_EQ(sizeof(CUipcMemHandle), 64);
    CHECK_EQ(sizeof(CUuuid), 16);
    CHECK_EQ(sizeof(CUmemLocation), 8);
    CHECK_EQ(sizeof(CUmemAllocationProp), 32);
    CHECK_EQ(offsetof(CUmemAllocationProp, location), 8);
    CHECK_EQ(offsetof(CUmemAllocationProp, win32HandleMetaData), 16);
    CHECK_EQ(offsetof(CUmemAllocationProp, allocFlags), 24);
    CHECK_EQ(sizeof(CUmemPoolProps), 88);
    CHECK_EQ(offsetof(CUmemPoolProps, location), 8);
    CHECK_EQ(offsetof(CUmemPoolProps, maxSize), 24);
    CHECK_EQ(sizeof(CUmemAccessDesc), 12);
    CHECK_EQ(sizeof(CUDA_ARRAY_DESCRIPTOR), 24);
    CHECK_EQ(sizeof(CUDA_ARRAY3D_DESCRIPTOR), 40);
    CHECK_EQ(sizeof(CUDA_MEMCPY2D), 128);
    CHECK_EQ(sizeof(CUDA_MEMCPY3D), 200);
    CHECK_EQ(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS), 120);
    CHECK_EQ(offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize), 104);
    CHECK_EQ(offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, dptr), 112);
    CHECK_EQ(sizeof(CUgraphNodeParams), 256);
    CHECK_EQ(sizeof(CUlaunchConfig), 56);
    CHECK_EQ(sizeof(CUlaunchAttribute), 72);
    CHECK_EQ(sizeof(CUmulticastObjectProp), 32);
    CHECK_EQ(sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC), 104);
    CHECK_EQ(sizeof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC), 88);
}

static void numbers(void)
{
    CHECK_EQ(CUDA_VERSION, 13000);
    CHECK_EQ(CUDA_ERROR_OUT_OF_MEMORY, 2);
    CHECK_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709);
    CHECK_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900);
    CHECK_EQ(CUDA_ERROR_UNKNOWN, 999);
    CHECK_EQ(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102);
    CHECK_EQ(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, 20);
    CHECK_EQ(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 8);
    CHECK_EQ(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 10);
}

int main(void)
{
    sizes();
    numbers();
    return check_done();
}
