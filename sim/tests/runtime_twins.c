/* SPDX-License-Identifier: MIT
 * Selftest: a program that is compiled for the per-thread default stream reaches the _ptds and _ptsz twins of the
 * runtime and, through them, those of the driver. */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti.h>

#include "check.h"

static unsigned last_driver, last_runtime;
static char driver_name[64];

static void record(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *cbdata)
{
    const CUpti_CallbackData *data = cbdata;

    (void)user;
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && data->callbackSite == CUPTI_API_ENTER)
        last_runtime = cbid;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API && data->callbackSite == CUPTI_API_ENTER) {
        last_driver = cbid;
        snprintf(driver_name, sizeof driver_name, "%s", data->functionName);
    }
}

static void expect(unsigned runtime, const char *driver)
{
    const char *name = NULL;

    CHECK_EQ(last_runtime, runtime);
    CHECK(!strcmp(driver_name, driver));
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, last_driver, &name), CUPTI_SUCCESS);
    CHECK(name && !strcmp(name, driver));
}

int main(void)
{
    CUpti_SubscriberHandle subscriber = NULL;
    char host[64] = {0};
    void *pointer = NULL, *entry = NULL;

    CHECK_EQ(cudaMalloc(&pointer, 4096), cudaSuccess);
    CHECK_EQ(cuptiSubscribe(&subscriber, record, NULL), CUPTI_SUCCESS);
    CHECK_EQ(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API), CUPTI_SUCCESS);
    CHECK_EQ(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API), CUPTI_SUCCESS);
    CHECK_EQ(cudaMemcpy(pointer, host, 64, cudaMemcpyHostToDevice), cudaSuccess);
    expect(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_ptds_v7000, "cuMemcpyHtoD_v2_ptds");
    CHECK_EQ(cudaMemsetAsync(pointer, 0, 64, NULL), cudaSuccess);
    expect(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_ptsz_v7000, "cuMemsetD8Async_ptsz");
    CHECK_EQ(cudaFree(pointer), cudaSuccess);
    expect(CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020, "cuMemFree_v2");
    CHECK_EQ(cudaMallocAsync(&pointer, 4096, NULL), cudaSuccess);
    expect(CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_ptsz_v11020, "cuMemAllocAsync_ptsz");
    CHECK_EQ(cudaFreeAsync(pointer, NULL), cudaSuccess);
    expect(CUPTI_RUNTIME_TRACE_CBID_cudaFreeAsync_ptsz_v11020, "cuMemFreeAsync_ptsz");
    CHECK_EQ(cudaStreamSynchronize(NULL), cudaSuccess);
    expect(CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_ptsz_v7000, "cuStreamSynchronize_ptsz");
    /* Flag 0 means "as compiled". */
    CHECK_EQ(cudaGetDriverEntryPoint("cuMemAllocAsync", &entry, cudaEnableDefault, NULL), cudaSuccess);
    CHECK(entry == (void *)cuMemAllocAsync);
    CHECK_EQ(cudaGetDriverEntryPoint("cuMemAllocAsync", &entry, cudaEnableLegacyStream, NULL), cudaSuccess);
    CHECK(entry && entry != (void *)cuMemAllocAsync);
    CHECK_EQ(cuptiUnsubscribe(subscriber), CUPTI_SUCCESS);
    return check_done();
}
