/* SPDX-License-Identifier: MIT
 * polled.c: folds polled pools into a device's numbers and their peaks (polled.h). */
#include "account/polled.h"
#include "account/event.h"
#include "account/feed/poll.h"
#include "account/feed/want.h"
#include "account/internal.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/lock.h"
#include "base/numbers.h"
#include <gpuprof/wire.h>

static const uint8_t folded_gauges[GP_FOLDED] = {
    GP_GAUGE_RESERVED_BYTES + GP_POOL_ALL,  GP_GAUGE_RESERVED_BYTES + GP_POOL_LARGE,
    GP_GAUGE_ALLOCATED_BYTES + GP_POOL_ALL, GP_GAUGE_ALLOCATED_BYTES + GP_POOL_LARGE,
    GP_GAUGE_ACTIVE_BYTES + GP_POOL_ALL,    GP_GAUGE_ACTIVE_BYTES + GP_POOL_LARGE,
    GP_GAUGE_REQUESTED_BYTES + GP_POOL_ALL, GP_GAUGE_REQUESTED_BYTES + GP_POOL_LARGE,
};

static bool folded_is_reserved(unsigned i)
{
    return i < 2;
}

/* The allocated bytes of reserved gauge i. */
static unsigned folded_allocated(unsigned i)
{
    return i % 2 + 2;
}

/* The polled part of folded gauge i. */
static struct gp_gauge_value polled_part(unsigned i, const struct gp_gauge_value *gauges)
{
    if (!folded_is_reserved(i))
        return gauges[GP_GAUGE_GRAPH_USED];
    const struct gp_gauge_value *pool = &gauges[GP_GAUGE_POOL_RESERVED], *graph = &gauges[GP_GAUGE_GRAPH_RESERVED];
    return (struct gp_gauge_value){
        .current = pool->current + graph->current,
        .allocated = pool->allocated + graph->allocated,
        .freed = pool->freed + graph->freed,
    };
}

static bool polled_any(struct gp_account *account)
{
    return __atomic_load_n(&account->x_flags, __ATOMIC_RELAXED) & GP_DEVICE_POLLED;
}

void gp_polled_expect(int device)
{
    struct gp_account *account = gp_account_of(device);
    if (account)
        gp_polled_expect_of(account);
}

static void polled_move(struct gp_account *account, unsigned gauge, int64_t change)
{
    struct gp_delta delta = {.gauge = gauge, .amount = change > 0 ? change : -change};
    if (change)
        gp_counter_apply(account->counter, 0, change > 0 ? GP_ADD : GP_SUB, &delta, 1);
}

/* Makes the gauge of the pools and its copy in the snapshot at least what was handed out. */
static void polled_lift(struct gp_account *account, struct gp_gauge_value *gauges)
{
    struct gp_gauge_value *pools = &gauges[GP_GAUGE_POOL_RESERVED];
    int64_t lack = gp_polled_pools(gauges) - pools->current;
    if (GP_LIKELY(lack <= 0))
        return;
    pools->current += lack;
    pools->allocated += lack;
    gp_lock_take(&gp_accounts.lock);
    int64_t change = gp_larger(gp_polled_handed_out(gauges) - account->polled.pool_bytes - account->polled.lifted, 0);
    account->polled.lifted += change;
    gp_lock_give(&gp_accounts.lock);
    polled_move(account, GP_GAUGE_POOL_RESERVED, change);
}

/* After a poll: what is no longer handed out is as polled. */
static void polled_settle(struct gp_account *account, struct gp_gauge_value *gauges)
{
    gp_lock_take(&gp_accounts.lock);
    int64_t needed = gp_larger(gp_polled_handed_out(gauges) - account->polled.pool_bytes, 0);
    int64_t change = gp_larger(account->polled.lifted - needed, 0);
    account->polled.lifted -= change;
    gp_lock_give(&gp_accounts.lock);
    gauges[GP_GAUGE_POOL_RESERVED].current -= change;
    gauges[GP_GAUGE_POOL_RESERVED].freed += change;
    polled_move(account, GP_GAUGE_POOL_RESERVED, -change);
}

/* Call it under the lock. If the gauge is the pools', takes the part of a rise that was lifted
 * already out of the change. */
static int64_t polled_absorb(struct gp_polled *polled, unsigned gauge, int64_t change)
{
    if (gauge != GP_GAUGE_POOL_RESERVED)
        return change;
    int64_t absorbed = gp_larger(change < polled->lifted ? change : polled->lifted, 0);
    polled->pool_bytes += change;
    polled->lifted -= absorbed;
    return change - absorbed;
}

/* Own bytes, and of reserved ones what pools handed out: exact in any snapshot. */
static int64_t polled_sure(unsigned i, const struct gp_gauge_value *gauges)
{
    return gauges[folded_gauges[i]].current + (folded_is_reserved(i) ? gp_polled_handed_out(gauges) : 0);
}

/* Call it under the lock. The sum may be of bytes that were not there at once, so what it has above the peak is taken
 * off. Returns that. */
static int64_t polled_fold_one(struct gp_polled *polled, unsigned i, struct gp_gauge_value *gauges)
{
    struct gp_gauge_value *gauge = &gauges[folded_gauges[i]], part = polled_part(i, gauges);
    polled->peaks[0][i] = gp_larger(polled->peaks[0][i], polled_sure(i, gauges));
    gauge->peak = gp_larger(gauge->peak, polled->peaks[0][i]);
    int64_t over = gp_larger(gauge->current + part.current - gauge->peak, 0);
    gauge->current += part.current - over;
    gauge->allocated += part.allocated;
    gauge->freed += part.freed;
    return over;
}

/* Call it under the lock. Allocated memory of a device lies in reserved memory, at its peak and
 * now. */
static int64_t polled_fold_reserved(struct gp_polled *polled, unsigned i, struct gp_gauge_value *gauges)
{
    const struct gp_gauge_value *allocated = &gauges[folded_gauges[folded_allocated(i)]];
    struct gp_gauge_value *reserved = &gauges[folded_gauges[i]];
    if (allocated->peak > polled->allocated_before)
        polled->peaks[0][i] = gp_larger(polled->peaks[0][i], allocated->peak);
    int64_t over = polled_fold_one(polled, i, gauges), lack = gp_larger(allocated->current - reserved->current, 0);
    lack = lack < over ? lack : over;
    reserved->current += lack;
    reserved->peak = gp_larger(reserved->peak, reserved->current);
    return over - lack;
}

void gp_polled_fold(struct gp_account *account, struct gp_gauge_value *gauges)
{
    int64_t over = 0;
    if (!polled_any(account))
        return;
    polled_lift(account, gauges);
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        over |= folded_is_reserved(i) ? 0 : polled_fold_one(&account->polled, i, gauges);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        over |= folded_is_reserved(i) ? polled_fold_reserved(&account->polled, i, gauges) : 0;
    gp_lock_give(&gp_accounts.lock);
    if (GP_UNLIKELY(over)) /* whether it is held at once the next poll tells */
        gp_feed_poll_want((gauges[GP_GAUGE_POOL_RESERVED].current ? GP_POLL_POOLS : 0) |
                          (gauges[GP_GAUGE_GRAPH_RESERVED].current ? GP_POLL_GRAPHS : 0));
}

void gp_polled_fold_scope(struct gp_account *account, unsigned slot, int64_t *peaks)
{
    if (!polled_any(account))
        return;
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        peaks[folded_gauges[i]] = gp_larger(peaks[folded_gauges[i]], account->polled.peaks[1 + slot][i]);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        if (folded_is_reserved(i))
            peaks[folded_gauges[i]] = gp_larger(peaks[folded_gauges[i]], peaks[folded_gauges[folded_allocated(i)]]);
    gp_lock_give(&gp_accounts.lock);
}

static bool polled_late(void)
{
    return __atomic_load_n(&gp_accounts.x_poll_late, __ATOMIC_RELAXED); /* its reader has waited for the poll */
}

void gp_polled_reset(struct gp_account *account, gp_gauge_set mask, const struct gp_gauge_value *folded,
                     const struct gp_gauge_value *gauges)
{
    bool late = polled_late();
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        if (mask >> folded_gauges[i] & 1)
            account->polled.peaks[0][i] = late ? polled_sure(i, gauges) : folded[folded_gauges[i]].current;
    if (mask >> (GP_GAUGE_ALLOCATED_BYTES + GP_POOL_ALL) & 1)
        account->polled.allocated_before = 0;
    else if (mask >> (GP_GAUGE_RESERVED_BYTES + GP_POOL_ALL) & 1)
        account->polled.allocated_before = folded[GP_GAUGE_ALLOCATED_BYTES + GP_POOL_ALL].peak;
    gp_lock_give(&gp_accounts.lock);
}

/* Folds the gauges, and restarts the slot's peaks, as gp_polled_reset. */
static void polled_restart(struct gp_account *account, unsigned slot, struct gp_gauge_value *gauges)
{
    int64_t sure[GP_FOLDED];
    bool late = polled_late();
    for (unsigned i = 0; i < GP_FOLDED; i++)
        sure[i] = polled_sure(i, gauges);
    gp_polled_fold(account, gauges);
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        account->polled.peaks[1 + slot][i] = late ? sure[i] : gauges[folded_gauges[i]].current;
    gp_lock_give(&gp_accounts.lock);
}

void gp_polled_scope_begin(struct gp_account *account, unsigned slot)
{
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    gp_counter_snapshot(account->counter, gauges);
    polled_restart(account, slot, gauges);
}

void gp_polled_turn(struct gp_account *account, unsigned slot, struct gp_gauge_value *gauges, int64_t *peaks)
{
    if (!polled_any(account))
        return;
    gp_polled_fold_scope(account, slot, peaks);
    polled_restart(account, slot, gauges);
}

/* Call it under the lock. Raises the folded peaks of the reset's period and of every scope under
 * way. */
static void polled_raise(struct gp_polled *polled, unsigned i, int64_t bytes)
{
    uint32_t scopes = __atomic_load_n(&gp_accounts.x_scopes, __ATOMIC_ACQUIRE);
    polled->peaks[0][i] = gp_larger(polled->peaks[0][i], bytes);
    for (unsigned slot = 0; scopes >> slot; slot++)
        if (scopes >> slot & 1)
            polled->peaks[1 + slot][i] = gp_larger(polled->peaks[1 + slot][i], bytes);
}

/* Call it under the lock. */
static void polled_read(struct gp_polled_sum *sum, int64_t last, int64_t now)
{
    sum->bytes += now;
    sum->least += last < now ? last : now;
    sum->parts += now > 0;
}

void gp_polled_set(struct gp_account *account, unsigned gauge, int64_t last, int64_t now, int64_t *last_high,
                   int64_t high)
{
    struct gp_polled *polled = &account->polled;
    bool used = gauge == GP_GAUGE_GRAPH_USED, rose = high > *last_high;
    __atomic_fetch_or(&account->x_flags, GP_DEVICE_POLLED, __ATOMIC_RELAXED);
    gp_lock_take(&gp_accounts.lock);
    int64_t change = polled_absorb(polled, gauge, now - last),
            *highest = used ? &polled->used_rose : &polled->reserved_rose;
    polled_read(used ? &polled->used : &polled->reserved, last, now);
    for (unsigned i = 0; rose && i < GP_FOLDED; i++)
        if (folded_is_reserved(i) != used)
            polled_raise(polled, i, high); /* at some instant since the last poll this was held */
    if (rose)
        *highest = gp_larger(*highest, high);
    if (high >= 0) /* the driver told it, and the program may have restarted it */
        *last_high = high;
    gp_lock_give(&gp_accounts.lock);
    polled_move(account, gauge, change);
}

static int64_t polled_held(const struct gp_polled_sum *sum, bool again)
{
    return again ? sum->least : sum->bytes;
}

/* A recording needs sums that hold. */
static bool polled_heard(void)
{
    return __atomic_load_n(gp_accounts.setup.listened, __ATOMIC_RELAXED);
}

struct gp_polled_teller {
    struct gp_account *account;
    int device;
    uint64_t time_ns;
};

static void polled_event(const struct gp_polled_teller *teller, enum gp_wire_event_type type, enum gp_wire_kind kind,
                         uint64_t address, int64_t bytes)
{
    struct gp_wire_event event = {
        .time_ns = teller->time_ns, .type = (uint8_t)type, .kind = (uint8_t)kind, .device = (uint8_t)teller->device};
    event.address = address;
    event.bytes = event.requested_bytes = (uint64_t)bytes;
    if (polled_any(teller->account) && polled_heard())
        gp_event_write(&event);
}

static void polled_tell(const struct gp_polled_teller *teller)
{
    gp_lock_take(&gp_accounts.lock);
    const struct gp_polled *polled = &teller->account->polled;
    const int64_t used = polled_held(&polled->used, polled->again), used_rose = polled->used_rose;
    const int64_t reserved = polled_held(&polled->reserved, polled->again), reserved_rose = polled->reserved_rose;
    gp_lock_give(&gp_accounts.lock);
    if (used_rose)
        polled_event(teller, GP_EVENT_SEGMENT_MAP, GP_KIND_GRAPH, GP_POLL_ROSE, used_rose);
    polled_event(teller, GP_EVENT_SEGMENT_MAP, GP_KIND_GRAPH, 0, used);
    if (reserved_rose)
        polled_event(teller, GP_EVENT_SEGMENT_MAP, GP_KIND_POOL, GP_POLL_ROSE, reserved_rose);
    polled_event(teller, GP_EVENT_SEGMENT_MAP, GP_KIND_POOL, 0, reserved);
}

void gp_feed_poll_begin(int device)
{
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    struct gp_account *account = gp_account_of(device);
    if (!account)
        return;
    gp_counter_snapshot(account->counter, gauges);
    gp_lock_take(&gp_accounts.lock);
    struct gp_polled *polled = &account->polled;
    for (unsigned i = 0; i < GP_FOLDED; i++) {
        const struct gp_gauge_value *own = &gauges[folded_gauges[i]];
        polled->last[i] = polled->begun[i];
        polled->begun[i] = (struct gp_polled_own){.current = own->current, .freed = own->freed};
    }
    polled->reserved = polled->used = (struct gp_polled_sum){0};
    polled->reserved_rose = polled->used_rose = 0;
    polled->again = false;
    gp_lock_give(&gp_accounts.lock);
    polled_event(&(struct gp_polled_teller){account, device, 0}, GP_EVENT_SEGMENT_UNMAP, GP_KIND_POOL, 0, 0);
}

/* At most so much was held at every instant since then: what was freed may have been the memory of that time. A reset
 * of the totals leaves nothing that is sure. */
static int64_t polled_least(const struct gp_polled_own *since, const struct gp_gauge_value *now)
{
    int64_t least = now->freed < since->freed ? 0 : since->current - (now->freed - since->freed);
    return gp_larger(least < now->current ? least : now->current, 0);
}

/* Call it under the lock. The sum (b) of gauge i. */
static int64_t polled_at_once(const struct gp_polled *polled, unsigned i, const struct gp_gauge_value *gauges)
{
    return polled_least(&polled->begun[i], &gauges[folded_gauges[i]]) +
           polled_held(folded_is_reserved(i) ? &polled->reserved : &polled->used, polled->again);
}

/* Call it under the lock. */
static bool polled_would_raise(const struct gp_polled *polled, unsigned i, int64_t bytes)
{
    uint32_t scopes = __atomic_load_n(&gp_accounts.x_scopes, __ATOMIC_ACQUIRE);
    bool raises = bytes > polled->peaks[0][i];
    for (unsigned slot = 0; scopes >> slot; slot++)
        raises |= scopes >> slot & 1 && bytes > polled->peaks[1 + slot][i];
    return raises;
}

bool gp_feed_poll_again(int device)
{
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    struct gp_account *account = gp_account_of(device);
    if (!account || !polled_any(account))
        return false;
    gp_counter_snapshot(account->counter, gauges);
    gp_lock_take(&gp_accounts.lock);
    struct gp_polled *polled = &account->polled;
    /* If every part is as at the poll before, that was the other reading. */
    bool again = polled->reserved.parts > 1 && polled->reserved.least != polled->reserved.bytes,
         raises = polled_heard();
    for (unsigned i = 0; i < GP_FOLDED && again; i++)
        raises |= folded_is_reserved(i) && polled_would_raise(polled, i, polled_at_once(polled, i, gauges));
    polled->again = again &= raises;
    if (again)
        polled->reserved = polled->used = (struct gp_polled_sum){0};
    gp_lock_give(&gp_accounts.lock);
    return again;
}

void gp_feed_poll_end(int device)
{
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    struct gp_account *account = gp_account_of(device);
    if (!account || !polled_any(account))
        return;
    /* A reader of the events must not look further for the least own bytes than we do. */
    const struct gp_polled_teller teller = {account, device, gp_clock_ns()};
    gp_counter_snapshot(account->counter, gauges);
    polled_settle(account, gauges);
    polled_lift(account, gauges);
    gp_lock_take(&gp_accounts.lock);
    struct gp_polled *polled = &account->polled;
    for (unsigned i = 0; i < GP_FOLDED; i++) {
        int64_t rose = folded_is_reserved(i) ? polled->reserved_rose : polled->used_rose;
        polled_raise(polled, i, polled_sure(i, gauges));
        polled_raise(polled, i, polled_at_once(polled, i, gauges));
        if (rose)
            polled_raise(polled, i, rose + polled_least(&polled->last[i], &gauges[folded_gauges[i]]));
    }
    gp_lock_give(&gp_accounts.lock);
    polled_tell(&teller);
}

void gp_feed_poll_late(bool late)
{
    __atomic_store_n(&gp_accounts.x_poll_late, late, __ATOMIC_RELAXED);
}
