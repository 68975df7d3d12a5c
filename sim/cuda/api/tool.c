/* SPDX-License-Identifier: MIT
 * The table of cuGetExportTable for tools (tool.h), through which the simulated libcupti and libcudart set callbacks,
 * report their own calls and ask about contexts and streams. */
#include "cuda/sim.h"

#include <errno.h>
#include <string.h>

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

static const char *sim_tool_driver_name(uint32_t cbid)
{
    if (cbid == 0)
        return NULL;
    for (struct sim_entry *const *entry = __start_sim_entries; entry < __stop_sim_entries; entry++)
        if ((*entry)->cbid == cbid)
            return (*entry)->name;
    return NULL;
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
