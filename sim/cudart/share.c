/* SPDX-License-Identifier: MIT
 * Runtime calls that share memory with other processes and APIs: legacy IPC and external memory.
 * Called by programs. Handles have the driver's 64 bytes, descriptors the driver's layout. */
#include "cudart/runtime.h"

RT_API(RT_CONTEXT, 178, cudaIpcGetMemHandle, cudaIpcMemHandle_t *, handle, void *, devPtr)
{
    return rt_error_from(D->cuIpcGetMemHandle((CUipcMemHandle *)handle, rt_device_pointer(devPtr)));
}

RT_API(RT_CONTEXT, 179, cudaIpcOpenMemHandle, void **, devPtr, cudaIpcMemHandle_t, handle, unsigned int, flags)
{
    CUipcMemHandle ours;
    CUdeviceptr pointer = 0;

    if (!devPtr)
        return cudaErrorInvalidValue;
    memcpy(&ours, &handle, sizeof ours);
    return rt_store(D->cuIpcOpenMemHandle(&pointer, ours, flags), &pointer, devPtr);
}

RT_API(RT_CONTEXT, 180, cudaIpcCloseMemHandle, void *, devPtr)
{
    return rt_error_from(D->cuIpcCloseMemHandle(rt_device_pointer(devPtr)));
}

RT_API(RT_CONTEXT, 176, cudaIpcGetEventHandle, cudaIpcEventHandle_t *, handle, cudaEvent_t, event)
{
    return rt_error_from(D->cuIpcGetEventHandle((CUipcEventHandle *)handle, event));
}

RT_API(RT_CONTEXT, 177, cudaIpcOpenEventHandle, cudaEvent_t *, event, cudaIpcEventHandle_t, handle)
{
    CUipcEventHandle ours;

    memcpy(&ours, &handle, sizeof ours);
    return rt_error_from(D->cuIpcOpenEventHandle(event, ours));
}

RT_API(RT_CONTEXT, 274, cudaImportExternalMemory, cudaExternalMemory_t *, extMem_out,
       const struct cudaExternalMemoryHandleDesc *, memHandleDesc)
{
    return rt_error_from(D->cuImportExternalMemory((CUexternalMemory *)extMem_out,
                                                   (const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *)memHandleDesc));
}

RT_API(RT_CONTEXT, 275, cudaExternalMemoryGetMappedBuffer, void **, devPtr, cudaExternalMemory_t, extMem,
       const struct cudaExternalMemoryBufferDesc *, bufferDesc)
{
    CUdeviceptr pointer = 0;

    if (!devPtr)
        return cudaErrorInvalidValue;
    return rt_store(D->cuExternalMemoryGetMappedBuffer(&pointer, (CUexternalMemory)extMem,
                                                       (const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *)bufferDesc),
                    &pointer, devPtr);
}

RT_API(RT_CONTEXT, 277, cudaDestroyExternalMemory, cudaExternalMemory_t, extMem)
{
    return rt_error_from(D->cuDestroyExternalMemory((CUexternalMemory)extMem));
}
