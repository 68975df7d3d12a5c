/* SPDX-License-Identifier: MIT
 *
 * frameworkoom.c: the part of an out-of-memory report about the allocator of a framework, also if
 * the failed request was another library's. It has the memory that the allocator holds and does not
 * use, the segments of private pools, and the history of the requests, which the poller has
 * replayed with other settings (allocator/replay.c).
 *
 * A private pool is one of a CUDA graph or a MemPool: its memory serves only requests of that pool,
 * and emptying the cache leaves it. The framework does not report pools. A segment is known to be a
 * pool's if it was made during a capture, or by a thread that used a pool (framework/torch.c), or had
 * no block when the framework emptied its cache and is still there.
 */
#include "account/feed/failed.h"
#include "account/feed/feed.h"
#include "account/feed/framework.h"
#include "account/framework.h"
#include "account/internal.h"
#include "account/segment.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/kept.h"
#include "base/map.h"
#include <gpuprof/wire.h>
#include <string.h>
#include <sys/mman.h>

/* ==== idle memory ================================================================================================= */
/* The memory that a framework's allocator holds and does not use: the segments of one device and
 * the blocks in them, in the order of their addresses. Called on the thread whose request failed,
 * and after the framework gave memory back. The list is in memory from mmap, since nothing may be
 * allocated from the program's heap here. */

/* Share of time, as in oomfacts.c, for walks that a program would notice. */
#define GP_IDLE_REST    10u
#define GP_IDLE_LONG_NS 1000000u

/* Segments begin at whole pages and blocks at multiples of 512, so the low bits of an address are free. With the mark
 * of a block it is sorted behind the segment that begins there. */
#define GP_IDLE_BLOCK   1ull
#define GP_IDLE_MAPPED  2ull /* of a segment: a page of a growable one */
#define GP_IDLE_PRIVATE 4ull /* of a segment: known to be a private pool's */
#define GP_IDLE_MARKS   7ull

struct idle_item {
    uint64_t at, bytes;
};

struct idle_list {
    struct idle_item *items;
    uint64_t count, room;
    int device;
    bool full;
};

static void idle_put(struct idle_list *list, const struct gp_record *record, uint64_t marks)
{
    if (list->count == list->room) {
        list->full = true;
        return;
    }
    list->items[list->count++] = (struct idle_item){(record->key & ~GP_IDLE_MARKS) | marks, record->bytes};
}

static bool idle_visit(struct gp_record *record, void *arg)
{
    struct idle_list *list = arg;
    uint64_t private = record->flags & GP_FLAG_PRIVATE ? GP_IDLE_PRIVATE : 0;
    if (record->device != list->device)
        return false;
    if (record->space == GP_SPACE_BLOCK)
        idle_put(list, record, GP_IDLE_BLOCK);
    else if (record->segment == GP_SEGMENT_FRAMEWORK && record->space == GP_SPACE_DEVICE)
        idle_put(list, record, private);
    else if (record->segment == GP_SEGMENT_FRAMEWORK && record->space == GP_SPACE_MAPPING)
        idle_put(list, record, private | GP_IDLE_MAPPED);
    return false;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static bool idle_before(const struct idle_item *one, const struct idle_item *other)
{
    const uint64_t order = ~(GP_IDLE_MAPPED | GP_IDLE_PRIVATE);
    return (one->at & order) < (other->at & order);
}

static void idle_sink(struct idle_item *items, uint64_t at, uint64_t count)
{
    struct idle_item item = items[at];
    for (uint64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && idle_before(&items[child], &items[child + 1]);
        if (!idle_before(&item, &items[child]))
            break;
        items[at] = items[child];
        at = child;
    }
    items[at] = item;
}

static void idle_sort(struct idle_item *items, uint64_t count) /* a heap sort: no memory, and no bad case */
{
    for (uint64_t at = count / 2; at-- > 0;)
        idle_sink(items, at, count);
    while (count > 1) {
        struct idle_item most = items[0];
        items[0] = items[--count];
        items[count] = most;
        idle_sink(items, 0, count);
    }
}

/* ---- the walk in order -------------------------------------------------------------------------------------------- */

/* The segments of a framework on a device, and the memory in them that no block uses. */
struct idle {
    uint64_t segment_bytes, blocks, idle_bytes, pieces, largest_bytes, pinning_blocks;
    uint64_t whole_bytes, private_bytes; /* of segments without a block (pages, where growable); the part of pools */
    uint64_t strange_blocks;             /* in no segment */
};

/* A region is a segment, or the pages of a growable one that follow each other. */
struct idle_walk {
    struct idle *out;
    void (*whole)(uint64_t address, uint64_t bytes);
    uint64_t end;                  /* of the region */
    uint64_t free_from;            /* end of the last block, or begin of the region */
    uint64_t pages, private_pages; /* bytes of pages that begin in the idle part so far */
    uint64_t page_at, page_end;    /* the last one; 0: none */
    uint64_t blocks;               /* of the region */
    bool page_private, mapped, has_idle;
};

/* The idle part ends here. */
static void walk_idle(struct idle_walk *walk, uint64_t at)
{
    uint64_t bytes = at > walk->free_from ? at - walk->free_from : 0;
    if (walk->page_end > at) { /* the last page goes on behind it */
        walk->pages -= walk->page_end - walk->page_at;
        walk->private_pages -= walk->page_private ? walk->page_end - walk->page_at : 0;
        walk->page_end = 0;
    }
    if (walk->page_end && walk->whole && !walk->mapped)
        walk->whole(walk->page_at, walk->page_end - walk->page_at);
    walk->page_end = 0;
    if (bytes) {
        struct idle *out = walk->out;
        out->idle_bytes += bytes;
        out->pieces++;
        out->largest_bytes = bytes > out->largest_bytes ? bytes : out->largest_bytes;
        out->whole_bytes += walk->pages;
        out->private_bytes += walk->private_pages;
        walk->has_idle = true;
    }
    walk->pages = walk->private_pages = 0;
}

static void walk_region_end(struct idle_walk *walk)
{
    walk_idle(walk, walk->end);
    walk->out->pinning_blocks += walk->has_idle ? walk->blocks : 0;
    walk->blocks = 0;
    walk->has_idle = false;
}

static void walk_segment(struct idle_walk *walk, const struct idle_item *item)
{
    uint64_t at = item->at & ~GP_IDLE_MARKS;
    bool mapped = item->at & GP_IDLE_MAPPED;
    walk->out->segment_bytes += item->bytes;
    if (!(mapped && walk->mapped && at == walk->end)) {
        walk_region_end(walk);
        walk->free_from = at;
    }
    walk->mapped = mapped;
    walk->end = at + item->bytes;
    if (at < walk->free_from) /* a block reaches into it */
        return;
    walk->page_at = at;
    walk->page_end = walk->end;
    walk->page_private = item->at & GP_IDLE_PRIVATE;
    walk->pages += item->bytes;
    walk->private_pages += walk->page_private ? item->bytes : 0;
}

static void walk_block(struct idle_walk *walk, const struct idle_item *item)
{
    uint64_t at = item->at & ~GP_IDLE_MARKS;
    walk->out->blocks++;
    if (at >= walk->end) { /* memory below it that is no segment */
        walk->out->strange_blocks++;
        return;
    }
    walk_idle(walk, at);
    walk->free_from = at + item->bytes;
    walk->blocks++;
}

static bool idle_list(int device, struct idle *out, void (*whole)(uint64_t address, uint64_t bytes))
{
    struct idle_walk walk = {.out = out, .whole = whole};
    struct idle_list list = {.device = device};
    list.room = gp_map_count(gp_accounts.blocks) + gp_map_count(gp_accounts.objects) + 64; /* other threads add some */
    uint64_t size = list.room * sizeof(*list.items);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    list.items = memory;
    gp_map_each(gp_accounts.blocks, idle_visit, &list);
    gp_map_each(gp_accounts.objects, idle_visit, &list);
    if (!list.full)
        idle_sort(list.items, list.count);
    for (uint64_t i = 0; i < list.count && !list.full; i++)
        (list.items[i].at & GP_IDLE_BLOCK ? walk_block : walk_segment)(&walk, &list.items[i]);
    walk_region_end(&walk);
    munmap(memory, size);
    return !list.full;
}

/* Calls whole for each linear segment without a block. False: not known now, or the last walk was too costly to repeat so
 * soon. Under the framework's lock of the device, or its blocks may change meanwhile. */
static bool idle_find(int device, struct idle *out, void (*whole)(uint64_t address, uint64_t bytes))
{
    static uint64_t x_quiet_until_ns;
    uint64_t begin = gp_clock_ns();
    memset(out, 0, sizeof(*out));
    if (begin < __atomic_load_n(&x_quiet_until_ns, __ATOMIC_RELAXED))
        return false;
    bool listed = idle_list(device, out, whole);
    uint64_t end = gp_clock_ns(), quiet_ns = end - begin > GP_IDLE_LONG_NS ? GP_IDLE_REST * (end - begin) : 0;
    __atomic_store_n(&x_quiet_until_ns, end + quiet_ns, __ATOMIC_RELAXED);
    return listed;
}

/* ==== the report ================================================================================================== */

static struct gp_framework_conf x_conf; /* written before the first block, read after it */

void gp_feed_framework_conf(const struct gp_framework_conf *conf)
{
    x_conf = *conf;
}

/* ---- the history -------------------------------------------------------------------------------------------------- */

/* Under the framework's lock of the device, as the next two. */
static void history_put(struct gp_framework *framework, uint64_t entry)
{
    uint32_t count = framework->x_history_count;
    if (GP_UNLIKELY(count == GP_HISTORY_MOST || !framework->history)) {
        framework->history_broken = true;
        return;
    }
    framework->history[count] = entry;
    __atomic_store_n(&framework->x_history_count, count + 1,
                     __ATOMIC_RELEASE); /* [history.R] the entry; pairs with [history.A] */
}

void gp_framework_history_begin(struct gp_framework *framework)
{
    /* Its pages are touched as it grows. */
    framework->history = gp_kept_map(GP_HISTORY_MOST * sizeof(uint64_t), MAP_NORESERVE);
}

uint32_t gp_framework_history_alloc(struct gp_framework *framework, uint64_t bytes)
{
    if (GP_UNLIKELY(framework->history_broken))
        return 0;
    history_put(framework, bytes << 2 | GP_HISTORY_ALLOC);
    return ++framework->history_allocs;
}

void gp_framework_history_free(struct gp_framework *framework, uint32_t number)
{
    if (GP_UNLIKELY(framework->history_broken))
        return;
    if (number)
        history_put(framework, (uint64_t)(number - 1) << 2 | GP_HISTORY_FREE);
    else
        framework->history_broken = true;
}

/* While the framework answers a failure, it empties its cache as a replay does, too. */
static void history_trim(struct gp_framework *framework)
{
    uint32_t count = framework->x_history_count;
    if (!framework->history_broken && count && !__atomic_load_n(&framework->x_failing, __ATOMIC_RELAXED) &&
        framework->history[count - 1] != GP_HISTORY_TRIM)
        history_put(framework, GP_HISTORY_TRIM);
}

/* ---- private pools ------------------------------------------------------------------------------------------------ */

void gp_framework_gave_back(struct gp_framework *framework)
{
    history_trim(framework);
    __atomic_store_n(&framework->x_gave_back, 1, __ATOMIC_RELAXED);
}

static bool segment_private(struct gp_record *record, void *arg)
{
    struct gp_account *account = gp_account_of(record->device);
    (void)arg;
    if (account && !(record->flags & GP_FLAG_PRIVATE))
        __atomic_fetch_add(&account->framework.x_private_bytes, (int64_t)record->bytes, __ATOMIC_RELAXED);
    record->flags |= GP_FLAG_PRIVATE;
    return false;
}

static void segment_survived(uint64_t address, uint64_t bytes)
{
    (void)bytes;
    gp_map_update(gp_accounts.blocks, GP_SPACE_DEVICE, address, segment_private, NULL);
}

static bool framework_has_no_pools(void)
{
    return x_conf.pools && x_conf.pools() == 0;
}

/* With these settings the framework also gives back single segments. */
static bool framework_gives_all(void)
{
    return !strstr(x_conf.text, "max_split_size_mb") && !strstr(x_conf.text, "garbage_collection_threshold");
}

GP_COLD void gp_framework_look_at_survivors(struct gp_framework *framework, int device)
{
    struct idle idle;
    __atomic_store_n(&framework->x_gave_back, 0, __ATOMIC_RELAXED);
    if (!framework_has_no_pools() && framework_gives_all())
        idle_find(device, &idle, segment_survived);
}

/* ---- the report --------------------------------------------------------------------------------------------------- */

static int64_t number(uint64_t value)
{
    return value > INT64_MAX / 8 ? INT64_MAX / 8 : (int64_t)value;
}

/* failures: the driver allocations of this request that failed; -1: the request is not the framework's. */
void gp_framework_oom_facts(struct gp_wire_oom *report, struct gp_wire_oom_framework *out, int failures)
{
    struct gp_account *account =
        report->device < 0 || report->device >= (int)GP_WIRE_GPUS ? NULL : gp_account_of(report->device);
    struct idle idle;
    if (!account || gp_accounts.setup.late || !__atomic_load_n(&account->framework.x_events, __ATOMIC_RELAXED))
        return;
    if (failures < 0)
        out->flags |= GP_OOM_BESIDE;
    else if (failures < 2) /* after the first failure it gives back what it can and asks again */
        out->flags |= failures ? GP_OOM_KEPT : GP_OOM_REFUSED;
    if (framework_has_no_pools())
        out->flags = (out->flags | GP_OOM_NO_POOLS) & ~GP_OOM_KEPT;
    strncpy(report->policy, gp_framework_name() ? gp_framework_name() : "", sizeof(report->policy) - 1);
    memcpy(report->conf, x_conf.text, sizeof(report->conf)); /* of the same size, terminated */
    if (!idle_find(report->device, &idle, NULL) || idle.strange_blocks)
        return;
    out->flags |= GP_OOM_FRAMEWORK;
    out->segment_bytes = number(idle.segment_bytes);
    out->blocks = number(idle.blocks);
    report->idle_bytes = number(idle.idle_bytes);
    report->idle_pieces = number(idle.pieces);
    report->largest_idle_bytes = number(idle.largest_bytes);
    report->releasable_bytes = number(idle.whole_bytes);
    out->private_bytes = number(idle.private_bytes);
    report->pinning_blocks = number(idle.pinning_blocks);
}

bool gp_framework_replay_begin(const struct gp_wire_oom *report, const struct gp_wire_oom_framework *part,
                               struct gp_feed_replay *out)
{
    struct gp_account *account = part->flags & GP_OOM_FRAMEWORK ? gp_account_of(report->device) : NULL;
    if (!account || account->framework.history_broken || !account->framework.history || part->flags & GP_OOM_KEPT)
        return false;
    /* A replay cannot know which requests went to a private pool: idle memory of others is of no use there. */
    if (x_conf.pools && !(part->flags & GP_OOM_NO_POOLS))
        return false;
    const struct gp_framework *framework = &account->framework;
    /* [history.A] another thread than the framework's may read it; pairs with [history.R]. */
    uint32_t count = __atomic_load_n(&framework->x_history_count, __ATOMIC_ACQUIRE);
    *out = (struct gp_feed_replay){
        .history = framework->history,
        .count = count,
        .allocs = framework->history_allocs,
        .flags = part->flags,
        .asked_bytes = report->asked_bytes,
        .reserved_bytes = (uint64_t)part->segment_bytes,
        .peak_bytes = (uint64_t)__atomic_load_n(&framework->x_segment_peak, __ATOMIC_RELAXED),
        .others_bytes =
            report->reserved_bytes > part->segment_bytes ? (uint64_t)(report->reserved_bytes - part->segment_bytes) : 0,
        .conf = x_conf.text,
    };
    return true;
}
