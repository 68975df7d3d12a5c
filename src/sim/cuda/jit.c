/* SPDX-License-Identifier: MIT
 * The switches of a profiler, which are accepted and have no effect, and descriptions of tensors. */
#include "sim.h"

SIM_API0(308, 4000, cuProfilerStart)
{
    return CUDA_SUCCESS;
}

SIM_API0(309, 4000, cuProfilerStop)
{
    return CUDA_SUCCESS;
}

/* Describes a tensor to the copy engine; only the host's memory is written, so no tool need see it.
 * Twelve arguments, of which none is read. */
SIM_EXPORT CUresult cuTensorMapEncodeTiled(void);
SIM_REGISTER(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled", cuTensorMapEncodeTiled, 697, 12000, 0);
CUresult cuTensorMapEncodeTiled(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
