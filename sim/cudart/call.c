/* SPDX-License-Identifier: MIT
 * The steps around every call of the runtime: the driver's start, the thread's context, tool callbacks, and the last
 * error.  Called by what RT_API makes. */
#include "cudart/runtime.h"

static __thread cudaError_t rt_thread_error;

cudaError_t rt_begin(struct rt_call *call, unsigned need, uint32_t cbid, const char *name, const void *params)
{
    cudaError_t status = need & (RT_INIT | RT_CONTEXT) ? rt_init() : cudaSuccess;

    call->need = need;
    call->tools = rt_tools();
    if (call->tools)
        call->tools->runtime_begin(&call->frame, cbid, name, params);
    if (status == cudaSuccess && need & RT_CONTEXT)
        status = rt_context();
    return status;
}

cudaError_t rt_end(struct rt_call *call, cudaError_t status)
{
    /* A copy, since in this domain a tool's writes do not reach the program. */
    cudaError_t shown = status;

    if (status != cudaSuccess && !(call->need & RT_QUIET))
        rt_thread_error = status;
    if (call->tools)
        call->tools->runtime_end(&call->frame, &shown);
    return status;
}

cudaError_t rt_last_error(bool clear)
{
    cudaError_t error = rt_thread_error;

    if (clear)
        rt_thread_error = cudaSuccess;
    return error;
}
