/* SPDX-License-Identifier: MIT
 *
 * framework.c: blocks that a framework's own allocator hands out inside memory that it took from
 * the driver. Called by framework/.
 *
 *      reserved  = driver allocations
 *      allocated = driver allocations that are no segment + live blocks of the framework
 *
 * Both move in the same gauges, so their peaks are exact. With every block the framework gives its
 * own totals, which must equal the sums here: each event compares them. The first event of a device
 * also shows what was allocated before it: allocated_bytes - bytes.
 */
#include "account/framework.h"
#include "account/before.h"
#include "account/event.h"
#include "account/feed/door.h"
#include "account/feed/failed.h"
#include "account/feed/feed.h"
#include "account/feed/framework.h"
#include "account/ground.h"
#include "account/internal.h"
#include "account/move.h"
#include "account/segment.h"
#include "account/tap.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/map.h"
#include "base/thread.h"
#include <gpuprof/wire.h>
#include <string.h>

/* One writer at a time, as feed/framework.h demands; readers want the words one by one. */
static void word_add(int64_t *word, int64_t n)
{
    __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static void count_add(uint64_t *word)
{
    __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

/* Blocks that were there before the first report: their number is not known. */
static GP_COLD void framework_first(struct gp_account *account, const struct gp_framework_event *event, uint8_t owner)
{
    struct gp_framework *framework = &account->framework;
    gp_gauge_block_pairs(account->counter, owner);
    framework->owner = owner;
    int64_t before = event->allocated_bytes - event->bytes;
    if (gp_accounts.setup.late) {
        int64_t reserved = event->reserved_bytes - __atomic_load_n(&framework->x_segment_bytes, __ATOMIC_RELAXED);
        word_add(&framework->x_before_allocated_bytes, event->allocated_bytes < 0 ? 0 : before);
        word_add(&framework->x_before_reserved_bytes, reserved > 0 ? reserved : 0);
        return;
    }
    if (before == 0)
        gp_framework_history_begin(framework);
    if (event->allocated_bytes < 0 || before <= 0)
        return;
    __atomic_store_n(&framework->x_unseen, 1, __ATOMIC_RELAXED);
    struct gp_move move = {.parts = GP_PART_ALLOCATED, .bytes = before, .class_bytes = INT64_MAX, .owner = owner};
    gp_account_move(event->device, GP_ADD, &move);
    word_add(&framework->x_allocated_bytes, before);
}

/* The size of a segment from before is known when the framework gives it back: from its own totals.
 * rest: what these have beyond the segments that were seen. */
static GP_COLD int64_t framework_before_reserved(struct gp_framework *framework, int64_t rest)
{
    int64_t before = __atomic_load_n(&framework->x_before_reserved_bytes, __ATOMIC_RELAXED);
    if (rest < 0 || rest >= before)
        return before;
    __atomic_store_n(&framework->x_before_reserved_bytes, rest, __ATOMIC_RELAXED);
    return rest;
}

static void framework_compare(struct gp_framework *framework, const struct gp_framework_event *event)
{
    if (event->allocated_bytes < 0)
        return;
    __atomic_store_n(&framework->x_their_allocated_bytes, event->allocated_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&framework->x_their_reserved_bytes, event->reserved_bytes, __ATOMIC_RELAXED);
    int64_t allocated = __atomic_load_n(&framework->x_allocated_bytes, __ATOMIC_RELAXED);
    int64_t reserved = __atomic_load_n(&framework->x_segment_bytes, __ATOMIC_RELAXED);
    if (GP_UNLIKELY(gp_accounts.setup.late)) {
        allocated += __atomic_load_n(&framework->x_before_allocated_bytes, __ATOMIC_RELAXED);
        reserved += framework_before_reserved(framework, event->reserved_bytes - reserved);
    }
    if (GP_UNLIKELY(allocated != event->allocated_bytes))
        count_add(&framework->x_allocated_differs);
    if (GP_LIKELY(reserved == event->reserved_bytes))
        return;
    if (!__atomic_load_n(&framework->x_strange, __ATOMIC_RELAXED)) /* else its total has unknown parts */
        count_add(&framework->x_reserved_differs);
}

/* At the peak, while the numbers are read, or of another owner. */
static GP_COLD uint64_t framework_move_slowly(struct gp_account *account, enum gp_counter_op op, int64_t bytes,
                                              uint8_t owner)
{
    const struct gp_move move = {
        .parts = GP_PART_ALLOCATED, .bytes = bytes, .class_bytes = bytes, .count = 1, .owner = owner};
    const struct gp_counter_event pair = {.pair = gp_gauge_block_pair(bytes), .amounts = {1, bytes}};
    struct gp_counter_event event;
    struct gp_delta deltas[GP_DELTAS];
    uint64_t time_ns = 0;
    if (GP_LIKELY(owner == account->framework.owner))
        event = pair;
    else
        gp_gauge_event(&move, GP_WIRE_OWNERS, &event, deltas);
    gp_counter_move(account->counter, gp_thread.number, op, &event, &time_ns);
    return time_ns;
}

static __attribute__((noinline)) uint64_t framework_move_timed(struct gp_account *account, enum gp_counter_op op,
                                                               int64_t bytes, uint8_t owner)
{
    struct gp_counter *set = account->counter;
    uint64_t time_ns = 0;
    if (GP_LIKELY(owner == account->framework.owner))
        time_ns = gp_gate_event(set, gp_counter_gate(set, gp_thread.number), op, gp_gauge_block_pair(bytes),
                                (const int64_t[]){1, bytes}, 0, 0);
    return GP_LIKELY(time_ns) ? time_ns : framework_move_slowly(account, op, bytes, owner);
}

/* As gp_account_move, for a block whose number counts. The time of the change is read only if events
 * are; else 0, which means unknown. */
static inline __attribute__((always_inline)) uint64_t framework_move(struct gp_account *account, enum gp_counter_op op,
                                                                     int64_t bytes, uint8_t owner)
{
    const int64_t amounts[2] = {1, bytes};
    struct gp_counter *set = account->counter;
    if (GP_UNLIKELY(gp_event_heard()))
        return framework_move_timed(account, op, bytes, owner);
    if (GP_LIKELY(owner == account->framework.owner) &&
        GP_LIKELY(gp_gate_pair(set, gp_counter_gate(set, gp_thread.number), op, gp_gauge_block_pair(bytes), amounts)))
        return 0;
    return framework_move_slowly(account, op, bytes, owner);
}

/* Both return by how much the number of known blocks changes. */
static int framework_alloc(struct gp_account *account, const struct gp_framework_event *event, uint8_t owner)
{
    struct gp_record old, record = {
                              .key = event->address,
                              .space = GP_SPACE_BLOCK,
                              .kind = GP_KIND_LINEAR,
                              .device = (uint8_t)event->device,
                              .flags = GP_FLAG_REPORTED,
                              .owner = owner,
                              .bytes = (uint64_t)event->bytes,
                              .requested_bytes = (uint64_t)event->bytes,
                              .site = gp_event_here(event->device, GP_KIND_LINEAR),
                              .block.request = gp_framework_history_alloc(&account->framework, (uint64_t)event->bytes),
                          };
    int status = 0;
    bool odd = __atomic_load_n(&gp_ground_x_odd, __ATOMIC_RELAXED) ||
               gp_framework_strange(&account->framework, event->reserved_bytes);
    if (GP_UNLIKELY(odd) && gp_ground_block(&record, event->reserved_bytes, &status))
        return status == 0;
    record.time_ns = framework_move(account, GP_ADD, event->bytes, owner);
    status = gp_map_insert(gp_accounts.blocks, &record, &old);
    if (GP_UNLIKELY(status != 0)) /* the sums are right all the same: a free brings its size */
        gp_feed_lost(status < 0 ? GP_LOST_MAP : GP_LOST_MISSED_FREE);
    gp_event_block(GP_EVENT_ALLOC, &record, record.time_ns);
    return status == 0;
}

/* A block from before the first report, as framework_first counted it. */
static GP_COLD uint64_t framework_free_unknown(const struct gp_framework_event *event, uint8_t owner,
                                               struct gp_record *record)
{
    struct gp_move move = {
        .parts = GP_PART_ALLOCATED, .bytes = -event->bytes, .class_bytes = INT64_MAX, .owner = owner};
    uint64_t time_ns = gp_accounts.setup.late ? 0 : gp_account_move(event->device, GP_SUB, &move);
    *record = (struct gp_record){.key = event->address,
                                 .space = GP_SPACE_BLOCK,
                                 .kind = GP_KIND_LINEAR,
                                 .device = (uint8_t)event->device,
                                 .owner = owner};
    return time_ns;
}

static int framework_free(struct gp_account *account, const struct gp_framework_event *event, uint8_t owner)
{
    struct gp_record record;
    bool known = gp_map_take(gp_accounts.blocks, GP_SPACE_BLOCK, event->address, &record) == 0;
    gp_framework_history_free(&account->framework, known ? record.block.request : 0);
    if (GP_UNLIKELY(known && record.block.lacks) && gp_ground_unblock(&record))
        return -1;
    uint64_t time_ns = known ? framework_move(account, GP_SUB, -event->bytes, record.owner)
                             : framework_free_unknown(event, owner, &record);
    record.bytes = record.requested_bytes = (uint64_t)-event->bytes;
    gp_event_block(GP_EVENT_FREE, &record, time_ns);
    return -known;
}

static GP_COLD void framework_late(const struct gp_framework_event *event)
{
    if (event->bytes < 0)
        gp_before_block_freed(event->address);
    else
        gp_before_block_made(event->address);
}

void gp_feed_framework_block(const struct gp_framework_event *event, uint8_t owner)
{
    struct gp_account *account = gp_account_of(event->device);
    if (GP_UNLIKELY(!account || event->bytes == 0))
        return;
    struct gp_framework *framework = &account->framework;
    if (GP_UNLIKELY(!__atomic_load_n(&framework->x_events, __ATOMIC_RELAXED)))
        framework_first(account, event, owner);
    count_add(&framework->x_events);
    if (GP_UNLIKELY(gp_accounts.setup.late))
        framework_late(event);
    /* A block that is freed now was in its segment when the cache was emptied, and one that is made now is in a
     * segment that may be new. */
    bool gave_back = __atomic_load_n(&framework->x_gave_back, __ATOMIC_RELAXED);
    if (GP_UNLIKELY(gave_back) && event->bytes < 0)
        gp_framework_look_at_survivors(framework, event->device);
    int blocks = event->bytes > 0 ? framework_alloc(account, event, owner) : framework_free(account, event, owner);
    bool before = GP_UNLIKELY(gp_accounts.setup.late) && event->bytes < 0 && !blocks;
    word_add(before ? &framework->x_before_allocated_bytes : &framework->x_allocated_bytes, event->bytes);
    word_add(&framework->x_blocks, blocks);
    framework_compare(framework, event);
    if (GP_UNLIKELY(gp_accounts.setup.late) && event->allocated_bytes >= 0)
        gp_before_block_compare(event->device, framework->x_before_allocated_bytes);
    if (GP_UNLIKELY(gave_back) && event->bytes > 0)
        gp_framework_look_at_survivors(framework, event->device);
    if (GP_UNLIKELY(__atomic_load_n(&framework->x_failing, __ATOMIC_RELAXED)))
        __atomic_store_n(&framework->x_failing, 0, __ATOMIC_RELAXED);
}

void gp_feed_framework_oom(const char *api, int device, uint64_t requested_bytes)
{
    struct gp_account *account = gp_account_of(device);
    if (!account)
        return;
    struct gp_framework *framework = &account->framework;
    /* It also retries where its own limit, and not the driver, refuses the memory. */
    uint32_t failures = __atomic_exchange_n(&framework->x_failing, 0, __ATOMIC_RELAXED);
    if (!failures)
        __atomic_fetch_add(&framework->x_retries, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&framework->x_ooms, 1, __ATOMIC_RELAXED);
    gp_event_oom(api, requested_bytes, device, (int)failures);
    uint64_t context;
    uint32_t ctx = gp_framework_context(framework, &context);
    gp_feed_oom_context(ctx, context);
}

static int64_t word(const int64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static bool framework_read(const struct gp_framework *framework, const char *name, struct gp_wire_framework *out)
{
    if (!name || !__atomic_load_n(&framework->x_events, __ATOMIC_RELAXED))
        return false;
    strncpy(out->name, name, sizeof(out->name) - 1);
    out->private_bytes = word(&framework->x_private_bytes);
    out->blocks = word(&framework->x_blocks);
    out->segments = word(&framework->x_segments);
    out->allocated_bytes = word(&framework->x_allocated_bytes) - word(&framework->x_lacking_bytes);
    out->reserved_bytes = word(&framework->x_segment_bytes);
    out->their_allocated_bytes = word(&framework->x_their_allocated_bytes);
    out->their_reserved_bytes = word(&framework->x_their_reserved_bytes);
    out->events = __atomic_load_n(&framework->x_events, __ATOMIC_RELAXED);
    out->allocated_differs = __atomic_load_n(&framework->x_allocated_differs, __ATOMIC_RELAXED);
    out->reserved_differs = __atomic_load_n(&framework->x_reserved_differs, __ATOMIC_RELAXED);
    out->retries = __atomic_load_n(&framework->x_retries, __ATOMIC_RELAXED);
    out->ooms = __atomic_load_n(&framework->x_ooms, __ATOMIC_RELAXED);
    return true;
}

bool gp_tap_framework(unsigned index, struct gp_wire_framework *framework, struct gp_wire_framework *heaps)
{
    struct gp_account *account =
        index < GP_WIRE_GPUS ? __atomic_load_n(&gp_accounts.x_devices[index], __ATOMIC_ACQUIRE) : NULL;
    memset(framework, 0, sizeof(*framework));
    memset(heaps, 0, sizeof(*heaps));
    if (!account)
        return false;
    bool any = framework_read(&account->framework, gp_framework_name(), framework);
    return framework_read(&account->heaps[GP_DOOR_NVTX], "nvtx", heaps) || any;
}
