/* SPDX-License-Identifier: MIT
 * Contexts: which ones live, which one is current, and the stack of the calling thread.  life.c makes and ends them. */
#include "cuda/context.h"

struct sim_context *sim_contexts; /* live ones, dying ones included until they are gone */
uint32_t sim_context_uid;

/* ---- lookup ------------------------------------------------------------------------------------------------------ */

struct sim_context *sim_context_find(CUcontext handle)
{
    for (struct sim_context *at = sim_contexts; at; at = at->next)
        if (sim_context_handle(at) == handle)
            return at;
    return NULL;
}

struct sim_context *sim_context_by_uid(uint32_t uid)
{
    for (struct sim_context *at = sim_contexts; at; at = at->next)
        if (at->uid == uid)
            return at;
    return NULL;
}

uint32_t sim_context_newest(void)
{
    return sim_context_uid;
}

/* A handle that a program may use: lives and is not being destroyed. */
struct sim_context *sim_context_usable(CUcontext handle)
{
    struct sim_context *context = handle ? sim_context_find(handle) : NULL;
    return context && !context->dying ? context : NULL;
}

/* The documentation allows one schedule.  That the driver refuses two is an assumption. */
bool sim_context_takes(unsigned flags)
{
    unsigned schedule = flags & CU_CTX_SCHED_MASK;
    return !(flags & ~(unsigned)CU_CTX_FLAGS_MASK) && !(schedule & (schedule - 1));
}

CUresult sim_context_current(struct sim_context **context)
{
    *context = NULL;
    if (sim_self.depth == 0 || !sim_self.stack[sim_self.depth - 1].context)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_context *top = sim_context_usable(sim_context_handle(sim_self.stack[sim_self.depth - 1].context));
    /* Another context may live at the same address by now; a primary one keeps its handle through
     * every reset. */
    if (!top || (top->uid != sim_self.stack[sim_self.depth - 1].uid && !top->primary))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    sim_self.stack[sim_self.depth - 1].uid = top->uid;
    *context = top;
    return CUDA_SUCCESS;
}

struct sim_context *sim_context_peek(void)
{
    struct sim_context *context;
    return sim_context_current(&context) == CUDA_SUCCESS ? context : NULL;
}

CUresult sim_context_primary(int device, struct sim_context **context)
{
    *context = sim_devices[device].primary_refs ? sim_devices[device].primary : NULL;
    return *context ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* ---- the thread's stack ------------------------------------------------------------------------------------------ */

CUresult sim_context_push(struct sim_context *context)
{
    if (sim_self.depth == SIM_CONTEXT_STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_self.depth++;
    sim_context_set(context);
    return CUDA_SUCCESS;
}

void sim_context_set(struct sim_context *context)
{
    int top = sim_self.depth - 1;
    sim_self.stack[top].context = context;
    sim_self.stack[top].uid = context ? context->uid : 0;
    sim_self.stack[top].device = context ? context->device : 0;
}
