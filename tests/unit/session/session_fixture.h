/* SPDX-License-Identifier: MIT
 *
 * session_fixture.h: for the tests of the library's side of a session: made-up accounts, a clock that the test sets, and the
 * drain thread's sleep, at which the test goes on. One thread runs everything.
 */
#ifndef GP_TEST_UNIT_SESSION_FIXTURE_H
#define GP_TEST_UNIT_SESSION_FIXTURE_H

#include "account/tap.h"
#include "allocator/allocator.h"
#include "base/thread.h"
#include "base/worker.h"
#include "cache/cache.h"
#include "lib/standin.h"
#include "lib/testclock.h"
#include "session/session.h"
#include "stack/stack.h"
#include <gpuprof/batch.h>
#include <gpuprof/wire.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull

/* ---- the clock and the sleep ------------------------------------------------------------------------------------- */

static void (*test_script)(unsigned step, uint64_t pause_ns); /* called at each sleep */
static unsigned test_step, test_wakes;
static bool (*test_fails)(long number); /* whether this system call fails, with errno; may be NULL */
static const void *test_woken;

STANDIN(long, syscall, long number, ...)
{
    long a[6];
    va_list args;
    va_start(args, number);
    for (unsigned i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_futex && a[1] == FUTEX_WAIT && test_script) {
        const struct timespec *t = (const void *)a[3];
        test_script(test_step++, t ? (uint64_t)t->tv_sec * SECOND + (uint64_t)t->tv_nsec : UINT64_MAX);
        return 0;
    }
    if (test_fails && test_fails(number))
        return -1;
    if (number == SYS_futex && a[1] == FUTEX_WAKE) {
        test_wakes++;
        test_woken = (const void *)a[0];
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- the accounts ------------------------------------------------------------------------------------------------ */

static char test_notes[8192];

static void test_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void test_note(const char *format, ...)
{
    size_t used = strlen(test_notes);
    va_list args;
    va_start(args, format);
    vsnprintf(test_notes + used, sizeof(test_notes) - used, format, args);
    va_end(args);
}

static bool test_present[GP_WIRE_DEVICES];
static int test_scope_error;
static uint64_t test_events;

STANDIN(bool, gp_tap_device, unsigned index, struct gp_wire_device *out)
{
    memset(out, 0, sizeof(*out));
    out->flags = GP_DEVICE_PRESENT;
    out->total_bytes = 7000 + index;
    out->stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current = 30 + index;
    return test_present[index];
}

STANDIN_SAYS(int64_t, gp_tap_site_bytes, 500 + index + device->total_bytes, unsigned index,
             const struct gp_wire_device *device);

STANDIN(bool, gp_tap_reset, unsigned index, unsigned what, struct gp_wire_before_after *out)
{
    memset(out, 0, sizeof(*out));
    out->device = (int32_t)index;
    if (test_present[index])
        test_note("reset %u %u\n", index, what);
    return test_present[index];
}

STANDIN_SAYS(int, gp_tap_scope_begin, test_scope_error, unsigned slot);

STANDIN(int, gp_tap_scope_end, unsigned slot, struct gp_wire_scope_value out[GP_WIRE_DEVICES])
{
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++)
        out[i] = (struct gp_wire_scope_value){100 * slot + i, 1000 * slot + i};
    return test_scope_error;
}

STANDIN(int, gp_tap_scope_read, unsigned slot, unsigned index, struct gp_wire_scope_value *out)
{
    *out = (struct gp_wire_scope_value){100 * slot + index, 1000 * slot + index};
    return test_present[index] ? 0 : -ENODEV;
}

static uint32_t test_blocks; /* that a walk has */

STANDIN(void, gp_tap_blocks, unsigned index, void *arg, gp_tap_block_fn *visit, void (*rest)(void *arg))
{
    test_note("blocks %d\n", (int)index);
    for (uint32_t i = 0; i < test_blocks; i++) {
        visit(arg, &(struct gp_tap_block){.address = 0x1000 + i * 0x100ull,
                                          .bytes = 256,
                                          .requested_bytes = 200,
                                          .time_ns = 5 + i,
                                          .site = i % 7,
                                          .kind = GP_KIND_LINEAR,
                                          .device = 1});
        if (i % GP_TAP_REST == GP_TAP_REST - 1)
            rest(arg);
    }
    rest(arg);
}

STANDIN(bool, gp_tap_owned, unsigned index, struct gp_wire_device *out,
        struct gp_wire_owner_value owners[GP_WIRE_OWNERS])
{
    if (!gp_tap_device(index, out))
        return false;
    owners[3].live = 40 + index;
    return true;
}

STANDIN(bool, gp_tap_framework, unsigned index, struct gp_wire_framework *framework, struct gp_wire_framework *heaps)
{
    framework->blocks = 50 + index;
    heaps->blocks = 60 + index;
    return true;
}

STANDIN(void, gp_tap_doors, struct gp_wire_doors *out)
{
    out->row_count = 80;
}

STANDIN(void, gp_tap_before, unsigned index, struct gp_wire_before_device *out)
{
    out->bytes = 70 + index;
}

STANDIN(void, gp_tap_before_blocks, struct gp_wire_blocks *out)
{
    out->state = GP_BLOCKS_DONE;
}

static struct gp_batch_device test_rows[GP_WIRE_GPUS];
static const struct gp_batch *test_batch; /* where batch.c puts it */
static int test_watched;

STANDIN(bool, gp_tap_batch, unsigned index, struct gp_batch_device *out)
{
    if (!test_present[index])
        return false;
    if (!test_batch)
        test_batch = (const void *)((const char *)out - offsetof(struct gp_batch, devices));
    *out = test_rows[index];
    out->device = (int32_t)index;
    return true;
}

STANDIN(void, gp_tap_batch_begin, void)
{
    test_watched = 1;
}

STANDIN(void, gp_tap_batch_end, void)
{
    test_watched = 0;
}

STANDIN_SAYS(uint64_t, gp_tap_events, test_events, void);

STANDIN(unsigned, gp_owner_rows, struct gp_wire_owner rows[GP_WIRE_OWNERS])
{
    strcpy(rows[1].owner, "somebody");
    return 2;
}

STANDIN(void, gp_allocator_iterate, int device, void *arg, gp_allocator_segment_fn *segment,
        gp_allocator_block_fn *block, void (*rest)(void *arg))
{
    if (device != 2)
        return;
    segment(arg,
            &(struct gp_cache_segment){.address = 0x90000, .bytes = 0x1000, .stream = 5, .pool = 6, .growable = true});
    block(arg, &(struct gp_cache_block){0x90000, 0x400, 0x300, 7, GP_CACHE_LIVE, 8, 9});
    block(arg, &(struct gp_cache_block){0x90400, 0xc00, 0x300, UINT64_MAX, GP_CACHE_IDLE, 0, 0});
    rest(arg);
    segment(arg, &(struct gp_cache_segment){.address = 0xa0000, .bytes = 0x1000, .stream = INT64_MAX, .small = true});
    block(arg, &(struct gp_cache_block){0xa0000, 0x1000, 0x10, 1ull << 63, GP_CACHE_WAITING, 3, 4});
}

static void *(*test_main)(void *); /* of the drain thread */
static int test_worker_error;

STANDIN(int, gp_worker_start, void *(*main)(void *), const char *name)
{
    test_note("thread %s\n", name);
    test_main = main;
    return test_worker_error;
}

/* ---- the session ------------------------------------------------------------------------------------------------- */

static struct gp_session test_session;

static bool test_polls(uint64_t timeout_ns)
{
    test_note("poll %lu\n", (unsigned long)timeout_ns);
    return true;
}

static void test_marks(enum gp_wire_event_type type, const char *name)
{
    test_note("event %d '%s'\n", type, name);
}

static bool test_yes;

static bool test_yields(void)
{
    return test_yes;
}

static inline struct gp_session_hooks test_hooks(void)
{
    return (struct gp_session_hooks){.poll_now = test_polls, .event = test_marks, .yield = test_yields};
}

/* Opens the session; the drain thread is not running, and there are devices 0, 5 and the host. */
static inline void test_open(const struct gp_session_hooks *hooks)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    cr_assert_eq(gp_session_open(&test_session, &(struct gp_session_size){.sites_bytes = 0}), 0);
    test_present[0] = test_present[5] = test_present[GP_WIRE_HOST] = true;
    test_now = 100 * SECOND;
    cr_assert_eq(gp_drain_start(&test_session, hooks), 0);
    test_notes[0] = '\0';
}

/* Runs the drain thread until the script calls test_stop. */
static inline void test_run(void (*script)(unsigned step, uint64_t pause_ns))
{
    test_script = script;
    test_step = 0;
    cr_expect_null(test_main(NULL));
    test_script = NULL;
}

static inline void test_stop(void)
{
    gp_thread_life_leave();
}

#endif
