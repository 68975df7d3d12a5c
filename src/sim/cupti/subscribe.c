/* SPDX-License-Identifier: MIT
 * The one subscriber: its identity, its enabled callbacks, and delivery in CUPTI's format.  Called
 * by tools, and by the simulated driver from inside the calls of the program; must hold no lock
 * during a tool's callback.
 *
 * GPUPROF_SIM_CUPTI makes every attempt to subscribe fail, as seen in the field:
 *   taken[:NAME]  39, another tool called NAME holds the only place
 *   none          999, the real library's answer without a driver
 *   old           15, its answer to a driver that is too old */
#define _GNU_SOURCE
#include "cupti/cupti_sim.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CUPTI_NAME_PREFIX "CUPTI for "

/* Never freed: a callback that is in flight on another thread while its subscriber leaves still
 * reads this. */
struct CUpti_Subscriber_st {
    CUpti_CallbackFunc callback;
    void *userdata;
    char name[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN];
    uint64_t nvtx; /* enabled ids of the NVTX domain, of which nothing is ever delivered here */
};

static struct {
    pthread_mutex_t lock;
    struct CUpti_Subscriber_st *current; /* under the lock */
} cupti_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void cupti_deliver_call(void *user, const struct sim_tool_call *call)
{
    const struct CUpti_Subscriber_st *to = user;
    CUpti_CallbackData data = {
        .callbackSite = call->site == SIM_TOOL_ENTER ? CUPTI_API_ENTER : CUPTI_API_EXIT,
        .functionName = call->function,
        .functionParams = call->params,
        .functionReturnValue = (void *)(uintptr_t)call->result,
        .symbolName = call->symbol,
        .context = call->context,
        .contextUid = call->context_uid,
        .correlationData = call->correlation,
        /* Real ids come only while the activity kinds of the domain are on, which this library does
         * not have. */
        .correlationId = 0,
    };

    to->callback(to->userdata, (CUpti_CallbackDomain)call->domain, call->cbid, &data);
}

/* The type of `cbdata` in each of the other domains.  Module and graph descriptors already have
 * CUPTI's layout. */
static void cupti_deliver_event(void *user, const struct sim_tool_event *event)
{
    const struct CUpti_Subscriber_st *to = user;
    const struct sim_tool_state *problem = event->descriptor;
    CUpti_ResourceData resource = {event->context, {event->handle}, event->descriptor};
    CUpti_SynchronizeData sync = {event->context, event->handle};
    CUpti_StateData state = {0};
    const void *data = &resource;

    if (event->domain == SIM_TOOL_SYNCHRONIZE)
        data = &sync;
    if (event->domain == SIM_TOOL_STATE) {
        if (problem) {
            state.notification.result = (CUptiResult)problem->result;
            state.notification.message = problem->message;
        }
        data = &state;
    }
    to->callback(to->userdata, (CUpti_CallbackDomain)event->domain, event->cbid, data);
}

static void cupti_name_copy(char *to, size_t size, const char *from)
{
    if (!to || !size)
        return;
    strncpy(to, from, size - 1);
    to[size - 1] = '\0';
}

/* What GPUPROF_SIM_CUPTI asks for; `holder` gets the tool's name for 39. */
static CUptiResult cupti_wanted_failure(const char **holder)
{
    const char *wanted = secure_getenv("GPUPROF_SIM_CUPTI");

    if (!wanted)
        return CUPTI_SUCCESS;
    if (!strcmp(wanted, "none"))
        return CUPTI_ERROR_UNKNOWN;
    if (!strcmp(wanted, "old"))
        return CUPTI_ERROR_NOT_INITIALIZED;
    if (strncmp(wanted, "taken", 5) || (wanted[5] && wanted[5] != ':'))
        return CUPTI_SUCCESS;
    *holder = wanted[5] ? wanted + 6 : "another tool";
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

static struct CUpti_Subscriber_st *cupti_subscriber_make(CUpti_CallbackFunc callback, void *userdata, const char *name)
{
    struct CUpti_Subscriber_st *made = calloc(1, sizeof *made);

    if (!made)
        return NULL;
    made->callback = callback;
    made->userdata = userdata;
    /* A subscriber without a name is called "CUPTI"; the guide does not name it. */
    strcpy(made->name, name ? CUPTI_NAME_PREFIX : "CUPTI");
    if (name)
        strncat(made->name, name, CUPTI_SUBSCRIBER_NAME_MAX_LEN);
    return made;
}

static CUptiResult cupti_subscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *userdata,
                                   const CUpti_SubscriberParams *params)
{
    const char *holder = NULL;
    CUptiResult result = cupti_wanted_failure(&holder);
    const struct sim_tool_table *tools = result ? NULL : cupti_tools();
    struct CUpti_Subscriber_st *made;

    if (!result && !tools)
        result = CUPTI_ERROR_UNKNOWN;
    if (!result) {
        pthread_mutex_lock(&cupti_state.lock);
        if (cupti_state.current) {
            holder = cupti_state.current->name;
            result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
        } else if (!(made = cupti_subscriber_make(callback, userdata, params ? params->subscriberName : NULL))) {
            result = CUPTI_ERROR_OUT_OF_MEMORY;
        } else {
            cupti_state.current = *subscriber = made;
            if (callback)
                tools->attach(cupti_deliver_call, cupti_deliver_event, made);
        }
        pthread_mutex_unlock(&cupti_state.lock);
    }
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && params)
        cupti_name_copy(params->oldSubscriberName, params->oldSubscriberSize, holder);
    return cupti_result(result);
}

CUPTI_EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *userdata)
{
    if (!subscriber)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    return cupti_subscribe(subscriber, callback, userdata, NULL);
}

/* The parameters may be NULL.  Their size is the key to their version: 13.0 knows one, of 32 bytes. */
CUPTI_EXPORT CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                                           void *userdata, CUpti_SubscriberParams *pParams)
{
    if (!subscriber || (pParams && pParams->structSize != CUpti_SubscriberParams_STRUCT_SIZE))
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    return cupti_subscribe(subscriber, callback, userdata, pParams);
}

/* Under the lock, with a subscriber. */
static void cupti_leave(const struct sim_tool_table *tools)
{
    tools->attach(NULL, NULL, NULL);
    for (uint32_t domain = 1; domain < SIM_TOOL_DOMAINS; domain++)
        if (domain != CUPTI_CB_DOMAIN_NVTX)
            tools->enable_domain(domain, 0);
    cupti_state.current = NULL;
}

CUPTI_EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
    CUptiResult result = CUPTI_ERROR_INVALID_PARAMETER;

    pthread_mutex_lock(&cupti_state.lock);
    if (subscriber && subscriber == cupti_state.current) {
        cupti_leave(cupti_tools());
        result = CUPTI_SUCCESS;
    }
    pthread_mutex_unlock(&cupti_state.lock);
    return cupti_result(result);
}

/* Detaches CUPTI from the process; a later subscribe starts from the beginning. */
CUPTI_EXPORT CUptiResult cuptiFinalize(void)
{
    pthread_mutex_lock(&cupti_state.lock);
    if (cupti_state.current)
        cupti_leave(cupti_tools());
    pthread_mutex_unlock(&cupti_state.lock);
    return CUPTI_SUCCESS;
}

static bool cupti_valid(CUpti_SubscriberHandle subscriber)
{
    bool valid;

    pthread_mutex_lock(&cupti_state.lock);
    valid = subscriber && subscriber == cupti_state.current;
    pthread_mutex_unlock(&cupti_state.lock);
    return valid;
}

CUPTI_EXPORT CUptiResult cuptiGetCallbackState(uint32_t *enable, CUpti_SubscriberHandle subscriber,
                                               CUpti_CallbackDomain domain, CUpti_CallbackId cbid)
{
    if (!enable || !cupti_valid(subscriber) || !cbid || cbid >= cupti_domain_size(domain))
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    if (domain == CUPTI_CB_DOMAIN_NVTX)
        *enable = subscriber->nvtx >> cbid & 1;
    else
        *enable = (uint32_t)cupti_tools()->enabled(domain, cbid);
    return CUPTI_SUCCESS;
}

CUPTI_EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                             CUpti_CallbackDomain domain, CUpti_CallbackId cbid)
{
    if (!cupti_valid(subscriber) || !cbid || cbid >= cupti_domain_size(domain))
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    if (domain == CUPTI_CB_DOMAIN_NVTX) {
        subscriber->nvtx &= ~(UINT64_C(1) << cbid);
        subscriber->nvtx |= (uint64_t)(enable != 0) << cbid;
        return CUPTI_SUCCESS;
    }
    return cupti_result(cupti_tools()->enable(domain, cbid, enable != 0) ? CUPTI_ERROR_INVALID_PARAMETER
                                                                         : CUPTI_SUCCESS);
}

CUPTI_EXPORT CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                           CUpti_CallbackDomain domain)
{
    CUptiResult result = cupti_domain_size(domain) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;

    for (uint32_t cbid = 1; cbid < cupti_domain_size(domain) && !result; cbid++)
        result = cuptiEnableCallback(enable, subscriber, domain, cbid);
    return cupti_result(result);
}

CUPTI_EXPORT CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle subscriber)
{
    CUptiResult result = CUPTI_SUCCESS;

    for (unsigned domain = 1; domain < CUPTI_CB_DOMAIN_SIZE && !result; domain++)
        result = cuptiEnableDomain(enable, subscriber, (CUpti_CallbackDomain)domain);
    return result;
}

CUPTI_EXPORT CUptiResult cuptiSupportedDomains(size_t *domainCount, CUpti_DomainTable *domainTable)
{
    static CUpti_CallbackDomain domains[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API,
                                             CUPTI_CB_DOMAIN_RESOURCE,   CUPTI_CB_DOMAIN_SYNCHRONIZE,
                                             CUPTI_CB_DOMAIN_NVTX,       CUPTI_CB_DOMAIN_STATE};

    if (!domainCount || !domainTable)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    *domainCount = sizeof domains / sizeof domains[0];
    *domainTable = domains;
    return CUPTI_SUCCESS;
}
