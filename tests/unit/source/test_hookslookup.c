/* SPDX-License-Identifier: MIT
 *
 * test_hookslookup.c: how the hooks find the driver's functions, and which lookups of the program they answer with a wrapper.
 * The driver has a function for every row but one; this program stands for libgpuprof-shim.so: it defines the function by
 * which that library is known, and dlsym and cuInit in front of libc and the driver.
 */
#include "lib/sanitized.h"

#if GP_TEST_SANITIZED
GP_TEST_UNSANITIZED_ONLY(hookslookup)
#else

#include "base/compiler.h"
#include "lib/build.h"
#include "lib/standin.h"
#include "source/abi.h"
#include "source/internal.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PTR(_number)                       ((void *)(uintptr_t)(_number))
#define LACKS                              "cuGreenCtxCreate"

static unsigned asked_next, asked_current;
static void *next_answer;

void *gpuprof_preload_next(const char *name);
void *gpuprof_preload_next(const char *name)
{
    asked_next++;
    asked_current += strcmp(name, "cuCtxGetCurrent") == 0;
    return next_answer;
}

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    return (int)flags;
}

void *dlsym(void *handle, const char *name)
{
    static const char *const versions[] = {GP_HOOKS_DLSYM_VERSIONS};
    void *real = NULL;
    for (unsigned i = 0; !real && i < sizeof(versions) / sizeof(versions[0]); i++)
        real = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return ((void *(*)(void *, const char *))real)(handle, name);
}

static const struct {
    const char *name;
    void *wrapper;
    enum gp_hooks_row row;
} rows[] = {
#define GP_HOOK(_id, _name, _handler, ...) {#_name, (void *)gp_wrap_##_name, GP_HOOKS_##_name},
#define GP_WRAP(_name, ...)                GP_HOOK(0, _name, , __VA_ARGS__)
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static char *folder;
static void *driver;

static void driver_load(void)
{
    char path[256];
    folder = build_folder();
    snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
    cr_assert_eq(build_shared(folder, "fakelookup.c", "libcuda.so.1", "-Wl,-soname,libcuda.so.1"), 0);
    driver = dlopen(path, RTLD_NOW);
    cr_assert_not_null(driver, "%s", dlerror());
    errno = 4711;
}

static void quiet(const char *what)
{
    cr_expect_eq(errno, 4711, "%s", what);
    cr_expect_null(dlerror(), "%s", what);
}

TestSuite(hookslookup, .timeout = 60);

/* Without a driver nothing is wrapped, and what the libraries behind the shim have is asked for again each time. */
Test(hookslookup, without_a_driver)
{
    void *found = PTR(0x1234);
    errno = 4711;
    for (size_t i = 0; i < ROWS; i++) {
        next_answer = NULL;
        cr_expect_null(gp_hooks_real(rows[i].row), "%s", rows[i].name);
        next_answer = PTR(0x1234);
        cr_expect_eq(gp_hooks_real(rows[i].row), PTR(0x1234), "%s", rows[i].name);
        cr_expect(gp_hooks_is_missing(rows[i].name));
        cr_expect_eq(gp_hooks_wrap(rows[i].name, PTR(0x1234)), PTR(0x1234));
        cr_expect_eq(gp_hooks_wrap_symbol(rows[i].name, PTR(0x1234), (void *)driver_load), PTR(0x1234));
    }
    cr_expect_eq(gp_hooks_driver("cuAny"), PTR(0x1234));
    next_answer = NULL;
    cr_expect_not(gp_hooks_is_missing("cuAny"), "it has no row");
    cr_expect_not(gp_hooks_is_missing(""));
    cr_expect_eq(gp_wrap_cuGetProcAddress("cuInit", &found, 12000, 0), GP_HOOKS_NO_DRIVER);
    cr_expect_eq(gp_wrap_cuGetProcAddress_v2("cuInit", &found, 12000, 0, NULL), GP_HOOKS_NO_DRIVER);
    cr_expect_eq(found, PTR(0x1234));
    cr_expect_eq(gp_hooks_real_count(), 0);
    quiet("no driver");
    driver_load(); /* it comes later, and what was not found then is not remembered */
    cr_expect_eq(gp_hooks_real(rows[0].row), dlsym(driver, rows[0].name));
    cr_expect_eq(gp_hooks_real_count(), GP_HOOKS_ROWS - 1);
    build_remove(folder);
}

Test(hookslookup, the_drivers_functions)
{
    driver_load();
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < ROWS; i++) {
            bool lacks = strcmp(rows[i].name, LACKS) == 0;
            void *real = gp_hooks_real(rows[i].row);
            cr_expect_eq(real != NULL, !lacks, "%s", rows[i].name);
            cr_expect(lacks || real == dlsym(driver, rows[i].name), "%s", rows[i].name);
            cr_expect_eq(gp_hooks_is_missing(rows[i].name), lacks, "%s", rows[i].name);
            quiet(rows[i].name);
        }
        cr_expect_eq(gp_hooks_real_count(), GP_HOOKS_ROWS - 1);
    }
    cr_expect_not(gp_hooks_is_missing("cuAny"));
    cr_expect_null(gp_hooks_driver("cuAny"));
    cr_expect_eq(gp_hooks_driver("fake_found"), dlsym(driver, "fake_found"));
    quiet("another name");
    cr_expect_eq(asked_next, 0, "the driver alone is asked");
    build_remove(folder);
}

/* A row answers for its own name, the name without the version, the stream's default, or both, and for nothing shorter. */
Test(hookslookup, forms_of_a_name)
{
    static const char *const rests[] = {"",         "_v2",      "_v3",      "_v4",      "_ptsz",
                                        "_v2_ptsz", "_v3_ptsz", "_v4_ptsz", "_v9_ptsz", "_v9"};
    unsigned answered = 0;
    driver_load();
    for (size_t i = 0; i < ROWS; i++) {
        char name[80];
        void *real = gp_hooks_real(rows[i].row);
        for (size_t length = 0; real && length <= strlen(rows[i].name); length++) {
            bool is_form = false;
            snprintf(name, sizeof(name), "%.*s", (int)length, rows[i].name);
            for (unsigned k = 0; k < sizeof(rests) / sizeof(rests[0]); k++)
                is_form |= strcmp(rows[i].name + length, rests[k]) == 0;
            void *is = gp_hooks_wrap(name, real);
            cr_expect_eq(is == rows[i].wrapper, is_form, "%s for %s", name, rows[i].name);
            cr_expect(is_form || is == real, "%s for %s", name, rows[i].name);
            cr_expect_eq(gp_hooks_wrap(name, PTR(0x1234)), PTR(0x1234), "%s: of another library", name);
            cr_expect_null(gp_hooks_wrap(name, NULL));
            answered += is_form;
        }
        snprintf(name, sizeof(name), "%sx", rows[i].name);
        cr_expect_eq(gp_hooks_wrap(name, real), real, "%s", name);
    }
    cr_expect_gt(answered, ROWS, "%u", answered);
    build_remove(folder);
}

/* By dlsym the name is exact, and the driver's own libraries and ours get what they look for. */
Test(hookslookup, symbols_for_a_caller)
{
    static const struct {
        const char *name;
        bool is_insider;
    } callers[] = {{"libcuda.so.550", true},     {"libcupti.so.12", true},  {"libnvidia-ml.so.1", true},
                   {"libcudadebugger.so", true}, {"libgpuprof.so", true},   {"libcudart.so.12", false},
                   {"xlibcuda.so.1", false},     {"libnvidia.so.1", false}, {"libcupt.so", false},
                   {"program", false},           {"libcudnn.so", false},    {"libgpupro.so", false}};
    char path[256], built[256];
    driver_load();
    cr_assert_eq(build_shared(folder, "stack_frame.c", "any", "-DSTACK_BYTES=8"), 0);
    snprintf(built, sizeof(built), "%s/any", folder);
    void *real = gp_hooks_real(rows[0].row);
    for (unsigned i = 0; i < sizeof(callers) / sizeof(callers[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, callers[i].name);
        cr_assert_eq(build_copy(built, path), 0);
        void *library = dlopen(path, RTLD_NOW);
        cr_assert_not_null(library, "%s", dlerror());
        const void *caller = dlsym(library, "_init") ? dlsym(library, "_init") : dlsym(library, "stack_frame");
        cr_assert_not_null(caller);
        void *is = gp_hooks_wrap_symbol(rows[0].name, real, caller);
        cr_expect_eq(is, callers[i].is_insider ? real : rows[0].wrapper, "%s", callers[i].name);
    }
    for (size_t i = 0; i < ROWS; i++) {
        real = gp_hooks_real(rows[i].row);
        if (!real)
            continue;
        cr_expect_eq(gp_hooks_wrap_symbol(rows[i].name, real, (void *)driver_load), rows[i].wrapper);
        cr_expect_eq(gp_hooks_wrap_symbol(rows[i].name, real, PTR(0x10)), rows[i].wrapper, "code of no library");
        cr_expect_eq(gp_hooks_wrap_symbol(rows[i].name, PTR(0x1234), (void *)driver_load), PTR(0x1234));
        cr_expect_eq(gp_hooks_wrap_symbol("cuMemAlloc_v", real, (void *)driver_load), real);
    }
    build_remove(folder);
}

static void *wrapper_of(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].wrapper;
    return NULL;
}

Test(hookslookup, cuGetProcAddress)
{
    driver_load();
    void **answer = dlsym(driver, "fake_found"), *found;
    uint32_t *result = dlsym(driver, "fake_result");
    const char **symbol = dlsym(driver, "fake_symbol");
    int *version = dlsym(driver, "fake_version"), **status = dlsym(driver, "fake_status"), own = 0;
    uint64_t *flags = dlsym(driver, "fake_flags");
    for (int form = 1; form <= 2; form++)
        for (unsigned i = 0; i < 16; i++) {
            bool fails = i & 1, unknown = i & 2, none = i & 4, nowhere = i & 8;
            const char *name = none ? NULL : "cuMemAlloc";
            *result = fails ? 500 : 0;
            *answer = unknown ? NULL : dlsym(driver, "cuMemAlloc_v2");
            found = PTR(0x1234);
            uint32_t is = form == 1 ? gp_wrap_cuGetProcAddress(name, nowhere ? NULL : &found, 12030, 7)
                                    : gp_wrap_cuGetProcAddress_v2(name, nowhere ? NULL : &found, 12030, 7, &own);
            cr_expect_eq(is, *result);
            cr_expect(*symbol == name && *version == 12030 && *flags == 7);
            cr_expect_eq(*status, form == 2 ? &own : NULL);
            void *want = nowhere ? PTR(0x1234) : fails || none || unknown ? *answer : wrapper_of("cuMemAlloc_v2");
            cr_expect_eq(found, want, "form %d, case %u", form, i);
        }
    build_remove(folder);
}

/* Done once, and with all that a start needs: the rows, and what hooks_resource.c asks. */
Test(hookslookup, everything_is_looked_up_beforehand)
{
    errno = 4711;
    gp_hooks_prepare();
    cr_expect_geq(asked_next, GP_HOOKS_ROWS);
    cr_expect_eq(asked_current, 1);
    asked_next = 0;
    gp_hooks_prepare();
    cr_expect_eq(asked_next, 0);
    quiet("prepare");
}

Test(hookslookup, calls_arrive_where_the_shim_is_in_front)
{
    errno = 4711;
    cr_expect(gp_hooks_present());
    cr_expect(gp_hooks_present());
    quiet("present");
}

/* ---- a profiler of the program ------------------------------------------------------------------------------------ */

static bool gives;
static unsigned given, wanted_back;

STANDIN(bool, gp_handover_give, void)
{
    given++;
    return gives;
}

STANDIN(void, gp_handover_want, void)
{
    wanted_back++;
}

static const int *answers; /* of CUPTI's next calls */
static unsigned cupti_calls;

static int cupti_function(void *subscriber, void *callback, void *user, void *params)
{
    cr_expect(subscriber == PTR(1) && callback == PTR(2) && user == PTR(3));
    cr_expect(params == PTR(4) || params == PTR(5), "%p", params);
    return answers[cupti_calls++];
}

static int subscribe_function(void *subscriber, void *callback, void *user)
{
    return cupti_function(subscriber, callback, user, PTR(5));
}

static int unsubscribe_function(void *subscriber)
{
    return cupti_function(subscriber, PTR(2), PTR(3), PTR(5));
}

/* CUPTI gets the arguments of the program. If it refuses because of our subscriber, ours is given up, and it is asked once
 * more; what the program gives up is wanted back. */
Test(hookslookup, a_profiler_subscribes)
{
    static const struct {
        int answers[2];
        bool gives;
        int result;
        unsigned given, calls, wanted_back;
    } cases[] = {
        {{0, 7}, true, 0, 0, 1, 1},
        {{5, 7}, true, 5, 0, 1, 0},
        {{GP_CUPTI_MULTIPLE_SUBSCRIBERS, 0}, true, 0, 1, 2, 0},
        {{GP_CUPTI_MULTIPLE_SUBSCRIBERS, 6}, true, 6, 1, 2, 0},
        {{GP_CUPTI_MAX_LIMIT_REACHED, 0}, true, 0, 1, 2, 0},
        {{GP_CUPTI_MAX_LIMIT_REACHED, 0}, false, GP_CUPTI_MAX_LIMIT_REACHED, 1, 1, 0},
    };
    int (*subscribe)(void *, void *, void *) = (int (*)(void *, void *, void *))gp_foreign_wrap(
        gp_foreign_call_of("cuptiSubscribe"), (void *)subscribe_function);
    int (*subscribe_v2)(void *, void *, void *, void *) = (int (*)(void *, void *, void *, void *))gp_foreign_wrap(
        gp_foreign_call_of("cuptiSubscribe_v2"), (void *)cupti_function);
    int (*unsubscribe)(void *) =
        (int (*)(void *))gp_foreign_wrap(gp_foreign_call_of("cuptiUnsubscribe"), (void *)unsubscribe_function);
    cr_expect(gp_foreign_call_of("cuptiSubscribe_v3") < 0 && gp_foreign_call_of("cuMemAlloc") < 0);
    for (unsigned i = 0; i < GP_COUNT(cases); i++)
        for (unsigned call = 0; call < 3; call++) {
            answers = cases[i].answers;
            gives = cases[i].gives;
            given = cupti_calls = wanted_back = 0;
            int result = call == 0   ? subscribe(PTR(1), PTR(2), PTR(3))
                         : call == 1 ? subscribe_v2(PTR(1), PTR(2), PTR(3), PTR(4))
                                     : unsubscribe(PTR(1));
            bool ends = call == 2; /* it is not asked twice, and takes nothing from us */
            cr_expect_eq(result, ends ? cases[i].answers[0] : cases[i].result, "case %u, call %u: %d", i, call, result);
            cr_expect_eq(given, ends ? 0 : cases[i].given, "case %u, call %u", i, call);
            cr_expect_eq(cupti_calls, ends ? 1 : cases[i].calls, "case %u, call %u", i, call);
            cr_expect_eq(wanted_back, ends && cases[i].wanted_back, "case %u, call %u", i, call);
        }
    /* One that is linked with CUPTI, which is behind the shim. */
    cupti_calls = 0;
    next_answer = (void *)subscribe_function;
    cr_expect_eq(gp_foreign_subscribe(PTR(1), PTR(2), PTR(3), (void *)unsubscribe_function), cases[5].answers[0]);
    next_answer = (void *)cupti_function;
    cr_expect_eq(gp_foreign_subscribe_v2(PTR(1), PTR(2), PTR(3), PTR(4), (void *)unsubscribe_function), 0);
    next_answer = NULL;
    gp_foreign_wrap(GP_FOREIGN_SUBSCRIBE, NULL);
    cr_expect_eq(subscribe(PTR(1), PTR(2), PTR(3)), GP_CUPTI_NOT_INITIALIZED);
}

#endif
