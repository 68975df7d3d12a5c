/* SPDX-License-Identifier: MIT
 * Exports of CUDA's runtime that have no behaviour here: absent.def lists them. */
#include "cudart/absent.h"

#include <stdio.h>

cudaError_t rt_absent(uint32_t cbid, const char *name, bool *reported)
{
    struct rt_call call;
    cudaError_t status = rt_begin(&call, RT_NOTHING, cbid, name, NULL);

    if (status == cudaSuccess) {
        if (!__atomic_exchange_n(reported, true, __ATOMIC_RELAXED))
            fprintf(stderr, "gpuprof: sim: %s is not simulated: it answers cudaErrorNotSupported\n", name);
        status = cudaErrorNotSupported;
    }
    return rt_end(&call, status);
}

#include "cudart/absent.def"
