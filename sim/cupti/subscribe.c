/* SPDX-License-Identifier: MIT
 * The subscribers: their identity, their enabled callbacks, and delivery in CUPTI's format.  Called
 * by tools, and by the simulated driver from inside the calls of the program; must hold no lock
 * during a tool's callback.
 *
 * There is one subscriber.  With the setting 13.3 there may be more, if all ask to share.  Other
 * settings make attempts fail: see setting.c. */
#define _GNU_SOURCE
#include "cupti/cupti_sim.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CUPTI_NAME_PREFIX "CUPTI for "

#define CUPTI_SUBSCRIBERS 4
#define CUPTI_IDS         1024

/* Never freed: a callback that is in flight on another thread while its subscriber leaves still
 * reads this. */
struct CUpti_Subscriber_st {
    CUpti_CallbackFunc callback;
    void *userdata;
    char name[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN];
    uint64_t nvtx; /* enabled ids of the NVTX domain, of which nothing is ever delivered here */
    bool shares;
    unsigned place;
    uint8_t enabled[SIM_TOOL_DOMAINS][CUPTI_IDS]; /* ids of the driver; written under the lock, read by deliveries */
};

static struct {
    pthread_mutex_t lock;
    struct CUpti_Subscriber_st *current[CUPTI_SUBSCRIBERS]; /* written under the lock, read by deliveries */
} cupti_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct CUpti_Subscriber_st *cupti_listener(unsigned place, uint32_t domain, uint32_t cbid)
{
    struct CUpti_Subscriber_st *to = __atomic_load_n(&cupti_state.current[place], __ATOMIC_ACQUIRE);

    return to && to->callback && __atomic_load_n(&to->enabled[domain][cbid], __ATOMIC_RELAXED) ? to : NULL;
}

/* Subscribers that share have a word each, behind the one word of the driver, from ENTER to EXIT. */
static uint64_t *cupti_words(const struct sim_tool_call *call)
{
    if (!*call->correlation && call->site == SIM_TOOL_ENTER)
        *call->correlation = (uint64_t)(uintptr_t)calloc(CUPTI_SUBSCRIBERS, sizeof(uint64_t));
    return (uint64_t *)(uintptr_t)*call->correlation;
}

static void cupti_deliver_call(void *user, const struct sim_tool_call *call)
{
    bool is_shared = user != NULL;
    uint64_t none[CUPTI_SUBSCRIBERS] = {0}, *words = is_shared ? cupti_words(call) : NULL;
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
    uint32_t cbid = call->domain == SIM_TOOL_DRIVER ? cupti_driver_outside(call->cbid) : call->cbid;

    for (unsigned i = 0; i < CUPTI_SUBSCRIBERS; i++) {
        const struct CUpti_Subscriber_st *to = cupti_listener(i, call->domain, call->cbid);

        if (is_shared)
            data.correlationData = words ? &words[i] : &none[i];
        if (to)
            to->callback(to->userdata, (CUpti_CallbackDomain)call->domain, cbid, &data);
    }
    if (words && call->site == SIM_TOOL_EXIT) {
        *call->correlation = 0;
        free(words);
    }
}

/* The type of `cbdata` in each of the other domains.  Module and graph descriptors already have
 * CUPTI's layout. */
static void cupti_deliver_event(void *user, const struct sim_tool_event *event)
{
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
    (void)user;
    for (unsigned i = 0; i < CUPTI_SUBSCRIBERS; i++) {
        const struct CUpti_Subscriber_st *to = cupti_listener(i, event->domain, event->cbid);

        if (to)
            to->callback(to->userdata, (CUpti_CallbackDomain)event->domain, event->cbid, data);
    }
}

static void cupti_name_copy(char *to, size_t size, const char *from)
{
    if (!to || !size)
        return;
    strncpy(to, from, size - 1);
    to[size - 1] = '\0';
}

/* The answer that the settings ask for; `holder` gets the tool's name for 39. */
static CUptiResult cupti_wanted_failure(const char **holder)
{
    if (cupti_setting("none", NULL))
        return CUPTI_ERROR_UNKNOWN;
    if (cupti_setting("old", NULL))
        return CUPTI_ERROR_NOT_INITIALIZED;
    if (!cupti_setting("taken", holder))
        return CUPTI_SUCCESS;
    if (!**holder)
        *holder = "another tool";
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

static struct CUpti_Subscriber_st *cupti_subscriber_make(CUpti_CallbackFunc callback, void *userdata, const char *name)
{
    struct CUpti_Subscriber_st *made = calloc(1, sizeof *made);

    if (!made)
        return NULL;
    made->callback = callback;
    made->userdata = userdata;
    /* As CUPTI 13.0 called compute-sanitizer; the guide does not name it. */
    strcpy(made->name, name ? CUPTI_NAME_PREFIX : "<not provided>");
    if (name)
        strncat(made->name, name, CUPTI_SUBSCRIBER_NAME_MAX_LEN);
    return made;
}

/* Under the lock: a free place, or the subscriber that forbids one. */
static int cupti_place(bool shares, const char **holder)
{
    int place = -1;

    for (int i = CUPTI_SUBSCRIBERS - 1; i >= 0; i--) {
        const struct CUpti_Subscriber_st *other = cupti_state.current[i];

        if (!other) {
            place = i;
        } else if (!shares || !other->shares) {
            *holder = other->name;
            return -1;
        }
    }
    *holder = "four other tools";
    return place;
}

static CUptiResult cupti_enter(struct CUpti_Subscriber_st *made, const char **holder,
                               const struct sim_tool_table *tools)
{
    int place;

    pthread_mutex_lock(&cupti_state.lock);
    place = cupti_place(made->shares, holder);
    if (place >= 0 && made->callback &&
        tools->attach(cupti_deliver_call, cupti_deliver_event, made->shares ? &cupti_state : NULL)) {
        *holder = "another copy of CUPTI";
        place = -1;
    }
    if (place >= 0) {
        made->place = (unsigned)place;
        __atomic_store_n(&cupti_state.current[place], made, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&cupti_state.lock);
    return place >= 0 ? CUPTI_SUCCESS : CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

static CUptiResult cupti_subscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *userdata,
                                   const CUpti_SubscriberParams *params, bool shares)
{
    const char *holder = NULL;
    CUptiResult result = cupti_wanted_failure(&holder);
    const struct sim_tool_table *tools = result ? NULL : cupti_tools();
    struct CUpti_Subscriber_st *made = NULL;

    if (!result && !tools)
        result = CUPTI_ERROR_UNKNOWN;
    if (!result && !(made = cupti_subscriber_make(callback, userdata, params ? params->subscriberName : NULL)))
        result = CUPTI_ERROR_OUT_OF_MEMORY;
    if (!result) {
        made->shares = shares;
        result = cupti_enter(made, &holder, tools);
        if (result)
            free(made);
        else
            *subscriber = made;
    }
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && params)
        cupti_name_copy(params->oldSubscriberName, params->oldSubscriberSize, holder);
    return cupti_result(result);
}

CUPTI_EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *userdata)
{
    if (!subscriber)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    return cupti_subscribe(subscriber, callback, userdata, NULL, false);
}

/* The parameters may be NULL.  Their size is the key to their version: 13.0 knows one, of 32 bytes. */
CUPTI_EXPORT CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                                           void *userdata, CUpti_SubscriberParams *pParams)
{
    bool can_share = cupti_setting("13.3", NULL), shares = false;

    if (!subscriber)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    if (pParams && can_share && pParams->structSize == sizeof(struct cupti_params_shared))
        shares = ((struct cupti_params_shared *)(void *)pParams)->allowMultipleSubscribers;
    else if (pParams && pParams->structSize != CUpti_SubscriberParams_STRUCT_SIZE)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    return cupti_subscribe(subscriber, callback, userdata, pParams, shares);
}

/* Under the lock: the driver makes a callback while any subscriber wants it. */
static int cupti_switch(struct CUpti_Subscriber_st *subscriber, uint32_t domain, uint32_t cbid, int on)
{
    int any = on;

    for (unsigned i = 0; i < CUPTI_SUBSCRIBERS; i++)
        if (cupti_state.current[i] && cupti_state.current[i] != subscriber)
            any |= cupti_state.current[i]->enabled[domain][cbid];
    if (cupti_tools()->enable(domain, cbid, any))
        return -1;
    __atomic_store_n(&subscriber->enabled[domain][cbid], (uint8_t)on, __ATOMIC_RELAXED);
    return 0;
}

/* Under the lock. */
static void cupti_leave(struct CUpti_Subscriber_st *subscriber)
{
    unsigned others = 0;

    for (unsigned i = 0; i < CUPTI_SUBSCRIBERS; i++)
        others += cupti_state.current[i] && cupti_state.current[i] != subscriber;
    if (!others)
        cupti_tools()->attach(NULL, NULL, NULL);
    for (uint32_t domain = 1; domain < SIM_TOOL_DOMAINS; domain++)
        for (uint32_t cbid = 1; cbid < CUPTI_IDS; cbid++)
            if (subscriber->enabled[domain][cbid])
                cupti_switch(subscriber, domain, cbid, 0);
    __atomic_store_n(&cupti_state.current[subscriber->place], NULL, __ATOMIC_RELEASE);
}

/* Under the lock. */
static bool cupti_is_current(CUpti_SubscriberHandle subscriber)
{
    for (unsigned i = 0; subscriber && i < CUPTI_SUBSCRIBERS; i++)
        if (cupti_state.current[i] == subscriber)
            return true;
    return false;
}

CUPTI_EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
    CUptiResult result = CUPTI_ERROR_INVALID_PARAMETER;

    pthread_mutex_lock(&cupti_state.lock);
    if (cupti_is_current(subscriber)) {
        cupti_leave(subscriber);
        result = CUPTI_SUCCESS;
    }
    pthread_mutex_unlock(&cupti_state.lock);
    return cupti_result(result);
}

/* Detaches CUPTI from the process; a later subscribe starts from the beginning.  While tools share
 * the library it does nothing. */
CUPTI_EXPORT CUptiResult cuptiFinalize(void)
{
    struct CUpti_Subscriber_st *only = NULL;
    unsigned count = 0;

    pthread_mutex_lock(&cupti_state.lock);
    for (unsigned i = 0; i < CUPTI_SUBSCRIBERS; i++)
        if (cupti_state.current[i]) {
            only = cupti_state.current[i];
            count++;
        }
    if (count == 1)
        cupti_leave(only);
    pthread_mutex_unlock(&cupti_state.lock);
    return CUPTI_SUCCESS;
}

static bool cupti_valid(CUpti_SubscriberHandle subscriber)
{
    bool valid;

    pthread_mutex_lock(&cupti_state.lock);
    valid = cupti_is_current(subscriber);
    pthread_mutex_unlock(&cupti_state.lock);
    return valid;
}

/* The simulated driver's number of a callback, 0 if it has none. */
static uint32_t cupti_inside(CUpti_CallbackDomain domain, CUpti_CallbackId cbid)
{
    return domain == CUPTI_CB_DOMAIN_DRIVER_API ? cupti_driver_inside(cbid) : cbid;
}

CUPTI_EXPORT CUptiResult cuptiGetCallbackState(uint32_t *enable, CUpti_SubscriberHandle subscriber,
                                               CUpti_CallbackDomain domain, CUpti_CallbackId cbid)
{
    if (!enable || !cupti_valid(subscriber) || !cbid || cbid >= cupti_domain_size(domain))
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    if (domain == CUPTI_CB_DOMAIN_NVTX)
        *enable = subscriber->nvtx >> cbid & 1;
    else
        *enable = subscriber->enabled[domain][cupti_inside(domain, cbid)];
    return CUPTI_SUCCESS;
}

CUPTI_EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                             CUpti_CallbackDomain domain, CUpti_CallbackId cbid)
{
    int failed;

    if (!cupti_valid(subscriber) || !cbid || cbid >= cupti_domain_size(domain))
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    if (domain == CUPTI_CB_DOMAIN_NVTX) {
        subscriber->nvtx &= ~(UINT64_C(1) << cbid);
        subscriber->nvtx |= (uint64_t)(enable != 0) << cbid;
        return CUPTI_SUCCESS;
    }
    if (cupti_setting("deaf", NULL))
        return cupti_result(CUPTI_ERROR_NOT_SUPPORTED);
    if (!cupti_inside(domain, cbid))
        return CUPTI_SUCCESS; /* an entry point that no program can call here */
    pthread_mutex_lock(&cupti_state.lock);
    failed = cupti_switch(subscriber, domain, cupti_inside(domain, cbid), enable != 0);
    pthread_mutex_unlock(&cupti_state.lock);
    return cupti_result(failed ? CUPTI_ERROR_INVALID_PARAMETER : CUPTI_SUCCESS);
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
