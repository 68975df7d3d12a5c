/* SPDX-License-Identifier: MIT
 *
 * allocator_fixture.h: what the tests of the allocator's calls share: the driver is the fake one, which writes down each
 * call (lib/calllog.h), and after each test the lock of what is served is as it was.
 */
#ifndef GP_TEST_ALLOCATOR_FIXTURE_H
#define GP_TEST_ALLOCATOR_FIXTURE_H

#include "account/feed/start.h"
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/thread.h"
#include "cache/policy.h"
#include "lib/accounts.h"
#include "lib/calllog.h"
#include "lib/fakedriver.h"
#include "lib/lockfree.h"
#include "source/hooks.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <stdlib.h>

#define ERRNO 77
#define MIB   ((size_t)1 << 20)

void *gpuprof_preload_next(const char *name);
void *gpuprof_preload_next(const char *name)
{
    return calllog_function(name);
}

/* After each test, where Criterion counts a crash alone. */
static inline void expect_lock_given(void)
{
    if (!lock_is_as_new(&gp_served_lock))
        abort(); /* it was taken once more or less than given */
}

/* The calls since the last time are these. */
#define EXPECT_CALLS(_text)                                                                                            \
    do {                                                                                                               \
        const char *_calls = calllog_take();                                                                           \
        cr_expect_str_eq(_calls, _text, "the calls were \"%s\"", _calls);                                              \
    } while (0)

/* A policy whose blocks are not smaller than the driver's. */
static inline struct gp_policy policy_of(const char *name)
{
    struct gp_policy policy = *gp_policy_find(name);
    policy.granule_bytes = policy.granule_bytes < 512 ? 512 : policy.granule_bytes;
    return policy;
}

/* After a call of the program. */
static inline void expect_outside(void)
{
    cr_expect(!gp_thread.inside && !gp_thread.ignored && !gp_thread.prompt);
    cr_expect_eq(fakedriver.capture_mode, 0);
    cr_expect_eq(errno, ERRNO);
    cr_expect(gp_stream_fencing_begin(), "no fence is under way");
    gp_stream_fencing_end();
}

/* ---- a program under the allocator -------------------------------------------------------------------------------- */

static inline void start_accounts(void)
{
    static struct gp_wire_oom oom;
    accounts_start(2, (struct gp_feed_setup){.oom = &oom, .map_limit = 1 << 12});
}

static inline void start(enum gp_serve_kind kind, const char *name, uint64_t limit)
{
    struct gp_policy policy = policy_of(name);
    start_accounts();
    gp_served_setup(&policy, limit);
    cr_assert(gp_driver_bind());
    gp_stream_watch();
    cr_assert(gp_serve_install(kind));
    calllog.skips = "cuThreadExchangeStreamCaptureMode";
    calllog_clear();
    errno = ERRNO;
}

/* The device's primary context, current. */
static inline struct gp_served_context *enter(int device)
{
    void *ctx = NULL;
    cr_assert_eq(gp_wrap_cuDevicePrimaryCtxRetain(&ctx, device), 0);
    cr_assert_eq(gp_driver_real.cuCtxPushCurrent_v2(ctx), 0);
    calllog_clear();
    return gp_served_of(ctx);
}

static inline void leave(void)
{
    void *ctx = NULL;
    cr_assert_eq(gp_driver_real.cuCtxPopCurrent_v2(&ctx), 0);
    calllog_clear();
}

static inline uint64_t taken(size_t bytes)
{
    uint64_t address = 0;
    cr_assert_eq(gp_wrap_cuMemAlloc_v2(&address, bytes), 0);
    expect_outside();
    calllog_clear();
    return address;
}

static inline void given(uint64_t address)
{
    cr_assert_eq(gp_wrap_cuMemFree_v2(address), 0);
    expect_outside();
    calllog_clear();
}

#endif
