/* SPDX-License-Identifier: MIT
 * cuMemcpy*: every form becomes one CUDA_MEMCPY3D and goes through one function to the stream.
 * Only entry points; the synchronous forms use the default stream of the call and wait for it. */
#include "cuda/sim.h"

#define SIM_HOST_END(side, pointer)   .side##MemoryType = CU_MEMORYTYPE_HOST, .side##Host = (void *)(pointer)
#define SIM_DEVICE_END(side, address) .side##MemoryType = CU_MEMORYTYPE_DEVICE, .side##Device = (address)
#define SIM_ANY_END(side, address)    .side##MemoryType = CU_MEMORYTYPE_UNIFIED, .side##Device = (address)
#define SIM_ARRAY_END(side, array, offset)                                                                             \
    .side##MemoryType = CU_MEMORYTYPE_ARRAY, .side##Array = (array), .side##XInBytes = (offset)
#define SIM_LINE(bytes) .WidthInBytes = (bytes), .Height = 1, .Depth = 1

/* The two contexts of a peer copy: each device reaches its own side, where a plain copy's device
 * reaches both. */
struct sim_ends {
    const struct sim_context *destination, *source;
};

static CUresult sim_copy(const CUDA_MEMCPY3D *copy, const struct sim_ends *ends, CUstream stream, unsigned flags)
{
    struct sim_context *context;
    struct sim_work work;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS && !copy)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_work_copy(copy, context, &work);
    if (result != CUDA_SUCCESS)
        return result;
    if (ends) {
        work.destination.device = ends->destination->device;
        work.source.device = ends->source->device;
    }
    return sim_stream_submit(sim_stream_default(stream), &work, flags);
}

static CUresult sim_copy_now(const CUDA_MEMCPY3D *copy)
{
    return sim_copy(copy, NULL, NULL, SIM_SUBMIT_SYNC);
}

#define SIM_COPY_NOW(...)        sim_copy_now(&(CUDA_MEMCPY3D){__VA_ARGS__})
#define SIM_COPY_IN(stream, ...) sim_copy(&(CUDA_MEMCPY3D){__VA_ARGS__}, NULL, stream, 0)

/* ---- one line ---------------------------------------------------------------------------------------------------- */

SIM_API3_PTDS(305, 408, 4000, cuMemcpy, CUdeviceptr, dst, CUdeviceptr, src, size_t, ByteCount)
{
    return SIM_COPY_NOW(SIM_ANY_END(dst, dst), SIM_ANY_END(src, src), SIM_LINE(ByteCount));
}

SIM_API4_PTSZ(306, 418, 4000, cuMemcpyAsync, CUdeviceptr, dst, CUdeviceptr, src, size_t, ByteCount, CUstream, hStream)
{
    return SIM_COPY_IN(hStream, SIM_ANY_END(dst, dst), SIM_ANY_END(src, src), SIM_LINE(ByteCount));
}

SIM_API3_PTDS(276, 397, 3020, cuMemcpyHtoD_v2, CUdeviceptr, dstDevice, const void *, srcHost, size_t, ByteCount)
{
    return SIM_COPY_NOW(SIM_DEVICE_END(dst, dstDevice), SIM_HOST_END(src, srcHost), SIM_LINE(ByteCount));
}

SIM_API4_PTSZ(277, 421, 3020, cuMemcpyHtoDAsync_v2, CUdeviceptr, dstDevice, const void *, srcHost, size_t, ByteCount,
              CUstream, hStream)
{
    return SIM_COPY_IN(hStream, SIM_DEVICE_END(dst, dstDevice), SIM_HOST_END(src, srcHost), SIM_LINE(ByteCount));
}

SIM_API3_PTDS(278, 398, 3020, cuMemcpyDtoH_v2, void *, dstHost, CUdeviceptr, srcDevice, size_t, ByteCount)
{
    return SIM_COPY_NOW(SIM_HOST_END(dst, dstHost), SIM_DEVICE_END(src, srcDevice), SIM_LINE(ByteCount));
}

SIM_API4_PTSZ(279, 422, 3020, cuMemcpyDtoHAsync_v2, void *, dstHost, CUdeviceptr, srcDevice, size_t, ByteCount,
              CUstream, hStream)
{
    return SIM_COPY_IN(hStream, SIM_HOST_END(dst, dstHost), SIM_DEVICE_END(src, srcDevice), SIM_LINE(ByteCount));
}

SIM_API3_PTDS(280, 399, 3020, cuMemcpyDtoD_v2, CUdeviceptr, dstDevice, CUdeviceptr, srcDevice, size_t, ByteCount)
{
    return SIM_COPY_NOW(SIM_DEVICE_END(dst, dstDevice), SIM_DEVICE_END(src, srcDevice), SIM_LINE(ByteCount));
}

SIM_API4_PTSZ(281, 423, 3020, cuMemcpyDtoDAsync_v2, CUdeviceptr, dstDevice, CUdeviceptr, srcDevice, size_t, ByteCount,
              CUstream, hStream)
{
    return SIM_COPY_IN(hStream, SIM_DEVICE_END(dst, dstDevice), SIM_DEVICE_END(src, srcDevice), SIM_LINE(ByteCount));
}

SIM_API4_PTDS(285, 400, 3020, cuMemcpyDtoA_v2, CUarray, dstArray, size_t, dstOffset, CUdeviceptr, srcDevice, size_t,
              ByteCount)
{
    return SIM_COPY_NOW(SIM_ARRAY_END(dst, dstArray, dstOffset), SIM_DEVICE_END(src, srcDevice), SIM_LINE(ByteCount));
}

SIM_API4_PTDS(284, 401, 3020, cuMemcpyAtoD_v2, CUdeviceptr, dstDevice, CUarray, srcArray, size_t, srcOffset, size_t,
              ByteCount)
{
    return SIM_COPY_NOW(SIM_DEVICE_END(dst, dstDevice), SIM_ARRAY_END(src, srcArray, srcOffset), SIM_LINE(ByteCount));
}

SIM_API4_PTDS(292, 402, 3020, cuMemcpyHtoA_v2, CUarray, dstArray, size_t, dstOffset, const void *, srcHost, size_t,
              ByteCount)
{
    return SIM_COPY_NOW(SIM_ARRAY_END(dst, dstArray, dstOffset), SIM_HOST_END(src, srcHost), SIM_LINE(ByteCount));
}

SIM_API5_PTSZ(293, 419, 3020, cuMemcpyHtoAAsync_v2, CUarray, dstArray, size_t, dstOffset, const void *, srcHost, size_t,
              ByteCount, CUstream, hStream)
{
    return SIM_COPY_IN(hStream, SIM_ARRAY_END(dst, dstArray, dstOffset), SIM_HOST_END(src, srcHost),
                       SIM_LINE(ByteCount));
}

SIM_API4_PTDS(282, 403, 3020, cuMemcpyAtoH_v2, void *, dstHost, CUarray, srcArray, size_t, srcOffset, size_t, ByteCount)
{
    return SIM_COPY_NOW(SIM_HOST_END(dst, dstHost), SIM_ARRAY_END(src, srcArray, srcOffset), SIM_LINE(ByteCount));
}

SIM_API5_PTSZ(283, 420, 3020, cuMemcpyAtoHAsync_v2, void *, dstHost, CUarray, srcArray, size_t, srcOffset, size_t,
              ByteCount, CUstream, hStream)
{
    return SIM_COPY_IN(hStream, SIM_HOST_END(dst, dstHost), SIM_ARRAY_END(src, srcArray, srcOffset),
                       SIM_LINE(ByteCount));
}

SIM_API5_PTDS(286, 404, 3020, cuMemcpyAtoA_v2, CUarray, dstArray, size_t, dstOffset, CUarray, srcArray, size_t,
              srcOffset, size_t, ByteCount)
{
    return SIM_COPY_NOW(SIM_ARRAY_END(dst, dstArray, dstOffset), SIM_ARRAY_END(src, srcArray, srcOffset),
                        SIM_LINE(ByteCount));
}

/* ---- planes and boxes -------------------------------------------------------------------------------------------- */

static CUresult sim_copy_plane(const CUDA_MEMCPY2D *plane, CUstream stream, unsigned flags)
{
    if (!plane)
        return sim_copy(NULL, NULL, stream, flags);
    CUDA_MEMCPY3D copy = {.srcXInBytes = plane->srcXInBytes,
                          .srcY = plane->srcY,
                          .srcMemoryType = plane->srcMemoryType,
                          .srcHost = plane->srcHost,
                          .srcDevice = plane->srcDevice,
                          .srcArray = plane->srcArray,
                          .srcPitch = plane->srcPitch,
                          .dstXInBytes = plane->dstXInBytes,
                          .dstY = plane->dstY,
                          .dstMemoryType = plane->dstMemoryType,
                          .dstHost = plane->dstHost,
                          .dstDevice = plane->dstDevice,
                          .dstArray = plane->dstArray,
                          .dstPitch = plane->dstPitch,
                          .WidthInBytes = plane->WidthInBytes,
                          .Height = plane->Height,
                          .Depth = 1};
    return sim_copy(&copy, NULL, stream, flags);
}

SIM_API1_PTDS(287, 405, 3020, cuMemcpy2D_v2, const CUDA_MEMCPY2D *, pCopy)
{
    return sim_copy_plane(pCopy, NULL, SIM_SUBMIT_SYNC);
}

SIM_API1_PTDS(288, 406, 3020, cuMemcpy2DUnaligned_v2, const CUDA_MEMCPY2D *, pCopy)
{
    return sim_copy_plane(pCopy, NULL, SIM_SUBMIT_SYNC);
}

SIM_API2_PTSZ(289, 424, 3020, cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D *, pCopy, CUstream, hStream)
{
    return sim_copy_plane(pCopy, hStream, 0);
}

SIM_API1_PTDS(290, 407, 3020, cuMemcpy3D_v2, const CUDA_MEMCPY3D *, pCopy)
{
    return sim_copy(pCopy, NULL, NULL, SIM_SUBMIT_SYNC);
}

SIM_API2_PTSZ(291, 425, 3020, cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D *, pCopy, CUstream, hStream)
{
    return sim_copy(pCopy, NULL, hStream, 0);
}

/* ---- many at once ------------------------------------------------------------------------------------------------ */

struct sim_batch {
    const CUdeviceptr *to, *from;
    const size_t *bytes;
    size_t count;
    const CUmemcpyAttributes *attributes;
    const size_t *first; /* index of the first copy that each attribute is for */
    size_t attribute_count;
};

static bool sim_batch_valid(const struct sim_batch *b)
{
    if (!b->to || !b->from || !b->bytes || !b->count || !b->attributes || !b->first || !b->attribute_count ||
        b->attribute_count > b->count || b->first[0] != 0)
        return false;
    for (size_t i = 0; i < b->attribute_count; i++)
        if ((i && b->first[i] <= b->first[i - 1]) || b->first[i] >= b->count ||
            b->attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
            b->attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
            return false;
    return true;
}

/* The order within a batch is open; here it is the array's.  *failed: the copy that failed, or the
 * largest number if the error is of none. */
static CUresult sim_batch_run(const struct sim_batch *b, size_t *failed, CUstream stream)
{
    if (failed)
        *failed = SIZE_MAX;
    if (!sim_batch_valid(b) || !stream || stream == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < b->count; i++) {
        CUresult result = b->bytes[i] ? SIM_COPY_IN(stream, SIM_ANY_END(dst, b->to[i]), SIM_ANY_END(src, b->from[i]),
                                                    SIM_LINE(b->bytes[i]))
                                      : CUDA_ERROR_INVALID_VALUE;
        if (result != CUDA_SUCCESS && failed)
            *failed = i;
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

SIM_API9_PTSZ(776, 777, 12080, cuMemcpyBatchAsync, CUdeviceptr *, dsts, CUdeviceptr *, srcs, size_t *, sizes, size_t,
              count, CUmemcpyAttributes *, attrs, size_t *, attrsIdxs, size_t, numAttrs, size_t *, failIdx, CUstream,
              hStream)
{
    return sim_batch_run(&(struct sim_batch){dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs}, failIdx, hStream);
}

SIM_API8_PTSZ(796, 797, 13000, cuMemcpyBatchAsync_v2, CUdeviceptr *, dsts, CUdeviceptr *, srcs, size_t *, sizes, size_t,
              count, CUmemcpyAttributes *, attrs, size_t *, attrsIdxs, size_t, numAttrs, CUstream, hStream)
{
    return sim_batch_run(&(struct sim_batch){dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs}, NULL, hStream);
}

/* ---- between contexts -------------------------------------------------------------------------------------------- */

/* Works without peer access between the two devices: a copy is then staged through the host. */
static CUresult sim_peers_find(CUcontext destination, CUcontext source, struct sim_ends *ends)
{
    *ends = (struct sim_ends){sim_context_find(destination), sim_context_find(source)};
    return ends->destination && ends->source ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult sim_copy_line(CUdeviceptr to, CUcontext destination, CUdeviceptr from, CUcontext source, size_t bytes,
                              CUstream stream, unsigned flags)
{
    struct sim_ends ends;
    CUresult result = sim_peers_find(destination, source, &ends);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_copy(&(CUDA_MEMCPY3D){SIM_DEVICE_END(dst, to), SIM_DEVICE_END(src, from), SIM_LINE(bytes)}, &ends,
                    stream, flags);
}

static CUresult sim_copy_peer(const CUDA_MEMCPY3D_PEER *peer, CUstream stream, unsigned flags)
{
    if (!peer)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_ends ends;
    CUresult result = sim_peers_find(peer->dstContext, peer->srcContext, &ends);
    if (result != CUDA_SUCCESS)
        return result;
    CUDA_MEMCPY3D copy = {.srcXInBytes = peer->srcXInBytes,
                          .srcY = peer->srcY,
                          .srcZ = peer->srcZ,
                          .srcLOD = peer->srcLOD,
                          .srcMemoryType = peer->srcMemoryType,
                          .srcHost = peer->srcHost,
                          .srcDevice = peer->srcDevice,
                          .srcArray = peer->srcArray,
                          .srcPitch = peer->srcPitch,
                          .srcHeight = peer->srcHeight,
                          .dstXInBytes = peer->dstXInBytes,
                          .dstY = peer->dstY,
                          .dstZ = peer->dstZ,
                          .dstLOD = peer->dstLOD,
                          .dstMemoryType = peer->dstMemoryType,
                          .dstHost = peer->dstHost,
                          .dstDevice = peer->dstDevice,
                          .dstArray = peer->dstArray,
                          .dstPitch = peer->dstPitch,
                          .dstHeight = peer->dstHeight,
                          .WidthInBytes = peer->WidthInBytes,
                          .Height = peer->Height,
                          .Depth = peer->Depth};
    return sim_copy(&copy, &ends, stream, flags);
}

SIM_API5_PTDS(318, 409, 4000, cuMemcpyPeer, CUdeviceptr, dstDevice, CUcontext, dstContext, CUdeviceptr, srcDevice,
              CUcontext, srcContext, size_t, ByteCount)
{
    return sim_copy_line(dstDevice, dstContext, srcDevice, srcContext, ByteCount, NULL, SIM_SUBMIT_SYNC);
}

SIM_API6_PTSZ(319, 426, 4000, cuMemcpyPeerAsync, CUdeviceptr, dstDevice, CUcontext, dstContext, CUdeviceptr, srcDevice,
              CUcontext, srcContext, size_t, ByteCount, CUstream, hStream)
{
    return sim_copy_line(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream, 0);
}

SIM_API1_PTDS(320, 410, 4000, cuMemcpy3DPeer, const CUDA_MEMCPY3D_PEER *, pCopy)
{
    return sim_copy_peer(pCopy, NULL, SIM_SUBMIT_SYNC);
}

SIM_API2_PTSZ(321, 427, 4000, cuMemcpy3DPeerAsync, const CUDA_MEMCPY3D_PEER *, pCopy, CUstream, hStream)
{
    return sim_copy_peer(pCopy, hStream, 0);
}
