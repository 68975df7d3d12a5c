/* SPDX-License-Identifier: MIT
 * The listening tool, its enabled callback ids, and the delivery of calls and events.  Called by api/call.c (calls), by
 * the files that make contexts, streams, modules and graphs (events), and by api/tool.c.  Never holds the lock during a
 * callback. */
#include "cuda/sim.h"

#include <errno.h>
#include <stdlib.h>

uint8_t sim_tool_enabled[SIM_TOOL_DOMAINS][SIM_TOOL_DRIVER_IDS];

/* Replaced as a whole and never freed: a callback in flight may still read the old one (a few bytes
 * per attach). */
struct sim_listener *sim_listener;

struct sim_listener *sim_listener_get(void)
{
    /* [tool.A1] acquire pairs with the release [tool.R1]: the listener's fields are written before
     * it is published. */
    return __atomic_load_n(&sim_listener, __ATOMIC_ACQUIRE);
}

int sim_tool_attach(sim_tool_call_fn call, sim_tool_event_fn event, void *user)
{
    struct sim_listener *listener = sim_listener_get();
    if (call && listener && listener->call != call)
        return -EBUSY;
    listener = NULL;
    if (call || event) {
        listener = malloc(sizeof *listener);
        if (!listener)
            abort();
        *listener = (struct sim_listener){call, event, user};
    }
    /* [tool.R1] pairs with [tool.A1] */
    __atomic_store_n(&sim_listener, listener, __ATOMIC_RELEASE);
    return 0;
}

/* The current context as the thread's stack has it, without looking inside: it may be gone. */
CUcontext sim_tool_current(uint32_t *uid)
{
    struct sim_thread *self = &sim_self;
    *uid = self->depth ? self->stack[self->depth - 1].uid : 0;
    return self->depth ? sim_context_handle(self->stack[self->depth - 1].context) : NULL;
}

void sim_tool_call(const struct sim_call *call, uint32_t site, const CUresult *result)
{
    struct sim_listener *listener = sim_listener_get();
    if (!listener || !listener->call)
        return;
    struct sim_tool_call report = {.domain = SIM_TOOL_DRIVER,
                                   .cbid = call->entry->cbid,
                                   .site = site,
                                   .function = call->entry->name,
                                   .params = call->params,
                                   .result = result,
                                   .symbol = call->symbol,
                                   .correlation = (uint64_t *)&call->correlation,
                                   .correlation_id = call->correlation_id};
    report.context = sim_tool_current(&report.context_uid);
    listener->call(listener->user, &report);
}

void sim_tool_event(uint32_t domain, uint32_t cbid, struct sim_context *context, void *handle, void *descriptor)
{
    struct sim_listener *listener = sim_listener_get();
    if (!listener || !listener->event || !sim_tool_wants(domain, cbid))
        return;
    struct sim_tool_event event = {.domain = domain,
                                   .cbid = cbid,
                                   .context_uid = context ? context->uid : 0,
                                   .context = sim_context_handle(context),
                                   .handle = handle,
                                   .descriptor = descriptor};
    sim_unlock();
    listener->event(listener->user, &event);
    sim_lock();
}
