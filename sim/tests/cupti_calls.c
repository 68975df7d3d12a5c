/* SPDX-License-Identifier: MIT
 * Selftest: a subscriber sees exactly the callbacks that it enabled, in the right nesting and with the right values,
 * from calls of the runtime and of the driver, successful and failed. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti.h>

#include "check.h"

#define DRIVER  CUPTI_CB_DOMAIN_DRIVER_API
#define RUNTIME CUPTI_CB_DOMAIN_RUNTIME_API

struct calls_seen {
    int domain, site;
    unsigned cbid, context_uid;
    const char *name;
    int result;                       /* -1 at ENTER */
    unsigned long long first, second; /* first two parameters, as numbers */
    uint64_t slot;
};

static struct calls_seen seen[64];
static int count;
static CUpti_SubscriberHandle subscriber;

/* How many parameters of 8 bytes the calls begin with whose parameters are looked at; others may have less. */
static int parameters(const struct calls_seen *of)
{
    if (of->domain == RUNTIME)
        return of->cbid == 20 ? 2 : of->cbid == 22; /* cudaMalloc, cudaFree */
    /* cuMemAlloc_v2, cuMemAllocAsync and its twin; cuMemFree_v2 */
    return of->cbid == 243 || of->cbid == 598 || of->cbid == 599 ? 2 : of->cbid == 245;
}

static void record(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *cbdata)
{
    const CUpti_CallbackData *data = cbdata;
    struct calls_seen *to = &seen[count < 63 ? count : 63];

    count++;
    memset(to, 0, sizeof *to);
    to->domain = (int)domain;
    to->cbid = cbid;
    CHECK(user == &subscriber);
    if (domain != DRIVER && domain != RUNTIME)
        return;
    to->site = (int)data->callbackSite;
    to->name = data->functionName;
    to->context_uid = data->contextUid;
    const int words = parameters(to);
    if (words > 0)
        memcpy(&to->first, data->functionParams, 8);
    if (words > 1)
        memcpy(&to->second, (const char *)data->functionParams + 8, 8);
    CHECK((data->functionReturnValue != NULL) == (data->callbackSite == CUPTI_API_EXIT));
    to->result = data->functionReturnValue ? *(const int *)data->functionReturnValue : -1;
    /* One slot per invocation: EXIT finds what ENTER left, whatever nested in between. */
    CHECK_EQ(data->correlationId, 0);
    if (data->callbackSite == CUPTI_API_ENTER) {
        CHECK_EQ(*data->correlationData, 0);
        *data->correlationData = (uint64_t)domain << 32 | cbid;
    }
    to->slot = *data->correlationData;
}

static void enable(int domain, unsigned cbid)
{
    CHECK_EQ(cuptiEnableCallback(1, subscriber, (CUpti_CallbackDomain)domain, cbid), CUPTI_SUCCESS);
}

static void expect(int index, int domain, unsigned cbid, int site, const char *name, int result)
{
    if (index >= count) {
        CHECK(index < count);
        return;
    }
    CHECK_EQ(seen[index].domain, domain);
    CHECK_EQ(seen[index].cbid, cbid);
    CHECK_EQ(seen[index].site, site);
    CHECK(seen[index].name && !strcmp(seen[index].name, name));
    CHECK_EQ(seen[index].result, result);
    CHECK_EQ(seen[index].slot, (uint64_t)domain << 32 | cbid);
}

/* RUNTIME ENTER, DRIVER ENTER, DRIVER EXIT, RUNTIME EXIT. */
static void expect_nested(unsigned runtime, const char *runtime_name, unsigned driver, const char *driver_name,
                          int result)
{
    CHECK_EQ(count, 4);
    expect(0, RUNTIME, runtime, CUPTI_API_ENTER, runtime_name, -1);
    expect(1, DRIVER, driver, CUPTI_API_ENTER, driver_name, -1);
    expect(2, DRIVER, driver, CUPTI_API_EXIT, driver_name, result);
    expect(3, RUNTIME, runtime, CUPTI_API_EXIT, runtime_name, result);
    count = 0;
}

/* The first runtime call that needs a context makes it: the context's event lies inside the call. */
static void lazy_context(void)
{
    void *pointer = NULL;
    int devices = 0;

    enable(RUNTIME, 20);
    enable(RUNTIME, 3);
    enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
    CHECK_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
    CHECK_EQ(count, 2);
    count = 0;
    CHECK_EQ(cudaMalloc(&pointer, 1000), cudaSuccess);
    CHECK_EQ(count, 3);
    expect(0, RUNTIME, 20, CUPTI_API_ENTER, "cudaMalloc", -1);
    CHECK_EQ(seen[0].context_uid, 0);
    CHECK_EQ(seen[1].domain, CUPTI_CB_DOMAIN_RESOURCE);
    CHECK_EQ(seen[1].cbid, CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
    expect(2, RUNTIME, 20, CUPTI_API_EXIT, "cudaMalloc", 0);
    CHECK(seen[2].context_uid != 0);
    count = 0;
    CHECK_EQ(cudaFree(pointer), cudaSuccess);
    CHECK_EQ(count, 0);
}

static void nesting(void)
{
    void *pointer = NULL;
    uint32_t uid = 0, device = 99;
    CUcontext context = NULL;

    enable(RUNTIME, 20);
    enable(RUNTIME, 22);
    enable(DRIVER, 243);
    enable(DRIVER, 245);
    CHECK_EQ(cudaMalloc(&pointer, 4096), cudaSuccess);
    CHECK_EQ(seen[0].first, (uintptr_t)&pointer);
    CHECK_EQ(seen[0].second, 4096);
    CHECK_EQ(seen[1].second, 4096);
    expect_nested(20, "cudaMalloc", 243, "cuMemAlloc_v2", 0);
    cuCtxGetCurrent(&context);
    CHECK_EQ(cuptiGetContextId(context, &uid), CUPTI_SUCCESS);
    CHECK_EQ(seen[1].context_uid, uid);
    CHECK_EQ(cuptiGetDeviceId(context, &device), CUPTI_SUCCESS);
    CHECK_EQ(device, 0);
    CHECK_EQ(cuptiGetDeviceId(NULL, &device), CUPTI_SUCCESS);
    CHECK_EQ(cuptiGetContextId(NULL, &uid), CUPTI_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cudaFree(pointer), cudaSuccess);
    CHECK_EQ(seen[1].first, (uintptr_t)pointer);
    expect_nested(22, "cudaFree", 245, "cuMemFree_v2", 0);
    /* Failures are reported at both ends of both calls. */
    CHECK_EQ(cudaMalloc(&pointer, (size_t)1 << 50), cudaErrorMemoryAllocation);
    expect_nested(20, "cudaMalloc", 243, "cuMemAlloc_v2", 2);
    CHECK_EQ(cudaFree((void *)0x1234500), cudaErrorInvalidValue);
    expect_nested(22, "cudaFree", 245, "cuMemFree_v2", 1);
    /* Zero bytes never reach the driver. */
    CHECK_EQ(cudaMalloc(&pointer, 0), cudaSuccess);
    CHECK(pointer == NULL);
    CHECK_EQ(count, 2);
    count = 0;
}

/* A direct driver call has no runtime callback; the ptsz twin has an id and a name of its own. */
static void driver_and_twins(void)
{
    CUdeviceptr pointer = 0;
    void *async = NULL;
    cudaError_t cudaMallocAsync_ptsz(void **, size_t, cudaStream_t);

    CHECK_EQ(cuMemAlloc(&pointer, 512), CUDA_SUCCESS);
    CHECK_EQ(count, 2);
    CHECK_EQ(seen[1].second, 512);
    count = 0;
    CHECK_EQ(cuMemFree(pointer), CUDA_SUCCESS);
    CHECK_EQ(count, 2);
    count = 0;
    CHECK_EQ(cuptiEnableDomain(0, subscriber, RUNTIME), CUPTI_SUCCESS);
    CHECK_EQ(cudaMalloc(&async, 512), cudaSuccess);
    CHECK_EQ(count, 2);
    expect(0, DRIVER, 243, CUPTI_API_ENTER, "cuMemAlloc_v2", -1);
    CHECK_EQ(cudaFree(async), cudaSuccess);
    count = 0;
    enable(RUNTIME, 373);
    enable(RUNTIME, 374);
    enable(DRIVER, 598);
    enable(DRIVER, 599);
    CHECK_EQ(cudaMallocAsync(&async, 512, NULL), cudaSuccess);
    expect_nested(373, "cudaMallocAsync", 598, "cuMemAllocAsync", 0);
    CHECK_EQ(cudaFreeAsync(async, NULL), cudaSuccess);
    CHECK_EQ(cudaMallocAsync_ptsz(&async, 512, NULL), cudaSuccess);
    expect_nested(374, "cudaMallocAsync_ptsz", 599, "cuMemAllocAsync_ptsz", 0);
    CHECK_EQ(cudaFreeAsync(async, NULL), cudaSuccess);
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

static void streams(void)
{
    cudaStream_t stream = NULL;
    uint32_t id = 0, other = 0;

    enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_STREAM_CREATED);
    enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING);
    CHECK_EQ(cudaStreamCreate(&stream), cudaSuccess);
    CHECK_EQ(count, 1);
    CHECK_EQ(seen[0].cbid, CUPTI_CBID_RESOURCE_STREAM_CREATED);
    CHECK_EQ(cuptiGetStreamId(NULL, stream, &id), CUPTI_SUCCESS);
    CHECK_EQ(cuptiGetStreamIdEx(NULL, NULL, 0, &other), CUPTI_SUCCESS);
    CHECK(id != other);
    CHECK_EQ(cuptiGetStreamId(NULL, (CUstream)&other, &other), CUPTI_ERROR_INVALID_STREAM);
    CHECK_EQ(cudaStreamDestroy(stream), cudaSuccess);
    CHECK_EQ(count, 2);
    CHECK_EQ(seen[1].cbid, CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING);
    count = 0;
}

/* Nothing comes once the subscriber has left, and a later one starts with nothing enabled. */
static void leaving(void)
{
    void *pointer = NULL;

    CHECK_EQ(cuptiUnsubscribe(subscriber), CUPTI_SUCCESS);
    CHECK_EQ(cudaMalloc(&pointer, 4096), cudaSuccess);
    CHECK_EQ(cudaFree(pointer), cudaSuccess);
    CHECK_EQ(count, 0);
    CHECK_EQ(cuptiSubscribe(&subscriber, record, &subscriber), CUPTI_SUCCESS);
    CHECK_EQ(cudaMalloc(&pointer, 4096), cudaSuccess);
    CHECK_EQ(count, 0);
    enable(DRIVER, 245);
    CHECK_EQ(cudaFree(pointer), cudaSuccess);
    CHECK_EQ(count, 2);
    CHECK_EQ(cuptiUnsubscribe(subscriber), CUPTI_SUCCESS);
}

int main(void)
{
    CHECK_EQ(cuptiSubscribe(&subscriber, record, &subscriber), CUPTI_SUCCESS);
    lazy_context();
    CHECK_EQ(cuptiEnableAllDomains(0, subscriber), CUPTI_SUCCESS);
    nesting();
    driver_and_twins();
    CHECK_EQ(cuptiEnableAllDomains(0, subscriber), CUPTI_SUCCESS);
    count = 0;
    streams();
    leaving();
    return check_done();
}
