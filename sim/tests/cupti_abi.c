/* SPDX-License-Identifier: MIT
 * Selftest: sizes, offsets and numbers of the CUPTI and runtime headers that programs built with NVIDIA's depend on. */
#include <cuda_runtime_api.h>
#include <cupti.h>

#include "check.h"

static void callback_data(void)
{
    CHECK_EQ(sizeof(CUpti_CallbackData), 72);
    CHECK_EQ(offsetof(CUpti_CallbackData, functionName), 8);
    CHECK_EQ(offsetof(CUpti_CallbackData, functionParams), 16);
    CHECK_EQ(offsetof(CUpti_CallbackData, functionReturnValue), 24);
    CHECK_EQ(offsetof(CUpti_CallbackData, symbolName), 32);
    CHECK_EQ(offsetof(CUpti_CallbackData, context), 40);
    CHECK_EQ(offsetof(CUpti_CallbackData, contextUid), 48);
    CHECK_EQ(offsetof(CUpti_CallbackData, correlationData), 56);
    CHECK_EQ(offsetof(CUpti_CallbackData, correlationId), 64);
    CHECK_EQ(sizeof(CUpti_ResourceData), 24);
    CHECK_EQ(sizeof(CUpti_ModuleResourceData), 24);
    CHECK_EQ(sizeof(CUpti_GraphData), 56);
    CHECK_EQ(offsetof(CUpti_GraphData, nodeType), 32);
    CHECK_EQ(sizeof(CUpti_SynchronizeData), 16);
    CHECK_EQ(sizeof(CUpti_StateData), 16);
    CHECK_EQ(sizeof(CUpti_SubscriberParams), 32);
}

/* One id from each region of the two lists: a name lost or doubled would move all behind it. */
static void callback_ids(void)
{
    CHECK_EQ(CUPTI_DRIVER_TRACE_CBID_cuInit, 1);
    CHECK_EQ(CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc, 39);
    CHECK_EQ(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, 243);
    CHECK_EQ(CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister_v2, 379);
    CHECK_EQ(CUPTI_DRIVER_TRACE_CBID_cuMemCreate, 549);
    CHECK_EQ(CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz, 612);
    CHECK_EQ(CUPTI_DRIVER_TRACE_CBID_cuMemSetMemPool, 803);
    CHECK_EQ(CUPTI_DRIVER_TRACE_CBID_cuMulticastBindMem_v2, 807); /* the first that 13.0 has not */
    CHECK_EQ(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, 20);
    CHECK_EQ(CUPTI_RUNTIME_TRACE_CBID_cudaDeviceReset_v3020, 164);
    CHECK_EQ(CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_ptsz_v11020, 374);
    CHECK_EQ(CUPTI_RUNTIME_TRACE_CBID_cudaLibraryLoadData_v12060, 470);
    CHECK_EQ(CUPTI_RUNTIME_TRACE_CBID_SIZE, 523);
    CHECK_EQ(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, 39);
    CHECK_EQ(CUPTI_ERROR_INVALID_CHIP_NAME, 46);
}

static void runtime_types(void)
{
    CHECK_EQ(sizeof(struct cudaDeviceProp), 1008);
    CHECK_EQ(sizeof(struct cudaMemcpy3DParms), 160);
    CHECK_EQ(sizeof(struct cudaPointerAttributes), 88);
    CHECK_EQ(sizeof(struct cudaMemPoolProps), sizeof(CUmemPoolProps));
    CHECK_EQ(sizeof(struct cudaMemAllocNodeParams), sizeof(CUDA_MEM_ALLOC_NODE_PARAMS));
    CHECK_EQ(sizeof(struct cudaGraphNodeParams), sizeof(CUgraphNodeParams));
    CHECK_EQ(offsetof(struct cudaGraphNodeParams, alloc.dptr), offsetof(CUgraphNodeParams, alloc.dptr));
    CHECK_EQ(sizeof(struct cudaExternalMemoryHandleDesc), sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC));
    CHECK_EQ(sizeof(cudaIpcMemHandle_t), 64);
    CHECK_EQ(sizeof(cudaGraphInstantiateParams), sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
    CHECK_EQ(cudaErrorStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY);
}

int main(void)
{
    callback_data();
    callback_ids();
    runtime_types();
    return check_done();
}
