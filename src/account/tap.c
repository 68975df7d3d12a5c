/* SPDX-License-Identifier: MIT
 *
 * tap.c: computes the public statistics from the gauges.
 */
#include "account/tap.h"
#include "account/door.h"
#include "account/feed/cache.h"
#include "account/feed/door.h"
#include "account/feed/poll.h"
#include "account/ground.h"
#include "account/internal.h"
#include "account/polled.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/lock.h"
#include "base/ring.h"
#include "stack/stack.h"
#include <errno.h>
#include <gpuprof/batch.h>
#include <gpuprof/wire.h>
#include <string.h>

static struct gp_account *tap_account(unsigned index)
{
    return index < GP_WIRE_DEVICES ? __atomic_load_n(&gp_accounts.x_devices[index], __ATOMIC_ACQUIRE) : NULL;
}

bool gp_tap_known(unsigned index)
{
    return tap_account(index) != NULL;
}

/* A thread may free what another thread's call has returned before the exit callback of that
 * call ran. The gauge is then negative for an instant, which is shown as 0. */
static int64_t tap_memory(int64_t current)
{
    return current > 0 ? current : 0;
}

static struct gp_wire_value tap_value(const struct gp_gauge_value *gauge)
{
    return (struct gp_wire_value){tap_memory(gauge->current), gauge->peak, gauge->allocated, gauge->freed};
}

/* The gauge of each statistic. */
static const uint8_t tap_gauges[GP_STATS] = {
#define GP_STAT(_id, _gauge, _tag, ...) [_id] = GP_GAUGE_##_tag,
#include <gpuprof/numbers.def>
};

static void tap_kind(const struct gp_gauge_value *gauges, enum gp_wire_kind kind, struct gp_wire_kind_value *out)
{
    const struct gp_gauge_value *bytes = &gauges[GP_GAUGE_KIND_BYTES + kind],
                                *live = &gauges[GP_GAUGE_KIND_LIVE + kind];
    *out = (struct gp_wire_kind_value){
        .current_bytes = tap_memory(bytes->current),
        .peak_bytes = bytes->peak,
        .allocated_bytes = bytes->allocated,
        .freed_bytes = bytes->freed,
        .live = tap_memory(live->current),
        .live_peak = live->peak,
        .calls = live->allocated,
        .reserved_bytes = -1,
    };
}

static void tap_statistics(const struct gp_gauge_value *gauges, struct gp_wire_device *out)
{
    for (unsigned stat = 0; stat < GP_STATS; stat++)
        for (unsigned pool = 0; pool < GP_POOLS; pool++)
            out->stats[stat][pool] = tap_value(&gauges[tap_gauges[stat] + pool]);
    out->oversize_allocations = tap_value(&gauges[GP_GAUGE_OVERSIZE_ALLOCATIONS]);
    out->oversize_segments = tap_value(&gauges[GP_GAUGE_OVERSIZE_SEGMENTS]);
    for (unsigned kind = 1; kind < GP_KINDS; kind++)
        tap_kind(gauges, kind, &out->kinds[kind]);
    out->kinds[GP_KIND_POOL].reserved_bytes = tap_memory(gauges[GP_GAUGE_POOL_RESERVED].current);
    out->kinds[GP_KIND_GRAPH].reserved_bytes = tap_memory(gauges[GP_GAUGE_GRAPH_RESERVED].current);
    out->asleep_bytes = tap_value(&gauges[GP_GAUGE_ASLEEP]);
    out->linear_rounded_bytes = tap_memory(gauges[GP_GAUGE_LINEAR_ROUNDED].current);
    /* Every driver allocation counts as a segment, as every cudaMalloc does in PyTorch's own
     * count. */
    out->num_device_alloc = gauges[GP_GAUGE_SEGMENT].allocated;
    out->num_device_free = gauges[GP_GAUGE_SEGMENT].freed;
}

/* Holds wherever every driver allocation is known (ground.c). */
static bool tap_sound(struct gp_account *account, const struct gp_gauge_value *gauges)
{
    return gauges[GP_GAUGE_ALLOCATED_BYTES].current <= gauges[GP_GAUGE_RESERVED_BYTES].current ||
           gp_accounts.setup.late || __atomic_load_n(&account->framework.x_unseen, __ATOMIC_RELAXED);
}

typedef int gp_tap_watch_fn(struct gp_counter *set, unsigned watch, int64_t *peaks);

static int tap_scope(struct gp_account *account, unsigned slot, gp_tap_watch_fn *watch, struct gp_wire_scope_value *out)
{
    int64_t peaks[GP_GAUGES_MAX];
    int error = watch(account->counter, slot, peaks);
    if (error)
        return error;
    gp_polled_fold_scope(account, slot, peaks);
    *out = (struct gp_wire_scope_value){peaks[GP_GAUGE_ALLOCATED_BYTES], peaks[GP_GAUGE_RESERVED_BYTES]};
    return 0;
}

static void tap_owners(const struct gp_gauge_value *gauges, struct gp_wire_owner_value out[GP_WIRE_OWNERS])
{
    for (unsigned owner = 0; owner < GP_WIRE_OWNERS; owner++) {
        const struct gp_gauge_value *own = &gauges[GP_GAUGE_OWNERS + owner * GP_OWNER_GAUGES];
        out[owner] = (struct gp_wire_owner_value){
            .reserved_bytes = tap_memory(own[GP_OWNER_RESERVED].current),
            .reserved_peak_bytes = own[GP_OWNER_RESERVED].peak,
            .allocated_bytes = tap_memory(own[GP_OWNER_ALLOCATED].current),
            .allocated_peak_bytes = own[GP_OWNER_ALLOCATED].peak,
            .live = tap_memory(own[GP_OWNER_LIVE].current),
        };
    }
}

bool gp_tap_device(unsigned index, struct gp_wire_device *out)
{
    return gp_tap_owned(index, out, NULL);
}

bool gp_tap_owned(unsigned index, struct gp_wire_device *out, struct gp_wire_owner_value owners[GP_WIRE_OWNERS])
{
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    struct gp_account *account = tap_account(index);
    memset(out, 0, sizeof(*out));
    if (!account)
        return false;
    gp_ground_look();
    gp_counter_snapshot(account->counter, gauges);
    gp_polled_fold(account, gauges);
    tap_statistics(gauges, out);
    if (owners)
        tap_owners(gauges, owners);
    for (unsigned slot = 0; slot < GP_WIRE_SCOPES; slot++)
        tap_scope(account, slot, gp_counter_watch_read, &out->scopes[slot]);
    out->flags = __atomic_load_n(&account->x_flags, __ATOMIC_RELAXED);
    out->ordinal = index == GP_WIRE_HOST ? -1 : (int32_t)index;
    out->num_ooms = (int64_t)__atomic_load_n(&account->x_ooms, __ATOMIC_RELAXED);
    out->max_split_size = __atomic_load_n(&account->x_split_limit, __ATOMIC_RELAXED);
    out->num_alloc_retries = (int64_t)__atomic_load_n(&account->x_counts[GP_FEED_RETRIES], __ATOMIC_RELAXED);
    out->num_sync_all_streams = (int64_t)__atomic_load_n(&account->x_counts[GP_FEED_SYNCS], __ATOMIC_RELAXED);
    out->num_device_alloc += (int64_t)__atomic_load_n(&account->x_counts[GP_FEED_DEVICE_ALLOCS], __ATOMIC_RELAXED);
    out->num_device_free += (int64_t)__atomic_load_n(&account->x_counts[GP_FEED_DEVICE_FREES], __ATOMIC_RELAXED);
    out->num_alloc_retries += (int64_t)__atomic_load_n(&account->framework.x_retries, __ATOMIC_RELAXED);
    uint64_t reports = __atomic_load_n(&account->framework.x_events, __ATOMIC_RELAXED);
    for (unsigned door = 0; door < GP_DOORS; door++)
        reports += __atomic_load_n(&account->heaps[door].x_events, __ATOMIC_RELAXED);
    if (reports)
        out->flags |= GP_DEVICE_FRAMEWORK;
    if (out->flags & GP_DEVICE_POLLED && __atomic_load_n(&gp_accounts.x_poll_late, __ATOMIC_RELAXED))
        out->flags |= GP_DEVICE_LATE;
    if (!tap_sound(account, gauges))
        out->flags |= GP_DEVICE_UNSOUND;
    out->beside_bytes = tap_memory(__atomic_load_n(&account->framework.x_lacking_bytes, __ATOMIC_RELAXED) -
                                   __atomic_load_n(&account->framework.x_asleep_bytes, __ATOMIC_RELAXED));
    /* The size of a context must be measured (-1: unknown); the number of contexts is known. */
    out->kinds[GP_KIND_CONTEXT] = (struct gp_wire_kind_value){-1, -1, -1, -1, 0, -1, -1, -1};
    out->kinds[GP_KIND_CONTEXT].live = __atomic_load_n(&account->x_context_count, __ATOMIC_RELAXED);
    gp_lock_take(&gp_accounts.lock);
    memcpy(out->uuid, account->uuid, sizeof(out->uuid));
    memcpy(out->name, account->name, sizeof(out->name));
    out->total_bytes = account->total_bytes;
    out->flags |= account->threads << GP_DEVICE_THREADS_SHIFT;
    out->polled = gp_door_polled(index);
    gp_lock_give(&gp_accounts.lock);
    return true;
}

void gp_feed_poll_device(int device, const uint8_t uuid[16], const char *name, int64_t total_bytes, int64_t threads)
{
    const int64_t most = (int64_t)GP_DEVICE_THREADS_UNIT << (32 - GP_DEVICE_THREADS_SHIFT);
    struct gp_account *account = gp_account_of(device);
    if (!account)
        return;
    gp_lock_take(&gp_accounts.lock);
    memcpy(account->uuid, uuid, sizeof(account->uuid));
    strncpy(account->name, name, sizeof(account->name) - 1);
    account->total_bytes = total_bytes;
    account->threads = threads > 0 && threads < most ? (uint32_t)threads / GP_DEVICE_THREADS_UNIT : 0;
    gp_lock_give(&gp_accounts.lock);
    __atomic_fetch_or(&account->x_flags, GP_DEVICE_IDENTIFIED, __ATOMIC_RELAXED);
}

static void tap_all_pools(const struct gp_gauge_value *gauges, struct gp_wire_value out[GP_STATS])
{
    for (unsigned stat = 0; stat < GP_STATS; stat++)
        out[stat] = tap_value(&gauges[tap_gauges[stat]]);
}

int64_t gp_tap_site_bytes(unsigned index, const struct gp_wire_device *device)
{
    const struct gp_account *account = tap_account(index);
    return device->stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current +
           (account ? __atomic_load_n(&account->x_unmapped, __ATOMIC_RELAXED) : 0);
}

bool gp_tap_reset(unsigned index, unsigned what, struct gp_wire_before_after *out)
{
    struct gp_gauge_value before[GP_GAUGES_MAX], after[GP_GAUGES_MAX];
    struct gp_account *account = tap_account(index);
    if (!account)
        return false;
    memset(out, 0, sizeof(*out));
    out->device = (int32_t)index;
    gp_gauge_set mask = gp_gauge_mask(what);
    if (what == GP_RESET_ACCUMULATED) {
        /* Under the lock, so that gp_tap_batch sees the totals and the amounts subtracted from them
         * as of one instant. */
        gp_lock_take(&gp_accounts.lock);
        gp_counter_reset_totals(account->counter, mask, before, after);
        account->forgotten.calls += before[GP_GAUGE_ALLOCATION].allocated;
        account->forgotten.frees += before[GP_GAUGE_ALLOCATION].freed;
        account->forgotten.failures += (int64_t)__atomic_exchange_n(&account->x_ooms, 0, __ATOMIC_RELAXED);
        gp_lock_give(&gp_accounts.lock);
        for (unsigned i = 0; i < GP_FEED_COUNTS; i++)
            __atomic_store_n(&account->x_counts[i], 0, __ATOMIC_RELAXED);
        __atomic_store_n(&account->framework.x_retries, 0, __ATOMIC_RELAXED);
    } else {
        gp_counter_reset_peaks(account->counter, mask, before, after);
        if (what != GP_RESET_RESERVED && (gp_site_on() || gp_site_is_partial()))
            gp_site_reset((int)index);
    }
    gp_polled_fold(account, before);
    if (what != GP_RESET_ACCUMULATED)
        gp_polled_reset(account, mask, before, after);
    gp_polled_fold(account, after);
    tap_all_pools(before, out->before);
    tap_all_pools(after, out->after);
    out->asleep_before = tap_value(&before[GP_GAUGE_ASLEEP]);
    out->asleep_after = tap_value(&after[GP_GAUGE_ASLEEP]);
    return true;
}

int gp_tap_scope_begin(unsigned slot)
{
    uint32_t bit = 1u << slot;
    if (slot >= GP_WIRE_SCOPES)
        return -EINVAL;
    /* The bit comes first: an account created from now on starts the scope itself (account.c),
     * and -EBUSY then reports that it did. */
    if (__atomic_fetch_or(&gp_accounts.x_scopes, bit, __ATOMIC_ACQ_REL) & bit)
        return -EBUSY;
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        struct gp_account *account = tap_account(i);
        if (account) {
            gp_polled_scope_begin(account, slot);
            gp_counter_watch_begin(account->counter, slot);
        }
    }
    return 0;
}

int gp_tap_scope_end(unsigned slot, struct gp_wire_scope_value out[GP_WIRE_DEVICES])
{
    uint32_t bit = 1u << slot;
    if (slot >= GP_WIRE_SCOPES || !(__atomic_fetch_and(&gp_accounts.x_scopes, ~bit, __ATOMIC_ACQ_REL) & bit))
        return -ENOENT;
    memset(out, 0, GP_WIRE_DEVICES * sizeof(out[0]));
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        struct gp_account *account = tap_account(i);
        if (account)
            tap_scope(account, slot, gp_counter_watch_end, &out[i]);
    }
    return 0;
}

int gp_tap_scope_read(unsigned slot, unsigned index, struct gp_wire_scope_value *out)
{
    struct gp_account *account = tap_account(index);
    return account ? tap_scope(account, slot, gp_counter_watch_read, out) : -ENODEV;
}

/* ---- batches -------------------------------------------------------------------------------------------------- */

#define GP_TAP_BATCH_MASK                                                                                              \
    (GP_GAUGE_BIT(GP_GAUGE_ALLOCATED_BYTES + GP_POOL_ALL) | GP_GAUGE_BIT(GP_GAUGE_RESERVED_BYTES + GP_POOL_ALL) |      \
     GP_GAUGE_BIT(GP_GAUGE_ASLEEP))

void gp_tap_batch_begin(void)
{
    uint32_t bit = 1u << GP_BATCH_WATCH;
    /* The bit comes first, as in gp_tap_scope_begin. */
    if (__atomic_fetch_or(&gp_accounts.x_scopes, bit, __ATOMIC_ACQ_REL) & bit)
        return;
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++) {
        struct gp_account *account = tap_account(i);
        if (account) {
            gp_polled_scope_begin(account, GP_BATCH_WATCH);
            gp_counter_watch_begin(account->counter, GP_BATCH_WATCH);
        }
    }
}

void gp_tap_batch_end(void)
{
    uint32_t bit = 1u << GP_BATCH_WATCH;
    if (!(__atomic_fetch_and(&gp_accounts.x_scopes, ~bit, __ATOMIC_ACQ_REL) & bit))
        return;
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        struct gp_account *account = tap_account(i);
        if (account)
            gp_counter_watch_end(account->counter, GP_BATCH_WATCH, NULL);
    }
}

static int64_t tap_high(int64_t peak, int64_t current)
{
    return peak > current ? peak : current;
}

bool gp_tap_batch(unsigned index, struct gp_batch_device *out)
{
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    int64_t high[GP_GAUGES_MAX];
    struct gp_account *account = index < GP_WIRE_GPUS ? tap_account(index) : NULL;
    if (!account)
        return false;
    memset(out, 0, sizeof(*out));
    /* Before the identity, which is written before its flag. */
    out->flags = __atomic_load_n(&account->x_flags, __ATOMIC_RELAXED);
    gp_lock_take(&gp_accounts.lock);
    gp_counter_watch_turn(account->counter, GP_BATCH_WATCH, GP_TAP_BATCH_MASK, gauges, high);
    out->calls = gauges[GP_GAUGE_ALLOCATION].allocated + account->forgotten.calls;
    out->frees = gauges[GP_GAUGE_ALLOCATION].freed + account->forgotten.frees;
    out->failures = (int64_t)__atomic_load_n(&account->x_ooms, __ATOMIC_RELAXED) + account->forgotten.failures;
    memcpy(out->uuid, account->uuid, sizeof(out->uuid));
    out->total_bytes = account->total_bytes;
    gp_lock_give(&gp_accounts.lock);
    gp_polled_turn(account, GP_BATCH_WATCH, gauges, high);
    const struct gp_gauge_value *allocated = &gauges[GP_GAUGE_ALLOCATED_BYTES],
                                *reserved = &gauges[GP_GAUGE_RESERVED_BYTES];
    out->device = (int32_t)index;
    out->allocated_bytes = tap_memory(allocated->current);
    out->reserved_bytes = tap_memory(reserved->current);
    out->allocated_high_bytes = tap_high(high[GP_GAUGE_ALLOCATED_BYTES], out->allocated_bytes);
    out->reserved_high_bytes = tap_high(high[GP_GAUGE_RESERVED_BYTES], out->reserved_bytes);
    out->asleep_bytes = tap_memory(gauges[GP_GAUGE_ASLEEP].current);
    out->asleep_high_bytes = tap_high(high[GP_GAUGE_ASLEEP], out->asleep_bytes);
    return true;
}

uint64_t gp_tap_events(void)
{
    return gp_ring_written(gp_accounts.setup.ring) +
           __atomic_load_n(&gp_accounts.setup.lost[GP_LOST_RING], __ATOMIC_RELAXED);
}
