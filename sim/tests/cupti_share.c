/* SPDX-License-Identifier: MIT
 * Selftest: CUPTI 13.3.  Two tools that ask for it share the library: each gets the callbacks that it enabled, and a
 * word of its own between ENTER and EXIT.  A tool that does not ask is refused, and cuptiFinalize does nothing while there
 * are two.  Also the numbers and names of later versions. */
#include <cuda.h>
#include <cupti.h>
#include <stdlib.h>

#include "check.h"

struct tool {
    unsigned enters, exits, wrong;
    uint64_t mark;
    uint32_t cbid;
};

static void on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *data)
{
    struct tool *tool = user;
    const CUpti_CallbackData *call = data;

    (void)domain;
    tool->cbid = cbid;
    if (call->callbackSite == CUPTI_API_ENTER) {
        tool->enters++;
        tool->wrong += *call->correlationData != 0;
        *call->correlationData = tool->mark;
    } else {
        tool->exits++;
        tool->wrong += *call->correlationData != tool->mark;
    }
}

struct shared_params {
    CUpti_SubscriberParams first;
    uint8_t allow;
    uint8_t padding[7];
};

static CUptiResult share(CUpti_SubscriberHandle *handle, struct tool *tool, const char *name, uint8_t allow)
{
    struct shared_params params = {{sizeof params, name, NULL, 0}, allow, {0}};

    return cuptiSubscribe_v2(handle, on_call, tool, &params.first);
}

static void allocate(void)
{
    CUdeviceptr block = 0;

    CHECK_EQ(cuMemAlloc(&block, 4096), CUDA_SUCCESS);
    CHECK_EQ(cuMemFree(block), CUDA_SUCCESS);
}

static void sharing(void)
{
    CUpti_SubscriberHandle one = NULL, two = NULL, three = NULL;
    CUpti_SubscriberParams plain = {sizeof plain, "plain", NULL, 0};
    struct tool a = {.mark = 17}, b = {.mark = 42};
    uint32_t on = 7;

    CHECK_EQ(share(&one, &a, "one", 1), CUPTI_SUCCESS);
    CHECK_EQ(cuptiSubscribe(&three, on_call, &a), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK_EQ(cuptiSubscribe_v2(&three, on_call, &a, &plain), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK_EQ(share(&three, &a, "three", 0), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK_EQ(share(&two, &b, "two", 1), CUPTI_SUCCESS);
    CHECK_EQ(cuptiEnableCallback(1, one, CUPTI_CB_DOMAIN_DRIVER_API, 243), CUPTI_SUCCESS);
    CHECK_EQ(cuptiEnableCallback(1, two, CUPTI_CB_DOMAIN_DRIVER_API, 243), CUPTI_SUCCESS);
    CHECK_EQ(cuptiEnableCallback(1, two, CUPTI_CB_DOMAIN_DRIVER_API, 245), CUPTI_SUCCESS);
    CHECK_EQ(cuptiGetCallbackState(&on, one, CUPTI_CB_DOMAIN_DRIVER_API, 245), CUPTI_SUCCESS);
    CHECK_EQ(on, 0);
    allocate();
    CHECK(a.enters == 1 && a.exits == 1 && a.wrong == 0);
    CHECK(b.enters == 2 && b.exits == 2 && b.wrong == 0);
    CHECK_EQ(cuptiFinalize(), CUPTI_SUCCESS);
    allocate();
    CHECK(a.enters == 2 && b.enters == 4);
    CHECK_EQ(cuptiUnsubscribe(two), CUPTI_SUCCESS);
    allocate();
    CHECK(a.enters == 3 && a.wrong == 0 && b.enters == 4);
    CHECK_EQ(cuptiFinalize(), CUPTI_SUCCESS);
    allocate();
    CHECK(a.enters == 3);
    /* The first tool does not share: nor does the next. */
    CHECK_EQ(cuptiSubscribe(&one, on_call, &a), CUPTI_SUCCESS);
    CHECK_EQ(share(&two, &b, "two", 1), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK_EQ(cuptiUnsubscribe(one), CUPTI_SUCCESS);
}

static void names(void)
{
    const char *name = NULL;

    setenv("GPUPROF_SIM_CUPTI", "newer", 1);
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, 243, &name), CUPTI_SUCCESS);
    CHECK(!strcmp(name, "cuMemAlloc_v2"));
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE, &name), CUPTI_SUCCESS);
    CHECK(!strcmp(name, "cuSimMemNewer"));
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE + 4, &name),
             CUPTI_ERROR_INVALID_PARAMETER);
    setenv("GPUPROF_SIM_CUPTI", "shifted@/nowhere/", 1);
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, 248, &name), CUPTI_SUCCESS);
    CHECK(strcmp(name, "cuMemAlloc_v2") != 0);
    setenv("GPUPROF_SIM_CUPTI", "none;shifted@libcupti", 1);
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, 248, &name), CUPTI_SUCCESS);
    CHECK(!strcmp(name, "cuMemAlloc_v2"));
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE + 4, &name), CUPTI_SUCCESS);
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE + 5, &name),
             CUPTI_ERROR_INVALID_PARAMETER);
}

int main(void)
{
    CUcontext context;
    CUdevice device;
    uint32_t version = 0;

    setenv("GPUPROF_SIM_CUPTI", "13.3", 1);
    CHECK_EQ(cuInit(0), CUDA_SUCCESS);
    CHECK_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    CHECK_EQ(cuptiGetVersion(&version), CUPTI_SUCCESS);
    CHECK_EQ(version, 130300);
    sharing();
    names();
    return check_done();
}
