/* SPDX-License-Identifier: MIT
 * cuMemset*: every form becomes one CUDA_MEMSET_NODE_PARAMS and goes through one function to the
 * stream. Only entry points.  The synchronous forms wait, as those of the simulated copies do. */
#include "cuda/sim.h"

static CUresult sim_set(CUDA_MEMSET_NODE_PARAMS set, CUstream stream, unsigned flags)
{
    struct sim_context *context;
    struct sim_work work;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_work_set(&set, context, &work);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_stream_submit(sim_stream_default(stream), &work, flags);
}

/* One line of `count` elements; `rows` lines `pitch` bytes apart. */
static CUresult sim_set_line(CUdeviceptr at, unsigned value, unsigned element, size_t count, CUstream stream,
                             unsigned flags)
{
    return sim_set((CUDA_MEMSET_NODE_PARAMS){at, 0, value, element, count, 1}, stream, flags);
}

static CUresult sim_set_plane(CUdeviceptr at, size_t pitch, unsigned value, unsigned element, size_t width,
                              size_t height, CUstream stream, unsigned flags)
{
    return sim_set((CUDA_MEMSET_NODE_PARAMS){at, pitch, value, element, width, height}, stream, flags);
}

SIM_API4_PTSZ(216, 428, 3020, cuMemsetD8Async, CUdeviceptr, dstDevice, unsigned char, uc, size_t, N, CUstream, hStream)
{
    return sim_set_line(dstDevice, uc, 1, N, hStream, 0);
}

SIM_API4_PTSZ(218, 429, 3020, cuMemsetD16Async, CUdeviceptr, dstDevice, unsigned short, us, size_t, N, CUstream,
              hStream)
{
    return sim_set_line(dstDevice, us, 2, N, hStream, 0);
}

SIM_API4_PTSZ(220, 430, 3020, cuMemsetD32Async, CUdeviceptr, dstDevice, unsigned int, ui, size_t, N, CUstream, hStream)
{
    return sim_set_line(dstDevice, ui, 4, N, hStream, 0);
}

SIM_API6_PTSZ(222, 431, 3020, cuMemsetD2D8Async, CUdeviceptr, dstDevice, size_t, dstPitch, unsigned char, uc, size_t,
              Width, size_t, Height, CUstream, hStream)
{
    return sim_set_plane(dstDevice, dstPitch, uc, 1, Width, Height, hStream, 0);
}

SIM_API6_PTSZ(224, 432, 3020, cuMemsetD2D16Async, CUdeviceptr, dstDevice, size_t, dstPitch, unsigned short, us, size_t,
              Width, size_t, Height, CUstream, hStream)
{
    return sim_set_plane(dstDevice, dstPitch, us, 2, Width, Height, hStream, 0);
}

SIM_API6_PTSZ(226, 433, 3020, cuMemsetD2D32Async, CUdeviceptr, dstDevice, size_t, dstPitch, unsigned int, ui, size_t,
              Width, size_t, Height, CUstream, hStream)
{
    return sim_set_plane(dstDevice, dstPitch, ui, 4, Width, Height, hStream, 0);
}

SIM_API3_PTDS(249, 411, 3020, cuMemsetD8_v2, CUdeviceptr, dstDevice, unsigned char, uc, size_t, N)
{
    return sim_set_line(dstDevice, uc, 1, N, NULL, SIM_SUBMIT_SYNC);
}

SIM_API3_PTDS(250, 412, 3020, cuMemsetD16_v2, CUdeviceptr, dstDevice, unsigned short, us, size_t, N)
{
    return sim_set_line(dstDevice, us, 2, N, NULL, SIM_SUBMIT_SYNC);
}

SIM_API3_PTDS(251, 413, 3020, cuMemsetD32_v2, CUdeviceptr, dstDevice, unsigned int, ui, size_t, N)
{
    return sim_set_line(dstDevice, ui, 4, N, NULL, SIM_SUBMIT_SYNC);
}

SIM_API5_PTDS(252, 414, 3020, cuMemsetD2D8_v2, CUdeviceptr, dstDevice, size_t, dstPitch, unsigned char, uc, size_t,
              Width, size_t, Height)
{
    return sim_set_plane(dstDevice, dstPitch, uc, 1, Width, Height, NULL, SIM_SUBMIT_SYNC);
}

SIM_API5_PTDS(253, 415, 3020, cuMemsetD2D16_v2, CUdeviceptr, dstDevice, size_t, dstPitch, unsigned short, us, size_t,
              Width, size_t, Height)
{
    return sim_set_plane(dstDevice, dstPitch, us, 2, Width, Height, NULL, SIM_SUBMIT_SYNC);
}

SIM_API5_PTDS(254, 416, 3020, cuMemsetD2D32_v2, CUdeviceptr, dstDevice, size_t, dstPitch, unsigned int, ui, size_t,
              Width, size_t, Height)
{
    return sim_set_plane(dstDevice, dstPitch, ui, 4, Width, Height, NULL, SIM_SUBMIT_SYNC);
}

/* ---- one word in the order of a stream --------------------------------------------------------------------------- */
static CUresult sim_set_word(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags)
{
    if (flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER || at % sizeof value)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_set_line(at, value, sizeof value, 1, stream, 0);
}

SIM_API4_PTSZ(460, 461, 8000, cuStreamWriteValue32, CUstream, hStream, CUdeviceptr, addr, cuuint32_t, value,
              unsigned int, flags)
{
    return sim_set_word(hStream, addr, value, flags);
}

SIM_API4_PTSZ(663, 664, 11070, cuStreamWriteValue32_v2, CUstream, hStream, CUdeviceptr, addr, cuuint32_t, value,
              unsigned int, flags)
{
    return sim_set_word(hStream, addr, value, flags);
}

static CUresult sim_set_long(CUstream stream, CUdeviceptr at, uint64_t value, unsigned flags)
{
    if (flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER || at % sizeof value)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_set_line(at, (uint32_t)value, sizeof(uint32_t), 1, stream, 0);
    return result != CUDA_SUCCESS ? result
                                  : sim_set_line(at + 4, (uint32_t)(value >> 32), sizeof(uint32_t), 1, stream, 0);
}

SIM_API4_PTSZ(475, 476, 9000, cuStreamWriteValue64, CUstream, hStream, CUdeviceptr, addr, cuuint64_t, value,
              unsigned int, flags)
{
    return sim_set_long(hStream, addr, value, flags);
}

SIM_API4_PTSZ(665, 666, 11070, cuStreamWriteValue64_v2, CUstream, hStream, CUdeviceptr, addr, cuuint64_t, value,
              unsigned int, flags)
{
    return sim_set_long(hStream, addr, value, flags);
}
