/* SPDX-License-Identifier: MIT
 * Semaphores of other interfaces (Vulkan).  A simulated GPU has no second driver that could signal
 * one: a wait is ordered in its stream as on a device, and its condition counts as met. */
#include "cuda/stream.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct sim_semaphore {
    struct sim_semaphore *next;
    int fd;
};
static struct sim_semaphore *sim_semaphores;

static struct sim_semaphore *sim_semaphore_find(CUexternalSemaphore handle)
{
    for (struct sim_semaphore *at = sim_semaphores; at; at = at->next)
        if ((CUexternalSemaphore)at == handle)
            return at;
    return NULL;
}

SIM_API2(489, 10000, cuImportExternalSemaphore, CUexternalSemaphore *, extSem_out,
         const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *, semHandleDesc)
{
    struct sim_context *context;
    struct stat status;
    CUresult result = sim_context_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!extSem_out || !semHandleDesc || semHandleDesc->flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (semHandleDesc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD &&
        semHandleDesc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fstat(semHandleDesc->handle.fd, &status) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_semaphore *made = sim_grow(NULL, sizeof *made);
    *made = (struct sim_semaphore){sim_semaphores, semHandleDesc->handle.fd}; /* an import owns the descriptor */
    sim_semaphores = made;
    *extSem_out = (CUexternalSemaphore)made;
    return CUDA_SUCCESS;
}

SIM_API1(494, 10000, cuDestroyExternalSemaphore, CUexternalSemaphore, extSem)
{
    struct sim_semaphore *found = sim_semaphore_find(extSem), **at = &sim_semaphores;

    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    while (*at != found)
        at = &(*at)->next;
    *at = found->next;
    close(found->fd);
    free(found);
    return CUDA_SUCCESS;
}

/* The node type for a capture is one that graphs here lack. */
static CUresult sim_semaphores_use(const CUexternalSemaphore *array, bool described, unsigned count, CUstream stream)
{
    struct sim_stream *s;
    CUresult result = sim_stream_resolve(stream, &s);

    if (result != CUDA_SUCCESS)
        return result;
    if (count && (!array || !described))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (!sim_semaphore_find(array[i]))
            return CUDA_ERROR_INVALID_HANDLE;
    if (sim_stream_capturing(s))
        return CUDA_ERROR_NOT_SUPPORTED;
    return sim_op_begin(s);
}

SIM_API4_PTSZ(490, 491, 10000, cuSignalExternalSemaphoresAsync, const CUexternalSemaphore *, extSemArray,
              const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *, paramsArray, unsigned int, numExtSems, CUstream, stream)
{
    return sim_semaphores_use(extSemArray, paramsArray != NULL, numExtSems, stream);
}

SIM_API4_PTSZ(492, 493, 10000, cuWaitExternalSemaphoresAsync, const CUexternalSemaphore *, extSemArray,
              const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *, paramsArray, unsigned int, numExtSems, CUstream, stream)
{
    return sim_semaphores_use(extSemArray, paramsArray != NULL, numExtSems, stream);
}
