/* SPDX-License-Identifier: MIT
 *
 * pool.c: stream-ordered pools. The calls show what is allocated from them; only a poll shows
 * what they hold.
 *
 * A destroyed pool lives, with its last known reserve, until its last block is freed (cuda.h:
 * cuMemPoolDestroy), and is no longer polled.
 *
 * NVIDIA does not say whether the handle of a pool outlives the end of its device's primary context,
 * and the driver does not check a handle. So after that no pool of the device is polled until it is
 * known to live: GP_POOL_UNSURE.
 */
#include "account/pool.h"
#include "account/feed/feed.h"
#include "account/feed/poll.h"
#include "account/feed/pool.h"
#include "account/feed/want.h"
#include "account/frame.h"
#include "account/internal.h"
#include "account/polled.h"
#include "base/clock.h"
#include "base/gauge.h"
#include "base/lock.h"
#include "base/map.h"
#include <errno.h>
#include <gpuprof/wire.h>
#include <string.h>

/* gp_record_pool.state */
enum { POOL_DESTROYED, POOL_HELD, POOL_ENDING /* the call that destroys it is under way */ };

/* The bytes that a pool destroyed by the program still counts as reserved. */
static void pool_gone(const struct gp_record *pool)
{
    int64_t high = INT64_MAX; /* no watermark: the driver cannot be asked */
    if (pool->device == GP_NO_DEVICE)
        return;
    struct gp_account *account = gp_account_of(pool->device);
    if (account)
        gp_polled_set(account, GP_GAUGE_POOL_RESERVED, (int64_t)pool->bytes, 0, &high, 0);
}

void gp_feed_pool_create(uint64_t pool, int device, unsigned flags)
{
    bool is_nowhere = device < 0;
    struct gp_record old,
        record = {
            .key = pool,
            .space = GP_SPACE_POOL,
            .kind = GP_KIND_POOL,
            .device = is_nowhere ? GP_NO_DEVICE : (uint8_t)device,
            .time_ns = gp_clock_ns(),
            .pool = {.state = POOL_HELD, .flags = (uint8_t)(flags | (is_nowhere ? GP_POOL_NOWHERE : 0))},
        };
    if (!is_nowhere && !gp_account_of(device))
        return;
    int status = gp_map_insert(gp_accounts.objects, &record, &old);
    if (status < 0)
        gp_feed_lost(GP_LOST_MAP);
    if (status == 1) {
        if (!(old.pool.flags & GP_POOL_UNSURE))
            gp_feed_lost(GP_LOST_MISSED_FREE);
        pool_gone(&old);
    }
    gp_feed_poll_want(GP_POLL_POOLS);
}

static bool pool_is_asked(const struct gp_record *pool)
{
    return pool->pool.state == POOL_HELD && !pool->pool.flags;
}

static uint64_t x_polling; /* the pool that the poller is querying */

bool gp_feed_poll_enter(uint64_t pool)
{
    struct gp_record record;
    /* [poll.P] sequentially consistent store, then the lookup; the destroyer marks the record, then loads [poll.D]:
     * one of the two sees the other. */
    __atomic_store_n(&x_polling, pool, __ATOMIC_SEQ_CST);
    if (gp_map_find(gp_accounts.objects, GP_SPACE_POOL, pool, &record) == 0 && pool_is_asked(&record))
        return true;
    __atomic_store_n(&x_polling, 0, __ATOMIC_SEQ_CST);
    return false;
}

void gp_feed_poll_leave(void)
{
    __atomic_store_n(&x_polling, 0, __ATOMIC_SEQ_CST);
}

struct gp_polled_pool {
    int64_t reserved, high, last, last_high;
    int device;
};

static bool pool_polled(struct gp_record *pool, void *arg)
{
    struct gp_polled_pool *polled = arg;
    polled->device = pool->device;
    polled->last = (int64_t)pool->bytes;
    polled->last_high = pool->pool.high;
    pool->bytes = (uint64_t)polled->reserved;
    if (polled->high >= 0) /* the driver told it, and the program may have restarted it */
        pool->pool.high = polled->high;
    return false;
}

void gp_feed_poll_pool(uint64_t pool, int64_t reserved, int64_t reserved_high)
{
    struct gp_polled_pool polled = {.reserved = reserved, .high = reserved_high};
    if (gp_map_update(gp_accounts.objects, GP_SPACE_POOL, pool, pool_polled, &polled) == 0)
        gp_polled_set(gp_account_of(polled.device), GP_GAUGE_POOL_RESERVED, polled.last, reserved, &polled.last_high,
                      reserved_high);
}

void gp_feed_pool_found(uint64_t pool, int device, unsigned flags)
{
    struct gp_record record;
    if (gp_map_find(gp_accounts.objects, GP_SPACE_POOL, pool, &record) != 0)
        gp_feed_pool_create(pool, device, flags);
}

struct gp_pool_list {
    struct gp_poll_pool *out;
    unsigned count, max;
};

static bool pool_collect(struct gp_record *record, void *arg)
{
    struct gp_pool_list *list = arg;
    if (record->space == GP_SPACE_POOL && pool_is_asked(record) && list->count < list->max)
        list->out[list->count++] = (struct gp_poll_pool){record->key, record->device};
    return false;
}

unsigned gp_feed_poll_pools(struct gp_poll_pool *out, unsigned max)
{
    struct gp_pool_list list = {out, 0, max};
    gp_map_each(gp_accounts.objects, pool_collect, &list);
    return list.count;
}

struct gp_pool_change {
    int blocks;            /* that were allocated (+) or freed (-) */
    bool sure;             /* the driver knows the pool */
    uint8_t from, to;      /* the new state, if it is not equal */
    struct gp_record gone; /* space not 0: the record left the map; this is what it held */
};

static bool pool_changed(struct gp_record *pool, void *arg)
{
    struct gp_pool_change *change = arg;
    pool->pool.blocks = (uint32_t)((int)pool->pool.blocks + change->blocks);
    if (change->blocks > 0 || change->sure)
        pool->pool.flags &= (uint8_t)~GP_POOL_UNSURE;
    if (change->from != change->to && pool->pool.state == change->from)
        pool->pool.state = change->to;
    if (pool->pool.state != POOL_DESTROYED || pool->pool.blocks != 0)
        return false;
    change->gone = *pool;
    return true;
}

static int pool_change(uint64_t pool, struct gp_pool_change *change)
{
    int error = gp_map_update(gp_accounts.objects, GP_SPACE_POOL, pool, pool_changed, change);
    if (!error && change->gone.space)
        pool_gone(&change->gone);
    return error;
}

void gp_pool_count(uint64_t pool, int blocks)
{
    pool_change(pool, &(struct gp_pool_change){.blocks = blocks});
}

/* A poll takes microseconds, unless the driver delays it. Perhaps it does so because of this thread, and the next
 * destroy would meet the same: so a wait in vain is the last one of its length. */
static uint64_t pool_patience(bool in_vain)
{
    const uint64_t first_ns = 10000000, later_ns = 1000000;
    static uint32_t x_impatient;
    if (in_vain)
        __atomic_store_n(&x_impatient, 1, __ATOMIC_RELAXED); /* a hint */
    return __atomic_load_n(&x_impatient, __ATOMIC_RELAXED) ? later_ns : first_ns;
}

static void pool_last_look(uint64_t pool)
{
    struct gp_record record;
    if (gp_accounts.setup.poll_now && gp_map_find(gp_accounts.objects, GP_SPACE_POOL, pool, &record) == 0 &&
        record.pool.blocks && pool_is_asked(&record) && !gp_accounts.setup.poll_now(pool_patience(false)))
        pool_patience(true);
}

/* The driver must not be asked about a dead pool. pool 0: about none. */
static void pool_let_go(uint64_t pool)
{
    uint64_t now = 0, deadline = 0, polling;
    /* [poll.D]: pairs with [poll.P]. */
    for (unsigned i = 0; (polling = __atomic_load_n(&x_polling, __ATOMIC_SEQ_CST)) && (!pool || polling == pool); i++) {
        now = gp_clock_ns();
        deadline = deadline ? deadline : now + pool_patience(false);
        if (now >= deadline) {
            pool_patience(true);
            return;
        }
        gp_pause(i);
    }
}

uint32_t gp_feed_pool_destroy_begin(uint64_t pool)
{
    struct gp_frame *frame;
    pool_last_look(pool);
    uint32_t token = gp_account_frame_get(&frame);
    if (!token)
        return 0;
    frame->what = GP_SPACE_POOL;
    frame->address = pool;
    if (pool_change(pool, &(struct gp_pool_change){.from = POOL_HELD, .to = POOL_ENDING}) != 0) {
        gp_account_frame_put(token);
        return 0;
    }
    pool_let_go(pool);
    return token;
}

/* The driver makes the default pool current again if the destroyed pool was current (cuda.h:
 * cuMemPoolDestroy). */
static void pool_not_current(uint64_t pool)
{
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        struct gp_account *account = __atomic_load_n(&gp_accounts.x_devices[i], __ATOMIC_ACQUIRE);
        uint64_t current = pool;
        if (account)
            __atomic_compare_exchange_n(&account->x_pool, &current, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

void gp_feed_pool_destroy_end(uint32_t token, bool ok)
{
    struct gp_frame *frame = gp_account_frame_of(token, GP_SPACE_POOL);
    if (!frame)
        return;
    if (ok)
        pool_not_current(frame->address);
    pool_change(frame->address, &(struct gp_pool_change){.from = POOL_ENDING, .to = ok ? POOL_DESTROYED : POOL_HELD});
    gp_account_frame_put(token);
    gp_feed_poll_want(GP_POLL_POOLS);
}

static bool pool_unsure(struct gp_record *record, void *device)
{
    if (record->space == GP_SPACE_POOL && record->device == *(int *)device)
        record->pool.flags |= GP_POOL_UNSURE;
    return false;
}

void gp_feed_pools_unsure(int device)
{
    gp_map_each(gp_accounts.objects, pool_unsure, &device);
    pool_let_go(0);
}

void gp_feed_pool_sure(uint64_t pool)
{
    pool_change(pool, &(struct gp_pool_change){.sure = true});
}

void gp_feed_pool_keeps(uint64_t pool, int device)
{
    int own = gp_feed_pool_device(pool);
    struct gp_account *account = own < 0 && device < 0 ? NULL : gp_account_of(own < 0 ? device : own);
    if (account)
        __atomic_fetch_or(&account->x_flags, GP_DEVICE_KEEPS, __ATOMIC_RELAXED);
}

void gp_feed_pool_default(uint64_t pool, int device)
{
    struct gp_account *account = gp_account_of(device);
    if (!account)
        return;
    if (account->default_pool && account->default_pool != pool)
        pool_change(account->default_pool, &(struct gp_pool_change){.from = POOL_HELD, .to = POOL_DESTROYED});
    account->default_pool = pool;
    gp_feed_pool_found(pool, device, 0);
    gp_feed_pool_sure(pool);
}

void gp_feed_pool_use(int device, uint64_t pool)
{
    struct gp_account *account = gp_account_of(device);
    if (account)
        __atomic_store_n(&account->x_pool, pool,
                         __ATOMIC_RELAXED); /* the program orders this relative to its allocations */
}

uint64_t gp_feed_pool_of(int device)
{
    struct gp_account *account = device < 0 ? NULL : gp_account_at(device);
    return account ? __atomic_load_n(&account->x_pool, __ATOMIC_RELAXED) : 0;
}

bool gp_feed_pool_is_managed(uint64_t pool)
{
    struct gp_record record;
    return pool && gp_map_find(gp_accounts.objects, GP_SPACE_POOL, pool, &record) == 0 &&
           record.pool.flags & GP_POOL_MANAGED;
}

int gp_feed_pool_device(uint64_t pool)
{
    struct gp_record record;
    if (pool && gp_map_find(gp_accounts.objects, GP_SPACE_POOL, pool, &record) == 0)
        return record.device == GP_NO_DEVICE ? GP_DEVICE_UNKNOWN : record.device;
    return GP_DEVICE_UNKNOWN;
}

bool gp_feed_pool_is_nowhere(uint64_t pool)
{
    struct gp_record record;
    return pool && gp_map_find(gp_accounts.objects, GP_SPACE_POOL, pool, &record) == 0 &&
           (record.pool.flags & (GP_POOL_NOWHERE | GP_POOL_MANAGED)) == GP_POOL_NOWHERE;
}
