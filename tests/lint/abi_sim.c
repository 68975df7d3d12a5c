/* SPDX-License-Identifier: MIT
 *
 * abi_sim.c: prints facts of the driver's public interface that programs compile in. check-abi builds it twice, with
 * the simulator's cuda.h and with NVIDIA's; the two outputs must be equal.
 */
#include <cuda.h>
#include <stddef.h>
#include <stdio.h>

#define SIZE(_type) printf("sizeof %s %zu\n", #_type, sizeof(_type))
#define FIELD(_type, _field)                                                                                           \
    printf("%s.%s %zu %zu\n", #_type, #_field, offsetof(_type, _field), sizeof(((_type *)0)->_field))
#define NUMBER(_name) printf("%s %lld\n", #_name, (long long)(_name))

static void structs(void)
{
    SIZE(CUdeviceptr);
    SIZE(CUuuid);
    SIZE(CUDA_ARRAY_DESCRIPTOR);
    FIELD(CUDA_ARRAY_DESCRIPTOR, Format);
    SIZE(CUDA_ARRAY3D_DESCRIPTOR);
    FIELD(CUDA_ARRAY3D_DESCRIPTOR, NumChannels);
    FIELD(CUDA_ARRAY3D_DESCRIPTOR, Flags);
    SIZE(CUmemLocation);
    SIZE(CUmemAllocationProp);
    FIELD(CUmemAllocationProp, requestedHandleTypes);
    FIELD(CUmemAllocationProp, location);
    FIELD(CUmemAllocationProp, allocFlags);
    SIZE(CUmemAccessDesc);
    FIELD(CUmemAccessDesc, flags);
    SIZE(CUmemPoolProps);
    FIELD(CUmemPoolProps, location);
    FIELD(CUmemPoolProps, maxSize);
    SIZE(CUmemPoolPtrExportData);
    SIZE(CUDA_MEM_ALLOC_NODE_PARAMS);
    FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, accessDescs);
    FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
    FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
    SIZE(CUgraphNodeParams);
    FIELD(CUgraphNodeParams, alloc);
    FIELD(CUgraphNodeParams, free);
    SIZE(CUipcMemHandle);
    SIZE(CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
    FIELD(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);
    SIZE(CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
    FIELD(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size);
    SIZE(CUmulticastObjectProp);
    FIELD(CUmulticastObjectProp, size);
    SIZE(CUDA_KERNEL_NODE_PARAMS);
    SIZE(CUDA_MEMSET_NODE_PARAMS);
    SIZE(CUDA_HOST_NODE_PARAMS);
    SIZE(CUDA_MEMCPY3D);
    SIZE(CUDA_MEMCPY2D);
}

static void numbers(void)
{
    NUMBER(CUDA_VERSION);
    NUMBER(CUDA_SUCCESS);
    NUMBER(CUDA_ERROR_INVALID_VALUE);
    NUMBER(CUDA_ERROR_OUT_OF_MEMORY);
    NUMBER(CUDA_ERROR_NOT_INITIALIZED);
    NUMBER(CUDA_ERROR_INVALID_DEVICE);
    NUMBER(CUDA_ERROR_INVALID_CONTEXT);
    NUMBER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    NUMBER(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    NUMBER(CUDA_ERROR_NOT_SUPPORTED);
    NUMBER(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
    NUMBER(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    NUMBER(CU_MEMPOOL_ATTR_USED_MEM_HIGH);
    NUMBER(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
    NUMBER(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    NUMBER(CU_GRAPH_NODE_TYPE_MEM_FREE);
    NUMBER(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
    NUMBER(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
    NUMBER(CU_STREAM_CAPTURE_MODE_RELAXED);
    NUMBER(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
    NUMBER(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    NUMBER(CU_AD_FORMAT_FLOAT);
    NUMBER(CU_AD_FORMAT_HALF);
    NUMBER(CUDA_ARRAY3D_LAYERED);
    NUMBER(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    NUMBER(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
    NUMBER(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    NUMBER(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
}

int main(void)
{
    structs();
    numbers();
    return 0;
}
