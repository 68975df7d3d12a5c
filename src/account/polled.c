/* SPDX-License-Identifier: MIT
 * polled.c: folds polled pools into a device's numbers and their peaks (account.h). */
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
    if (account && !polled_any(account))
        __atomic_fetch_or(&account->x_flags, GP_DEVICE_POLLED, __ATOMIC_RELAXED);
}

static int64_t polled_handed_out(const struct gp_gauge_value *gauges)
{
    return gauges[GP_GAUGE_KIND_BYTES + GP_KIND_POOL].current;
}

int64_t gp_polled_pools(const struct gp_gauge_value *gauges)
{
    return gp_larger(gauges[GP_GAUGE_POOL_RESERVED].current, polled_handed_out(gauges));
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
    int64_t change = gp_larger(polled_handed_out(gauges) - account->polled.pool_bytes - account->polled.lifted, 0);
    account->polled.lifted += change;
    gp_lock_give(&gp_accounts.lock);
    polled_move(account, GP_GAUGE_POOL_RESERVED, change);
}

/* After a poll: what is no longer handed out is as polled. */
static void polled_settle(struct gp_account *account, struct gp_gauge_value *gauges)
{
    gp_lock_take(&gp_accounts.lock);
    int64_t needed = gp_larger(polled_handed_out(gauges) - account->polled.pool_bytes, 0);
    int64_t change = gp_larger(account->polled.lifted - needed, 0);
    account->polled.lifted -= change;
    gp_lock_give(&gp_accounts.lock);
    gauges[GP_GAUGE_POOL_RESERVED].current -= change;
    gauges[GP_GAUGE_POOL_RESERVED].freed += change;
    polled_move(account, GP_GAUGE_POOL_RESERVED, -change);
}

/* Call it under the lock. Of the pools' gauge a rise that was lifted already is taken out of the change. */
static int64_t polled_absorb(struct gp_polled *polled, unsigned gauge, int64_t change)
{
    if (gauge != GP_GAUGE_POOL_RESERVED)
        return change;
    int64_t absorbed = gp_larger(change < polled->lifted ? change : polled->lifted, 0);
    polled->pool_bytes += change;
    polled->lifted -= absorbed;
    return change - absorbed;
}

void gp_polled_fold(struct gp_account *account, struct gp_gauge_value *gauges)
{
    if (!polled_any(account))
        return;
    polled_lift(account, gauges);
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++) {
        struct gp_gauge_value *gauge = &gauges[folded_gauges[i]], part = polled_part(i, gauges);
        gauge->current += part.current;
        gauge->allocated += part.allocated;
        gauge->freed += part.freed;
        /* No peak may be below the value shown. */
        account->polled.peaks[0][i] = gp_larger(account->polled.peaks[0][i], gauge->current);
        gauge->peak = gp_larger(gauge->peak, account->polled.peaks[0][i]);
    }
    /* At its peak all that was allocated lay in reserved memory. */
    for (unsigned i = 0; i < GP_FOLDED; i++) {
        int64_t allocated = gauges[folded_gauges[folded_allocated(i)]].peak;
        if (!folded_is_reserved(i) || allocated <= account->polled.allocated_before)
            continue;
        account->polled.peaks[0][i] = gp_larger(account->polled.peaks[0][i], allocated);
        gauges[folded_gauges[i]].peak = gp_larger(gauges[folded_gauges[i]].peak, allocated);
    }
    gp_lock_give(&gp_accounts.lock);
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

void gp_polled_reset(struct gp_account *account, gp_gauge_set mask, const struct gp_gauge_value *folded)
{
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++)
        if (mask >> folded_gauges[i] & 1)
            account->polled.peaks[0][i] = folded[folded_gauges[i]].current;
    if (mask >> (GP_GAUGE_ALLOCATED_BYTES + GP_POOL_ALL) & 1)
        account->polled.allocated_before = 0;
    else if (mask >> (GP_GAUGE_RESERVED_BYTES + GP_POOL_ALL) & 1)
        account->polled.allocated_before = folded[GP_GAUGE_ALLOCATED_BYTES + GP_POOL_ALL].peak;
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
    polled->peaks[0][i] = gp_larger(polled->peaks[0][i], bytes);
    for (unsigned slot = 0; scopes >> slot; slot++)
        if (scopes >> slot & 1)
            polled->peaks[1 + slot][i] = gp_larger(polled->peaks[1 + slot][i], bytes);
}

void gp_polled_set(struct gp_account *account, unsigned gauge, int64_t last, int64_t now, int64_t *last_high,
                   int64_t high)
{
    __atomic_fetch_or(&account->x_flags, GP_DEVICE_POLLED, __ATOMIC_RELAXED);
    gp_lock_take(&gp_accounts.lock);
    int64_t change = polled_absorb(&account->polled, gauge, now - last);
    gp_lock_give(&gp_accounts.lock);
    polled_move(account, gauge, change);
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
    polled_settle(account, gauges);
    polled_lift(account, gauges);
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_FOLDED; i++) {
        int64_t after = gauges[folded_gauges[i]].current, before = account->polled.before[i];
        polled_raise(&account->polled, i, (before < after ? before : after) + polled_part(i, gauges).current);
    }
    gp_lock_give(&gp_accounts.lock);
}
