/* SPDX-License-Identifier: MIT
 *
 * oomfacts.c: records the facts when a request for memory failed. The failing thread writes the
 * facts at once, since the program may exit a moment later. The poller adds what only the driver
 * knows, because a callback must not query it. Called by event.c, the shim and the poller. Allocates
 * nothing.
 */
#include "account/oomfacts.h"
#include "account/feed/context.h"
#include "account/feed/failed.h"
#include "account/feed/feed.h"
#include "account/feed/poll.h"
#include "account/feed/want.h"
#include "account/framework.h"
#include "account/internal.h"
#include "account/polled.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/thread.h"
#include <gpuprof/wire.h>
#include <sched.h>
#include <string.h>

/* ==== holders of the memory ======================================================================================= */
/* Groups the live blocks of one device by kind and size, the largest groups first, to show what
 * holds the memory. oomfacts.c calls it on the thread whose request failed. The process has one
 * table of a fixed size, since nothing may be allocated when memory is out. Only one thread walks at
 * a time; a second thread that fails meanwhile skips the walk. */

/* Distinct sizes that are kept apart: training programs have some hundreds. The table has 96
 * KiB, touched only here. */
#define GP_OOM_GROUPS 4096u
/* Slots that a size may occupy, starting at its hash. With half of the table in use, one of 16
 * is almost always free. */
#define GP_OOM_WINDOW 16u
/* Share of time: a program that fails again and again, for example while it searches for its
 * largest batch, spends at most a tenth of its time here. */
#define GP_OOM_REST 10u

struct gp_oom_group {
    uint64_t block_bytes, count;
    uint32_t site;
    uint8_t kind;
};

static struct {
    uint32_t x_busy;
    uint64_t idle_until_ns;
    int device;
    uint64_t rest_bytes, rest_count;
    struct gp_oom_group groups[GP_OOM_GROUPS];
} gp_oom_walk; /* written by the thread that set x_busy */

static gp_feed_cache_walk_fn *x_walker;

void gp_feed_oom_walker(gp_feed_cache_walk_fn *walk)
{
    __atomic_store_n(&x_walker, walk, __ATOMIC_RELEASE); /* [walker.R] pairs with [walker.A] */
}

static uint64_t oom_group_bytes(const struct gp_oom_group *group)
{
    return group->block_bytes * group->count;
}

static void oom_rest(const struct gp_oom_group *group)
{
    gp_oom_walk.rest_bytes += oom_group_bytes(group);
    gp_oom_walk.rest_count += group->count;
}

/* If the window is full, the smallest group joins the rest, so that large groups stay. */
static void oom_group_add(uint8_t kind, uint32_t site, uint64_t bytes)
{
    struct gp_oom_group one = {bytes, 1, site, kind}, *smallest = NULL;
    uint64_t hash = (bytes * 2 + kind + ((uint64_t)site << 40)) * 0x9e3779b97f4a7c15ull; /* Fibonacci hashing */
    for (unsigned i = 0; i < GP_OOM_WINDOW; i++) {
        struct gp_oom_group *group = &gp_oom_walk.groups[((hash >> 52) + i) % GP_OOM_GROUPS];
        if (group->count && (group->block_bytes != bytes || group->kind != kind || group->site != site)) {
            if (!smallest || oom_group_bytes(group) < oom_group_bytes(smallest))
                smallest = group;
            continue;
        }
        one.count += group->count;
        *group = one;
        return;
    }
    bool larger = bytes > oom_group_bytes(smallest);
    oom_rest(larger ? smallest : &one);
    if (larger)
        *smallest = one;
}

static bool oom_visit_block(struct gp_record *record, void *arg)
{
    (void)arg;
    /* A framework's blocks are listed, and not the segments that contain them. */
    bool held = !record->segment && (record->kind == GP_KIND_POOL || gp_gauge_parts(record->kind) & GP_PART_RESERVED);
    uint64_t bytes = gp_account_counted(record);
    if (held && bytes && record->device == gp_oom_walk.device)
        oom_group_add(record->kind, record->site, bytes);
    return false;
}

static bool oom_visit_handle(struct gp_record *record, void *arg)
{
    return record->space == GP_SPACE_VMM ? oom_visit_block(record, arg) : false;
}

static void oom_visit_cached(void *arg, uint32_t site, uint64_t bytes)
{
    (void)arg;
    oom_group_add(GP_KIND_LINEAR, site, bytes);
}

/* Inserts one group at its place among the largest; the group that drops off the end joins the
 * rest. */
static void oom_rank(struct gp_wire_oom *report, const struct gp_oom_group *group)
{
    uint32_t at = report->holder_count;
    while (at && oom_group_bytes(group) > report->holders[at - 1].block_bytes * report->holders[at - 1].count)
        at--;
    if (at == GP_OOM_HOLDERS) {
        oom_rest(group);
        return;
    }
    if (report->holder_count == GP_OOM_HOLDERS) {
        const struct gp_wire_oom_holder *last = &report->holders[GP_OOM_HOLDERS - 1];
        oom_rest(&(struct gp_oom_group){last->block_bytes, last->count, last->site, last->kind});
        report->holder_count--;
    }
    memmove(&report->holders[at + 1], &report->holders[at], (report->holder_count - at) * sizeof(report->holders[0]));
    report->holders[at] = (struct gp_wire_oom_holder){
        .block_bytes = group->block_bytes, .count = group->count, .site = group->site, .kind = group->kind};
    report->holder_count++;
}

static void oom_list(struct gp_wire_oom *report)
{
    memset(gp_oom_walk.groups, 0, sizeof(gp_oom_walk.groups));
    gp_oom_walk.device = report->device;
    gp_oom_walk.rest_bytes = gp_oom_walk.rest_count = 0;
    gp_map_each(gp_accounts.blocks, oom_visit_block, NULL);
    gp_map_each(gp_accounts.objects, oom_visit_handle, NULL);
    gp_feed_cache_walk_fn *walk = __atomic_load_n(&x_walker, __ATOMIC_ACQUIRE); /* [walker.A] pairs with [walker.R] */
    if (walk)
        walk(report->device, NULL, oom_visit_cached);
    if (gp_oom_walk.rest_count)
        report->flags |= GP_OOM_PARTIAL;
    for (unsigned i = 0; i < GP_OOM_GROUPS; i++)
        if (gp_oom_walk.groups[i].count)
            oom_rank(report, &gp_oom_walk.groups[i]);
    report->rest_bytes = (int64_t)gp_oom_walk.rest_bytes;
    report->rest_count = (int64_t)gp_oom_walk.rest_count;
}

/* Fills holders and rest of a report whose device is set. False: not possible now (no device,
 * another thread is walking, or the last walk was too costly to repeat so soon); the report is
 * then unchanged. Takes the locks of the map's shards and those of the cache's walker. */
static bool oom_holders(struct gp_wire_oom *report)
{
    bool listed = false;
    if (report->device < 0)
        return false;
    /* [walk.A] acquire: the table; pairs with [walk.R]. */
    if (__atomic_exchange_n(&gp_oom_walk.x_busy, 1, __ATOMIC_ACQUIRE))
        return false;
    uint64_t begin = gp_clock_ns();
    if (begin >= gp_oom_walk.idle_until_ns || report->device != gp_oom_walk.device) {
        oom_list(report);
        report->holders_ns = begin;
        uint64_t end = gp_clock_ns();
        gp_oom_walk.idle_until_ns = end + GP_OOM_REST * (end - begin);
        listed = true;
    }
    __atomic_store_n(&gp_oom_walk.x_busy, 0, __ATOMIC_RELEASE); /* [walk.R] pairs with [walk.A] */
    return listed;
}

/* ==== the facts =================================================================================================== */

/* The poller answers within some tens of microseconds. 5 ms cover a machine that is short of
 * CPUs, and a failed request is not in a hurry. */
#define GP_OOM_PATIENCE_NS 5000000ull
/* cuMemGetInfo takes microseconds: a thread that destroys a context waits for a query under way,
 * but not for a stuck driver. */
#define GP_OOM_DESTROY_NS 20000000ull

static struct {
    struct gp_wire_oom report; /* the report in the session */
    struct gp_wire_oom_framework framework;
    uint32_t ctx; /* to be queried; 0: none */
    uint64_t context;
    uint64_t logged;              /* count of the last report that was passed to the log */
    struct gp_feed_replay replay; /* history NULL: none */
    uint32_t x_asking;            /* the poller is inside the driver with this context; written under the lock */
} gp_oom;                         /* under gp_accounts.lock */

/* Under the lock.  Readers copy between two equal even values of seq. */
static void oom_publish(void)
{
    struct gp_wire_oom *wire = gp_accounts.setup.oom;
    uint64_t seq = gp_oom.report.seq;
    if (!wire)
        return;
    /* [oom.W] a reader must see the odd value before any word changes: exchange is a full
     * barrier; pairs with the reader's first load. */
    __atomic_exchange_n(&wire->seq, seq + 1, __ATOMIC_SEQ_CST);
    memcpy((char *)wire + sizeof(wire->seq), (const char *)&gp_oom.report + sizeof(wire->seq),
           sizeof(*wire) - sizeof(wire->seq));
    if (gp_accounts.setup.oom_framework)
        *gp_accounts.setup.oom_framework = gp_oom.framework;
    gp_oom.report.seq = seq + 2;
    /* [oom.R] release: the words; pairs with the reader's second load. */
    __atomic_store_n(&wire->seq, seq + 2, __ATOMIC_RELEASE);
}

/* Readers reject numbers that exceed any real machine. */
static int64_t oom_number(uint64_t number)
{
    const uint64_t most = 1ull << 60;
    return (int64_t)(number > most ? most : number);
}

/* A function of its own, without the owners' gauges: it runs on a program's stack, which may be
 * small. */
static GP_COLD void oom_gauges(struct gp_wire_oom *report)
{
    struct gp_gauge_value gauges[GP_GAUGE_OWNERS];
    struct gp_account *account = report->device < 0 ? NULL : gp_account_of(report->device);
    report->reserved_bytes = report->allocated_bytes = -1;
    report->pool_reserved_bytes = report->graph_reserved_bytes = report->graph_used_bytes = -1;
    for (unsigned kind = 0; kind < GP_KINDS; kind++)
        report->kinds[kind] = -1;
    if (!account)
        return;
    gp_counter_first(account->counter, GP_GAUGE_OWNERS, gauges);
    for (unsigned i = 0; i < GP_GAUGE_OWNERS; i++)
        if (gauges[i].current < 0) /* a free overtook its allocation's exit callback: a negative value means 0 */
            gauges[i].current = 0;
    /* Not gp_polled_fold: that raises peaks, and a poll that is not fresh must not. */
    report->pool_reserved_bytes = gp_polled_pools(gauges);
    report->reserved_bytes =
        gauges[GP_GAUGE_RESERVED_BYTES].current + report->pool_reserved_bytes + gauges[GP_GAUGE_GRAPH_RESERVED].current;
    report->allocated_bytes = gauges[GP_GAUGE_ALLOCATED_BYTES].current + gauges[GP_GAUGE_GRAPH_USED].current;
    report->graph_reserved_bytes = gauges[GP_GAUGE_GRAPH_RESERVED].current;
    report->graph_used_bytes = gauges[GP_GAUGE_GRAPH_USED].current;
    for (unsigned kind = 1; kind < GP_KINDS; kind++)
        if (kind != GP_KIND_CONTEXT) /* the size of a context is not known */
            report->kinds[kind] = oom_number((uint64_t)gauges[GP_GAUGE_KIND_BYTES + kind].current);
}

/* Keeps the earlier list of holders if it is about the same device. */
static void oom_keep_holders(struct gp_wire_oom *report)
{
    const struct gp_wire_oom *last = &gp_oom.report;
    if (last->device != report->device)
        return;
    report->holders_ns = last->holders_ns;
    report->holder_count = last->holder_count;
    report->rest_bytes = last->rest_bytes;
    report->rest_count = last->rest_count;
    report->flags |= last->flags & GP_OOM_PARTIAL;
    memcpy(report->holders, last->holders, sizeof(report->holders));
}

GP_COLD void gp_oom_capture(const char *api, uint64_t asked_bytes, int device, uint32_t site, int failures)
{
    struct gp_wire_oom report = {
        .time_ns = gp_clock_ns(),
        .error = GP_ERROR_OUT_OF_MEMORY,
        .device = device < 0 || device >= (int)GP_WIRE_DEVICES ? -1 : device,
        .tid = gp_thread.tid,
        .asked_bytes = asked_bytes,
        .site = site,
        .free_bytes = -1,
        .total_bytes = -1,
        .limit_bytes = -1,
        .idle_bytes = -1,
        .largest_idle_bytes = -1,
        .releasable_bytes = -1,
        .waiting_bytes = -1,
        .idle_pieces = -1,
        .pinning_blocks = -1,
    };
    struct gp_wire_oom_framework framework = {
        .segment_bytes = -1, .blocks = -1, .private_bytes = -1, .split_bytes = -1};
    struct gp_feed_replay replay = {.history = NULL};
    strncpy(report.api, api, sizeof(report.api) - 1);
    oom_gauges(&report);
    bool listed = oom_holders(&report);
    gp_framework_oom_facts(&report, &framework, failures);
    gp_framework_replay_begin(&report, &framework, &replay);
    gp_lock_take(&gp_accounts.lock);
    if (!listed)
        oom_keep_holders(&report);
    report.seq = gp_oom.report.seq;
    report.count = gp_oom.report.count + 1;
    gp_oom.report = report;
    gp_oom.framework = framework;
    gp_oom.replay = replay;
    gp_oom.ctx = 0;
    oom_publish();
    gp_lock_give(&gp_accounts.lock);
}

/* Call it under the lock. True: the report belongs to this thread. */
static bool oom_is_mine(void)
{
    return gp_oom.report.count && gp_oom.report.tid == gp_thread.tid;
}

/* Lets the poller learn what it can (the driver's numbers, the device's name) and write the log:
 * a program whose request failed may exit a moment later. */
static void oom_await(void)
{
    /* The poller once did not answer: the driver makes it wait for this thread, which waits for it. */
    static uint32_t x_impatient;
    gp_feed_poll_want(GP_POLL_OOM);
    if (!gp_accounts.setup.poll_now)
        return;
    bool impatient = __atomic_load_n(&x_impatient, __ATOMIC_RELAXED); /* a hint */
    if (!gp_accounts.setup.poll_now(impatient ? 0 : GP_OOM_PATIENCE_NS) && !impatient)
        __atomic_store_n(&x_impatient, 1, __ATOMIC_RELAXED);
}

GP_COLD void gp_feed_oom_context(uint32_t ctx, uint64_t context)
{
    int device = gp_feed_context_device(ctx);
    if (gp_framework_failed_in(device, ctx, context))
        return;
    gp_lock_take(&gp_accounts.lock);
    bool ask = oom_is_mine() && ctx && context && device >= 0 && device == gp_oom.report.device;
    if (ask) {
        gp_oom.ctx = ctx;
        gp_oom.context = context;
        gp_oom.report.flags |= GP_OOM_PENDING;
        oom_publish();
    }
    gp_lock_give(&gp_accounts.lock);
    oom_await();
}

GP_COLD void gp_feed_oom_cache(int device, const struct gp_feed_oom *facts)
{
    gp_lock_take(&gp_accounts.lock);
    struct gp_wire_oom *report = &gp_oom.report;
    if (oom_is_mine() && report->device == device) {
        /* The numbers of a framework's allocator give way to those of the one that was asked. */
        gp_oom.framework.flags = 0;
        report->flags |= GP_OOM_CACHE | (facts->free_bytes >= 0 ? GP_OOM_DRIVER : 0);
        gp_oom.replay.history = NULL;
        report->stream = facts->stream;
        report->driver_ns = facts->free_bytes >= 0 ? gp_clock_ns() : 0;
        report->free_bytes = facts->free_bytes;
        report->total_bytes = facts->total_bytes;
        report->limit_bytes = oom_number(facts->limit_bytes);
        report->idle_bytes = oom_number(facts->idle_bytes);
        report->idle_pieces = oom_number(facts->idle_pieces);
        report->largest_idle_bytes = oom_number(facts->largest_idle_bytes);
        report->releasable_bytes = oom_number(facts->releasable_bytes);
        report->waiting_bytes = oom_number(facts->waiting_bytes);
        report->pinning_blocks = oom_number(facts->pinning_blocks);
        strncpy(report->policy, facts->policy ? facts->policy : "", sizeof(report->policy) - 1);
        strncpy(report->conf, facts->conf ? facts->conf : "", sizeof(report->conf) - 1);
        oom_publish();
    }
    gp_lock_give(&gp_accounts.lock);
    oom_await();
}

void gp_oom_context_gone(uint32_t ctx)
{
    gp_lock_take(&gp_accounts.lock);
    if (gp_oom.ctx == ctx) {
        gp_oom.ctx = 0;
        gp_oom.report.flags &= ~GP_OOM_PENDING;
        oom_publish();
    }
    bool asking = gp_oom.x_asking == ctx;
    gp_lock_give(&gp_accounts.lock);
    uint64_t deadline = asking ? gp_clock_ns() + GP_OOM_DESTROY_NS : 0;
    /* [asking.A] acquire: the poller has left the driver; pairs with [asking.R]. */
    while (asking && __atomic_load_n(&gp_oom.x_asking, __ATOMIC_ACQUIRE) == ctx && gp_clock_ns() < deadline)
        sched_yield();
}

/* ---- the poller's side ---------------------------------------------------------------------------------------- */

bool gp_feed_poll_oom_enter(uint64_t *context)
{
    gp_lock_take(&gp_accounts.lock);
    uint32_t ctx = gp_oom.ctx;
    *context = gp_oom.context;
    gp_oom.ctx = 0;
    __atomic_store_n(&gp_oom.x_asking, ctx, __ATOMIC_RELAXED); /* read again under the lock */
    gp_lock_give(&gp_accounts.lock);
    return ctx != 0;
}

void gp_feed_poll_oom_leave(int64_t free_bytes, int64_t total_bytes)
{
    gp_lock_take(&gp_accounts.lock);
    struct gp_wire_oom *report = &gp_oom.report;
    /* A newer failure waits for its own answer, or already has one. */
    if (report->flags & GP_OOM_PENDING && gp_oom.ctx == 0) {
        report->flags &= ~GP_OOM_PENDING;
        if (free_bytes >= 0) {
            report->flags |= GP_OOM_DRIVER;
            report->driver_ns = gp_clock_ns();
            report->free_bytes = free_bytes;
            report->total_bytes = total_bytes;
        }
        oom_publish();
    }
    __atomic_store_n(&gp_oom.x_asking, 0, __ATOMIC_RELEASE); /* [asking.R] pairs with [asking.A] */
    gp_lock_give(&gp_accounts.lock);
}

static gp_feed_replay_fn *x_replayer;

void gp_feed_oom_replayer(gp_feed_replay_fn *replay)
{
    __atomic_store_n(&x_replayer, replay, __ATOMIC_RELEASE); /* [replayer.R] pairs with [replayer.A] */
}

void gp_feed_poll_oom_replay(uint32_t most)
{
    /* [replayer.A] pairs with [replayer.R] */
    gp_feed_replay_fn *replayer = __atomic_load_n(&x_replayer, __ATOMIC_ACQUIRE);
    gp_lock_take(&gp_accounts.lock);
    struct gp_feed_replay replay = gp_oom.replay;
    uint64_t count = gp_oom.report.count;
    bool ready = replay.history && replay.count <= most && replayer && gp_oom.report.flags & GP_OOM_DRIVER;
    replay.free_bytes = ready ? (uint64_t)gp_oom.report.free_bytes : 0;
    if (ready)
        gp_oom.replay.history = NULL;
    gp_lock_give(&gp_accounts.lock);
    if (!ready)
        return;
    replayer(&replay);
    gp_lock_take(&gp_accounts.lock);
    if (replay.agrees && gp_oom.report.count == count) {
        gp_oom.framework.flags |= GP_OOM_REPLAYED;
        gp_oom.framework.helps = replay.helps;
        gp_oom.framework.fails = replay.fails;
        gp_oom.framework.split_bytes = oom_number(replay.split_bytes);
        oom_publish();
    }
    gp_lock_give(&gp_accounts.lock);
}

bool gp_feed_poll_oom_report(struct gp_wire_oom *out, struct gp_wire_oom_framework *framework)
{
    gp_lock_take(&gp_accounts.lock);
    bool fresh = gp_oom.report.count != gp_oom.logged;
    gp_oom.logged = gp_oom.report.count;
    *out = gp_oom.report;
    *framework = gp_oom.framework;
    gp_lock_give(&gp_accounts.lock);
    return fresh;
}
