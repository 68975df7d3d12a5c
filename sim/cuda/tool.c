/* SPDX-License-Identifier: MIT
 * The tool table: the listening tool, its enabled callback ids, and the delivery of calls and
 * events. Called by api.c (calls), by the files that make contexts, streams, modules and graphs
 * (events), and through the table by the simulated libcupti and libcudart.  Never holds the lock
 * during a callback. */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint8_t sim_tool_enabled[SIM_TOOL_DOMAINS][SIM_TOOL_DRIVER_IDS];

struct sim_listener {
    sim_tool_call_fn call;
    sim_tool_event_fn event;
    void *user;
};
/* Replaced as a whole and never freed: a callback in flight may still read the old one (a few bytes
 * per attach). */
static struct sim_listener *sim_listener;

static struct sim_listener *sim_listener_get(void)
{
    /* [tool.A1] acquire pairs with the release [tool.R1]: the listener's fields are written before
     * it is published. */
    return __atomic_load_n(&sim_listener, __ATOMIC_ACQUIRE);
}

static int sim_tool_attach(sim_tool_call_fn call, sim_tool_event_fn event, void *user)
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

static uint32_t sim_domain_size(uint32_t domain)
{
    switch (domain) {
    case SIM_TOOL_DRIVER:
        return SIM_TOOL_DRIVER_IDS;
    case SIM_TOOL_RUNTIME:
        return SIM_TOOL_RUNTIME_IDS;
    case SIM_TOOL_RESOURCE:
    case SIM_TOOL_SYNCHRONIZE:
    case SIM_TOOL_STATE:
        return SIM_TOOL_OTHER_IDS;
    }
    return 0;
}

static int sim_tool_enable(uint32_t domain, uint32_t cbid, int on)
{
    if (cbid == 0 || cbid >= sim_domain_size(domain))
        return -EINVAL;
    __atomic_store_n(&sim_tool_enabled[domain][cbid], on != 0, __ATOMIC_RELAXED);
    return 0;
}

static int sim_tool_enable_domain(uint32_t domain, int on)
{
    if (sim_domain_size(domain) == 0)
        return -EINVAL;
    for (uint32_t cbid = 1; cbid < sim_domain_size(domain); cbid++)
        sim_tool_enable(domain, cbid, on);
    return 0;
}

static int sim_tool_is_enabled(uint32_t domain, uint32_t cbid)
{
    if (cbid == 0 || cbid >= sim_domain_size(domain))
        return -EINVAL;
    return sim_tool_wants(domain, cbid);
}

extern struct sim_entry *const __start_sim_entries[], *const __stop_sim_entries[];

static const char *sim_tool_driver_name(uint32_t cbid)
{
    if (cbid == 0)
        return NULL;
    for (struct sim_entry *const *entry = __start_sim_entries; entry < __stop_sim_entries; entry++)
        if ((*entry)->cbid == cbid)
            return (*entry)->name;
    return NULL;
}

/* The current context as the thread's stack has it, without looking inside: it may be gone. */
static CUcontext sim_tool_current(uint32_t *uid)
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

/* ---- the table --------------------------------------------------------------------------------------------------- */

static int sim_tool_context(CUcontext handle, uint32_t *device, uint32_t *uid)
{
    sim_lock();
    struct sim_context *context = sim_context_find(handle);
    if (context && device)
        *device = (uint32_t)context->device;
    if (context && uid)
        *uid = context->uid;
    sim_unlock();
    return context ? 0 : -EINVAL;
}

static int sim_tool_context_device(CUcontext handle, uint32_t *device)
{
    return sim_tool_context(handle, device, NULL);
}

static int sim_tool_context_uid(CUcontext handle, uint32_t *uid)
{
    return sim_tool_context(handle, NULL, uid);
}

static int sim_tool_stream_id(CUcontext handle, CUstream stream, int per_thread, uint64_t *id)
{
    sim_lock();
    struct sim_context *context = handle ? sim_context_find(handle) : sim_context_peek();
    int error = context ? sim_stream_id(context, stream, per_thread, id) : -EINVAL;
    sim_unlock();
    return error;
}

static int sim_tool_initialized(void)
{
    return __atomic_load_n(&sim_initialized, __ATOMIC_ACQUIRE); /* pairs with the release in cuInit */
}

static void sim_runtime_report(struct sim_tool_frame *frame, uint32_t site, const void *result)
{
    struct sim_listener *listener = sim_listener_get();
    if (!listener || !listener->call)
        return;
    struct sim_tool_call report = {.domain = SIM_TOOL_RUNTIME,
                                   .cbid = frame->cbid,
                                   .site = site,
                                   .function = frame->function,
                                   .params = frame->params,
                                   .result = result,
                                   .correlation = &frame->correlation,
                                   .correlation_id = frame->correlation_id};
    report.context = sim_tool_current(&report.context_uid);
    listener->call(listener->user, &report);
}

static void sim_runtime_begin(struct sim_tool_frame *frame, uint32_t cbid, const char *function, const void *params)
{
    static uint32_t next;
    frame->reported = cbid < SIM_TOOL_RUNTIME_IDS && sim_tool_wants(SIM_TOOL_RUNTIME, cbid);
    if (!frame->reported)
        return;
    frame->correlation = 0;
    frame->function = function;
    frame->params = params;
    frame->cbid = cbid;
    frame->correlation_id = __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED);
    sim_runtime_report(frame, SIM_TOOL_ENTER, NULL);
}

static void sim_runtime_end(struct sim_tool_frame *frame, const void *result)
{
    if (frame->reported)
        sim_runtime_report(frame, SIM_TOOL_EXIT, result);
}

const void *sim_tool_table(const CUuuid *uuid)
{
    static const CUuuid wanted = SIM_TOOL_UUID;
    static const struct sim_tool_table table = {.size = sizeof table,
                                                .attach = sim_tool_attach,
                                                .enable = sim_tool_enable,
                                                .enable_domain = sim_tool_enable_domain,
                                                .enabled = sim_tool_is_enabled,
                                                .driver_name = sim_tool_driver_name,
                                                .context_device = sim_tool_context_device,
                                                .context_uid = sim_tool_context_uid,
                                                .stream_id = sim_tool_stream_id,
                                                .current_context = sim_tool_current,
                                                .initialized = sim_tool_initialized,
                                                .runtime_begin = sim_runtime_begin,
                                                .runtime_end = sim_runtime_end,
                                                .clock_ns = sim_clock_now,
                                                .library_declare = sim_library_declare};
    return memcmp(uuid, &wanted, sizeof wanted) == 0 ? &table : NULL;
}
