/* SPDX-License-Identifier: MIT
 *
 * holders.c: groups the live blocks of one device by kind and size, the largest groups first, to
 * show what holds the memory. oomfacts.c calls it on the thread whose request failed. The
 * process has one table of a fixed size, since nothing may be allocated when memory is out. Only
 * one thread walks at a time; a second thread that fails meanwhile skips the walk.
 */
#include "account/account.h"
#include "account/oomfacts.h"
#include "base/clock.h"
#include <string.h>

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
    /* Of a framework's memory the blocks are listed, not the segments that contain them. */
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

bool gp_oom_holders(struct gp_wire_oom *report)
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
