/* SPDX-License-Identifier: MIT
 *
 * allocator_fixture.h: what the tests of the allocator's calls share: the driver is the fake one, which writes down each
 * call (lib/calllog.h), and after each test the lock of what is served is as it was.
 */
#ifndef GP_TEST_ALLOCATOR_FIXTURE_H
#define GP_TEST_ALLOCATOR_FIXTURE_H

#include "allocator/cache/policy.h"
#include "allocator/internal.h"
#include "base/thread.h"
#include "lib/calllog.h"
#include "lib/fakedriver.h"
#include "lib/lockfree.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#define ERRNO 77

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

#endif
