/* SPDX-License-Identifier: MIT
 * Runtime calls for stream-ordered memory and its pools.  Called by programs.  Pool properties,
 * access descriptors, locations and export data have the driver's layout, so they are handed on as
 * they are. */
#include "cudart/runtime.h"

RT_TWINS(RT_CONTEXT, 373, 374, _ptsz, cudaMallocAsync, void **, devPtr, size_t, size, cudaStream_t, hStream)
{
    CUdeviceptr pointer = 0;

    if (!devPtr)
        return cudaErrorInvalidValue;
    if (!size) {
        *devPtr = NULL;
        return cudaSuccess;
    }
    return rt_store(D->cuMemAllocAsync(&pointer, size, hStream), &pointer, devPtr);
}

RT_TWINS(RT_CONTEXT, 391, 392, _ptsz, cudaMallocFromPoolAsync, void **, ptr, size_t, size, cudaMemPool_t, memPool,
         cudaStream_t, stream)
{
    CUdeviceptr pointer = 0;

    if (!ptr)
        return cudaErrorInvalidValue;
    return rt_store(D->cuMemAllocFromPoolAsync(&pointer, size, memPool, stream), &pointer, ptr);
}

RT_TWINS(RT_CONTEXT, 375, 376, _ptsz, cudaFreeAsync, void *, devPtr, cudaStream_t, hStream)
{
    return devPtr ? rt_error_from(D->cuMemFreeAsync(rt_device_pointer(devPtr), hStream)) : cudaSuccess;
}

RT_API(RT_INIT, 372, cudaDeviceGetDefaultMemPool, cudaMemPool_t *, memPool, int, device)
{
    return rt_error_from(D->cuDeviceGetDefaultMemPool(memPool, device));
}

RT_API(RT_INIT, 385, cudaDeviceSetMemPool, int, device, cudaMemPool_t, memPool)
{
    return rt_error_from(D->cuDeviceSetMemPool(device, memPool));
}

RT_API(RT_INIT, 386, cudaDeviceGetMemPool, cudaMemPool_t *, memPool, int, device)
{
    return rt_error_from(D->cuDeviceGetMemPool(memPool, device));
}

RT_API(RT_INIT, 518, cudaMemGetDefaultMemPool, cudaMemPool_t *, memPool, struct cudaMemLocation *, location,
       enum cudaMemAllocationType, type)
{
    return rt_error_from(D->cuMemGetDefaultMemPool(memPool, (CUmemLocation *)location, (CUmemAllocationType)type));
}

RT_API(RT_INIT, 519, cudaMemGetMemPool, cudaMemPool_t *, memPool, struct cudaMemLocation *, location,
       enum cudaMemAllocationType, type)
{
    return rt_error_from(D->cuMemGetMemPool(memPool, (CUmemLocation *)location, (CUmemAllocationType)type));
}

RT_API(RT_INIT, 520, cudaMemSetMemPool, struct cudaMemLocation *, location, enum cudaMemAllocationType, type,
       cudaMemPool_t, memPool)
{
    return rt_error_from(D->cuMemSetMemPool((CUmemLocation *)location, (CUmemAllocationType)type, memPool));
}

RT_API(RT_INIT, 383, cudaMemPoolCreate, cudaMemPool_t *, memPool, const struct cudaMemPoolProps *, poolProps)
{
    return rt_error_from(D->cuMemPoolCreate(memPool, (const CUmemPoolProps *)poolProps));
}

RT_API(RT_INIT, 384, cudaMemPoolDestroy, cudaMemPool_t, memPool)
{
    return rt_error_from(D->cuMemPoolDestroy(memPool));
}

RT_API(RT_INIT, 377, cudaMemPoolTrimTo, cudaMemPool_t, memPool, size_t, minBytesToKeep)
{
    return rt_error_from(D->cuMemPoolTrimTo(memPool, minBytesToKeep));
}

RT_API(RT_INIT, 378, cudaMemPoolSetAttribute, cudaMemPool_t, memPool, enum cudaMemPoolAttr, attr, void *, value)
{
    return rt_error_from(D->cuMemPoolSetAttribute(memPool, (CUmemPool_attribute)attr, value));
}

RT_API(RT_INIT, 379, cudaMemPoolGetAttribute, cudaMemPool_t, memPool, enum cudaMemPoolAttr, attr, void *, value)
{
    return rt_error_from(D->cuMemPoolGetAttribute(memPool, (CUmemPool_attribute)attr, value));
}

RT_API(RT_INIT, 380, cudaMemPoolSetAccess, cudaMemPool_t, memPool, const struct cudaMemAccessDesc *, descList, size_t,
       count)
{
    return rt_error_from(D->cuMemPoolSetAccess(memPool, (const CUmemAccessDesc *)descList, count));
}

RT_API(RT_INIT, 382, cudaMemPoolGetAccess, enum cudaMemAccessFlags *, flags, cudaMemPool_t, memPool,
       struct cudaMemLocation *, location)
{
    return rt_error_from(D->cuMemPoolGetAccess((CUmemAccess_flags *)flags, memPool, (CUmemLocation *)location));
}

RT_API(RT_INIT, 387, cudaMemPoolExportToShareableHandle, void *, shareableHandle, cudaMemPool_t, memPool,
       enum cudaMemAllocationHandleType, handleType, unsigned int, flags)
{
    return rt_error_from(
        D->cuMemPoolExportToShareableHandle(shareableHandle, memPool, (CUmemAllocationHandleType)handleType, flags));
}

RT_API(RT_INIT, 388, cudaMemPoolImportFromShareableHandle, cudaMemPool_t *, memPool, void *, shareableHandle,
       enum cudaMemAllocationHandleType, handleType, unsigned int, flags)
{
    return rt_error_from(
        D->cuMemPoolImportFromShareableHandle(memPool, shareableHandle, (CUmemAllocationHandleType)handleType, flags));
}

RT_API(RT_INIT, 389, cudaMemPoolExportPointer, struct cudaMemPoolPtrExportData *, exportData, void *, ptr)
{
    return rt_error_from(D->cuMemPoolExportPointer((CUmemPoolPtrExportData *)exportData, rt_device_pointer(ptr)));
}

RT_API(RT_INIT, 390, cudaMemPoolImportPointer, void **, ptr, cudaMemPool_t, memPool, struct cudaMemPoolPtrExportData *,
       exportData)
{
    CUdeviceptr pointer = 0;

    if (!ptr)
        return cudaErrorInvalidValue;
    return rt_store(D->cuMemPoolImportPointer(&pointer, memPool, (CUmemPoolPtrExportData *)exportData), &pointer, ptr);
}
