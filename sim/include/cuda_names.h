/* SPDX-License-Identifier: MIT
 * Which exported symbol a source name means: the driver keeps old ABIs under the bare name and the current one under
 * NAME_vN, and each function that takes the default stream has a twin for the per-thread default stream.
 * Included only by cuda.h, and not when the simulated driver itself is compiled. */
#ifndef SIM_CUDA_NAMES_H
#define SIM_CUDA_NAMES_H

#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
#define SIM_PER_THREAD 1
#define SIM_DS(name)   name##_ptds
#define SIM_SZ(name)   name##_ptsz
#else
#define SIM_PER_THREAD 0
#define SIM_DS(name)   name
#define SIM_SZ(name)   name
#endif

#define cuDeviceTotalMem                   cuDeviceTotalMem_v2
#define cuCtxCreate                        cuCtxCreate_v4
#define cuModuleGetGlobal                  cuModuleGetGlobal_v2
#define cuMemGetInfo                       cuMemGetInfo_v2
#define cuMemAlloc                         cuMemAlloc_v2
#define cuMemAllocPitch                    cuMemAllocPitch_v2
#define cuMemFree                          cuMemFree_v2
#define cuMemGetAddressRange               cuMemGetAddressRange_v2
#define cuMemAllocHost                     cuMemAllocHost_v2
#define cuMemHostGetDevicePointer          cuMemHostGetDevicePointer_v2
#define cuMemAdvise                        cuMemAdvise_v2
#define cuArrayCreate                      cuArrayCreate_v2
#define cuArrayGetDescriptor               cuArrayGetDescriptor_v2
#define cuArray3DCreate                    cuArray3DCreate_v2
#define cuArray3DGetDescriptor             cuArray3DGetDescriptor_v2
#define cuGraphicsResourceGetMappedPointer cuGraphicsResourceGetMappedPointer_v2
#define cuCtxDestroy                       cuCtxDestroy_v2
#define cuCtxPopCurrent                    cuCtxPopCurrent_v2
#define cuCtxPushCurrent                   cuCtxPushCurrent_v2
#define cuStreamDestroy                    cuStreamDestroy_v2
#define cuEventDestroy                     cuEventDestroy_v2
#define cuMemHostRegister                  cuMemHostRegister_v2
#define cuDevicePrimaryCtxRelease          cuDevicePrimaryCtxRelease_v2
#define cuDevicePrimaryCtxReset            cuDevicePrimaryCtxReset_v2
#define cuDevicePrimaryCtxSetFlags         cuDevicePrimaryCtxSetFlags_v2
#define cuDeviceGetUuid                    cuDeviceGetUuid_v2
#define cuIpcOpenMemHandle                 cuIpcOpenMemHandle_v2
#define cuGraphInstantiate                 cuGraphInstantiateWithFlags
#define cuGraphExecUpdate                  cuGraphExecUpdate_v2
#define cuGetProcAddress                   cuGetProcAddress_v2
#define cuGraphAddKernelNode               cuGraphAddKernelNode_v2
#define cuGraphKernelNodeGetParams         cuGraphKernelNodeGetParams_v2
#define cuGraphKernelNodeSetParams         cuGraphKernelNodeSetParams_v2
#define cuGraphExecKernelNodeSetParams     cuGraphExecKernelNodeSetParams_v2
#define cuGraphGetEdges                    cuGraphGetEdges_v2
#define cuGraphNodeGetDependencies         cuGraphNodeGetDependencies_v2
#define cuGraphNodeGetDependentNodes       cuGraphNodeGetDependentNodes_v2
#define cuGraphAddDependencies             cuGraphAddDependencies_v2
#define cuGraphRemoveDependencies          cuGraphRemoveDependencies_v2
#define cuGraphAddNode                     cuGraphAddNode_v2
#define cuEventElapsedTime                 cuEventElapsedTime_v2
#define cuLinkCreate                       cuLinkCreate_v2
#define cuLinkAddData                      cuLinkAddData_v2
#define cuLinkAddFile                      cuLinkAddFile_v2

#define cuMemPrefetchAsync                SIM_SZ(cuMemPrefetchAsync_v2)
#define cuMemcpyHtoD                      SIM_DS(cuMemcpyHtoD_v2)
#define cuMemcpyDtoH                      SIM_DS(cuMemcpyDtoH_v2)
#define cuMemcpyDtoD                      SIM_DS(cuMemcpyDtoD_v2)
#define cuMemcpyDtoA                      SIM_DS(cuMemcpyDtoA_v2)
#define cuMemcpyAtoD                      SIM_DS(cuMemcpyAtoD_v2)
#define cuMemcpyHtoA                      SIM_DS(cuMemcpyHtoA_v2)
#define cuMemcpyAtoH                      SIM_DS(cuMemcpyAtoH_v2)
#define cuMemcpyAtoA                      SIM_DS(cuMemcpyAtoA_v2)
#define cuMemcpyHtoAAsync                 SIM_SZ(cuMemcpyHtoAAsync_v2)
#define cuMemcpyAtoHAsync                 SIM_SZ(cuMemcpyAtoHAsync_v2)
#define cuMemcpy2D                        SIM_DS(cuMemcpy2D_v2)
#define cuMemcpy2DUnaligned               SIM_DS(cuMemcpy2DUnaligned_v2)
#define cuMemcpy3D                        SIM_DS(cuMemcpy3D_v2)
#define cuMemcpyHtoDAsync                 SIM_SZ(cuMemcpyHtoDAsync_v2)
#define cuMemcpyDtoHAsync                 SIM_SZ(cuMemcpyDtoHAsync_v2)
#define cuMemcpyDtoDAsync                 SIM_SZ(cuMemcpyDtoDAsync_v2)
#define cuMemcpy2DAsync                   SIM_SZ(cuMemcpy2DAsync_v2)
#define cuMemcpy3DAsync                   SIM_SZ(cuMemcpy3DAsync_v2)
#define cuMemsetD8                        SIM_DS(cuMemsetD8_v2)
#define cuMemsetD16                       SIM_DS(cuMemsetD16_v2)
#define cuMemsetD32                       SIM_DS(cuMemsetD32_v2)
#define cuMemsetD2D8                      SIM_DS(cuMemsetD2D8_v2)
#define cuMemsetD2D16                     SIM_DS(cuMemsetD2D16_v2)
#define cuMemsetD2D32                     SIM_DS(cuMemsetD2D32_v2)
#define cuStreamWriteValue32              SIM_SZ(cuStreamWriteValue32_v2)
#define cuStreamWriteValue64              SIM_SZ(cuStreamWriteValue64_v2)
#define cuMemcpyBatchAsync                SIM_SZ(cuMemcpyBatchAsync_v2)
#define cuStreamBeginCapture              SIM_SZ(cuStreamBeginCapture_v2)
#define cuStreamGetCaptureInfo            SIM_SZ(cuStreamGetCaptureInfo_v3)
#define cuStreamUpdateCaptureDependencies SIM_SZ(cuStreamUpdateCaptureDependencies_v2)

#if SIM_PER_THREAD
#define cuMemcpy                        cuMemcpy_ptds
#define cuMemcpyAsync                   cuMemcpyAsync_ptsz
#define cuMemcpyPeer                    cuMemcpyPeer_ptds
#define cuMemcpyPeerAsync               cuMemcpyPeerAsync_ptsz
#define cuMemcpy3DPeer                  cuMemcpy3DPeer_ptds
#define cuMemcpy3DPeerAsync             cuMemcpy3DPeerAsync_ptsz
#define cuMemsetD8Async                 cuMemsetD8Async_ptsz
#define cuMemsetD16Async                cuMemsetD16Async_ptsz
#define cuMemsetD32Async                cuMemsetD32Async_ptsz
#define cuMemsetD2D8Async               cuMemsetD2D8Async_ptsz
#define cuMemsetD2D16Async              cuMemsetD2D16Async_ptsz
#define cuMemsetD2D32Async              cuMemsetD2D32Async_ptsz
#define cuStreamGetPriority             cuStreamGetPriority_ptsz
#define cuStreamGetId                   cuStreamGetId_ptsz
#define cuStreamGetFlags                cuStreamGetFlags_ptsz
#define cuStreamGetDevice               cuStreamGetDevice_ptsz
#define cuStreamGetCtx                  cuStreamGetCtx_ptsz
#define cuStreamGetCtx_v2               cuStreamGetCtx_v2_ptsz
#define cuStreamWaitEvent               cuStreamWaitEvent_ptsz
#define cuStreamEndCapture              cuStreamEndCapture_ptsz
#define cuStreamIsCapturing             cuStreamIsCapturing_ptsz
#define cuStreamAddCallback             cuStreamAddCallback_ptsz
#define cuStreamAttachMemAsync          cuStreamAttachMemAsync_ptsz
#define cuStreamQuery                   cuStreamQuery_ptsz
#define cuStreamSynchronize             cuStreamSynchronize_ptsz
#define cuEventRecord                   cuEventRecord_ptsz
#define cuEventRecordWithFlags          cuEventRecordWithFlags_ptsz
#define cuLaunchKernel                  cuLaunchKernel_ptsz
#define cuLaunchKernelEx                cuLaunchKernelEx_ptsz
#define cuLaunchHostFunc                cuLaunchHostFunc_ptsz
#define cuGraphicsMapResources          cuGraphicsMapResources_ptsz
#define cuGraphicsUnmapResources        cuGraphicsUnmapResources_ptsz
#define cuLaunchCooperativeKernel       cuLaunchCooperativeKernel_ptsz
#define cuGraphInstantiateWithParams    cuGraphInstantiateWithParams_ptsz
#define cuGraphUpload                   cuGraphUpload_ptsz
#define cuGraphLaunch                   cuGraphLaunch_ptsz
#define cuStreamCopyAttributes          cuStreamCopyAttributes_ptsz
#define cuStreamGetAttribute            cuStreamGetAttribute_ptsz
#define cuStreamSetAttribute            cuStreamSetAttribute_ptsz
#define cuMemMapArrayAsync              cuMemMapArrayAsync_ptsz
#define cuMemFreeAsync                  cuMemFreeAsync_ptsz
#define cuMemAllocAsync                 cuMemAllocAsync_ptsz
#define cuMemAllocFromPoolAsync         cuMemAllocFromPoolAsync_ptsz
#define cuStreamBeginCaptureToGraph     cuStreamBeginCaptureToGraph_ptsz
#define cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz
#define cuWaitExternalSemaphoresAsync   cuWaitExternalSemaphoresAsync_ptsz
#endif

#endif
