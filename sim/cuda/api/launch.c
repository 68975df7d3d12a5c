/* SPDX-License-Identifier: MIT
 * Entry points of kernel launches and host functions (launch.c). */
#include "cuda/context.h"
#include "cuda/graph.h"

#include <stdlib.h>

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Launch limits that every device since compute capability 3.0 has. */
static bool sim_shape_valid(const CUlaunchConfig *c)
{
    const uint64_t block = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;

    return c->gridDimX && c->gridDimX <= 0x7fffffff && c->gridDimY && c->gridDimY <= 65535 && c->gridDimZ &&
           c->gridDimZ <= 65535 && block && block <= 1024 && c->blockDimZ <= 64;
}

static CUresult sim_launch_captured(struct sim_stream *s, const CUlaunchConfig *c, CUfunction f, void **params,
                                    void **extra)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                              .kernel = {.func = f,
                                         .gridDimX = c->gridDimX,
                                         .gridDimY = c->gridDimY,
                                         .gridDimZ = c->gridDimZ,
                                         .blockDimX = c->blockDimX,
                                         .blockDimY = c->blockDimY,
                                         .blockDimZ = c->blockDimZ,
                                         .sharedMemBytes = c->sharedMemBytes,
                                         .kernelParams = params,
                                         .extra = extra}};
    struct sim_node *made;

    return sim_capture_node(s, &node, &made);
}

CUresult sim_launch(const CUlaunchConfig *c, CUfunction h, void **params, void **extra)
{
    struct sim_function *f = NULL;
    struct sim_kernel_pointers pointers;
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(c->hStream, &s);

    if (!r)
        r = sim_function_get(h, &f); /* there may be no memory for its code */
    if (r)
        return r;
    if (f->module->context_uid != s->context->uid)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_self.call->symbol = f->name;
    if (!sim_shape_valid(c) || (c->numAttrs && !c->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    r = sim_kernel_pointers(h, params, extra, &pointers);
    if (r)
        return r;
    if (sim_stream_capturing(s))
        return sim_launch_captured(s, c, h, params, extra);
    r = sim_context_launches(s->context, f);
    if (!r)
        r = sim_op_begin(s);
    if (r)
        return r;
    sim_contents_launch(f, params, extra);
    sim_kernel_run(s, &pointers,
                   (uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ * c->blockDimX * c->blockDimY * c->blockDimZ);
    return CUDA_SUCCESS;
}

#define SIM_CONFIG                                                                                                     \
    (CUlaunchConfig)                                                                                                   \
    {                                                                                                                  \
        .gridDimX = gridDimX, .gridDimY = gridDimY, .gridDimZ = gridDimZ, .blockDimX = blockDimX,                      \
        .blockDimY = blockDimY, .blockDimZ = blockDimZ, .sharedMemBytes = sharedMemBytes, .hStream = hStream           \
    }

SIM_API11_PTSZ(307, 442, 4000, cuLaunchKernel, CUfunction, f, unsigned int, gridDimX, unsigned int, gridDimY,
               unsigned int, gridDimZ, unsigned int, blockDimX, unsigned int, blockDimY, unsigned int, blockDimZ,
               unsigned int, sharedMemBytes, CUstream, hStream, void **, kernelParams, void **, extra)
{
    return sim_launch(&SIM_CONFIG, f, kernelParams, extra);
}

SIM_API10_PTSZ(477, 478, 9000, cuLaunchCooperativeKernel, CUfunction, f, unsigned int, gridDimX, unsigned int, gridDimY,
               unsigned int, gridDimZ, unsigned int, blockDimX, unsigned int, blockDimY, unsigned int, blockDimZ,
               unsigned int, sharedMemBytes, CUstream, hStream, void **, kernelParams)
{
    return sim_launch(&SIM_CONFIG, f, kernelParams, NULL);
}

SIM_API4_PTSZ(652, 653, 11060, cuLaunchKernelEx, const CUlaunchConfig *, config, CUfunction, f, void **, kernelParams,
              void **, extra)
{
    return config ? sim_launch(config, f, kernelParams, extra) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- host functions ---------------------------------------------------------------------------------------------- */

/* Not sim_op_begin: that would wait on the calling thread for earlier host functions, which may
 * wait for this one. */
static CUresult sim_host_begin(struct sim_stream *s)
{
    CUresult r = sim_capture_implicit(s);

    if (r)
        return r;
    sim_stream_order(s);
    sim_vector_set(&s->point.clock, s->slot, sim_slot_tick(s->slot));
    return CUDA_SUCCESS;
}

SIM_API3_PTSZ(527, 528, 10000, cuLaunchHostFunc, CUstream, hStream, CUhostFn, fn, void *, userData)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !fn)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    if (sim_stream_capturing(s)) {
        CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {fn, userData}};
        struct sim_node *made;

        return sim_capture_node(s, &node, &made);
    }
    r = sim_host_begin(s);
    if (!r)
        sim_host_enqueue(fn, userData, s);
    return r;
}

struct callback {
    CUstreamCallback fn;
    CUstream stream;
    void *data;
};

static void sim_callback_run(void *data)
{
    struct callback *c = data;

    c->fn(c->stream, CUDA_SUCCESS, c->data);
    free(c);
}

SIM_API4_PTSZ(346, 437, 5000, cuStreamAddCallback, CUstream, hStream, CUstreamCallback, callback, void *, userData,
              unsigned int, flags)
{
    struct callback *c;
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !callback || flags)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    r = sim_capture_refuse(s); /* a callback cannot be captured */
    if (!r)
        r = sim_host_begin(s);
    if (r)
        return r;
    c = sim_grow(NULL, sizeof *c);
    *c = (struct callback){callback, hStream, userData};
    sim_host_enqueue(sim_callback_run, c, s);
    return CUDA_SUCCESS;
}
