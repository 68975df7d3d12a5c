/* SPDX-License-Identifier: MIT
 * Queries that need the driver but no subscriber: ids of devices, contexts and streams, the clock,
 * the last error. Called by tools, from callbacks too; must make no driver call, so it uses only
 * the tool table. */
#define _GNU_SOURCE
#include "cupti/cupti_sim.h"

#include <dlfcn.h>
#include <time.h>

static __thread CUptiResult cupti_thread_error;

const struct sim_tool_table *cupti_tools(void)
{
    static const CUuuid id = SIM_TOOL_UUID;
    static const struct sim_tool_table *found;
    CUresult (*export_table)(const void **, const CUuuid *);
    const void *table = NULL;
    void *library;

    /* [cupti.A1] acquire pairs with [cupti.R1]: a thread that sees the pointer sees the library
     * loaded. */
    if (__atomic_load_n(&found, __ATOMIC_ACQUIRE))
        return found;
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return NULL;
    *(void **)&export_table = dlsym(library, "cuGetExportTable");
    if (!export_table || export_table(&table, &id) || !table)
        return NULL;
    /* Two threads may both come here: they store the same pointer.  [cupti.R1] release pairs with
     * [cupti.A1]. */
    __atomic_store_n(&found, table, __ATOMIC_RELEASE);
    return table;
}

CUptiResult cupti_result(CUptiResult result)
{
    if (result != CUPTI_SUCCESS)
        cupti_thread_error = result;
    return result;
}

CUPTI_EXPORT CUptiResult cuptiGetLastError(void)
{
    CUptiResult error = cupti_thread_error;

    cupti_thread_error = CUPTI_SUCCESS;
    return error;
}

CUPTI_EXPORT CUptiResult cuptiGetVersion(uint32_t *version)
{
    if (!version)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    *version = cupti_setting("13.3", NULL) ? 130300 : CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

/* Nanoseconds since the epoch, as CUPTI's timestamps are unless a tool registers a clock of its
 * own. */
CUPTI_EXPORT CUptiResult cuptiGetTimestamp(uint64_t *timestamp)
{
    struct timespec now;

    if (!timestamp)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    clock_gettime(CLOCK_REALTIME, &now);
    *timestamp = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return CUPTI_SUCCESS;
}

CUPTI_EXPORT CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *deviceId)
{
    const struct sim_tool_table *tools = cupti_tools();
    uint32_t uid;

    if (!deviceId)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    if (!tools)
        return cupti_result(CUPTI_ERROR_NOT_INITIALIZED);
    if (!context)
        context = tools->current_context(&uid);
    return cupti_result(context && !tools->context_device(context, deviceId) ? CUPTI_SUCCESS
                                                                             : CUPTI_ERROR_INVALID_DEVICE);
}

CUPTI_EXPORT CUptiResult cuptiGetContextId(CUcontext context, uint32_t *contextId)
{
    const struct sim_tool_table *tools = cupti_tools();

    if (!contextId)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    if (!tools)
        return cupti_result(CUPTI_ERROR_NOT_INITIALIZED);
    return cupti_result(context && !tools->context_uid(context, contextId) ? CUPTI_SUCCESS
                                                                           : CUPTI_ERROR_INVALID_CONTEXT);
}

CUPTI_EXPORT CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t perThreadStream,
                                            uint32_t *streamId)
{
    const struct sim_tool_table *tools = cupti_tools();
    uint64_t id;

    if (!streamId)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    if (!tools)
        return cupti_result(CUPTI_ERROR_NOT_INITIALIZED);
    if (tools->stream_id(context, stream, perThreadStream, &id))
        return cupti_result(CUPTI_ERROR_INVALID_STREAM);
    *streamId = (uint32_t)id;
    return CUPTI_SUCCESS;
}

CUPTI_EXPORT CUptiResult cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t *streamId)
{
    return cuptiGetStreamIdEx(context, stream, 0, streamId);
}
