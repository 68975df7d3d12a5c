/* SPDX-License-Identifier: MIT
 * polled.c: see polled.h. */
#include "account/polled.h"
#include "account/account.h"

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

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool polled_any(struct gp_account *account)
{
    return __atomic_load_n(&account->x_flags, __ATOMIC_RELAXED) & GP_DEVICE_POLLED;
}

void gp_polled_fold(struct gp_account *account, struct gp_gauge_value *gauges)
{
    if (!polled_any(account))
        return;
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++) {
        struct gp_gauge_value *gauge = &gauges[folded_gauges[i]], part = polled_part(i, gauges);
        gauge->current += part.current;
        gauge->allocated += part.allocated;
        gauge->freed += part.freed;
        /* No peak may be below the value shown. */
        account->polled.peaks[0][i] = larger(account->polled.peaks[0][i], gauge->current);
        gauge->peak = larger(gauge->peak, account->polled.peaks[0][i]);
    }
    gp_lock_give(&gp_accounts.lock);
}

void gp_polled_fold_scope(struct gp_account *account, unsigned slot, int64_t *peaks)
{
    if (!polled_any(account))
        return;
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        peaks[folded_gauges[i]] = larger(peaks[folded_gauges[i]], account->polled.peaks[1 + slot][i]);
    gp_lock_give(&gp_accounts.lock);
}

void gp_polled_reset(struct gp_account *account, uint64_t mask, const struct gp_gauge_value *folded)
{
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        if (mask >> folded_gauges[i] & 1)
            account->polled.peaks[0][i] = folded[folded_gauges[i]].current;
    gp_lock_give(&gp_accounts.lock);
}

void gp_polled_scope_begin(struct gp_account *account, unsigned slot)
{
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    gp_counter_snapshot(account->counter, gauges);
    gp_polled_fold(account, gauges);
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        account->polled.peaks[1 + slot][i] = gauges[folded_gauges[i]].current;
    gp_lock_give(&gp_accounts.lock);
}

void gp_polled_turn(struct gp_account *account, unsigned slot, struct gp_gauge_value *gauges, int64_t *peaks)
{
    if (!polled_any(account))
        return;
    gp_polled_fold(account, gauges);
    gp_polled_fold_scope(account, slot, peaks);
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        account->polled.peaks[1 + slot][i] = gauges[folded_gauges[i]].current;
    gp_lock_give(&gp_accounts.lock);
}

/* Call it under the lock. Raises the folded peaks of the reset's period and of every scope under
 * way. */
static void polled_raise(struct gp_polled *polled, unsigned i, int64_t bytes)
{
    uint32_t scopes = __atomic_load_n(&gp_accounts.x_scopes, __ATOMIC_ACQUIRE);
    polled->peaks[0][i] = larger(polled->peaks[0][i], bytes);
    for (unsigned slot = 0; scopes >> slot; slot++)
        if (scopes >> slot & 1)
            polled->peaks[1 + slot][i] = larger(polled->peaks[1 + slot][i], bytes);
}

void gp_polled_set(struct gp_account *account, unsigned gauge, int64_t last, int64_t now, int64_t *last_high,
                   int64_t high)
{
    struct gp_delta delta = {.gauge = gauge, .amount = now > last ? now - last : last - now};
    __atomic_fetch_or(&account->x_flags, GP_DEVICE_POLLED, __ATOMIC_RELAXED);
    if (delta.amount)
        gp_counter_apply(account->counter, 0, now > last ? GP_ADD : GP_SUB, &delta, 1);
    if (high <= *last_high)
        return;
    /* The watermark has risen since the last poll: at some instant at least this much was held. */
    *last_high = high;
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        if (folded_is_reserved(i) == (gauge != GP_GAUGE_GRAPH_USED))
            polled_raise(&account->polled, i, high);
    gp_lock_give(&gp_accounts.lock);
}

void gp_feed_poll_begin(int device)
{
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    struct gp_account *account = gp_account_of(device);
    if (!account)
        return;
    gp_counter_snapshot(account->counter, gauges);
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        account->polled.before[i] = gauges[folded_gauges[i]].current;
    gp_lock_give(&gp_accounts.lock);
}

void gp_feed_poll_end(int device)
{
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    struct gp_account *account = gp_account_of(device);
    if (!account || !polled_any(account))
        return;
    gp_counter_snapshot(account->counter, gauges);
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++) {
        int64_t after = gauges[folded_gauges[i]].current, before = account->polled.before[i];
        polled_raise(&account->polled, i, (before < after ? before : after) + polled_part(i, gauges).current);
    }
    gp_lock_give(&gp_accounts.lock);
}
