/* SPDX-License-Identifier: MIT
 * A library that core_inject.c injects: counts its calls and checks the state of cuInit. */
#include <stdlib.h>
#include <tool.h>

#define EXPORT __attribute__((visibility("default")))
EXPORT int inject_calls, inject_init_calls, inject_init_finished, inject_order;
EXPORT int InitializeInjection(void);

static void on_call(void *user, const struct sim_tool_call *call)
{
    (void)user;
    inject_init_calls += call->cbid == 1;
}

static void on_event(void *user, const struct sim_tool_event *event)
{
    (void)user;
    inject_init_finished += event->cbid == SIM_TOOL_INIT_FINISHED;
}

int InitializeInjection(void)
{
    static const CUuuid id = SIM_TOOL_UUID;
    const void *found = NULL;
    if (cuGetExportTable(&found, &id) != CUDA_SUCCESS)
        return 0;
    const struct sim_tool_table *table = found;
    inject_calls++;
    table->attach(on_call, on_event, NULL);
    table->enable(SIM_TOOL_DRIVER, 1, 1);
    table->enable(SIM_TOOL_RESOURCE, SIM_TOOL_INIT_FINISHED, 1);
    return 1;
}
