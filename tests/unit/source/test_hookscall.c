/* SPDX-License-Identifier: MIT
 *
 * test_hookscall.c: a call through a wrapper of the hooks: which function gets it, with which arguments, what is reported
 * before and after it, and in which state of the thread the driver is called.  The driver and the accounts are made up and
 * write into one text.
 */
#include "account/feed/feed.h"
#include "feed_log.h"
#include "lib/standin.h"
#include "source/internal.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <source/hooks_number.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PTR(_number) ((void *)(uintptr_t)(_number))

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static uint32_t result; /* of the next calls */
static void *current = PTR(0xc8);
static int device_now = 1;
static const char *missing = "",
                  *ends_in = "";    /* a function that the driver lacks; one during which the library ends */
static const char *changes_in = ""; /* a function during which `change` happens */
static void (*change)(void);
static unsigned char got[128]; /* the arguments of the last call */
static size_t got_bytes;

static uint32_t driver_called(const char *name, const void *params, size_t bytes)
{
    memcpy(got, params, bytes);
    got_bytes = bytes;
    feed_note("%s%s%s", name, gp_thread.ignored ? "" : " heeded", gp_thread.inside ? " inside" : "");
    if (strcmp(ends_in, name) == 0)
        gp_thread_life_end();
    if (strcmp(changes_in, name) == 0)
        change();
    errno = 4712;
    return result;
}

/* One function, and one server, for each row that has parameters of its own. */
#define FIELD(_type, _name) _name
#define MADE(_name, ...)                                                                                               \
    static uint32_t driver_##_name(GP_EACH_LIST(GP_HOOKS_PARAM, __VA_ARGS__))                                          \
    {                                                                                                                  \
        struct gp_params_##_name params;                                                                               \
        memset(&params, 0, sizeof(params));                                                                            \
        params = (struct gp_params_##_name){GP_EACH_LIST(FIELD, __VA_ARGS__)};                                         \
        return driver_called(#_name, &params, sizeof(params));                                                         \
    }                                                                                                                  \
    static uint32_t server_##_name(GP_EACH_LIST(GP_HOOKS_PARAM, __VA_ARGS__))                                          \
    {                                                                                                                  \
        struct gp_params_##_name params;                                                                               \
        memset(&params, 0, sizeof(params));                                                                            \
        params = (struct gp_params_##_name){GP_EACH_LIST(FIELD, __VA_ARGS__)};                                         \
        return driver_called("server of " #_name, &params, sizeof(params));                                            \
    }
#define GP_HOOK(_id, _name, _handler, ...) MADE(_name, __VA_ARGS__)
#define GP_RESOURCE(_name, ...)            MADE(_name, __VA_ARGS__)
#define GP_WRAP(_name, ...)
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP

/* Calls the wrapper with arguments whose bytes all differ, and returns its result. */
#define CALLER(_name, ...)                                                                                             \
    static uint32_t call_##_name(void)                                                                                 \
    {                                                                                                                  \
        struct gp_params_##_name p;                                                                                    \
        for (size_t i = 0; i < sizeof(p); i++)                                                                         \
            ((unsigned char *)&p)[i] = (unsigned char)(i + 1);                                                         \
        return gp_wrap_##_name(GP_EACH_LIST(ARGUMENT, __VA_ARGS__));                                                   \
    }
#define ARGUMENT(_type, _name)             p._name
#define GP_HOOK(_id, _name, _handler, ...) CALLER(_name, __VA_ARGS__)
#define GP_RESOURCE(_name, ...)            CALLER(_name, __VA_ARGS__)
#define GP_WRAP(_name, ...)
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP

static const struct {
    const char *name;
    void *driver, *server;
    uint32_t (*call)(void);
    enum gp_hooks_row row;
} rows[] = {
#define GP_HOOK(_id, _name, _handler, ...)                                                                             \
    {#_name, (void *)driver_##_name, (void *)server_##_name, call_##_name, GP_HOOKS_##_name},
#define GP_RESOURCE(_name, ...) GP_HOOK(0, _name, , __VA_ARGS__)
#define GP_WRAP(_name, ...)
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* ---- in the place of real.c and front.c -------------------------------------------------------------------------- */

static bool is_present = true;

STANDIN(void *, gp_hooks_real_find, enum gp_hooks_row row)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].row == row)
            return strcmp(rows[i].name, missing) == 0 ? NULL : rows[i].driver;
    return NULL;
}

STANDIN_SAYS(unsigned, gp_hooks_real_count, 123, void);
STANDIN_IDLE(gp_hooks_look, void);
STANDIN_IDLE(gp_poll_expect, void);

STANDIN(void, gp_poll_check, void (*check)(void))
{
    cr_expect_eq(check, gp_hooks_look);
}

STANDIN_SAYS(bool, gp_hooks_present, is_present, void);

static uint32_t ask_current(void **context)
{
    feed_note("current?");
    *context = current;
    return 0;
}

static uint32_t ask_device(int *device)
{
    *device = device_now;
    return 0;
}

STANDIN(void *, gp_hooks_driver, const char *name)
{
    return strcmp(name, "cuCtxGetCurrent") == 0  ? (void *)ask_current
           : strcmp(name, "cuCtxGetDevice") == 0 ? (void *)ask_device
                                                 : NULL;
}

/* ---- which function gets a call ---------------------------------------------------------------------------------- */

static void did(const char *want)
{
    const char *is = feed_taken();
    cr_expect_str_eq(is, want, "\n%s\n%s", is, want);
}

static void arguments_are_whole(const char *name)
{
    /* What the compiler leaves between two of them is not passed: every byte that is there is its own. */
    size_t passed = 0;
    for (size_t i = 0; i < got_bytes; i++) {
        cr_expect(got[i] == 0 || got[i] == (unsigned char)(i + 1), "%s: byte %zu", name, i);
        passed += got[i] != 0;
    }
    cr_expect(passed >= 4 && passed + 8 >= got_bytes, "%s: %zu of %zu", name, passed, got_bytes);
}

/* Without accounting each wrapper passes its arguments and the result; its server comes first, unless the call is ours. */
Test(hookscall, every_wrapper_leads_to_its_function)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    for (size_t i = 0; i < ROWS; i++) {
        const char *name = rows[i].name;
        bool is_free = strcmp(name, "cuMemFree_v2") == 0 || strcmp(name, "cuMemFreeAsync") == 0 ||
                       strcmp(name, "cuMemFreeAsync_ptsz") == 0;
        char plain[80], served[80], ours[80];
        snprintf(plain, sizeof(plain), "%s heeded;", name);
        snprintf(served, sizeof(served), "server of %s heeded;", name);
        for (result = 0; result < 3; result++) {
            memset(got, 0, sizeof(got));
            cr_expect_eq(rows[i].call(), result, "%s", name);
            did(plain);
            arguments_are_whole(name);
        }
        missing = name;
        cr_expect_eq(rows[i].call(), 100, "%s", name);
        did("");
        missing = "";
        cr_expect(gp_hooks_serve(name, rows[i].server), "%s", name);
        result = 7;
        cr_expect_eq(rows[i].call(), 7, "%s", name);
        did(served);
        arguments_are_whole(name);
        gp_thread.inside = 1;
        rows[i].call();
        snprintf(ours, sizeof(ours), "%s%s heeded inside;", is_free ? "server of " : "", name);
        did(ours);
        gp_thread.inside = 0;
        gp_thread.ignored = 1;
        rows[i].call();
        snprintf(ours, sizeof(ours), "%s%s;", is_free ? "server of " : "", name);
        did(ours);
        gp_thread.ignored = 0;
        cr_expect(gp_hooks_serve(name, NULL));
        rows[i].call();
        did(plain);
    }
    cr_expect_not(gp_hooks_serve("cuMemAlloc_v3", rows[0].server));
    cr_expect_not(gp_hooks_serve("", rows[0].server));
}

/* A server answers also after our end, and not in a process that is not ours. */
Test(hookscall, servers_in_other_lives)
{
    gp_hooks_serve("cuMemAlloc_v2", (void *)server_cuMemAlloc_v2);
    gp_hooks_serve("cuMemFree_v2", (void *)server_cuMemFree_v2);
    gp_wrap_cuMemAlloc_v2(NULL, 1);
    gp_wrap_cuMemFree_v2(1);
    did("cuMemAlloc_v2 heeded;server of cuMemFree_v2 heeded;");
    cr_assert_eq(gp_thread_life_start(), 0);
    gp_thread_life_end();
    gp_wrap_cuMemAlloc_v2(NULL, 1);
    did("server of cuMemAlloc_v2 heeded;");
}

/* ---- accounted calls --------------------------------------------------------------------------------------------- */

static void start(void)
{
    struct gp_source_status status = {0};
    cr_assert_eq(gp_thread_life_start(), 0);
    is_present = false;
    cr_expect_not(gp_hooks_start(&status));
    cr_expect_str_eq(status.detail, "libgpuprof-shim.so is not preloaded");
    cr_expect(status.source == GP_SOURCE_NONE && status.enabled == 0);
    gp_wrap_cuMemFree_v2(0x1000);
    did("cuMemFree_v2 heeded;");
    is_present = true;
    cr_expect(gp_hooks_start(&status));
    cr_expect_str_eq(status.detail, "libgpuprof-shim.so");
    cr_expect_eq(status.source, GP_SOURCE_HOOKS);
    cr_expect_eq(status.enabled, 123);
    feed_learns = true;
    errno = 4711;
}

/* The thread's state around a call is as before it. */
static void undisturbed(void)
{
    cr_expect_eq(gp_thread.inside, 0);
    cr_expect_eq(gp_thread.ignored, 0);
    cr_expect_eq(errno, 4712, "as the driver left it");
    errno = 4711;
}

Test(hookscall, what_is_reported_around_a_call)
{
    uint64_t address = 0x2000;
    start();
    cr_expect_eq(gp_wrap_cuMemFree_v2(0x1000), 0);
    did("free device at 1000;cuMemFree_v2;current?;learned ctx 1 device 1;freed 70 1 stream 0;");
    undisturbed();
    result = 700;
    cr_expect_eq(gp_wrap_cuMemFree_v2(0x1000), 700);
    did("free device at 1000;cuMemFree_v2;current?;freed 70 0 stream 0;failed cuMemFree_v2 700 asked 0 device 1;");
    undisturbed();
    result = 0;
    gp_wrap_cuMemAlloc_v2(&address, 100);
    did("cuMemAlloc_v2;current?;alloc device linear device 1 ctx 1 at 2000 of 100 asked 100 stream 0 pool 0;");
    gp_pass_cuMemAlloc_v2(&address, 100);
    did("cuMemAlloc_v2;current?;alloc device linear device 1 ctx 1 at 2000 of 100 asked 100 stream 0 pool 0;");
    current = NULL;
    gp_wrap_cuMemAlloc_v2(&address, 100);
    did("cuMemAlloc_v2;current?;alloc device linear device -1 ctx 0 at 2000 of 100 asked 100 stream 0 pool 0;");
    gp_wrap_cuModuleUnload(NULL);
    did("cuModuleUnload;current?;");
    undisturbed();
}

Test(hookscall, calls_that_are_not_the_programs)
{
    start();
    gp_thread.inside = 1;
    cr_expect_eq(gp_wrap_cuMemFree_v2(0x1000), 0);
    did("cuMemFree_v2 heeded inside;");
    cr_expect_eq(gp_thread.inside, 1);
    gp_thread.inside = 0;
    gp_thread.ignored = 1;
    gp_wrap_cuMemFree_v2(0x1000);
    did("cuMemFree_v2;");
    cr_expect_eq(gp_thread.ignored, 1);
    gp_thread.ignored = 0;
    ends_in = "cuMemFree_v2"; /* the library is switched off meanwhile */
    result = 5;
    cr_expect_eq(gp_wrap_cuMemFree_v2(0x1000), 5);
    did("free device at 1000;cuMemFree_v2;");
    undisturbed();
    gp_wrap_cuMemFree_v2(0x1000);
    did("cuMemFree_v2 heeded;");
}

/* ---- the source changes during a call ---------------------------------------------------------------------------- */

static bool is_back;

static void to_hooks(void)
{
    struct gp_source_status status;
    gp_hooks_start(&status);
    if (is_back)
        gp_hooks_end();
}

/* Nobody else has reported the call, as it began with one source and ended with the other, or with the first again. */
Test(hookscall, a_call_that_sees_the_source_change_is_reported_once)
{
    uint64_t address = 0x2000;
    change = to_hooks;
    start();
    for (int i = 0; i < 2; i++) {
        is_back = i;
        gp_hooks_end();
        changes_in = "cuMemAlloc_v2";
        gp_wrap_cuMemAlloc_v2(&address, 100);
        did(i ? "cuMemAlloc_v2 heeded;current?;alloc device linear device 1 ctx 1 at 2000 of 100 asked 100 stream 0 "
                "pool 0;"
              : "cuMemAlloc_v2 heeded;current?;learned ctx 1 device 1;"
                "alloc device linear device 1 ctx 1 at 2000 of 100 asked 100 stream 0 pool 0;");
        gp_hooks_end();
        changes_in = "cuMemFree_v2";
        gp_wrap_cuMemFree_v2(0x2000);
        did("cuMemFree_v2 heeded;free device at 2000;current?;freed 70 1 stream 0;");
    }
    gp_hooks_end();
    gp_wrap_cuMemFree_v2(0x2000);
    did("cuMemFree_v2 heeded;free device at 2000;current?;freed 70 1 stream 0;");
    changes_in = "";
    gp_hooks_end();
    gp_wrap_cuMemFree_v2(0x2000);
    did("cuMemFree_v2 heeded;");
    undisturbed();
}

static void to_hooks_and_again(void)
{
    void *made = PTR(0xd0);
    changes_in = "";
    to_hooks();
    gp_wrap_cuCtxCreate_v2(&made, 0, 2); /* another thread gets the handle of the context that has just ended */
}

Test(hookscall, the_handle_of_a_context_that_ends_in_a_change_is_used_again)
{
    void *made = PTR(0xd0);
    start();
    gp_wrap_cuCtxCreate_v2(&made, 0, 2);
    feed_taken();
    gp_hooks_end();
    change = to_hooks_and_again;
    changes_in = "cuCtxDestroy_v2";
    gp_wrap_cuCtxDestroy_v2(PTR(0xd0));
    did("cuCtxDestroy_v2 heeded;cuCtxCreate_v2;ctx gone 1 device 2 0;ctx 3 device 2;current?;ctx gone 1 device 2 0;");
    gp_wrap_cuCtxDestroy_v2(PTR(0xd0));
    did("ctx ends 3 device 2;cuCtxDestroy_v2;ctx ended 70 1 1;");
}

/* ---- calls that are left ----------------------------------------------------------------------------------------- */

static jmp_buf out;

static void leave(void)
{
    changes_in = "";
    longjmp(out, 1);
}

/* Out of a call, by a jump: the thread's next call is the program's again, and ends what the other one began. */
Test(hookscall, a_call_that_is_left_does_not_end_the_counting)
{
    start();
    change = leave;
    changes_in = "cuMemFree_v2";
    if (setjmp(out) == 0)
        gp_wrap_cuMemFree_v2(0x2000);
    feed_taken();
    gp_wrap_cuCtxDestroy_v2(PTR(0xd1));
    cr_expect(strstr(feed_taken(), "a call was left;cuCtxDestroy_v2;"));
    gp_wrap_cuMemFree_v2(0x3000);
    did("free device at 3000;cuMemFree_v2;current?;freed 70 1 stream 0;");
}

/* ---- modules from files ------------------------------------------------------------------------------------------ */

static int descriptors(void)
{
    int fd = dup(0);
    close(fd);
    return fd;
}

Test(hookscall, modules_from_files)
{
    static const struct {
        const char *text;
        size_t bytes, counted;
    } files[] = {{"\177ELF and on", 11, 11}, {"\177ELF", 4, 4}, {"\177EL", 3, 0}, {"\177ELf and on", 11, 0},
                 {".version 8", 10, 0},      {"", 0, 0},        {"xELF", 4, 0}};
    char path[] = "/tmp/gpuprof-test-XXXXXX", want[160];
    void *module = PTR(0xa0);
    int fd = mkstemp(path), first = descriptors();
    unsigned number = 0;
    cr_assert_geq(fd, 0);
    start();
    gp_wrap_cuModuleLoad(&module, "/none");
    did("cuModuleLoad;current?;learned ctx 1 device 1;");
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        cr_assert_eq(ftruncate(fd, 0), 0);
        cr_assert_eq(pwrite(fd, files[i].text, files[i].bytes, 0), (ssize_t)files[i].bytes);
        int used = snprintf(want, sizeof(want), "cuModuleLoad;current?;");
        if (files[i].counted)
            snprintf(want + used, sizeof(want) - (size_t)used, "module %u of %zu ctx 1;", ++number, files[i].counted);
        gp_wrap_cuModuleLoad(&module, path);
        did(want);
        if (!files[i].counted)
            continue;
        result = 1;
        gp_wrap_cuModuleLoad(&module, path);
        did("cuModuleLoad;current?;failed cuModuleLoad 1 asked 0 device 1;");
        gp_wrap_cuModuleUnload(module);
        snprintf(want, sizeof(want),
                 "free %s at %x;cuModuleUnload;freed 70 0 stream 0;failed cuModuleUnload 1 asked 0 device -1;",
                 feed_spaces[GP_SPACE_MODULE], number);
        did(want);
        result = 0;
        gp_wrap_cuModuleUnload(module);
        snprintf(want, sizeof(want), "free %s at %x;cuModuleUnload;freed 70 1 stream 0;", feed_spaces[GP_SPACE_MODULE],
                 number);
        did(want);
    }
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    gp_wrap_cuModuleLoad(&module, path); /* and does not wait for a writer */
    did("cuModuleLoad;current?;");
    unlink(path);
    cr_expect_eq(descriptors(), first, "a descriptor is left");
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static unsigned locks, held;

STANDIN(int, pthread_mutex_lock, pthread_mutex_t *mutex)
{
    if ((void *)mutex == (void *)&gp_hooks_modules)
        locks++, held++;
    return __real_pthread_mutex_lock(mutex);
}

STANDIN(int, pthread_mutex_unlock, pthread_mutex_t *mutex)
{
    held -= (void *)mutex == (void *)&gp_hooks_modules;
    return __real_pthread_mutex_unlock(mutex);
}

/* A change of the table is made under its lock, which is taken once; reading takes none. */
Test(hookscall, changes_of_numbers_are_locked)
{
    struct gp_hooks_numbers *numbers = &gp_hooks_modules;
    gp_hooks_number_new(numbers, 16);
    cr_expect(locks == 1 && held == 0);
    gp_hooks_number_put(numbers, 32, 5);
    cr_expect(locks == 2 && held == 0);
    gp_hooks_number_learn(numbers, 48);
    cr_expect(locks == 3 && held == 0);
    gp_hooks_number_learn(numbers, 48);
    gp_hooks_number_of(numbers, 48);
    cr_expect(locks == 3 && held == 0);
    gp_hooks_number_take(numbers, 48);
    cr_expect(locks == 4 && held == 0);
}

/* A table has 4096 places, of which any is found from any hash; what has no room is counted, and room comes back. */
Test(hookscall, as_many_numbers_as_there_is_room_for)
{
    struct gp_hooks_numbers *numbers = &gp_hooks_modules;
    enum { PLACES = 4096 };
    for (uint64_t handle = 1; handle <= PLACES; handle++)
        cr_assert_eq(gp_hooks_number_new(numbers, handle * 48), handle);
    did("");
    cr_expect_eq(gp_hooks_number_new(numbers, 7), 0);
    did("lost 1;");
    cr_expect_eq(gp_hooks_number_learn(numbers, 7), 0);
    did("lost 1;");
    cr_expect_not(gp_hooks_number_put(numbers, 7, 3));
    did("lost 1;");
    cr_expect_eq(gp_hooks_number_of(numbers, 7), 0);
    cr_expect_eq(gp_hooks_number_take(numbers, 7), 0);
    for (uint64_t handle = 1; handle <= PLACES; handle++) {
        cr_assert_eq(gp_hooks_number_of(numbers, handle * 48), handle);
        cr_assert_eq(gp_hooks_number_learn(numbers, handle * 48), handle);
        cr_assert(gp_hooks_number_put(numbers, handle * 48, (uint32_t)handle + 10000));
    }
    for (uint64_t handle = 1; handle <= PLACES; handle += 500) {
        cr_assert_eq(gp_hooks_number_take(numbers, handle * 48), handle + 10000);
        uint32_t number = gp_hooks_number_learn(numbers, handle * 48 + 1);
        cr_assert_gt(number, PLACES);
        cr_assert_eq(gp_hooks_number_of(numbers, handle * 48 + 1), number);
        cr_assert_eq(gp_hooks_number_of(numbers, handle * 48), 0);
        cr_assert_eq(gp_hooks_number_new(numbers, handle * 48), 0);
        did("lost 1;");
    }
}
