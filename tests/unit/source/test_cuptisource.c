/* SPDX-License-Identifier: MIT
 *
 * test_cuptisource.c: CUPTI as the source: which functions of which copy are called with what, what each copy's answer
 * becomes, what each callback reports, and how its end is noticed.  The copies, the loader, the log and the accounts are made
 * up: every call that leaves cupti.c is written into one text.
 */
#include "base/log.h"
#include "base/opener.h"
#include "feed_log.h"
#include "lib/standin.h"
#include "source/internal.h"
#include "source/source.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <source/cuptifind.h>
#include <time.h>

#define PTR(_number) ((void *)(uintptr_t)(_number))
#define SUBSCRIBER   PTR(0x5b)

/* ---- made-up copies ---------------------------------------------------------------------------------------------- */

enum { GET_VERSION = 1, SUBSCRIBE = 2, SUBSCRIBE_V2 = 4, UNSUBSCRIBE = 8, ENABLE = 16, TEXT = 32, NAME = 64 };

struct copy {
    const char *path;
    const char *refused; /* the loader's message; NULL: it is loaded */
    unsigned lacks;
    uint32_t version;
    int shared, plain, old; /* what its functions to subscribe answer */
    const char *holder;
    bool is_loaded, is_named, is_deaf;
};

static const struct copy *copies, *now;
static unsigned copy_count, copy_given, deaf_from = ~0u;
static uint32_t driver_version, asked_version;
static bool is_stuck, has_pulse;
static void (*callback)(void *, int, uint32_t, const void *);
static uint8_t enabled[7][GP_HOOK_IDS];
static unsigned asked_resources;

static int get_version(uint32_t *version)
{
    *version = now->version;
    return 0;
}

static int subscribe(void **subscriber, void (*fn)(void *, int, uint32_t, const void *), void *user)
{
    feed_note("subscribe%s", user ? " with data" : "");
    *subscriber = SUBSCRIBER;
    callback = fn;
    return now->old;
}

static int subscribe_v2(void **subscriber, void (*fn)(void *, int, uint32_t, const void *), void *user,
                        struct gp_cupti_subscriber_params *params)
{
    feed_note("subscribe %zu %s%s%s", params->bytes, params->name, params->allow_multiple ? " shared" : "",
              user ? " with data" : "");
    cr_assert_eq(params->old_name_bytes, 128);
    cr_assert_str_eq(params->old_name, "");
    if (now->holder)
        memcpy(params->old_name, now->holder, strlen(now->holder)); /* without its NUL */
    *subscriber = SUBSCRIBER;
    callback = fn;
    return params->allow_multiple ? now->shared : now->plain;
}

static int unsubscribe(void *subscriber)
{
    feed_note("unsubscribe");
    cr_assert_eq(subscriber, SUBSCRIBER);
    memset(enabled, 0, sizeof(enabled));
    return 0;
}

static int enable(uint32_t on, void *subscriber, int domain, uint32_t id)
{
    cr_assert(on == 1 && subscriber == SUBSCRIBER && domain < 7 && id < GP_HOOK_IDS);
    cr_assert_eq(enabled[domain][id], 0, "twice");
    enabled[domain][id] = 1;
    asked_resources += domain == GP_CUPTI_DOMAIN_RESOURCE;
    return now->is_deaf || id >= deaf_from ? 2 : 0;
}

static int device_of(void *context, uint32_t *device)
{
    *device = 0;
    return context == PTR(0xc8) ? 0 : 2;
}

static int number_of(void *context, uint32_t *number)
{
    cr_assert_eq(context, PTR(0xc8));
    *number = 0;
    return 0;
}

static int result_text(int status, const char **text)
{
    static char name[32];
    snprintf(name, sizeof(name), "CUPTI_%d", status);
    *text = name;
    return status == 77 ? 1 : 0;
}

static int callback_name(int domain, uint32_t id, const char **name)
{
    cr_assert_eq(domain, GP_CUPTI_DOMAIN_DRIVER);
    *name = id == 5 && has_pulse ? "cuDeviceGetCount" : "cuOther";
    return id < 807 ? 0 : 1;
}

/* ---- around cupti.c ---------------------------------------------------------------------------------------------- */

static int driver_get_version(int *version)
{
    if (driver_version != 6) /* that one says nothing */
        *version = (int)driver_version;
    return driver_version == 5 ? 1 : 0;
}

STANDIN(void *, gp_opener_open, const char *path, int flags)
{
    if (strcmp(path, "libcuda.so.1") == 0) {
        cr_assert_eq(flags, RTLD_LAZY | RTLD_NOLOAD);
        return driver_version ? &driver_version : NULL;
    }
    cr_assert_str_eq(path, copies[copy_given - 1].path);
    cr_assert_eq(flags & ~RTLD_NOLOAD, RTLD_LAZY | RTLD_LOCAL);
    feed_note("%s %s", flags & RTLD_NOLOAD ? "has" : "load", path);
    now = &copies[copy_given - 1];
    return (flags & RTLD_NOLOAD ? now->is_loaded : !now->refused) ? (void *)(uintptr_t)now : NULL;
}

STANDIN(void, gp_poll_wake, void)
{
    feed_note("woken");
}
STANDIN_IDLE(gp_poll_expect, void);
STANDIN_SAYS(const char *, gp_opener_error, now->refused, void);

STANDIN(void *, gp_opener_symbol, void *handle, const char *name)
{
    static const struct {
        const char *name;
        void *function;
        unsigned bit;
    } symbols[] = {
        {"cuptiGetVersion", (void *)get_version, GET_VERSION},
        {"cuptiSubscribe", (void *)subscribe, SUBSCRIBE},
        {"cuptiSubscribe_v2", (void *)subscribe_v2, SUBSCRIBE_V2},
        {"cuptiUnsubscribe", (void *)unsubscribe, UNSUBSCRIBE},
        {"cuptiEnableCallback", (void *)enable, ENABLE},
        {"cuptiGetDeviceId", (void *)device_of, 0},
        {"cuptiGetContextId", (void *)number_of, 0},
        {"cuptiGetResultString", (void *)result_text, TEXT},
        {"cuptiGetCallbackName", (void *)callback_name, NAME},
    };
    if (handle == &driver_version)
        return strcmp(name, "cuDriverGetVersion") == 0 ? (void *)driver_get_version : NULL;
    for (unsigned i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
        if (strcmp(symbols[i].name, name) == 0)
            return now->lacks & symbols[i].bit ? NULL : symbols[i].function;
    cr_assert_fail("%s", name);
    return NULL;
}

STANDIN_SAYS(bool, gp_opener_is_free, !is_stuck, void);

STANDIN(bool, gp_cupti_hide_soname, void *handle)
{
    feed_note("hide");
    cr_assert_eq(handle, (void *)(uintptr_t)now);
    return !now->is_named;
}

STANDIN(void, gp_cupti_find_begin, struct gp_cupti_list *list, uint32_t version)
{
    cr_assert_not_null(list);
    asked_version = version;
    copy_given = 0;
}

STANDIN_SAYS(const char *, gp_cupti_find_next, copy_given < copy_count ? copies[copy_given++].path : NULL,
             struct gp_cupti_list *list);

static bool has_v2_user;

STANDIN(bool, gp_cupti_find_user, const char *function)
{
    cr_assert_str_eq(function, "cuptiSubscribe_v2");
    return has_v2_user;
}

STANDIN(void, gp_log, enum gp_log_level level, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    feed_note("%s %s", level == GP_LOG_INFO ? "info" : level == GP_LOG_WARN ? "warn" : "?", line);
}

/* ---- starts ------------------------------------------------------------------------------------------------------ */

static struct gp_source_status out;
static struct gp_wire_cupti tried;

static enum gp_cupti_form form;

static void start(const struct copy *of, unsigned count)
{
    copies = of;
    copy_count = count;
    memset(enabled, 0, sizeof(enabled));
    memset(&out, 0, sizeof(out));
    memset(&tried, 0, sizeof(tried));
    gp_cupti_start(form, &out, &tried);
}

static void did(const char *want)
{
    const char *is = feed_taken();
    cr_expect_str_eq(is, want, "\n%s\n%s", is, want);
}

static void row_is(unsigned index, const char *path, const char *answer, int status, uint32_t version)
{
    const struct gp_wire_copy *row = &tried.copy[index];
    cr_expect_str_eq(row->path, path, "%u: %s", index, row->path);
    cr_expect_str_eq(row->answer, answer, "%u: %s", index, row->answer);
    cr_expect_eq(row->status, status, "%u: %d", index, row->status);
    cr_expect_eq(row->version, version, "%u: %u", index, row->version);
}

static unsigned rows_with_id(void)
{
    unsigned count = 0;
    for (uint32_t id = 0; id < GP_HOOK_IDS; id++)
        count += gp_dispatch_find(id) != NULL;
    return count;
}

Test(cuptisource, the_callbacks_that_are_enabled)
{
    static const struct copy one = {.path = "/a/libcupti.so.13", .version = 130001};
    static const uint32_t resources[] = {1, 2, 3, 4, 6, 7, 13, 14};
    unsigned rows = rows_with_id();
    for (int pulse = 0; pulse < 2; pulse++) {
        has_pulse = pulse;
        start(&one, 1);
        did("has /a/libcupti.so.13;load /a/libcupti.so.13;hide;subscribe;"
            "info /a/libcupti.so.13: version 130001: CUPTI_0 (0);");
        cr_expect_eq(out.source, GP_SOURCE_CUPTI);
        cr_expect_eq(out.cupti_version, 130001);
        cr_expect_eq(out.enabled, rows + 8, "the pulse is ours");
        cr_expect_str_eq(out.detail, "/a/libcupti.so.13");
        cr_expect_eq(tried.copies, 1);
        cr_expect_eq(tried.shared, 0);
        row_is(0, "/a/libcupti.so.13", "CUPTI_0", 0, 130001);
        for (uint32_t id = 0; id < GP_HOOK_IDS; id++) {
            bool is_resource = false;
            for (unsigned i = 0; i < 8; i++)
                is_resource |= resources[i] == id;
            cr_expect_eq(enabled[GP_CUPTI_DOMAIN_DRIVER][id], gp_dispatch_find(id) || (pulse && id == 5), "id %u", id);
            cr_expect_eq(enabled[GP_CUPTI_DOMAIN_RESOURCE][id], is_resource, "id %u", id);
            cr_expect(!enabled[0][id] && !enabled[2][id] && !enabled[4][id] && !enabled[5][id]);
            cr_expect_eq(enabled[GP_CUPTI_DOMAIN_STATE][id], id == GP_CUPTI_FATAL_ERROR);
        }
    }
    deaf_from = 245; /* ids from there on are newer than the copy */
    start(&one, 1);
    unsigned older = 0;
    for (uint32_t id = 0; id < 245; id++)
        older += gp_dispatch_find(id) != NULL;
    cr_expect_eq(out.enabled, older + 8);
    deaf_from = 14;
    start(&one, 1);
    cr_expect_eq(out.enabled, 3 + 7, "cuCtxCreate, cuCtxDestroy, cuCtxDetach: %u", out.enabled);
}

/* What one copy is asked in turn, and its answer in the end. */
static int expect_forms(const struct copy *copy, bool v2_first, char *want, bool *shared)
{
    const bool has_v2 = !(copy->lacks & SUBSCRIBE_V2);
    int status = -1;
    *shared = false;
    for (int round = v2_first ? 0 : 1; round < 3; round++) {
        if (round == 1) {
            strcat(want, "subscribe;");
            status = copy->old;
            if (status == 39 && !v2_first && form != GP_CUPTI_V1)
                continue;
            return status;
        }
        int second = -1;
        if (has_v2 && form != GP_CUPTI_V2 && copy->version >= 130200) {
            strcat(want, "subscribe 40 gpuprof shared;");
            second = copy->shared;
            *shared = second == 0;
        }
        if (has_v2 && second != 0 && second != 12 && second != 39) {
            strcat(want, "subscribe 32 gpuprof;");
            second = copy->plain;
        }
        if (round == 2)
            return second == 0 ? 0 : status;
        if (second == 0 || second == 12 || second == 39)
            return second;
    }
    return status;
}

/* V1, and V2 after a 39; or V2 in the newest form that the version has and in older ones, and then V1, unless the
 * subscriber is taken. */
static void forms_are(bool v2_first)
{
    static const int statuses[] = {0, 12, 39, 1, 15};
    static const uint32_t versions[] = {0, 130199, 130200, 130300};
    for (unsigned i = 0; i < 2 * 4 * 5 * 5 * 5; i++) {
        struct copy two[2] = {{.path = "/a/libcupti.so.13"}, {.path = "/b/libcupti.so.12", .is_loaded = true}};
        two[0].shared = statuses[i % 5];
        two[0].plain = statuses[i / 5 % 5];
        two[0].old = statuses[i / 25 % 5];
        two[0].version = versions[i / 125 % 4];
        two[0].lacks = i / 500 ? SUBSCRIBE_V2 : 0;
        start(two, 2);
        char want[512] = "has /a/libcupti.so.13;load /a/libcupti.so.13;hide;", line[80];
        bool shared;
        int status = expect_forms(&two[0], v2_first, want, &shared);
        snprintf(line, sizeof(line), "%s /a/libcupti.so.13: version %u: CUPTI_%d (%d);", status ? "warn" : "info",
                 two[0].version, status, status);
        strcat(want, line);
        bool next = status == 1 || status == 15;
        if (next)
            strcat(strcat(strcat(want, "has /b/libcupti.so.12;"), v2_first ? "subscribe 32 gpuprof;" : "subscribe;"),
                   "info /b/libcupti.so.12: version 0: CUPTI_0 (0);");
        did(want);
        cr_assert_eq(tried.shared, shared);
        cr_assert_eq(tried.copies, next ? 2 : 1);
        cr_assert_eq(tried.copy[0].status, status);
        cr_assert_eq(out.source, next || !status ? GP_SOURCE_CUPTI : GP_SOURCE_NONE);
        cr_assert_eq(gp_call_ask_device != NULL, next || !status);
        cr_assert_eq(gp_call_ask_number != NULL, next || !status);
    }
}

Test(cuptisource, forms_of_the_subscription)
{
    forms_are(false);
    has_v2_user = true;
    forms_are(true);
    form = GP_CUPTI_V1;
    forms_are(false);
    has_v2_user = false;
    form = GP_CUPTI_V2;
    forms_are(true);
    form = GP_CUPTI_SHARED;
    forms_are(true);
}

/* Every way in which a copy is none, and the search goes on. */
Test(cuptisource, copies_that_do_not_work)
{
    static const struct copy list[] = {
        {.path = "/a", .refused = "/a: file too short"},
        {.path = "/b", .refused = "/b:no blank"},
        {.path = "/c", .refused = "/d: of another"},
        {.path = "/d", .refused = ""},
        {.path = "/e", .refused = "/e: "},
        {.path = "/f", .refused = "/f: a message that has more characters than there is room for"},
        {.path = "/g", .is_named = true},
        {.path = "/h", .lacks = SUBSCRIBE, .version = 7},
        {.path = "/i", .lacks = UNSUBSCRIBE, .version = 7},
        {.path = "/j", .lacks = ENABLE, .version = 7},
        {.path = "/k", .plain = 77, .old = 77, .version = 8},
        {.path = "/l", .plain = 3, .old = 3, .lacks = TEXT, .version = 8},
        {.path = "/m", .is_deaf = true, .version = 9},
        {.path = "/n/site-packages/x", .is_named = true, .lacks = GET_VERSION | NAME},
    };
    start(list, 14);
    did("has /a;load /a;warn /a: version 0: file too short (-1);"
        "has /b;load /b;warn /b: version 0: /b:no blank (-1);"
        "has /c;load /c;warn /c: version 0: /d: of another (-1);"
        "has /d;load /d;warn /d: version 0: cannot be loaded (-1);"
        "has /e;load /e;warn /e: version 0: cannot be loaded (-1);"
        "has /f;load /f;warn /f: version 0: a message that has more characters than there i (-1);"
        "has /g;load /g;hide;warn /g: version 0: its name could not be hidden (-4);"
        "has /h;load /h;hide;warn /h: version 0: it is not CUPTI (-2);"
        "has /i;load /i;hide;warn /i: version 0: it is not CUPTI (-2);"
        "has /j;load /j;hide;warn /j: version 0: it is not CUPTI (-2);"
        "has /k;load /k;hide;subscribe;warn /k: version 8:  (77);"
        "has /l;load /l;hide;subscribe;warn /l: version 8:  (3);"
        "has /m;load /m;hide;subscribe;unsubscribe;warn /m: version 9: it enabled no callback (-3);"
        "has /n/site-packages/x;load /n/site-packages/x;subscribe;"
        "info /n/site-packages/x: version 0: CUPTI_0 (0);");
    cr_expect_eq(tried.copies, 14);
    row_is(0, "/a", "file too short", GP_COPY_LOAD, 0);
    row_is(12, "/m", "it enabled no callback", GP_COPY_DEAF, 9);
    row_is(13, "/n/site-packages/x", "CUPTI_0", 0, 0);
    cr_expect_eq(out.source, GP_SOURCE_CUPTI);
    cr_expect_str_eq(out.detail, "/n/site-packages/x");
    cr_expect_eq(out.cupti_version, 0);
    static const struct copy wheel = {.path = "/n/dist-packages/x", .is_named = true};
    start(&wheel, 1);
    cr_expect_eq(out.source, GP_SOURCE_CUPTI);
}

/* Nothing is enabled after the driver's callbacks were refused: the resources alone are of no use. */
Test(cuptisource, a_deaf_copy_is_asked_for_no_resource)
{
    static const struct copy deaf = {.path = "/m", .is_deaf = true, .version = 9};
    has_pulse = true;
    start(&deaf, 1);
    cr_expect_eq(out.enabled, 0);
    cr_expect_eq(asked_resources, 0);
    cr_expect_str_eq(out.detail, "/m: it enabled no callback (-3)");
    cr_expect_eq(gp_cupti_yield(), false, "there is no source");
}

Test(cuptisource, the_reason_why_there_is_no_source)
{
    static char holder[129];
    static const struct copy two[] = {{.path = "/a", .refused = "/a: file too short"},
                                      {.path = "/b", .plain = 3, .old = 3}};
    static const struct copy taken[] = {{.path = "/a", .old = 39, .plain = 39, .holder = "Nsight Systems"},
                                        {.path = "/b"}};
    static const struct copy limit = {.path = "/a", .old = 12};
    static const struct copy named = {.path = "/a", .old = 39, .plain = 39, .holder = holder};
    start(NULL, 0);
    cr_expect_str_eq(out.detail, "no CUPTI found: install the toolkit's CUPTI or set CUDA_HOME");
    start(two, 1);
    cr_expect_str_eq(out.detail, "/a: file too short (-1)");
    start(two, 2);
    cr_expect_str_eq(out.detail, "none of 2 copies of CUPTI works here; the best: file too short (-1)");
    start(taken, 2);
    cr_expect_str_eq(out.detail, "the CUPTI subscriber is taken by Nsight Systems");
    cr_expect_eq(tried.copies, 1, "the search has ended");
    start(&limit, 1);
    cr_expect_str_eq(out.detail, "the CUPTI subscriber is taken by another tool");
    memset(holder, 'x', 128);
    start(&named, 1);
    char want[128] = "the CUPTI subscriber is taken by ";
    memset(want + strlen(want), 'x', 64);
    cr_expect_str_eq(out.detail, want);
    feed_taken();
    is_stuck = true; /* CUPTI would wait for the loader's lock */
    start(taken, 2);
    did("has /a;load /a;hide;warn /a: version 0:  (0);has /b;load /b;hide;warn /b: version 0:  (0);");
    cr_expect_eq(out.source, GP_SOURCE_NONE);
    cr_expect(!gp_call_ask_device && !gp_call_ask_number);
}

Test(cuptisource, the_version_of_the_driver_is_asked_for)
{
    static const uint32_t versions[] = {0, 5, 12080, (uint32_t)-3, 1, 6};
    static const uint32_t want[] = {0, 0, 12080, 0, 1, 0};
    for (unsigned i = 0; i < 6; i++) {
        driver_version = versions[i];
        start(NULL, 0);
        cr_expect_eq(asked_version, want[i], "%u", asked_version);
    }
}

/* The end of a path is kept where it has no room, in the rows and in the status. */
Test(cuptisource, long_paths)
{
    static char path[400];
    struct copy one = {.path = path};
    memset(path, 'p', sizeof(path) - 1);
    static const size_t lengths[] = {126, 127, 128, 129, 254, 255, 256, 257, 399};
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        size_t length = lengths[i];
        for (size_t k = 0; k < length; k++)
            path[k] = (char)('a' + k % 26);
        path[length] = '\0';
        start(&one, 1);
        feed_taken();
        cr_expect_str_eq(tried.copy[0].path, path + (length > 255 ? length - 255 : 0), "%zu", length);
        cr_expect_str_eq(out.detail, path + (length > 127 ? length - 127 : 0), "%zu", length);
    }
}

Test(cuptisource, more_copies_than_rows)
{
    static struct copy list[20];
    for (unsigned i = 0; i < 20; i++)
        list[i] = (struct copy){.path = "/a", .refused = i ? "/a: later" : "/a: first"};
    start(list, 20);
    cr_expect_eq(tried.copies, 20);
    row_is(0, "/a", "first", GP_COPY_LOAD, 0);
    row_is(15, "/a", "later", GP_COPY_LOAD, 0);
    cr_expect_eq(tried.strange, 0);
    cr_expect_str_eq(tried.strange_names[0], "", "the rows have an end");
    cr_expect_str_eq(out.detail, "none of 20 copies of CUPTI works here; the best: first (-1)");
}

/* ---- callbacks --------------------------------------------------------------------------------------------------- */

static const struct copy good = {.path = "/a", .version = 130001};

static void source_start(void)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    has_pulse = true;
    start(&good, 1);
    cr_assert_eq(out.source, GP_SOURCE_CUPTI);
    feed_taken();
}

static void driver_call(uint32_t id, const void *params, void *context, uint32_t result)
{
    uint64_t slot = 5;
    struct gp_cupti_call data = {
        .site = GP_CUPTI_ENTER, .params = params, .result = NULL, .context = context, .context_uid = 8, .slot = &slot};
    errno = 4711;
    callback(NULL, GP_CUPTI_DOMAIN_DRIVER, id, &data);
    data.site = GP_CUPTI_EXIT;
    data.result = &result;
    callback(NULL, GP_CUPTI_DOMAIN_DRIVER, id, &data);
    cr_expect_eq(errno, 4711);
    cr_expect_eq(gp_thread.inside, 0);
}

Test(cuptisource, callbacks_of_the_driver)
{
    struct gp_params_cuMemFree_v2 release = {0x1000};
    uint64_t address = 0x2000;
    struct gp_params_cuMemAlloc_v2 alloc = {&address, 100};
    source_start();
    driver_call(245, &release, PTR(0xc8), 0);
    did("free device at 1000;freed 70 1 stream 0;");
    driver_call(245, &release, PTR(0xc8), 2);
    did("free device at 1000;freed 70 0 stream 0;failed cuMemFree_v2 2 asked 0 device 1;oom ctx 8 c8;");
    driver_call(243, &alloc, PTR(0xc8), 0);
    did("alloc device linear device 1 ctx 8 at 2000 of 100 asked 100 stream 0 pool 0;");
    driver_call(243, &alloc, NULL, 0);
    did("alloc device linear device -1 ctx 0 at 2000 of 100 asked 100 stream 0 pool 0;");
    driver_call(1, &release, PTR(0xc8), 0); /* without a row */
    driver_call(GP_HOOK_IDS + 5, &release, PTR(0xc8), 0);
    callback(NULL, 2, 245, NULL); /* of the runtime */
    did("");
    gp_thread.inside = 1;
    callback(NULL, GP_CUPTI_DOMAIN_DRIVER, 5, NULL); /* the pulse is ours */
    gp_thread.inside = 0;
    did("");
}

/* Our own code runs on the thread, or makes the call; or the library is off. */
Test(cuptisource, callbacks_of_calls_that_are_not_the_programs)
{
    uint32_t result = 0;
    uint64_t address = 0x2000, slot = 5;
    struct gp_params_cuMemFree_v2 release = {0x1000};
    struct gp_params_cuMemAlloc_v2 alloc = {&address, 100};
    source_start();
    driver_call(243, &alloc, PTR(0xc8), 0); /* now the thread is known */
    feed_taken();
    for (unsigned way = 0; way < 3; way++) {
        gp_thread.inside = way == 0;
        gp_thread.ignored = way == 1;
        if (way == 2)
            gp_thread_life_leave();
        gp_thread.node_type = 7;
        for (unsigned i = 0; i < 4; i++) {
            const void *params = i % 2 ? (const void *)&release : &alloc;
            struct gp_cupti_call data = {
                .site = i / 2 ? GP_CUPTI_EXIT : GP_CUPTI_ENTER, .params = params, .result = &result, .slot = &slot};
            callback(NULL, GP_CUPTI_DOMAIN_DRIVER, i % 2 ? 245 : 243, &data);
        }
        did("");
        cr_expect(gp_thread.node_type == 7 && slot == 5, "way %u", way);
        cr_expect_eq(gp_thread.inside, way == 0);
        gp_thread.inside = gp_thread.ignored = 0;
    }
}

/* ---- its end ----------------------------------------------------------------------------------------------------- */

static unsigned counted;
static int count_status;
static bool calls_back;

static int device_count(int *count)
{
    *count = 1;
    counted++;
    if (calls_back)
        callback(NULL, GP_CUPTI_DOMAIN_DRIVER, 5, NULL);
    return count_status;
}

Test(cuptisource, the_end_of_the_callbacks_is_noticed_once)
{
    char text[128] = "";
    gp_cupti_beat(device_count);
    cr_expect_eq(counted, 0, "there is no source");
    cr_expect_eq(gp_cupti_yield(), false);
    source_start();
    gp_cupti_beat(NULL);
    gp_cupti_beat(device_count);
    gp_cupti_beat(device_count);
    cr_expect_eq(counted, 2);
    cr_expect_not(gp_cupti_gone(), "no callback has come yet");
    callback(NULL, GP_CUPTI_DOMAIN_RESOURCE, 5, &(struct gp_cupti_resource){NULL});
    gp_cupti_beat(device_count);
    cr_expect_not(gp_cupti_gone(), "that was another callback");
    calls_back = true;
    gp_cupti_beat(device_count);
    gp_cupti_beat(device_count);
    cr_expect_not(gp_cupti_gone());
    calls_back = false;
    count_status = 3;
    gp_cupti_beat(device_count);
    cr_expect_not(gp_cupti_gone(), "the call failed");
    count_status = 0;
    did("");
    memset(enabled, 0, sizeof(enabled)); /* cuptiFinalize */
    gp_cupti_beat(device_count);
    cr_expect(gp_cupti_gone());
    did("warn the program ended CUPTI (cuptiFinalize): later events are missing;subscribe;unsubscribe;");
    gp_cupti_beat(device_count);
    cr_expect(gp_cupti_gone());
    cr_expect(!gp_cupti_gaps(text, sizeof(text)), "it has not ended");
    cr_expect(gp_cupti_yield());
    did("");
}

/* Another tool has the subscriber at first. */
Test(cuptisource, callbacks_that_ended_begin_again)
{
    static struct copy taken;
    char text[128] = "";
    source_start();
    calls_back = true;
    gp_cupti_beat(device_count);
    memset(enabled, 0, sizeof(enabled)); /* cuptiFinalize */
    calls_back = false;
    taken = good;
    taken.old = taken.plain = 39;
    now = &taken;
    gp_cupti_beat(device_count);
    cr_expect(gp_cupti_gone());
    did("warn the program ended CUPTI (cuptiFinalize): later events are missing;subscribe;subscribe 32 gpuprof;");
    now = &good;
    calls_back = true;
    gp_cupti_beat(device_count);
    cr_expect(gp_cupti_gone(), "not so soon");
    did("");
    nanosleep(&(struct timespec){1, 100000000}, NULL);
    gp_cupti_beat(device_count);
    cr_expect_not(gp_cupti_gone());
    did("subscribe;event 9 gpuprof: events before this were missed;warn CUPTI calls back again;");
    cr_expect(gp_cupti_gaps(text, sizeof(text)));
    cr_expect_not_null(strstr(text, "(cuptiFinalize) 1 times: events of up to 1."), "%s", text);
    gp_cupti_beat(device_count);
    did("");
    cr_expect(gp_cupti_yield());
    did("unsubscribe;");
}

/* It is noticed at once, the dead subscriber is given back, and the third time is the last. */
Test(cuptisource, after_a_fatal_error_callbacks_begin_again)
{
    char text[128] = "";
    source_start();
    calls_back = true;
    gp_cupti_beat(device_count);
    for (int i = 0; i < 3; i++) {
        callback(NULL, GP_CUPTI_DOMAIN_STATE, GP_CUPTI_FATAL_ERROR, NULL);
        cr_expect_eq(gp_cupti_beat(device_count), i < 2);
        did(i < 2 ? "woken;warn CUPTI reports a fatal error: later events are missing;unsubscribe;subscribe;"
                    "event 9 gpuprof: events before this were missed;warn CUPTI calls back again;"
                  : "woken;warn CUPTI reports a fatal error: later events are missing;");
        cr_expect(gp_cupti_gone() == (i == 2) && gp_cupti_gaps(text, sizeof(text)));
        cr_expect_not_null(strstr(text, i < 2 ? "CUPTI failed or was ended" : "fatal"), "%s", text);
        nanosleep(&(struct timespec){1, 100000000}, NULL);
    }
    cr_expect(gp_cupti_yield());
    did("");
}

Test(cuptisource, the_subscriber_is_given_up_once)
{
    source_start();
    calls_back = true;
    gp_cupti_beat(device_count);
    cr_expect(gp_cupti_yield());
    did("unsubscribe;");
    cr_expect(gp_cupti_yield());
    calls_back = false;
    gp_cupti_beat(device_count);
    cr_expect_not(gp_cupti_gone(), "it was given up");
    did("");
}

Test(cuptisource, without_the_id_of_a_call_there_is_no_pulse)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    start(&good, 1);
    feed_taken();
    gp_cupti_beat(device_count);
    cr_expect_eq(counted, 0);
}
