/* SPDX-License-Identifier: MIT
 * Runtime copies and sets.  Called by programs.  The direction chooses the driver's function, as
 * the real runtime does: host to host and "default" go to the unified cuMemcpy, the others to their
 * own. */
#include "cudart/runtime.h"

cudaError_t rt_memcpy(const struct rt_driver *D, void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    if (!count)
        return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return rt_error_from(D->cuMemcpyHtoD(rt_device_pointer(dst), src, count));
    case cudaMemcpyDeviceToHost:
        return rt_error_from(D->cuMemcpyDtoH(dst, rt_device_pointer(src), count));
    case cudaMemcpyDeviceToDevice:
        return rt_error_from(D->cuMemcpyDtoD(rt_device_pointer(dst), rt_device_pointer(src), count));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return rt_error_from(D->cuMemcpy(rt_device_pointer(dst), rt_device_pointer(src), count));
    }
    return cudaErrorInvalidMemcpyDirection;
}

cudaError_t rt_memcpy_async(const struct rt_driver *D, void *dst, const void *src, size_t count,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (!count)
        return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return rt_error_from(D->cuMemcpyHtoDAsync(rt_device_pointer(dst), src, count, stream));
    case cudaMemcpyDeviceToHost:
        return rt_error_from(D->cuMemcpyDtoHAsync(dst, rt_device_pointer(src), count, stream));
    case cudaMemcpyDeviceToDevice:
        return rt_error_from(D->cuMemcpyDtoDAsync(rt_device_pointer(dst), rt_device_pointer(src), count, stream));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return rt_error_from(D->cuMemcpyAsync(rt_device_pointer(dst), rt_device_pointer(src), count, stream));
    }
    return cudaErrorInvalidMemcpyDirection;
}

RT_TWINS(RT_CONTEXT, 31, 215, _ptds, cudaMemcpy, void *, dst, const void *, src, size_t, count, enum cudaMemcpyKind,
         kind)
{
    return rt_memcpy(D, dst, src, count, kind);
}

RT_TWINS(RT_CONTEXT, 41, 225, _ptsz, cudaMemcpyAsync, void *, dst, const void *, src, size_t, count,
         enum cudaMemcpyKind, kind, cudaStream_t, stream)
{
    return rt_memcpy_async(D, dst, src, count, kind, stream);
}

static cudaError_t rt_peers(int to, CUcontext *to_context, int from, CUcontext *from_context)
{
    cudaError_t status = rt_device_context(to, to_context);

    return status == cudaSuccess ? rt_device_context(from, from_context) : status;
}

RT_API(RT_CONTEXT, 160, cudaMemcpyPeer, void *, dst, int, dstDevice, const void *, src, int, srcDevice, size_t, count)
{
    CUcontext to, from;
    cudaError_t status = rt_peers(dstDevice, &to, srcDevice, &from);

    if (status != cudaSuccess || !count)
        return status;
    return rt_error_from(D->cuMemcpyPeer(rt_device_pointer(dst), to, rt_device_pointer(src), from, count));
}

RT_API(RT_CONTEXT, 161, cudaMemcpyPeerAsync, void *, dst, int, dstDevice, const void *, src, int, srcDevice, size_t,
       count, cudaStream_t, stream)
{
    CUcontext to, from;
    cudaError_t status = rt_peers(dstDevice, &to, srcDevice, &from);

    if (status != cudaSuccess || !count)
        return status;
    return rt_error_from(D->cuMemcpyPeerAsync(rt_device_pointer(dst), to, rt_device_pointer(src), from, count, stream));
}

/* One side of a 2D copy. */
struct rt_plane {
    const void *pointer;
    cudaArray_const_t array;
    size_t pitch, x, y;
};

static cudaError_t rt_copy2d(const struct rt_driver *D, struct rt_plane dst, struct rt_plane src, size_t width,
                             size_t height, enum cudaMemcpyKind kind, bool async, cudaStream_t stream)
{
    struct cudaMemcpy3DParms directions = {.kind = kind};
    CUDA_MEMCPY3D types;
    CUDA_MEMCPY2D copy;
    cudaError_t status = rt_copy3d(&directions, &types);

    if (status != cudaSuccess)
        return status;
    if ((!dst.array && width > dst.pitch) || (!src.array && width > src.pitch))
        return cudaErrorInvalidPitchValue;
    if (!width || !height)
        return cudaSuccess;
    copy = (CUDA_MEMCPY2D){
        .srcXInBytes = src.x,
        .srcY = src.y,
        .srcMemoryType = src.array ? CU_MEMORYTYPE_ARRAY : types.srcMemoryType,
        .srcHost = src.pointer,
        .srcDevice = rt_device_pointer(src.pointer),
        .srcArray = rt_array(src.array),
        .srcPitch = src.pitch,
        .dstXInBytes = dst.x,
        .dstY = dst.y,
        .dstMemoryType = dst.array ? CU_MEMORYTYPE_ARRAY : types.dstMemoryType,
        .dstHost = (void *)(uintptr_t)dst.pointer,
        .dstDevice = rt_device_pointer(dst.pointer),
        .dstArray = rt_array(dst.array),
        .dstPitch = dst.pitch,
        .WidthInBytes = width,
        .Height = height,
    };
    return rt_error_from(async ? D->cuMemcpy2DAsync(&copy, stream) : D->cuMemcpy2DUnaligned(&copy));
}

#define RT_PLANE(p, its_pitch) ((struct rt_plane){.pointer = (p), .pitch = (its_pitch)})
#define RT_ARRAY(a, ax, ay)    ((struct rt_plane){.array = (a), .x = (ax), .y = (ay)})

RT_TWINS(RT_CONTEXT, 32, 216, _ptds, cudaMemcpy2D, void *, dst, size_t, dpitch, const void *, src, size_t, spitch,
         size_t, width, size_t, height, enum cudaMemcpyKind, kind)
{
    return rt_copy2d(D, RT_PLANE(dst, dpitch), RT_PLANE(src, spitch), width, height, kind, false, NULL);
}

RT_TWINS(RT_CONTEXT, 44, 228, _ptsz, cudaMemcpy2DAsync, void *, dst, size_t, dpitch, const void *, src, size_t, spitch,
         size_t, width, size_t, height, enum cudaMemcpyKind, kind, cudaStream_t, stream)
{
    return rt_copy2d(D, RT_PLANE(dst, dpitch), RT_PLANE(src, spitch), width, height, kind, true, stream);
}

RT_TWINS(RT_CONTEXT, 34, 218, _ptds, cudaMemcpy2DToArray, cudaArray_t, dst, size_t, wOffset, size_t, hOffset,
         const void *, src, size_t, spitch, size_t, width, size_t, height, enum cudaMemcpyKind, kind)
{
    return rt_copy2d(D, RT_ARRAY(dst, wOffset, hOffset), RT_PLANE(src, spitch), width, height, kind, false, NULL);
}

RT_TWINS(RT_CONTEXT, 36, 220, _ptds, cudaMemcpy2DFromArray, void *, dst, size_t, dpitch, cudaArray_const_t, src, size_t,
         wOffset, size_t, hOffset, size_t, width, size_t, height, enum cudaMemcpyKind, kind)
{
    return rt_copy2d(D, RT_PLANE(dst, dpitch), RT_ARRAY(src, wOffset, hOffset), width, height, kind, false, NULL);
}

RT_TWINS(RT_CONTEXT, 45, 229, _ptsz, cudaMemcpy2DToArrayAsync, cudaArray_t, dst, size_t, wOffset, size_t, hOffset,
         const void *, src, size_t, spitch, size_t, width, size_t, height, enum cudaMemcpyKind, kind, cudaStream_t,
         stream)
{
    return rt_copy2d(D, RT_ARRAY(dst, wOffset, hOffset), RT_PLANE(src, spitch), width, height, kind, true, stream);
}

RT_TWINS(RT_CONTEXT, 46, 230, _ptsz, cudaMemcpy2DFromArrayAsync, void *, dst, size_t, dpitch, cudaArray_const_t, src,
         size_t, wOffset, size_t, hOffset, size_t, width, size_t, height, enum cudaMemcpyKind, kind, cudaStream_t,
         stream)
{
    return rt_copy2d(D, RT_PLANE(dst, dpitch), RT_ARRAY(src, wOffset, hOffset), width, height, kind, true, stream);
}

RT_TWINS(RT_CONTEXT, 144, 245, _ptds, cudaMemcpy3D, const struct cudaMemcpy3DParms *, p)
{
    CUDA_MEMCPY3D copy;
    cudaError_t status = rt_copy3d(p, &copy);

    return status == cudaSuccess ? rt_error_from(D->cuMemcpy3D(&copy)) : status;
}

RT_TWINS(RT_CONTEXT, 145, 246, _ptsz, cudaMemcpy3DAsync, const struct cudaMemcpy3DParms *, p, cudaStream_t, stream)
{
    CUDA_MEMCPY3D copy;
    cudaError_t status = rt_copy3d(p, &copy);

    return status == cudaSuccess ? rt_error_from(D->cuMemcpy3DAsync(&copy, stream)) : status;
}

/* One end of a 3D copy between devices; arrays count elements. */
static cudaError_t rt_copy3d_peer(const struct cudaMemcpy3DPeerParms *from, CUDA_MEMCPY3D_PEER *to)
{
    struct cudaMemcpy3DParms one;
    CUDA_MEMCPY3D plain;
    CUcontext destination, source;
    cudaError_t status;

    if (!from)
        return cudaErrorInvalidValue;
    one = (struct cudaMemcpy3DParms){from->srcArray, from->srcPos, from->srcPtr, from->dstArray,
                                     from->dstPos,   from->dstPtr, from->extent, cudaMemcpyDefault};
    status = rt_copy3d(&one, &plain);
    if (status == cudaSuccess)
        status = rt_peers(from->dstDevice, &destination, from->srcDevice, &source);
    if (status != cudaSuccess)
        return status;
    *to = (CUDA_MEMCPY3D_PEER){.srcXInBytes = plain.srcXInBytes,
                               .srcY = plain.srcY,
                               .srcZ = plain.srcZ,
                               .srcMemoryType = plain.srcMemoryType,
                               .srcDevice = plain.srcDevice,
                               .srcArray = plain.srcArray,
                               .srcContext = source,
                               .srcPitch = plain.srcPitch,
                               .srcHeight = plain.srcHeight,
                               .dstXInBytes = plain.dstXInBytes,
                               .dstY = plain.dstY,
                               .dstZ = plain.dstZ,
                               .dstMemoryType = plain.dstMemoryType,
                               .dstDevice = plain.dstDevice,
                               .dstArray = plain.dstArray,
                               .dstContext = destination,
                               .dstPitch = plain.dstPitch,
                               .dstHeight = plain.dstHeight,
                               .WidthInBytes = plain.WidthInBytes,
                               .Height = plain.Height,
                               .Depth = plain.Depth};
    return cudaSuccess;
}

RT_TWINS(RT_CONTEXT, 162, 249, _ptds, cudaMemcpy3DPeer, const struct cudaMemcpy3DPeerParms *, p)
{
    CUDA_MEMCPY3D_PEER copy;
    cudaError_t status = rt_copy3d_peer(p, &copy);

    return status == cudaSuccess ? rt_error_from(D->cuMemcpy3DPeer(&copy)) : status;
}

RT_TWINS(RT_CONTEXT, 163, 250, _ptsz, cudaMemcpy3DPeerAsync, const struct cudaMemcpy3DPeerParms *, p, cudaStream_t,
         stream)
{
    CUDA_MEMCPY3D_PEER copy;
    cudaError_t status = rt_copy3d_peer(p, &copy);

    return status == cudaSuccess ? rt_error_from(D->cuMemcpy3DPeerAsync(&copy, stream)) : status;
}

/* Attributes have the driver's layout. */
RT_TWINS(RT_CONTEXT, 509, 510, _ptsz, cudaMemcpyBatchAsync, const void **, dsts, const void **, srcs, const size_t *,
         sizes, size_t, count, struct cudaMemcpyAttributes *, attrs, size_t *, attrsIdxs, size_t, numAttrs,
         cudaStream_t, stream)
{
    return rt_error_from(D->cuMemcpyBatchAsync((CUdeviceptr *)dsts, (CUdeviceptr *)srcs, (size_t *)sizes, count,
                                               (CUmemcpyAttributes *)attrs, attrsIdxs, numAttrs, stream));
}

RT_TWINS(RT_CONTEXT, 49, 233, _ptds, cudaMemset, void *, devPtr, int, value, size_t, count)
{
    return count ? rt_error_from(D->cuMemsetD8(rt_device_pointer(devPtr), (unsigned char)value, count)) : cudaSuccess;
}

RT_TWINS(RT_CONTEXT, 51, 235, _ptsz, cudaMemsetAsync, void *, devPtr, int, value, size_t, count, cudaStream_t, stream)
{
    if (!count)
        return cudaSuccess;
    return rt_error_from(D->cuMemsetD8Async(rt_device_pointer(devPtr), (unsigned char)value, count, stream));
}

static cudaError_t rt_memset2d(const struct rt_driver *D, const void *pointer, size_t pitch, int value, size_t width,
                               size_t height, bool async, cudaStream_t stream)
{
    CUdeviceptr to = rt_device_pointer(pointer);

    if (!width || !height)
        return cudaSuccess;
    return rt_error_from(async ? D->cuMemsetD2D8Async(to, pitch, (unsigned char)value, width, height, stream)
                               : D->cuMemsetD2D8(to, pitch, (unsigned char)value, width, height));
}

/* Slice by slice: rows between the slices' ends (ysize beyond the extent's height) must stay
 * untouched. */
static cudaError_t rt_memset3d(const struct rt_driver *D, struct cudaPitchedPtr to, int value, struct cudaExtent extent,
                               bool async, cudaStream_t stream)
{
    for (size_t z = 0; z < extent.depth; z++) {
        cudaError_t status = rt_memset2d(D, (char *)to.ptr + z * to.pitch * to.ysize, to.pitch, value, extent.width,
                                         extent.height, async, stream);

        if (status != cudaSuccess)
            return status;
    }
    return cudaSuccess;
}

RT_TWINS(RT_CONTEXT, 50, 234, _ptds, cudaMemset2D, void *, devPtr, size_t, pitch, int, value, size_t, width, size_t,
         height)
{
    return rt_memset2d(D, devPtr, pitch, value, width, height, false, NULL);
}

RT_TWINS(RT_CONTEXT, 52, 236, _ptsz, cudaMemset2DAsync, void *, devPtr, size_t, pitch, int, value, size_t, width,
         size_t, height, cudaStream_t, stream)
{
    return rt_memset2d(D, devPtr, pitch, value, width, height, true, stream);
}

RT_TWINS(RT_CONTEXT, 142, 243, _ptds, cudaMemset3D, struct cudaPitchedPtr, pitchedDevPtr, int, value, struct cudaExtent,
         extent)
{
    return rt_memset3d(D, pitchedDevPtr, value, extent, false, NULL);
}

RT_TWINS(RT_CONTEXT, 143, 244, _ptsz, cudaMemset3DAsync, struct cudaPitchedPtr, pitchedDevPtr, int, value,
         struct cudaExtent, extent, cudaStream_t, stream)
{
    return rt_memset3d(D, pitchedDevPtr, value, extent, true, stream);
}
