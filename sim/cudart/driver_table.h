/* SPDX-License-Identifier: MIT
 * Every driver function that the runtime uses: name, version of the ABI that introduced the wanted
 * form, version of its per-thread-default-stream twin if it has one (X2), parameter types.
 * runtime.h makes the table of pointers of it and driver.c fills that table through
 * cuGetProcAddress_v2, as the real runtime does.  Versions are those of the PFN names in the
 * toolkit's cudaTypedefs.h. */
#ifndef SIM_CUDART_DRIVER_TABLE_H
#define SIM_CUDART_DRIVER_TABLE_H

#define RT_DRIVER_FUNCTIONS(X1, X2)                                                                                    \
    X1(cuInit, 2000, (unsigned int))                                                                                   \
    X1(cuDriverGetVersion, 2020, (int *))                                                                              \
    X1(cuDeviceGetCount, 2000, (int *))                                                                                \
    X1(cuDeviceGetName, 2000, (char *, int, CUdevice))                                                                 \
    X1(cuDeviceGetUuid, 11040, (CUuuid *, CUdevice))                                                                   \
    X1(cuDeviceTotalMem, 3020, (size_t *, CUdevice))                                                                   \
    X1(cuDeviceGetAttribute, 2000, (int *, CUdevice_attribute, CUdevice))                                              \
    X1(cuDeviceGetByPCIBusId, 4010, (CUdevice *, const char *))                                                        \
    X1(cuDeviceGetPCIBusId, 4010, (char *, int, CUdevice))                                                             \
    X1(cuDeviceCanAccessPeer, 4000, (int *, CUdevice, CUdevice))                                                       \
    X1(cuDevicePrimaryCtxRetain, 7000, (CUcontext *, CUdevice))                                                        \
    X1(cuDevicePrimaryCtxReset, 11000, (CUdevice))                                                                     \
    X1(cuDevicePrimaryCtxSetFlags, 11000, (CUdevice, unsigned int))                                                    \
    X1(cuDevicePrimaryCtxGetState, 7000, (CUdevice, unsigned int *, int *))                                            \
    X1(cuCtxSetCurrent, 4000, (CUcontext))                                                                             \
    X1(cuCtxSynchronize, 2000, (void))                                                                                 \
    X1(cuCtxSetLimit, 3010, (CUlimit, size_t))                                                                         \
    X1(cuCtxGetLimit, 3010, (size_t *, CUlimit))                                                                       \
    X1(cuCtxGetStreamPriorityRange, 5050, (int *, int *))                                                              \
    X1(cuCtxEnablePeerAccess, 4000, (CUcontext, unsigned int))                                                         \
    X1(cuCtxDisablePeerAccess, 4000, (CUcontext))                                                                      \
    X1(cuMemGetInfo, 3020, (size_t *, size_t *))                                                                       \
    X1(cuMemAlloc, 3020, (CUdeviceptr *, size_t))                                                                      \
    X1(cuMemAllocPitch, 3020, (CUdeviceptr *, size_t *, size_t, size_t, unsigned int))                                 \
    X1(cuMemFree, 3020, (CUdeviceptr))                                                                                 \
    X1(cuMemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned int))                                                 \
    X1(cuMemHostAlloc, 2020, (void **, size_t, unsigned int))                                                          \
    X1(cuMemFreeHost, 2000, (void *))                                                                                  \
    X1(cuMemHostRegister, 6050, (void *, size_t, unsigned int))                                                        \
    X1(cuMemHostUnregister, 4000, (void *))                                                                            \
    X1(cuMemHostGetDevicePointer, 3020, (CUdeviceptr *, void *, unsigned int))                                         \
    X1(cuMemHostGetFlags, 2030, (unsigned int *, void *))                                                              \
    X1(cuPointerGetAttributes, 7000, (unsigned int, CUpointer_attribute *, void **, CUdeviceptr))                      \
    X1(cuMemAdvise, 12020, (CUdeviceptr, size_t, CUmem_advise, CUmemLocation))                                         \
    X2(cuMemPrefetchAsync, 12020, 12020, (CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream))                 \
    X1(cuMemRangeGetAttribute, 8000, (void *, size_t, CUmem_range_attribute, CUdeviceptr, size_t))                     \
    X1(cuMemRangeGetAttributes, 8000, (void **, size_t *, CUmem_range_attribute *, size_t, CUdeviceptr, size_t))       \
    X1(cuArrayCreate, 3020, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *))                                                \
    X1(cuArray3DCreate, 3020, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *))                                            \
    X1(cuArrayDestroy, 2000, (CUarray))                                                                                \
    X1(cuArray3DGetDescriptor, 3020, (CUDA_ARRAY3D_DESCRIPTOR *, CUarray))                                             \
    X1(cuArrayGetMemoryRequirements, 11060, (CUDA_ARRAY_MEMORY_REQUIREMENTS *, CUarray, CUdevice))                     \
    X1(cuMipmappedArrayCreate, 5000, (CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned int))              \
    X1(cuMipmappedArrayDestroy, 5000, (CUmipmappedArray))                                                              \
    X1(cuMipmappedArrayGetLevel, 5000, (CUarray *, CUmipmappedArray, unsigned int))                                    \
    X2(cuMemAllocAsync, 11020, 11020, (CUdeviceptr *, size_t, CUstream))                                               \
    X2(cuMemFreeAsync, 11020, 11020, (CUdeviceptr, CUstream))                                                          \
    X2(cuMemAllocFromPoolAsync, 11020, 11020, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))                         \
    X1(cuDeviceGetDefaultMemPool, 11020, (CUmemoryPool *, CUdevice))                                                   \
    X1(cuDeviceSetMemPool, 11020, (CUdevice, CUmemoryPool))                                                            \
    X1(cuDeviceGetMemPool, 11020, (CUmemoryPool *, CUdevice))                                                          \
    X1(cuMemGetDefaultMemPool, 13000, (CUmemoryPool *, CUmemLocation *, CUmemAllocationType))                          \
    X1(cuMemGetMemPool, 13000, (CUmemoryPool *, CUmemLocation *, CUmemAllocationType))                                 \
    X1(cuMemSetMemPool, 13000, (CUmemLocation *, CUmemAllocationType, CUmemoryPool))                                   \
    X1(cuMemPoolTrimTo, 11020, (CUmemoryPool, size_t))                                                                 \
    X1(cuMemPoolSetAttribute, 11020, (CUmemoryPool, CUmemPool_attribute, void *))                                      \
    X1(cuMemPoolGetAttribute, 11020, (CUmemoryPool, CUmemPool_attribute, void *))                                      \
    X1(cuMemPoolSetAccess, 11020, (CUmemoryPool, const CUmemAccessDesc *, size_t))                                     \
    X1(cuMemPoolGetAccess, 11020, (CUmemAccess_flags *, CUmemoryPool, CUmemLocation *))                                \
    X1(cuMemPoolCreate, 11020, (CUmemoryPool *, const CUmemPoolProps *))                                               \
    X1(cuMemPoolDestroy, 11020, (CUmemoryPool))                                                                        \
    X1(cuMemPoolExportToShareableHandle, 11020, (void *, CUmemoryPool, CUmemAllocationHandleType, unsigned long long)) \
    X1(cuMemPoolImportFromShareableHandle, 11020,                                                                      \
       (CUmemoryPool *, void *, CUmemAllocationHandleType, unsigned long long))                                        \
    X1(cuMemPoolExportPointer, 11020, (CUmemPoolPtrExportData *, CUdeviceptr))                                         \
    X1(cuMemPoolImportPointer, 11020, (CUdeviceptr *, CUmemoryPool, CUmemPoolPtrExportData *))                         \
    X2(cuMemcpy, 4000, 7000, (CUdeviceptr, CUdeviceptr, size_t))                                                       \
    X2(cuMemcpyAsync, 4000, 7000, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                        \
    X2(cuMemcpyHtoD, 3020, 7000, (CUdeviceptr, const void *, size_t))                                                  \
    X2(cuMemcpyDtoH, 3020, 7000, (void *, CUdeviceptr, size_t))                                                        \
    X2(cuMemcpyDtoD, 3020, 7000, (CUdeviceptr, CUdeviceptr, size_t))                                                   \
    X2(cuMemcpyHtoDAsync, 3020, 7000, (CUdeviceptr, const void *, size_t, CUstream))                                   \
    X2(cuMemcpyDtoHAsync, 3020, 7000, (void *, CUdeviceptr, size_t, CUstream))                                         \
    X2(cuMemcpyDtoDAsync, 3020, 7000, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                    \
    X2(cuMemcpyPeer, 4000, 7000, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t))                             \
    X2(cuMemcpyPeerAsync, 4000, 7000, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))              \
    X2(cuMemcpy2DUnaligned, 3020, 7000, (const CUDA_MEMCPY2D *))                                                       \
    X2(cuMemcpy2DAsync, 3020, 7000, (const CUDA_MEMCPY2D *, CUstream))                                                 \
    X2(cuMemcpy3D, 3020, 7000, (const CUDA_MEMCPY3D *))                                                                \
    X2(cuMemcpy3DAsync, 3020, 7000, (const CUDA_MEMCPY3D *, CUstream))                                                 \
    X2(cuMemsetD8, 3020, 7000, (CUdeviceptr, unsigned char, size_t))                                                   \
    X2(cuMemsetD8Async, 3020, 7000, (CUdeviceptr, unsigned char, size_t, CUstream))                                    \
    X2(cuMemsetD2D8, 3020, 7000, (CUdeviceptr, size_t, unsigned char, size_t, size_t))                                 \
    X2(cuMemsetD2D8Async, 3020, 7000, (CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream))                  \
    X1(cuStreamCreate, 2000, (CUstream *, unsigned int))                                                               \
    X1(cuStreamCreateWithPriority, 5050, (CUstream *, unsigned int, int))                                              \
    X1(cuStreamDestroy, 4000, (CUstream))                                                                              \
    X2(cuStreamGetPriority, 5050, 7000, (CUstream, int *))                                                             \
    X2(cuStreamGetFlags, 5050, 7000, (CUstream, unsigned int *))                                                       \
    X2(cuStreamGetId, 12000, 12000, (CUstream, unsigned long long *))                                                  \
    X2(cuStreamGetDevice, 12080, 12080, (CUstream, CUdevice *))                                                        \
    X2(cuStreamWaitEvent, 3020, 7000, (CUstream, CUevent, unsigned int))                                               \
    X2(cuStreamAddCallback, 5000, 7000, (CUstream, CUstreamCallback, void *, unsigned int))                            \
    X2(cuStreamSynchronize, 2000, 7000, (CUstream))                                                                    \
    X2(cuStreamQuery, 2000, 7000, (CUstream))                                                                          \
    X2(cuStreamAttachMemAsync, 6000, 7000, (CUstream, CUdeviceptr, size_t, unsigned int))                              \
    X1(cuEventCreate, 2000, (CUevent *, unsigned int))                                                                 \
    X2(cuEventRecord, 2000, 7000, (CUevent, CUstream))                                                                 \
    X2(cuEventRecordWithFlags, 11010, 11010, (CUevent, CUstream, unsigned int))                                        \
    X1(cuEventQuery, 2000, (CUevent))                                                                                  \
    X1(cuEventSynchronize, 2000, (CUevent))                                                                            \
    X1(cuEventDestroy, 4000, (CUevent))                                                                                \
    X1(cuEventElapsedTime, 12080, (float *, CUevent, CUevent))                                                         \
    X2(cuLaunchKernel, 4000, 7000,                                                                                     \
       (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,  \
        CUstream, void **, void **))                                                                                   \
    X2(cuLaunchCooperativeKernel, 9000, 9000,                                                                          \
       (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,  \
        CUstream, void **))                                                                                            \
    X2(cuLaunchKernelEx, 11060, 11060, (const CUlaunchConfig *, CUfunction, void **, void **))                         \
    X1(cuFuncGetAttribute, 2020, (int *, CUfunction_attribute, CUfunction))                                            \
    X1(cuFuncSetAttribute, 9000, (CUfunction, CUfunction_attribute, int))                                              \
    X1(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, (int *, CUfunction, int, size_t, unsigned int))     \
    X1(cuProfilerStart, 4000, (void))                                                                                  \
    X1(cuProfilerStop, 4000, (void))                                                                                   \
    X2(cuLaunchHostFunc, 10000, 10000, (CUstream, CUhostFn, void *))                                                   \
    X1(cuLibraryLoadData, 12000,                                                                                       \
       (CUlibrary *, const void *, CUjit_option *, void **, unsigned int, CUlibraryOption *, void **, unsigned int))   \
    X1(cuLibraryUnload, 12000, (CUlibrary))                                                                            \
    X1(cuTensorMapEncodeTiled, 12000,                                                                                  \
       (CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,                \
        const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,     \
        CUtensorMapFloatOOBfill))                                                                                      \
    X1(cuKernelGetAttribute, 12000, (int *, CUfunction_attribute, CUkernel, CUdevice))                                 \
    X1(cuLibraryGetKernel, 12000, (CUkernel *, CUlibrary, const char *))                                               \
    X2(cuStreamBeginCapture, 10010, 10010, (CUstream, CUstreamCaptureMode))                                            \
    X2(cuStreamBeginCaptureToGraph, 12030, 12030,                                                                      \
       (CUstream, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t, CUstreamCaptureMode))                 \
    X2(cuStreamEndCapture, 10000, 10000, (CUstream, CUgraph *))                                                        \
    X2(cuStreamIsCapturing, 10000, 10000, (CUstream, CUstreamCaptureStatus *))                                         \
    X2(cuStreamGetCaptureInfo, 12030, 12030,                                                                           \
       (CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **, const CUgraphEdgeData **,    \
        size_t *))                                                                                                     \
    X2(cuStreamUpdateCaptureDependencies, 12030, 12030,                                                                \
       (CUstream, CUgraphNode *, const CUgraphEdgeData *, size_t, unsigned int))                                       \
    X1(cuThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode *))                                              \
    X1(cuGraphCreate, 10000, (CUgraph *, unsigned int))                                                                \
    X1(cuGraphDestroy, 10000, (CUgraph))                                                                               \
    X1(cuGraphClone, 10000, (CUgraph *, CUgraph))                                                                      \
    X1(cuGraphDestroyNode, 10000, (CUgraphNode))                                                                       \
    X1(cuGraphGetNodes, 10000, (CUgraph, CUgraphNode *, size_t *))                                                     \
    X1(cuGraphNodeGetType, 10000, (CUgraphNode, CUgraphNodeType *))                                                    \
    X1(cuGraphAddDependencies, 12030,                                                                                  \
       (CUgraph, const CUgraphNode *, const CUgraphNode *, const CUgraphEdgeData *, size_t))                           \
    X1(cuGraphAddKernelNode, 12000,                                                                                    \
       (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS *))                         \
    X1(cuGraphAddMemcpyNode, 10000,                                                                                    \
       (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_MEMCPY3D *, CUcontext))                        \
    X1(cuGraphAddMemsetNode, 10000,                                                                                    \
       (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_MEMSET_NODE_PARAMS *, CUcontext))              \
    X1(cuGraphAddHostNode, 10000,                                                                                      \
       (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_HOST_NODE_PARAMS *))                           \
    X1(cuGraphAddChildGraphNode, 10000, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph))                \
    X1(cuGraphAddEmptyNode, 10000, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t))                              \
    X1(cuGraphAddEventRecordNode, 11010, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent))               \
    X1(cuGraphAddEventWaitNode, 11010, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent))                 \
    X1(cuGraphAddMemAllocNode, 11040,                                                                                  \
       (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *))                            \
    X1(cuGraphMemAllocNodeGetParams, 11040, (CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS *))                               \
    X1(cuGraphAddMemFreeNode, 11040, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr))               \
    X1(cuGraphMemFreeNodeGetParams, 11040, (CUgraphNode, CUdeviceptr *))                                               \
    X1(cuGraphAddNode, 12030,                                                                                          \
       (CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t, CUgraphNodeParams *))            \
    X1(cuGraphInstantiateWithFlags, 11040, (CUgraphExec *, CUgraph, unsigned long long))                               \
    X2(cuGraphInstantiateWithParams, 12000, 12000, (CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *))          \
    X1(cuGraphExecGetFlags, 12000, (CUgraphExec, cuuint64_t *))                                                        \
    X1(cuGraphExecUpdate, 12000, (CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *))                                \
    X1(cuGraphExecDestroy, 10000, (CUgraphExec))                                                                       \
    X2(cuGraphUpload, 11010, 11010, (CUgraphExec, CUstream))                                                           \
    X2(cuGraphLaunch, 10000, 10000, (CUgraphExec, CUstream))                                                           \
    X1(cuDeviceGraphMemTrim, 11040, (CUdevice))                                                                        \
    X1(cuDeviceGetGraphMemAttribute, 11040, (CUdevice, CUgraphMem_attribute, void *))                                  \
    X1(cuDeviceSetGraphMemAttribute, 11040, (CUdevice, CUgraphMem_attribute, void *))                                  \
    X1(cuIpcGetMemHandle, 4010, (CUipcMemHandle *, CUdeviceptr))                                                       \
    X1(cuIpcOpenMemHandle, 11000, (CUdeviceptr *, CUipcMemHandle, unsigned int))                                       \
    X1(cuIpcCloseMemHandle, 4010, (CUdeviceptr))                                                                       \
    X1(cuIpcGetEventHandle, 4010, (CUipcEventHandle *, CUevent))                                                       \
    X1(cuIpcOpenEventHandle, 4010, (CUevent *, CUipcEventHandle))                                                      \
    X1(cuImportExternalMemory, 10000, (CUexternalMemory *, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *))                  \
    X1(cuExternalMemoryGetMappedBuffer, 10000,                                                                         \
       (CUdeviceptr *, CUexternalMemory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *))                                    \
    X1(cuDestroyExternalMemory, 10000, (CUexternalMemory))                                                             \
    X1(cuImportExternalSemaphore, 10000, (CUexternalSemaphore *, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *))         \
    X1(cuDestroyExternalSemaphore, 10000, (CUexternalSemaphore))                                                       \
    X2(cuSignalExternalSemaphoresAsync, 10000, 10000,                                                                  \
       (const CUexternalSemaphore *, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *, unsigned int, CUstream))           \
    X2(cuWaitExternalSemaphoresAsync, 10000, 10000,                                                                    \
       (const CUexternalSemaphore *, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *, unsigned int, CUstream))             \
    X1(cuLibraryLoadFromFile, 12000,                                                                                   \
       (CUlibrary *, const char *, CUjit_option *, void **, unsigned int, CUlibraryOption *, void **, unsigned int))   \
    X1(cuLibraryGetGlobal, 12000, (CUdeviceptr *, size_t *, CUlibrary, const char *))                                  \
    X1(cuLibraryGetManaged, 12000, (CUdeviceptr *, size_t *, CUlibrary, const char *))                                 \
    X1(cuKernelGetFunction, 12000, (CUfunction *, CUkernel))                                                           \
    X1(cuFuncGetName, 12030, (const char **, CUfunction))                                                              \
    X1(cuFuncSetCacheConfig, 3000, (CUfunction, CUfunc_cache))                                                         \
    X1(cuCtxGetCacheConfig, 3020, (CUfunc_cache *))                                                                    \
    X1(cuCtxSetCacheConfig, 3020, (CUfunc_cache))                                                                      \
    X1(cuCtxGetSharedMemConfig, 4020, (CUsharedconfig *))                                                              \
    X1(cuCtxSetSharedMemConfig, 4020, (CUsharedconfig))                                                                \
    X1(cuFuncSetSharedMemConfig, 4020, (CUfunction, CUsharedconfig))                                                   \
    X1(cuDeviceGetP2PAttribute, 8000, (int *, CUdevice_P2PAttribute, CUdevice, CUdevice))                              \
    X2(cuStreamGetAttribute, 11000, 11000, (CUstream, CUstreamAttrID, CUstreamAttrValue *))                            \
    X2(cuStreamSetAttribute, 11000, 11000, (CUstream, CUstreamAttrID, const CUstreamAttrValue *))                      \
    X2(cuStreamCopyAttributes, 11000, 11000, (CUstream, CUstream))                                                     \
    X1(cuOccupancyMaxPotentialClusterSize, 11070, (int *, CUfunction, const CUlaunchConfig *))                         \
    X1(cuOccupancyMaxActiveClusters, 11070, (int *, CUfunction, const CUlaunchConfig *))                               \
    X1(cuOccupancyAvailableDynamicSMemPerBlock, 10020, (size_t *, CUfunction, int, int))                               \
    X2(cuMemcpyBatchAsync, 13000, 13000,                                                                               \
       (CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, CUstream))             \
    X2(cuMemcpy3DPeer, 4000, 7000, (const CUDA_MEMCPY3D_PEER *))                                                       \
    X2(cuMemcpy3DPeerAsync, 4000, 7000, (const CUDA_MEMCPY3D_PEER *, CUstream))                                        \
    X1(cuTexObjectCreate, 5000,                                                                                        \
       (CUtexObject *, const CUDA_RESOURCE_DESC *, const CUDA_TEXTURE_DESC *, const CUDA_RESOURCE_VIEW_DESC *))        \
    X1(cuTexObjectDestroy, 5000, (CUtexObject))                                                                        \
    X1(cuTexObjectGetResourceDesc, 5000, (CUDA_RESOURCE_DESC *, CUtexObject))                                          \
    X1(cuTexObjectGetTextureDesc, 5000, (CUDA_TEXTURE_DESC *, CUtexObject))                                            \
    X1(cuTexObjectGetResourceViewDesc, 5000, (CUDA_RESOURCE_VIEW_DESC *, CUtexObject))                                 \
    X1(cuSurfObjectCreate, 5000, (CUsurfObject *, const CUDA_RESOURCE_DESC *))                                         \
    X1(cuSurfObjectDestroy, 5000, (CUsurfObject))                                                                      \
    X1(cuSurfObjectGetResourceDesc, 5000, (CUDA_RESOURCE_DESC *, CUsurfObject))                                        \
    X1(cuUserObjectCreate, 11030, (CUuserObject *, void *, CUhostFn, unsigned int, unsigned int))                      \
    X1(cuUserObjectRetain, 11030, (CUuserObject, unsigned int))                                                        \
    X1(cuUserObjectRelease, 11030, (CUuserObject, unsigned int))                                                       \
    X1(cuGraphRetainUserObject, 11030, (CUgraph, CUuserObject, unsigned int, unsigned int))                            \
    X1(cuGraphReleaseUserObject, 11030, (CUgraph, CUuserObject, unsigned int))                                         \
    X1(cuGraphGetRootNodes, 10000, (CUgraph, CUgraphNode *, size_t *))                                                 \
    X1(cuGraphGetEdges, 12030, (CUgraph, CUgraphNode *, CUgraphNode *, CUgraphEdgeData *, size_t *))                   \
    X1(cuGraphNodeGetDependencies, 12030, (CUgraphNode, CUgraphNode *, CUgraphEdgeData *, size_t *))                   \
    X1(cuGraphNodeGetDependentNodes, 12030, (CUgraphNode, CUgraphNode *, CUgraphEdgeData *, size_t *))                 \
    X1(cuGraphRemoveDependencies, 12030,                                                                               \
       (CUgraph, const CUgraphNode *, const CUgraphNode *, const CUgraphEdgeData *, size_t))                           \
    X1(cuGraphNodeFindInClone, 10000, (CUgraphNode *, CUgraphNode, CUgraph))                                           \
    X1(cuGraphNodeSetEnabled, 11060, (CUgraphExec, CUgraphNode, unsigned int))                                         \
    X1(cuGraphNodeGetEnabled, 11060, (CUgraphExec, CUgraphNode, unsigned int *))                                       \
    X1(cuGraphChildGraphNodeGetGraph, 10000, (CUgraphNode, CUgraph *))                                                 \
    X1(cuGraphHostNodeGetParams, 10000, (CUgraphNode, CUDA_HOST_NODE_PARAMS *))                                        \
    X1(cuGraphHostNodeSetParams, 10000, (CUgraphNode, const CUDA_HOST_NODE_PARAMS *))                                  \
    X1(cuGraphEventRecordNodeGetEvent, 11010, (CUgraphNode, CUevent *))                                                \
    X1(cuGraphEventRecordNodeSetEvent, 11010, (CUgraphNode, CUevent))                                                  \
    X1(cuGraphEventWaitNodeGetEvent, 11010, (CUgraphNode, CUevent *))                                                  \
    X1(cuGraphEventWaitNodeSetEvent, 11010, (CUgraphNode, CUevent))                                                    \
    X1(cuGraphKernelNodeSetParams, 12000, (CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *))                              \
    X1(cuGraphKernelNodeCopyAttributes, 11000, (CUgraphNode, CUgraphNode))                                             \
    X1(cuGraphExecKernelNodeSetParams, 12000, (CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *))             \
    X1(cuGraphExecMemcpyNodeSetParams, 10020, (CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D *, CUcontext))            \
    X1(cuGraphExecMemsetNodeSetParams, 10020, (CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS *, CUcontext))  \
    X1(cuGraphExecHostNodeSetParams, 10020, (CUgraphExec, CUgraphNode, const CUDA_HOST_NODE_PARAMS *))                 \
    X1(cuGraphExecChildGraphNodeSetParams, 11010, (CUgraphExec, CUgraphNode, CUgraph))                                 \
    X1(cuGraphExecEventRecordNodeSetEvent, 11010, (CUgraphExec, CUgraphNode, CUevent))                                 \
    X1(cuGraphExecEventWaitNodeSetEvent, 11010, (CUgraphExec, CUgraphNode, CUevent))                                   \
    X1(cuLibraryGetKernelCount, 12040, (unsigned int *, CUlibrary))                                                    \
    X1(cuLibraryEnumerateKernels, 12040, (CUkernel *, unsigned int, CUlibrary))                                        \
    X1(cuLibraryGetUnifiedFunction, 12000, (void **, CUlibrary, const char *))                                         \
    X1(cuKernelSetAttribute, 12000, (CUfunction_attribute, int, CUkernel, CUdevice))                                   \
    X1(cuLogsRegisterCallback, 12090, (CUlogsCallback, void *, CUlogsCallbackHandle *))                                \
    X1(cuLogsUnregisterCallback, 12090, (CUlogsCallbackHandle))                                                        \
    X1(cuLogsCurrent, 12090, (CUlogIterator *, unsigned int))                                                          \
    X1(cuLogsDumpToFile, 12090, (CUlogIterator *, const char *, unsigned int))                                         \
    X1(cuLogsDumpToMemory, 12090, (CUlogIterator *, char *, size_t *, unsigned int))

#endif
