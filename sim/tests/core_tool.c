/* SPDX-License-Identifier: MIT
 * Selftest: the calls that the tool table delivers, their order and their values. */
#include <tool.h>

#include "core_check.h"

struct tool_seen {
    uint32_t domain, cbid, site, uid;
    const char *function;
    uint64_t correlation;
    int result;
    CUdeviceptr pointer;
    size_t size;
    const void *descriptor_first;
};
static struct tool_seen log_[256];
static int count_;

struct alloc_params {
    CUdeviceptr *dptr;
    size_t bytesize;
};

static void on_call(void *user, const struct sim_tool_call *call)
{
    const struct alloc_params *alloc = call->params;
    struct tool_seen *s = &log_[count_ < 255 ? count_++ : 255];
    CHECK(user == log_);
    *s = (struct tool_seen){.domain = call->domain,
                            .cbid = call->cbid,
                            .site = call->site,
                            .uid = call->context_uid,
                            .function = call->function,
                            .correlation = *call->correlation,
                            .result = call->result ? *(const int *)call->result : -1};
    if (call->cbid == 243 || call->cbid == 598 || call->cbid == 599)
        s->size = alloc->bytesize;
    if (call->site == SIM_TOOL_EXIT && call->cbid == 243 && s->result == 0)
        s->pointer = *alloc->dptr;
    if (call->site == SIM_TOOL_ENTER)
        *call->correlation = 1000 + call->cbid;
    CUdeviceptr base; /* a callback may call the driver: no lock is held */
    if (call->cbid == 243 && call->site == SIM_TOOL_EXIT && s->pointer)
        CHECK_OK(cuMemGetAddressRange(&base, NULL, s->pointer));
}

static void on_event(void *user, const struct sim_tool_event *event)
{
    struct tool_seen *s = &log_[count_ < 255 ? count_++ : 255];
    (void)user;
    *s = (struct tool_seen){.domain = event->domain, .cbid = event->cbid, .uid = event->context_uid, .result = -2};
    if (event->cbid == SIM_TOOL_MODULE_LOADED)
        s->size = ((struct sim_tool_module *)event->descriptor)->cubin_size;
}

static const struct sim_tool_table *table(void)
{
    static const CUuuid id = SIM_TOOL_UUID;
    const void *found = NULL;
    CHECK_OK(cuGetExportTable(&found, &id));
    return found;
}

static void subscribe(const struct sim_tool_table *t)
{
    t->attach(on_call, on_event, log_);
    CHECK_EQ(t->enable(SIM_TOOL_DRIVER, 243, 1), 0);
    CHECK_EQ(t->enable(SIM_TOOL_DRIVER, 0, 1), -22);
    CHECK_EQ(t->enable(SIM_TOOL_DRIVER, SIM_TOOL_DRIVER_IDS, 1), -22);
    CHECK_EQ(t->enable_domain(SIM_TOOL_RESOURCE, 1), 0);
}

static const struct tool_seen *find(uint32_t domain, uint32_t cbid, uint32_t site)
{
    for (int i = 0; i < count_; i++)
        if (log_[i].domain == domain && log_[i].cbid == cbid && log_[i].site == site)
            return &log_[i];
    return NULL;
}

static void calls(const struct sim_tool_table *t)
{
    CUdeviceptr p = 0;
    count_ = 0;
    CHECK_OK(cuMemAlloc(&p, 777));
    CHECK_EQ(count_, 2);
    CHECK(log_[0].site == SIM_TOOL_ENTER && log_[0].size == 777 && log_[0].result == -1 && log_[0].correlation == 0);
    CHECK(log_[1].site == SIM_TOOL_EXIT && log_[1].pointer == p && log_[1].result == 0);
    CHECK_EQ(log_[1].correlation, 1243);
    CHECK(!strcmp(log_[1].function, "cuMemAlloc_v2"));
    CHECK(log_[0].uid != 0);
    CHECK_EQ(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE); /* a failing call is reported too */
    CHECK_EQ(count_, 4);
    CHECK_EQ(log_[3].result, CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFree(log_[1].pointer)); /* not enabled */
    CHECK_EQ(count_, 4);
    CHECK_EQ(t->enable(SIM_TOOL_DRIVER, 243, 0), 0);
    CHECK_OK(cuMemAlloc(&p, 777));
    CHECK_EQ(count_, 4);
    CHECK_OK(cuMemFree(p));
    CHECK_EQ(t->enabled(SIM_TOOL_DRIVER, 243), 0);
    CHECK(!strcmp(t->driver_name(599), "cuMemAllocAsync_ptsz"));
}

static void events(const struct sim_tool_table *t)
{
    CUcontext made, current;
    CUmodule module;
    uint32_t device = 9, uid = 0, first;
    CHECK_OK(cuCtxGetCurrent(&current));
    CHECK_EQ(t->context_uid(current, &first), 0);
    count_ = 0;
    CHECK_OK(cuCtxCreate(&made, NULL, 0, 1));
    CHECK_EQ(t->context_device(made, &device), 0);
    CHECK_EQ(t->context_uid(made, &uid), 0);
    CHECK_EQ(device, 1);
    CHECK(uid > first);
    CHECK(find(SIM_TOOL_RESOURCE, SIM_TOOL_CONTEXT_CREATED, 0) != NULL);
    CHECK_EQ(find(SIM_TOOL_RESOURCE, SIM_TOOL_CONTEXT_CREATED, 0)->uid, uid);
    CHECK_OK(cuModuleLoadData(&module, "blob of code"));
    CHECK_EQ(find(SIM_TOOL_RESOURCE, SIM_TOOL_MODULE_LOADED, 0)->size, 13);
    CHECK_OK(cuCtxDestroy(made));
    CHECK(find(SIM_TOOL_RESOURCE, SIM_TOOL_CONTEXT_DESTROY_STARTING, 0) != NULL);
    CHECK(find(SIM_TOOL_RESOURCE, SIM_TOOL_MODULE_UNLOAD_STARTING, 0) != NULL);
    CHECK_EQ(t->context_device(made, &device), -22);
    t->attach(NULL, NULL, NULL);
    count_ = 0;
    CHECK_OK(cuCtxCreate(&made, NULL, 0, 1));
    CHECK_OK(cuCtxDestroy(made));
    CHECK_EQ(count_, 0);
}

int main(void)
{
    setenv("CUDA_INJECTION64_PATH", "/nonexistent/library.so", 1); /* no error; core_inject.c has a real one */
    setenv("GPUPROF_SIM", "devices=2", 1);
    const struct sim_tool_table *t = table();
    CHECK(t && t->size == sizeof *t);
    subscribe(t);
    check_begin(0);
    check_begin(0);
    CHECK(find(SIM_TOOL_RESOURCE, SIM_TOOL_INIT_FINISHED, 0) != NULL);
    CHECK_EQ(find(SIM_TOOL_RESOURCE, SIM_TOOL_INIT_FINISHED, 0)->uid, 0);
    CHECK(find(SIM_TOOL_RESOURCE, SIM_TOOL_CONTEXT_CREATED, 0) != NULL);
    calls(t);
    events(t);
    return check_done();
}
