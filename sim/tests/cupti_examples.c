/* SPDX-License-Identifier: MIT
 * Selftest: the example programs run inside this one under a subscriber.  Every callback that comes was enabled, ENTER
 * and EXIT pair up per thread with the runtime's call around the driver's, and the number of calls seen is, function by
 * function, the number that the driver's own ledger has. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <unistd.h>

int train_main(int count, char **arguments);
int serve_main(int count, char **arguments);

#define main train_main
#include "../../examples/train_rt.c"
#undef main
#define main serve_main
#include "../../examples/serve.c"
#undef main
#include <cupti.h>

#include "check.h"

static const struct {
    unsigned domain, cbid;
} wanted[] = {
    {1, 38},  {1, 39},  {1, 243}, {1, 245}, {1, 547}, {1, 548}, {1, 549}, {1, 550}, {1, 551}, {1, 552},
    {1, 553}, {1, 600}, {1, 607}, {1, 608}, {1, 611}, {2, 20},  {2, 22},  {2, 25},  {2, 26},  {2, 27},
};
#define WANTED (sizeof wanted / sizeof wanted[0])

static uint64_t entered[2][CUPTI_DRIVER_TRACE_CBID_SIZE], failures[5];
static __thread struct {
    unsigned depth, domain[8], cbid[8];
} nested;

/* Faults are counted, not reported from inside a callback. */
static void fault_if(int which, int fault)
{
    if (fault)
        __atomic_fetch_add(&failures[which], 1, __ATOMIC_RELAXED);
}

static void record(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *cbdata)
{
    const CUpti_CallbackData *data = cbdata;
    int enabled = 0;

    (void)user;
    for (size_t i = 0; i < WANTED; i++)
        enabled |= wanted[i].domain == (unsigned)domain && wanted[i].cbid == cbid;
    fault_if(0, !enabled);
    if (!enabled)
        return;
    if (data->callbackSite == CUPTI_API_ENTER) {
        __atomic_fetch_add(&entered[domain - 1][cbid], 1, __ATOMIC_RELAXED);
        *data->correlationData = ++nested.depth;
        nested.domain[nested.depth % 8] = (unsigned)domain;
        nested.cbid[nested.depth % 8] = cbid;
        /* Two levels at most, and the runtime's is the outer one. */
        fault_if(1, nested.depth > 2 || (nested.depth == 2 && (nested.domain[1] != 2 || domain != 1)));
        return;
    }
    fault_if(2, *data->correlationData != nested.depth || nested.domain[nested.depth % 8] != (unsigned)domain ||
                    nested.cbid[nested.depth % 8] != cbid);
    fault_if(3, *(const int *)data->functionReturnValue != 0);
    fault_if(4, !data->context || !data->contextUid);
    nested.depth--;
}

/* Calls of a function as the driver's ledger counts them, read as text: "NAME":COUNT. */
static long ledger_calls(const char *ledger, const char *name)
{
    char key[80];
    const char *at;

    snprintf(key, sizeof key, "\"%s\":", name);
    at = strstr(ledger, "\"driver_calls\"");
    at = at ? strstr(at, key) : NULL;
    return at ? strtol(at + strlen(key), NULL, 10) : 0;
}

static void compare_with_ledger(void)
{
    static char ledger[1 << 16];
    char path[] = "/tmp/sim-selftest-XXXXXX";
    int (*write_ledger)(const char *);
    int file = mkstemp(path);
    FILE *stream;

    *(void **)&write_ledger = dlsym(RTLD_DEFAULT, "sim_ledger_write");
    CHECK(file >= 0 && write_ledger);
    if (file < 0 || !write_ledger)
        return;
    write_ledger(path);
    stream = fopen(path, "r");
    CHECK(stream && fread(ledger, 1, sizeof ledger - 1, stream) > 0);
    if (stream)
        fclose(stream);
    close(file);
    unlink(path);
    for (size_t i = 0; i < WANTED; i++) {
        const char *name = NULL;

        if (wanted[i].domain != CUPTI_CB_DOMAIN_DRIVER_API)
            continue;
        cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, wanted[i].cbid, &name);
        CHECK_EQ(entered[0][wanted[i].cbid], ledger_calls(ledger, name));
    }
}

int main(void)
{
    char *arguments[] = {"example", "--steps", "40", "--pace", "0", NULL};
    CUpti_SubscriberHandle subscriber = NULL;

    CHECK_EQ(cuptiSubscribe(&subscriber, record, NULL), CUPTI_SUCCESS);
    for (size_t i = 0; i < WANTED; i++)
        CHECK_EQ(cuptiEnableCallback(1, subscriber, (CUpti_CallbackDomain)wanted[i].domain, wanted[i].cbid),
                 CUPTI_SUCCESS);
    CHECK_EQ(train_main(5, arguments), 0);
    CHECK_EQ(entered[1][20], entered[0][243]);
    CHECK_EQ(entered[1][22], entered[0][245]);
    CHECK_EQ(entered[1][25] + entered[1][27], entered[0][39]);
    CHECK_EQ(entered[1][26], entered[0][38]);
    CHECK(entered[1][20] > 40 * 2 * LAYERS);
    CHECK_EQ(serve_main(5, arguments), 0);
    CHECK(entered[0][551] > 40 && entered[0][611] > 40);
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++)
        CHECK_EQ(failures[i], 0);
    compare_with_ledger();
    CHECK_EQ(cuptiUnsubscribe(subscriber), CUPTI_SUCCESS);
    return check_done();
}
