/* SPDX-License-Identifier: MIT
 * Runtime calls for linear, pitched, managed, pinned and registered memory and for questions about
 * pointers.  Called by programs.  Zero sizes end here with success and NULL, as the runtime
 * documents; the driver refuses them. */
#include "cudart/runtime.h"

RT_API(RT_CONTEXT, 20, cudaMalloc, void **, devPtr, size_t, size)
{
    CUdeviceptr pointer = 0;

    if (!devPtr)
        return cudaErrorInvalidValue;
    if (!size) {
        *devPtr = NULL;
        return cudaSuccess;
    }
    return rt_store(D->cuMemAlloc(&pointer, size), &pointer, devPtr);
}

RT_API(RT_CONTEXT, 22, cudaFree, void *, devPtr)
{
    if (!devPtr)
        return cudaSuccess;
    return rt_error_from(D->cuMemFree(rt_device_pointer(devPtr)));
}

static cudaError_t rt_malloc_pitch(const struct rt_driver *D, void **pointer, size_t *pitch, size_t width,
                                   size_t height)
{
    CUdeviceptr base = 0;
    CUresult result;

    if (!width || !height) {
        *pointer = NULL;
        *pitch = 0;
        return cudaSuccess;
    }
    /* 4 is the smallest element size that the driver takes and asks for no more alignment than the
     * others. */
    result = D->cuMemAllocPitch(&base, pitch, width, height, 4);
    if (!result)
        *pointer = rt_pointer(base);
    return rt_error_from(result);
}

RT_API(RT_CONTEXT, 21, cudaMallocPitch, void **, devPtr, size_t *, pitch, size_t, width, size_t, height)
{
    if (!devPtr || !pitch)
        return cudaErrorInvalidValue;
    return rt_malloc_pitch(D, devPtr, pitch, width, height);
}

RT_API(RT_CONTEXT, 140, cudaMalloc3D, struct cudaPitchedPtr *, pitchedDevPtr, struct cudaExtent, extent)
{
    struct cudaPitchedPtr made = {.xsize = extent.width, .ysize = extent.height};
    size_t rows;
    cudaError_t status;

    if (!pitchedDevPtr || __builtin_mul_overflow(extent.height, extent.depth, &rows))
        return cudaErrorInvalidValue;
    status = rt_malloc_pitch(D, &made.ptr, &made.pitch, extent.width, rows);
    if (status == cudaSuccess)
        *pitchedDevPtr = made;
    return status;
}

RT_API(RT_CONTEXT, 206, cudaMallocManaged, void **, devPtr, size_t, size, unsigned int, flags)
{
    CUdeviceptr pointer = 0;

    if (!devPtr)
        return cudaErrorInvalidValue;
    return rt_store(D->cuMemAllocManaged(&pointer, size, flags), &pointer, devPtr);
}

static cudaError_t rt_host_alloc(const struct rt_driver *D, void **pointer, size_t size, unsigned int flags)
{
    if (!pointer)
        return cudaErrorInvalidValue;
    if (!size) {
        *pointer = NULL;
        return cudaSuccess;
    }
    return rt_error_from(D->cuMemHostAlloc(pointer, size, flags));
}

/* Arrives at the driver as cuMemHostAlloc: the runtime of 13.0 never asks for cuMemAllocHost. */
RT_API(RT_CONTEXT, 25, cudaMallocHost, void **, ptr, size_t, size)
{
    return rt_host_alloc(D, ptr, size, cudaHostAllocDefault);
}

RT_API(RT_CONTEXT, 27, cudaHostAlloc, void **, pHost, size_t, size, unsigned int, flags)
{
    return rt_host_alloc(D, pHost, size, flags);
}

RT_API(RT_CONTEXT, 26, cudaFreeHost, void *, ptr)
{
    return ptr ? rt_error_from(D->cuMemFreeHost(ptr)) : cudaSuccess;
}

RT_API(RT_CONTEXT, 152, cudaHostRegister, void *, ptr, size_t, size, unsigned int, flags)
{
    return rt_error_from(D->cuMemHostRegister(ptr, size, flags));
}

RT_API(RT_CONTEXT, 153, cudaHostUnregister, void *, ptr)
{
    return rt_error_from(D->cuMemHostUnregister(ptr));
}

RT_API(RT_CONTEXT, 28, cudaHostGetDevicePointer, void **, pDevice, void *, pHost, unsigned int, flags)
{
    CUdeviceptr pointer = 0;

    if (!pDevice)
        return cudaErrorInvalidValue;
    return rt_store(D->cuMemHostGetDevicePointer(&pointer, pHost, flags), &pointer, pDevice);
}

RT_API(RT_CONTEXT, 29, cudaHostGetFlags, unsigned int *, pFlags, void *, pHost)
{
    return rt_error_from(D->cuMemHostGetFlags(pFlags, pHost));
}

RT_API(RT_CONTEXT, 30, cudaMemGetInfo, size_t *, free, size_t *, total)
{
    return rt_error_from(D->cuMemGetInfo(free, total));
}

/* An unknown pointer is not an error since CUDA 11: its type is "unregistered". */
RT_API(RT_CONTEXT, 151, cudaPointerGetAttributes, struct cudaPointerAttributes *, attributes, const void *, ptr)
{
    unsigned int type = 0, managed = 0;
    int device = cudaInvalidDeviceId;
    CUdeviceptr on_device = 0;
    void *on_host = NULL;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                    CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *answers[] = {&type, &managed, &device, &on_device, &on_host};
    CUresult result;

    if (!attributes)
        return cudaErrorInvalidValue;
    memset(attributes, 0, sizeof *attributes);
    attributes->device = cudaInvalidDeviceId;
    result = D->cuPointerGetAttributes(sizeof wanted / sizeof wanted[0], wanted, answers, rt_device_pointer(ptr));
    if (result || !type) {
        attributes->hostPointer = (void *)(uintptr_t)ptr;
        return result == CUDA_ERROR_INVALID_VALUE ? cudaSuccess : rt_error_from(result);
    }
    attributes->type = managed                      ? cudaMemoryTypeManaged
                       : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                                    : cudaMemoryTypeDevice;
    attributes->device = device;
    attributes->devicePointer = rt_pointer(on_device);
    attributes->hostPointer = on_host;
    return cudaSuccess;
}

/* A location has the same two fields and numbers in both APIs. */
static CUmemLocation rt_location(struct cudaMemLocation location)
{
    return (CUmemLocation){.type = (CUmemLocationType)location.type, .id = location.id};
}

RT_API(RT_CONTEXT, 448, cudaMemAdvise, const void *, devPtr, size_t, count, enum cudaMemoryAdvise, advice,
       struct cudaMemLocation, location)
{
    return rt_error_from(D->cuMemAdvise(rt_device_pointer(devPtr), count, (CUmem_advise)advice, rt_location(location)));
}

RT_TWINS(RT_CONTEXT, 449, 450, _ptsz, cudaMemPrefetchAsync, const void *, devPtr, size_t, count, struct cudaMemLocation,
         location, unsigned int, flags, cudaStream_t, stream)
{
    return rt_error_from(D->cuMemPrefetchAsync(rt_device_pointer(devPtr), count, rt_location(location), flags, stream));
}

/* The attributes have the driver's numbers and forms of data. */
RT_API(RT_CONTEXT, 266, cudaMemRangeGetAttribute, void *, data, size_t, dataSize, enum cudaMemRangeAttribute, attribute,
       const void *, devPtr, size_t, count)
{
    return rt_error_from(
        D->cuMemRangeGetAttribute(data, dataSize, (CUmem_range_attribute)attribute, rt_device_pointer(devPtr), count));
}

RT_API(RT_CONTEXT, 267, cudaMemRangeGetAttributes, void **, data, size_t *, dataSizes, enum cudaMemRangeAttribute *,
       attributes, size_t, numAttributes, const void *, devPtr, size_t, count)
{
    return rt_error_from(D->cuMemRangeGetAttributes(data, dataSizes, (CUmem_range_attribute *)attributes, numAttributes,
                                                    rt_device_pointer(devPtr), count));
}
