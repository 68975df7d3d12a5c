/* SPDX-License-Identifier: MIT
 *
 * leave.c: ends the library in a program that goes on (GP_COMMAND_DETACH).  init.c hands the two steps to the drain thread;
 * attach.c waits as they do if a start comes to nothing.
 *
 *   Detach   on the drain thread: the source ends, then the library is off, and once no thread of the
 *            program is inside, its other threads end, and the session. Nothing is unmapped but memory:
 *            a thread of the program may be about to return into the library's code, and CUPTI may
 *            be in use by others, so neither dlclose nor cuptiFinalize is called.
 *
 * If a thread of the program does not come out, or one of ours does not end (a driver call that hangs,
 * a disk), the library is stranded: it is off, its memory stays, and it cannot be attached again
 * until they have come out.
 */
#include "account/feed/before.h"
#include "account/feed/start.h"
#include "account/feed/survey.h"
#include "account/framework/framework.h"
#include "allocator/allocator.h"
#include "base/clock.h"
#include "base/kept.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/worker.h"
#include "inject/inject.h"
#include "session/batch.h"
#include "session/session.h"
#include "source/source.h"
#include <errno.h>

/* A callback takes microseconds, and at most 50 ms if it waits for the driver. */
#define GP_LEAVE_OUT_NS 1000000000ull
/* The poller may be inside a driver call, the recorder has had its second. */
#define GP_LEAVE_END_NS 1000000000ull

static const char *x_stranded; /* why; of the detach under way */

bool gp_leave_alone(void)
{
    uint64_t deadline = gp_clock_ns() + GP_LEAVE_END_NS;
    while (gp_worker_count() > 1 && gp_clock_ns() < deadline)
        gp_pause(1000);
    return gp_worker_count() <= 1;
}

bool gp_leave_all_out(void)
{
    return gp_thread_all_out(gp_clock_ns() + GP_LEAVE_OUT_NS);
}

int gp_inject_leave(void)
{
    if (!gp_inject_is_ready())
        return -EAGAIN;
    if (gp_allocator_is_used())
        return -EBUSY; /* the program holds blocks that only the cache can take back */
    gp_log(GP_LOG_INFO, "detached");
    gp_cupti_yield();
    GP_TESTPOINT("attach.yielded");
    gp_thread_life_leave();
    bool out = gp_leave_all_out();
    gp_framework_stop();
    gp_record_stop(true); /* a closed session has final numbers */
    gp_session_close(&gp_inject_session);
    gp_batch_last();
    gp_poll_end();
    bool alone = gp_leave_alone();
    if (!out)
        x_stranded = "a thread of the program is still inside the library";
    else if (!alone)
        x_stranded = "a thread of the library has not ended";
    else
        x_stranded = gp_allocator_is_used() ? "the library's allocator has been used meanwhile" : NULL;
    return 0;
}

bool gp_inject_left(void)
{
    const char *stranded = x_stranded;
    if (!stranded) {
        gp_feed_end();
        gp_feed_before_stop();
        gp_feed_survey_stop();
        gp_kept_unmap_all();
        gp_inject_session.header = NULL; /* the drain thread unmaps it; by the next attach others may be there */
    }
    gp_log_close();
    gp_inject_say(stranded ? GP_ATTACH_STRANDED : GP_ATTACH_OUT, 0, stranded ? stranded : "");
    return !stranded;
}
