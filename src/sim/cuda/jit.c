/* SPDX-License-Identifier: MIT
 * Calls of libraries that make code at run time.  They have to be there, since such libraries bind
 * all their symbols when they are loaded; the simulated driver has no compiler, and says so.  The
 * switches of a profiler are accepted and have no effect. */
#include "sim.h"

SIM_API5(381, 6050, cuLinkCreate_v2, unsigned int, numOptions, CUjit_option *, options, void **, optionValues,
         CUlinkState *, stateOut, unsigned int, flags)
{
    (void)numOptions, (void)options, (void)optionValues, (void)flags;
    return stateOut ? CUDA_ERROR_JIT_COMPILER_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}

/* There is no state that the next three could be given. */
SIM_API8(382, 6050, cuLinkAddData_v2, CUlinkState, state, CUjitInputType, type, void *, data, size_t, size,
         const char *, name, unsigned int, numOptions, CUjit_option *, options, void **, optionValues)
{
    (void)state, (void)type, (void)data, (void)size, (void)name, (void)numOptions, (void)options, (void)optionValues;
    return CUDA_ERROR_INVALID_HANDLE;
}

SIM_API3(365, 5050, cuLinkComplete, CUlinkState, state, void **, cubinOut, size_t *, sizeOut)
{
    (void)state, (void)cubinOut, (void)sizeOut;
    return CUDA_ERROR_INVALID_HANDLE;
}

SIM_API1(366, 5050, cuLinkDestroy, CUlinkState, state)
{
    (void)state;
    return CUDA_ERROR_INVALID_HANDLE;
}

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
