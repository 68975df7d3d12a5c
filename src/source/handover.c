/* SPDX-License-Identifier: MIT
 *
 * handover.c: the program's own profiler has priority. Before CUPTI 13.3 a process has one
 * subscriber: when another tool wants to be it, or an operator asks, gpuprof gives its own up, and
 * the hooks count from then on. When the tool has left, CUPTI becomes the source again. No call is
 * missed or counted twice:
 *
 *      to the hooks   they begin, then CUPTI is given up. A call that began as the source's change took a while ends in
 *                     its wrapper, which knows what CUPTI has reported of it (hooks_late). CUPTI's callbacks for calls
 *                     that the hooks count are ignored.
 *      to CUPTI       it subscribes, then the hooks end. A call that they have begun to count they count to its end.
 *
 * While the hooks count, calls that go past them (gp_hooks_past) are missing, and so is memory that
 * only CUPTI sees (docs/limits.md).
 */
#include "account/feed/feed.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/thread.h"
#include "source/internal.h"
#include "source/source.h"
#include <gpuprof/wire.h>
#include <stdio.h>

/* A thread that has just seen that CUPTI counts enters the driver in this time, and CUPTI reports
 * at least that. A free that was not reported at its start is counted late, perhaps after another
 * thread has got the address. */
#define GP_HANDOVER_NS 5000000ull

/* No thread of the program waits longer for a change that is under way. */
#define GP_HANDOVER_PATIENCE_NS 20000000ull

static void (*x_changed)(const struct gp_source_status *status);
static uint32_t x_given, x_wanted;
static uint32_t x_changing; /* one change at a time: two at once could leave no source */

void gp_handover_start(void (*changed)(const struct gp_source_status *status))
{
    __atomic_store_n(&x_changed, changed, __ATOMIC_RELEASE); /* [handover.R] the session; pairs with [handover.A] */
}

static void handover_tell(const struct gp_source_status *status, const char *mark)
{
    /* [handover.A] pairs with [handover.R] */
    void (*changed)(const struct gp_source_status *) = __atomic_load_n(&x_changed, __ATOMIC_ACQUIRE);
    bool inside = gp_thread_enter();
    gp_feed_event(GP_EVENT_MARK, mark);
    if (inside)
        gp_thread_leave();
    gp_log(GP_LOG_INFO, "%s", mark);
    if (changed)
        changed(status);
}

static bool handover_begin(uint64_t patience_ns)
{
    uint64_t now = gp_clock_ns(), deadline = now + patience_ns;
    while (__atomic_exchange_n(&x_changing, 1, __ATOMIC_ACQUIRE)) { /* [changing.A] pairs with [changing.R] */
        if (now >= deadline)
            return false;
        gp_futex_wait(&x_changing, 1, deadline - now);
        now = gp_clock_ns();
    }
    return true;
}

static bool handover_end(bool result)
{
    __atomic_store_n(&x_changing, 0, __ATOMIC_RELEASE); /* [changing.R] pairs with [changing.A] */
    gp_futex_wake(&x_changing);
    return result;
}

static bool handover_give(void)
{
    static uint32_t never;
    struct gp_source_status status = {.source = GP_SOURCE_NONE};
    if (!gp_cupti_is_held()) /* another thread was faster */
        return __atomic_load_n(&x_given, __ATOMIC_ACQUIRE);
    if (gp_hooks_present()) {
        gp_hooks_resource_apart();
        gp_hooks_start(&status);
        gp_futex_wait(&never, 0, GP_HANDOVER_NS);
    }
    if (!gp_cupti_yield())
        return false;
    snprintf(status.detail, sizeof(status.detail), "%s the CUPTI subscriber was given up on request",
             status.source ? "driver hooks:" : "no events:");
    __atomic_store_n(&x_given, status.source != GP_SOURCE_NONE, __ATOMIC_RELEASE);
    handover_tell(&status, status.source ? "gpuprof: driver hooks count from here on" : "gpuprof: events end here");
    return true;
}

bool gp_handover_give(void)
{
    return gp_cupti_is_held() && handover_begin(GP_HANDOVER_PATIENCE_NS) && handover_end(handover_give());
}

void gp_handover_want(void)
{
    if (!__atomic_load_n(&x_given, __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&x_wanted, 1, __ATOMIC_RELEASE);
    gp_poll_wake();
}

static void handover_take(void)
{
    struct gp_source_status status = {.source = GP_SOURCE_CUPTI, .detail = "CUPTI, again after the driver hooks"};
    status.enabled = gp_cupti_resume();
    if (!status.enabled)
        return;
    gp_hooks_end();
    __atomic_store_n(&x_given, 0, __ATOMIC_RELEASE);
    handover_tell(&status, "gpuprof: CUPTI counts from here on");
}

void gp_handover_look(void)
{
    if (!__atomic_load_n(&x_wanted, __ATOMIC_RELAXED) || !handover_begin(0))
        return;
    if (__atomic_exchange_n(&x_wanted, 0, __ATOMIC_ACQ_REL))
        handover_take();
    handover_end(true);
}
