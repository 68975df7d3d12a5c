/* SPDX-License-Identifier: MIT
 * Selftest: one subscriber at a time and the error of the next one, enabling and its errors, names, failures on demand.
 * No device is used: no driver call is made, so no callback may come. */
#include <cupti.h>

#include "check.h"

static unsigned calls;

static void count_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *data)
{
    (void)domain;
    (void)cbid;
    (void)data;
    ++*(unsigned *)user;
}

static void one_at_a_time(void)
{
    CUpti_SubscriberHandle first = NULL, second = NULL;
    char old[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = "untouched", small[8];
    CUpti_SubscriberParams params = {sizeof params, "first tool", old, sizeof old};

    CHECK_EQ(cuptiSubscribe_v2(&first, count_call, &calls, &params), CUPTI_SUCCESS);
    CHECK(!strcmp(old, "untouched"));
    params.subscriberName = "second tool";
    CHECK_EQ(cuptiSubscribe_v2(&second, count_call, &calls, &params), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK(!strcmp(old, "CUPTI for first tool"));
    params.oldSubscriberName = small;
    params.oldSubscriberSize = sizeof small;
    CHECK_EQ(cuptiSubscribe_v2(&second, count_call, &calls, &params), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK(!strcmp(small, "CUPTI f"));
    CHECK_EQ(cuptiSubscribe(&second, count_call, &calls), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK_EQ(cuptiGetLastError(), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK_EQ(cuptiGetLastError(), CUPTI_SUCCESS);
    CHECK_EQ(cuptiUnsubscribe(second), CUPTI_ERROR_INVALID_PARAMETER);
    CHECK_EQ(cuptiUnsubscribe(first), CUPTI_SUCCESS);
    CHECK_EQ(cuptiUnsubscribe(first), CUPTI_ERROR_INVALID_PARAMETER);
    CHECK_EQ(cuptiSubscribe(&second, count_call, &calls), CUPTI_SUCCESS);
    CHECK_EQ(cuptiEnableCallback(1, first, CUPTI_CB_DOMAIN_DRIVER_API, 243), CUPTI_ERROR_INVALID_PARAMETER);
    CHECK_EQ(cuptiUnsubscribe(second), CUPTI_SUCCESS);
}

static void parameters(void)
{
    CUpti_SubscriberHandle handle = NULL, next = NULL;
    char long_name[80], old[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN];
    CUpti_SubscriberParams params = {sizeof params + 8, "tool", NULL, 0};

    CHECK_EQ(cuptiSubscribe_v2(&handle, count_call, &calls, &params), CUPTI_ERROR_INVALID_PARAMETER);
    params.structSize = 0;
    CHECK_EQ(cuptiSubscribe_v2(&handle, count_call, &calls, &params), CUPTI_ERROR_INVALID_PARAMETER);
    CHECK_EQ(cuptiSubscribe_v2(NULL, count_call, &calls, NULL), CUPTI_ERROR_INVALID_PARAMETER);
    CHECK_EQ(cuptiSubscribe_v2(&handle, count_call, &calls, NULL), CUPTI_SUCCESS);
    CHECK_EQ(cuptiUnsubscribe(handle), CUPTI_SUCCESS);
    /* A name beyond 53 bytes is cut. */
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    params = (CUpti_SubscriberParams){sizeof params, long_name, old, sizeof old};
    CHECK_EQ(cuptiSubscribe_v2(&handle, count_call, &calls, &params), CUPTI_SUCCESS);
    CHECK_EQ(cuptiSubscribe_v2(&next, count_call, &calls, &params), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CHECK_EQ(strlen(old), 63);
    CHECK_EQ(cuptiFinalize(), CUPTI_SUCCESS);
    CHECK_EQ(cuptiUnsubscribe(handle), CUPTI_ERROR_INVALID_PARAMETER);
}

static void enabling(void)
{
    static const uint32_t sizes[] = {0, CUPTI_DRIVER_TRACE_CBID_SIZE, 523, 24, 3, 50, 4};
    CUpti_SubscriberHandle handle = NULL;
    uint32_t on = 7;

    CHECK_EQ(cuptiEnableCallback(1, NULL, CUPTI_CB_DOMAIN_DRIVER_API, 243), CUPTI_ERROR_INVALID_PARAMETER);
    CHECK_EQ(cuptiSubscribe(&handle, count_call, &calls), CUPTI_SUCCESS);
    for (unsigned domain = 0; domain <= CUPTI_CB_DOMAIN_SIZE; domain++) {
        uint32_t size = domain < CUPTI_CB_DOMAIN_SIZE ? sizes[domain] : 0;

        CHECK_EQ(cuptiEnableCallback(1, handle, domain, 0), CUPTI_ERROR_INVALID_PARAMETER);
        CHECK_EQ(cuptiEnableCallback(1, handle, domain, size), CUPTI_ERROR_INVALID_PARAMETER);
        if (!size) {
            CHECK_EQ(cuptiEnableDomain(1, handle, domain), CUPTI_ERROR_INVALID_PARAMETER);
            continue;
        }
        CHECK_EQ(cuptiGetCallbackState(&on, handle, domain, size - 1), CUPTI_SUCCESS);
        CHECK_EQ(on, 0);
        CHECK_EQ(cuptiEnableCallback(1, handle, domain, size - 1), CUPTI_SUCCESS);
        CHECK_EQ(cuptiGetCallbackState(&on, handle, domain, size - 1), CUPTI_SUCCESS);
        CHECK(on);
        CHECK_EQ(cuptiGetCallbackState(&on, handle, domain, 1), CUPTI_SUCCESS);
        CHECK_EQ(on, 0);
        CHECK_EQ(cuptiEnableDomain(1, handle, domain), CUPTI_SUCCESS);
        CHECK_EQ(cuptiGetCallbackState(&on, handle, domain, 1), CUPTI_SUCCESS);
        CHECK(on);
        CHECK_EQ(cuptiEnableDomain(0, handle, domain), CUPTI_SUCCESS);
        CHECK_EQ(cuptiGetCallbackState(&on, handle, domain, size - 1), CUPTI_SUCCESS);
        CHECK_EQ(on, 0);
    }
    CHECK_EQ(cuptiEnableAllDomains(1, handle), CUPTI_SUCCESS);
    CHECK_EQ(cuptiUnsubscribe(handle), CUPTI_SUCCESS);
    /* What one subscriber enabled is off for the next. */
    CHECK_EQ(cuptiSubscribe(&handle, count_call, &calls), CUPTI_SUCCESS);
    CHECK_EQ(cuptiGetCallbackState(&on, handle, CUPTI_CB_DOMAIN_DRIVER_API, 243), CUPTI_SUCCESS);
    CHECK_EQ(on, 0);
    CHECK_EQ(cuptiUnsubscribe(handle), CUPTI_SUCCESS);
}

static void names(void)
{
    const char *name = NULL;
    uint32_t version = 0;
    uint64_t before = 0, after = 0;

    CHECK_EQ(cuptiGetVersion(&version), CUPTI_SUCCESS);
    CHECK_EQ(version, 130001);
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, 243, &name), CUPTI_SUCCESS);
    CHECK(name && !strcmp(name, "cuMemAlloc_v2"));
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, 20, &name), CUPTI_SUCCESS);
    CHECK(name && !strcmp(name, "cudaMalloc_v3020"));
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, 523, &name), CUPTI_ERROR_INVALID_PARAMETER);
    CHECK_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_RESOURCE, 1, &name), CUPTI_ERROR_INVALID_PARAMETER);
    CHECK_EQ(cuptiGetResultString(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, &name), CUPTI_SUCCESS);
    CHECK(!strcmp(name, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"));
    CHECK_EQ(cuptiGetResultString(CUPTI_ERROR_UNKNOWN, &name), CUPTI_SUCCESS);
    CHECK_EQ(cuptiGetResultString((CUptiResult)37, &name), CUPTI_ERROR_INVALID_PARAMETER);
    CHECK_EQ(cuptiGetTimestamp(&before), CUPTI_SUCCESS);
    CHECK_EQ(cuptiGetTimestamp(&after), CUPTI_SUCCESS);
    CHECK(before && after >= before);
}

static void failure(const char *setting, CUptiResult want, const char *holder)
{
    CUpti_SubscriberHandle handle = NULL;
    char old[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = "";
    CUpti_SubscriberParams params = {sizeof params, "tool", old, sizeof old};

    setenv("GPUPROF_SIM_CUPTI", setting, 1);
    CHECK_EQ(cuptiSubscribe_v2(&handle, count_call, &calls, &params), want);
    CHECK(!strcmp(old, holder));
    CHECK_EQ(cuptiSubscribe(&handle, count_call, &calls), want);
    unsetenv("GPUPROF_SIM_CUPTI");
}

int main(void)
{
    one_at_a_time();
    parameters();
    enabling();
    names();
    failure("taken", CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "another tool");
    failure("taken:Nsight Systems", CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "Nsight Systems");
    failure("none", CUPTI_ERROR_UNKNOWN, "");
    failure("old", CUPTI_ERROR_NOT_INITIALIZED, "");
    one_at_a_time();
    CHECK_EQ(calls, 0);
    return check_done();
}
