/* SPDX-License-Identifier: MIT
 * Parameters of graph nodes: checked and copied in.  A kernel's parameters are copied by value when the node is made, as
 * the driver does.  api/graphparams.c gets and sets them. */
#include "cuda/graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* How many parameters a kernel takes, and their sizes: of PTX, or as its compiled code says; of a fat binary none is kept.
 * Where nothing is known, only the first can be relied upon to be there. */
static int sim_parameters(const struct sim_function *f, const uint16_t **sizes)
{
    static const uint16_t first = 8;
    bool is_read = f->param_count >= 0, is_known = !is_read && f->given_count >= 0;
    *sizes = is_read ? f->param_size : is_known ? f->given_size : &first;
    return is_read ? f->param_count : is_known ? f->given_count : 1;
}

/* One block: the pointer array, then each value at 16 bytes, the largest alignment of a parameter. */
static void **sim_values_copy(const struct sim_function *f, void **params)
{
    const uint16_t *sizes;
    int count = sim_parameters(f, &sizes);
    size_t head = sim_round_up(((size_t)count + 1) * sizeof(void *), 16), bytes = head;
    void **copy;

    if (!params || !count || (f->param_count < 0 && !params[0]))
        return NULL;
    for (int i = 0; i < count; i++)
        bytes += sim_round_up(sizes[i], 16);
    copy = sim_grow(NULL, bytes);
    bytes = head;
    for (int i = 0; i < count; i++) {
        copy[i] = memcpy((char *)copy + bytes, params[i], sizes[i]);
        bytes += sim_round_up(sizes[i], 16);
    }
    copy[count] = NULL;
    return copy;
}

/* The list form: five words, the size, the buffer. */
static void **sim_buffer_copy(void **extra)
{
    const void *buffer = NULL;
    size_t size = 0;
    void **copy;

    for (void **at = extra; *at != CU_LAUNCH_PARAM_END; at += 2)
        if (at[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = at[1];
        else
            size = *(size_t *)at[1];
    copy = sim_grow(NULL, 6 * sizeof(void *) + size);
    copy[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    copy[1] = memcpy(&copy[6], buffer ? buffer : "", buffer ? size : 0);
    copy[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    copy[3] = &copy[5];
    copy[4] = CU_LAUNCH_PARAM_END;
    memcpy(&copy[5], &size, sizeof size);
    return copy;
}

static CUresult sim_kernel_take(struct sim_node *n, const CUgraphNodeParams *params)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *k = &params->kernel;
    CUfunction handle = k->func ? k->func : (CUfunction)k->kern;
    struct sim_kernel_pointers pointers;
    struct sim_given given;
    struct sim_function *f;
    void **owned = NULL;
    CUresult r = sim_kernel_pointers(handle, k->kernelParams, k->extra, &pointers);

    if (r)
        return r == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : r;
    if (!k->gridDimX || !k->gridDimY || !k->gridDimZ || !k->blockDimX || !k->blockDimY || !k->blockDimZ)
        return CUDA_ERROR_INVALID_VALUE;
    f = sim_function_find(handle);
    sim_contents_collect(f, k->kernelParams, k->extra, &given);
    owned = k->extra ? sim_buffer_copy(k->extra) : sim_values_copy(f, k->kernelParams);
    n->params = *params; /* may be n's own: copied before the old storage goes */
    n->params.kernel.kernelParams = k->extra ? NULL : owned;
    n->params.kernel.extra = n->params.kernel.kernelParams || !owned ? NULL : owned;
    free(n->owned);
    n->owned = owned;
    n->pointers = pointers;
    if (k->kernelParams || k->extra)
        n->given = given;
    return CUDA_SUCCESS;
}

/* ---- all types --------------------------------------------------------------------------------------------------- */

static CUresult sim_alloc_take(struct sim_node *n, const CUgraphNodeParams *params)
{
    size_t bytes = params->alloc.accessDescCount * sizeof *n->access;

    n->params = *params;
    if (bytes) {
        n->access = sim_grow(NULL, bytes);
        memcpy(n->access, params->alloc.accessDescs, bytes);
    }
    n->params.alloc.accessDescs = n->access;
    return CUDA_SUCCESS;
}

static CUresult sim_params_valid(const CUgraphNodeParams *params)
{
    struct sim_context any = {0};
    struct sim_event *event;
    struct sim_work work;

    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return sim_work_copy(&params->memcpy.copyParams, &any, &work);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return sim_work_set((const CUDA_MEMSET_NODE_PARAMS *)&params->memset, &any, &work);
    case CU_GRAPH_NODE_TYPE_HOST:
        return params->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return sim_event_find(params->eventRecord.event, &event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return sim_event_find(params->eventWait.event, &event);
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return CUDA_SUCCESS;
    default: /* semaphores, memory operations and conditions have no counterpart here */
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult sim_params_take(struct sim_node *n, const CUgraphNodeParams *params)
{
    CUresult r;

    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL)
        return sim_kernel_take(n, params);
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return sim_alloc_take(n, params);
    r = sim_params_valid(params);
    if (!r)
        n->params = *params;
    return r;
}

void sim_params_drop(struct sim_node *n)
{
    free(n->owned);
    free(n->attributes);
    free(n->access);
}
