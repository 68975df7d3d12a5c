/* SPDX-License-Identifier: MIT
 * Runtime calls for arrays, and the conversion of the runtime's 3D copy descriptor, which counts
 * elements where an array takes part.  Called by programs and by copy.c and graph.c. */
#include "cudart/runtime.h"

RT_EXPORT struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind f)
{
    return (struct cudaChannelFormatDesc){x, y, z, w, f};
}

/* Formats of 8, 16 and 32 bits of each kind; 0 where the kind has none (there is no 8-bit float). */
static const CUarray_format rt_formats[3][3] = {
    [cudaChannelFormatKindSigned] = {CU_AD_FORMAT_SIGNED_INT8, CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_SIGNED_INT32},
    [cudaChannelFormatKindUnsigned] = {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16,
                                       CU_AD_FORMAT_UNSIGNED_INT32},
    [cudaChannelFormatKindFloat] = {(CUarray_format)0, CU_AD_FORMAT_HALF, CU_AD_FORMAT_FLOAT},
};

cudaError_t rt_format(const struct cudaChannelFormatDesc *desc, CUarray_format *format, unsigned *channels)
{
    int bits[4], width;

    if (!desc)
        return cudaErrorInvalidValue;
    memcpy(bits, desc, sizeof bits);
    *channels = 0;
    while (*channels < 4 && bits[*channels])
        ++*channels;
    for (unsigned i = 1; i < 4; i++)
        if (bits[i] != (i < *channels ? bits[0] : 0))
            return cudaErrorInvalidChannelDescriptor;
    width = bits[0] == 8 ? 0 : bits[0] == 16 ? 1 : bits[0] == 32 ? 2 : -1;
    if (*channels == 0 || *channels == 3 || width < 0 || (unsigned)desc->f > cudaChannelFormatKindFloat)
        return cudaErrorInvalidChannelDescriptor;
    *format = rt_formats[desc->f][width];
    return *format ? cudaSuccess : cudaErrorInvalidChannelDescriptor;
}

static cudaError_t rt_descriptor(const struct cudaChannelFormatDesc *desc, struct cudaExtent extent, unsigned flags,
                                 CUDA_ARRAY3D_DESCRIPTOR *to)
{
    *to = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags};
    return rt_format(desc, &to->Format, &to->NumChannels);
}

RT_API(RT_CONTEXT, 23, cudaMallocArray, cudaArray_t *, array, const struct cudaChannelFormatDesc *, desc, size_t, width,
       size_t, height, unsigned int, flags)
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    cudaError_t status = rt_descriptor(desc, (struct cudaExtent){width, height, 0}, flags, &full);
    CUDA_ARRAY_DESCRIPTOR plain = {width, height, full.Format, full.NumChannels};

    if (status != cudaSuccess)
        return status;
    if (flags)
        return rt_error_from(D->cuArray3DCreate((CUarray *)array, &full));
    return rt_error_from(D->cuArrayCreate((CUarray *)array, &plain));
}

RT_API(RT_CONTEXT, 141, cudaMalloc3DArray, cudaArray_t *, array, const struct cudaChannelFormatDesc *, desc,
       struct cudaExtent, extent, unsigned int, flags)
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    cudaError_t status = rt_descriptor(desc, extent, flags, &full);

    return status == cudaSuccess ? rt_error_from(D->cuArray3DCreate((CUarray *)array, &full)) : status;
}

RT_API(RT_CONTEXT, 192, cudaMallocMipmappedArray, cudaMipmappedArray_t *, mipmappedArray,
       const struct cudaChannelFormatDesc *, desc, struct cudaExtent, extent, unsigned int, numLevels, unsigned int,
       flags)
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    cudaError_t status = rt_descriptor(desc, extent, flags, &full);

    if (status != cudaSuccess)
        return status;
    return rt_error_from(D->cuMipmappedArrayCreate((CUmipmappedArray *)mipmappedArray, &full, numLevels));
}

RT_API(RT_CONTEXT, 24, cudaFreeArray, cudaArray_t, array)
{
    return array ? rt_error_from(D->cuArrayDestroy(rt_array(array))) : cudaSuccess;
}

RT_API(RT_CONTEXT, 194, cudaFreeMipmappedArray, cudaMipmappedArray_t, mipmappedArray)
{
    if (!mipmappedArray)
        return cudaSuccess;
    return rt_error_from(D->cuMipmappedArrayDestroy((CUmipmappedArray)mipmappedArray));
}

RT_API(RT_CONTEXT, 193, cudaGetMipmappedArrayLevel, cudaArray_t *, levelArray, cudaMipmappedArray_const_t,
       mipmappedArray, unsigned int, level)
{
    return rt_error_from(
        D->cuMipmappedArrayGetLevel((CUarray *)levelArray, (CUmipmappedArray)(uintptr_t)mipmappedArray, level));
}

void rt_channel_desc(CUarray_format format, unsigned channels, struct cudaChannelFormatDesc *to)
{
    int bits[4] = {0};

    to->f = cudaChannelFormatKindNone;
    for (int kind = 0; kind < 3; kind++)
        for (int width = 0; width < 3; width++)
            if (rt_formats[kind][width] && rt_formats[kind][width] == format) {
                to->f = (enum cudaChannelFormatKind)kind;
                for (unsigned i = 0; i < channels && i < 4; i++)
                    bits[i] = 8 << width;
            }
    memcpy(to, bits, sizeof bits);
}

static cudaError_t rt_array_info(cudaArray_const_t array, CUDA_ARRAY3D_DESCRIPTOR *info)
{
    return rt_error_from(rt_drivers[0].cuArray3DGetDescriptor(info, rt_array(array)));
}

RT_API(RT_CONTEXT, 181, cudaArrayGetInfo, struct cudaChannelFormatDesc *, desc, struct cudaExtent *, extent,
       unsigned int *, flags, cudaArray_t, array)
{
    CUDA_ARRAY3D_DESCRIPTOR info;
    cudaError_t status = rt_array_info(array, &info);

    if (status != cudaSuccess)
        return status;
    if (desc)
        rt_channel_desc(info.Format, info.NumChannels, desc);
    if (extent)
        *extent = (struct cudaExtent){info.Width, info.Height, info.Depth};
    if (flags)
        *flags = info.Flags;
    return cudaSuccess;
}

RT_API(RT_CONTEXT, 6, cudaGetChannelDesc, struct cudaChannelFormatDesc *, desc, cudaArray_const_t, array)
{
    CUDA_ARRAY3D_DESCRIPTOR info;
    cudaError_t status;

    if (!desc)
        return cudaErrorInvalidValue;
    status = rt_array_info(array, &info);
    if (status == cudaSuccess)
        rt_channel_desc(info.Format, info.NumChannels, desc);
    return status;
}

RT_API(RT_CONTEXT, 428, cudaArrayGetMemoryRequirements, struct cudaArrayMemoryRequirements *, memoryRequirements,
       cudaArray_t, array, int, device)
{
    return rt_error_from(
        D->cuArrayGetMemoryRequirements((CUDA_ARRAY_MEMORY_REQUIREMENTS *)memoryRequirements, rt_array(array), device));
}

static size_t rt_element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *info)
{
    struct cudaChannelFormatDesc desc;

    rt_channel_desc(info->Format, info->NumChannels, &desc);
    return (size_t)(desc.x + desc.y + desc.z + desc.w) / 8;
}

/* Memory type of a side that is not an array, from the direction: host is the source of kinds 0 and
 * 1. */
static CUmemorytype rt_side(enum cudaMemcpyKind kind, bool source)
{
    if (kind == cudaMemcpyDefault)
        return CU_MEMORYTYPE_UNIFIED;
    if (source)
        return kind <= cudaMemcpyHostToDevice ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    return kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

/* Elements become bytes in x: in an array's position, and in the width once an array takes part. */
cudaError_t rt_copy3d(const struct cudaMemcpy3DParms *from, CUDA_MEMCPY3D *to)
{
    cudaArray_t arrays[2];
    size_t element[2] = {1, 1};

    if (!from || (unsigned)from->kind > cudaMemcpyDefault)
        return from ? cudaErrorInvalidMemcpyDirection : cudaErrorInvalidValue;
    arrays[0] = from->srcArray;
    arrays[1] = from->dstArray;
    for (int side = 0; side < 2; side++) {
        CUDA_ARRAY3D_DESCRIPTOR info;
        cudaError_t status = arrays[side] ? rt_array_info(arrays[side], &info) : cudaSuccess;

        if (status != cudaSuccess)
            return status;
        if (arrays[side])
            element[side] = rt_element_bytes(&info);
    }
    *to = (CUDA_MEMCPY3D){
        .srcXInBytes = from->srcPos.x * element[0],
        .srcY = from->srcPos.y,
        .srcZ = from->srcPos.z,
        .srcMemoryType = arrays[0] ? CU_MEMORYTYPE_ARRAY : rt_side(from->kind, true),
        .srcHost = from->srcPtr.ptr,
        .srcDevice = rt_device_pointer(from->srcPtr.ptr),
        .srcArray = rt_array(arrays[0]),
        .srcPitch = from->srcPtr.pitch,
        .srcHeight = from->srcPtr.ysize,
        .dstXInBytes = from->dstPos.x * element[1],
        .dstY = from->dstPos.y,
        .dstZ = from->dstPos.z,
        .dstMemoryType = arrays[1] ? CU_MEMORYTYPE_ARRAY : rt_side(from->kind, false),
        .dstHost = from->dstPtr.ptr,
        .dstDevice = rt_device_pointer(from->dstPtr.ptr),
        .dstArray = rt_array(arrays[1]),
        .dstPitch = from->dstPtr.pitch,
        .dstHeight = from->dstPtr.ysize,
        .WidthInBytes = from->extent.width * (arrays[0] ? element[0] : element[1]),
        .Height = from->extent.height,
        .Depth = from->extent.depth,
    };
    return cudaSuccess;
}
