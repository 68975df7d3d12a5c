/* SPDX-License-Identifier: MIT
 *
 * test_feed.c: the accounts against a model, after every one of thousands of random operations: each statistic of each
 * device in all pools, the kinds, the contexts, the events in the ring, and what the sum of the visited blocks is.  Sizes
 * lie around every boundary, and every fourth call of the driver fails, which must leave everything as it was.
 */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/start.h"
#include "account/feed/vmm.h"
#include "account/feed/want.h"
#include "account/tap.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include "lib/random.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MIB      ((int64_t)1 << 20)
#define CHUNKS   64u
#define GPUS     2
#define ROWS     64 /* things that are live at a time */
#define CONTEXTS 3
#define STEPS    1500

static struct gp_wire_oom oom;
static struct gp_ringread *reader;
static struct gp_wire_sites *sites; /* NULL: no stacks are taken */
static bool sites_late;             /* a row holds what was allocated before, of all kinds */

static void setup(void)
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.oom = &oom, .map_limit = 1 << 20});
    reader = accounts_reader(CHUNKS);
    cr_assert(gp_thread_enter());
}

TestSuite(feed, .init = setup, .fini = accounts_check, .timeout = 60);

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* A thing that the program holds: a block, or a handle with its mappings. */
struct thing {
    enum gp_space space; /* 0: the row is free */
    enum gp_wire_kind kind;
    int device;
    uint32_t ctx;
    uint64_t address;
    int64_t bytes;
    unsigned refs, maps; /* of a handle; each mapping is of half of it, so two of them show all, three no more */
};

struct model {
    struct gp_wire_device device[GP_WIRE_DEVICES];
    int64_t reserved_peak[GP_WIRE_DEVICES][GP_POOLS]; /* of sums that were held at once */
    struct gp_wire_scope_value scope[GP_WIRE_DEVICES];
    bool scoped;
    /* No pool is polled here: their reserve is the most that was handed out. */
    bool polled[GP_WIRE_DEVICES];
    int64_t lifted[GP_WIRE_DEVICES], allocated_before[GP_WIRE_DEVICES];
    struct thing things[ROWS];
    uint64_t next; /* address */
    int context_device[CONTEXTS];
    uint32_t context[CONTEXTS], contexts; /* numbers; 0: none */
};

static void value_move(struct gp_wire_value *value, int64_t by)
{
    value->current += by;
    if (by > 0)
        value->allocated += by;
    else
        value->freed -= by;
    if (value->current > value->peak)
        value->peak = value->current;
}

static void stat_move(struct gp_wire_device *device, enum gp_wire_stat stat, bool large, int64_t by)
{
    value_move(&device->stats[stat][GP_POOL_ALL], by);
    value_move(&device->stats[stat][large ? GP_POOL_LARGE : GP_POOL_SMALL], by);
}

static void model_allocated(struct model *model, int index, int64_t block_bytes, int64_t bytes, int64_t count)
{
    struct gp_wire_device *device = &model->device[index];
    bool large = block_bytes > MIB;
    stat_move(device, GP_STAT_ALLOCATION, large, count);
    stat_move(device, GP_STAT_ACTIVE, large, count);
    stat_move(device, GP_STAT_ALLOCATED_BYTES, large, bytes);
    stat_move(device, GP_STAT_ACTIVE_BYTES, large, bytes);
    stat_move(device, GP_STAT_REQUESTED_BYTES, large, bytes);
    int64_t now = device->stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current;
    if (now > model->scope[index].allocated_peak_bytes)
        model->scope[index].allocated_peak_bytes = now;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Reserved bytes without what pools hold. */
static int64_t model_own(const struct model *model, int index, int pool)
{
    return model->device[index].stats[GP_STAT_RESERVED_BYTES][pool].current -
           (pool == GP_POOL_SMALL ? 0 : model->lifted[index]);
}

static void model_reserved(struct model *model, int index, int64_t bytes, int64_t count)
{
    struct gp_wire_device *device = &model->device[index];
    bool large = bytes > MIB || bytes < -MIB;
    stat_move(device, GP_STAT_SEGMENT, large, count);
    stat_move(device, GP_STAT_RESERVED_BYTES, large, bytes);
    for (int pool = GP_POOL_ALL; pool < GP_POOLS; pool++)
        model->reserved_peak[index][pool] = larger(model->reserved_peak[index][pool], model_own(model, index, pool));
    int64_t now = model_own(model, index, GP_POOL_ALL);
    if (now > model->scope[index].reserved_peak_bytes)
        model->scope[index].reserved_peak_bytes = now;
}

static void model_kind(struct model *model, const struct thing *thing, int sign)
{
    struct gp_wire_device *device = &model->device[thing->device];
    struct gp_wire_kind_value *kind = &device->kinds[thing->kind];
    struct gp_wire_value bytes = {kind->current_bytes, kind->peak_bytes, kind->allocated_bytes, kind->freed_bytes};
    value_move(&bytes, sign * thing->bytes);
    kind->current_bytes = bytes.current, kind->peak_bytes = bytes.peak;
    kind->allocated_bytes = bytes.allocated, kind->freed_bytes = bytes.freed;
    kind->live += sign;
    kind->calls += sign > 0;
    if (kind->live > kind->live_peak)
        kind->live_peak = kind->live;
    /* What cudaMalloc takes from the device (docs/accounting.md). */
    int64_t step = thing->bytes <= MIB ? 512 : 2 * MIB;
    if (thing->kind == GP_KIND_LINEAR)
        device->linear_rounded_bytes += sign * ((thing->bytes + step - 1) / step * step);
}

static bool is_summed(enum gp_wire_kind kind)
{
    return kind != GP_KIND_MANAGED && kind != GP_KIND_MODULE && kind != GP_KIND_IMPORTED;
}

/* When the numbers are read: what pools hold, and the reserved peaks that follow from the allocated ones. */
static void model_lift(struct model *model, int index)
{
    struct gp_wire_device *device = &model->device[index];
    struct gp_wire_scope_value *scope = &model->scope[index];
    int64_t more = device->kinds[GP_KIND_POOL].current_bytes - model->lifted[index];
    if (!model->polled[index])
        return;
    if (more > 0) {
        stat_move(device, GP_STAT_RESERVED_BYTES, true, more);
        model->lifted[index] += more;
    }
    for (int pool = GP_POOL_ALL; pool < GP_POOLS; pool++) {
        int64_t *peak = &model->reserved_peak[index][pool];
        int64_t allocated = device->stats[GP_STAT_ALLOCATED_BYTES][pool].peak;
        if (pool != GP_POOL_SMALL)
            *peak = larger(*peak, model_own(model, index, pool) + device->kinds[GP_KIND_POOL].current_bytes);
        if (pool != GP_POOL_SMALL && allocated > model->allocated_before[index])
            *peak = larger(*peak, allocated);
    }
    scope->reserved_peak_bytes = larger(scope->reserved_peak_bytes, scope->allocated_peak_bytes);
}

/* As it is shown: what pools held is not added to memory of another time. */
static struct gp_wire_value model_shown(const struct model *model, int index, int stat, int pool)
{
    struct gp_wire_value value = model->device[index].stats[stat][pool];
    if (stat != GP_STAT_RESERVED_BYTES || !model->polled[index])
        return value;
    value.peak = model->reserved_peak[index][pool];
    value.current = value.current < value.peak ? value.current : value.peak;
    return value;
}

static void model_block(struct model *model, const struct thing *thing, int sign)
{
    if (is_summed(thing->kind))
        model_allocated(model, thing->device, thing->bytes, sign * thing->bytes, sign);
    if (is_summed(thing->kind) && thing->kind != GP_KIND_POOL)
        model_reserved(model, thing->device, sign * thing->bytes, sign);
    model_kind(model, thing, sign);
    model->polled[thing->device] |= thing->kind == GP_KIND_POOL;
}

static int64_t handle_shown(const struct thing *thing)
{
    return thing->maps >= 2 ? thing->bytes : thing->maps * (thing->bytes / 2);
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static void value_check(const struct gp_wire_value *is, const struct gp_wire_value *want, const char *what, int device,
                        int stat, int pool)
{
    cr_assert(memcmp(is, want, sizeof(*is)) == 0,
              "%s: device %d, statistic %d, pool %d: %lld, peak %lld, allocated %lld, freed %lld instead of "
              "%lld, %lld, %lld, %lld",
              what, device, stat, pool, (long long)is->current, (long long)is->peak, (long long)is->allocated,
              (long long)is->freed, (long long)want->current, (long long)want->peak, (long long)want->allocated,
              (long long)want->freed);
}

static void device_check(struct model *model, unsigned index, const char *what)
{
    model_lift(model, (int)index);
    const struct gp_wire_device *want = &model->device[index];
    struct gp_wire_device is;
    if (!gp_tap_device(index, &is))
        return;
    for (int stat = 0; stat < GP_STATS; stat++)
        for (int pool = 0; pool < GP_POOLS; pool++) {
            const struct gp_wire_value shown = model_shown(model, (int)index, stat, pool);
            value_check(&is.stats[stat][pool], &shown, what, (int)index, stat, pool);
        }
    for (int kind = 1; kind < GP_KINDS; kind++) {
        const struct gp_wire_kind_value *a = &is.kinds[kind], *b = &want->kinds[kind];
        if (kind == GP_KIND_CONTEXT) {
            cr_assert_eq(a->live, b->live, "%s: device %u has %lld contexts instead of %lld", what, index,
                         (long long)a->live, (long long)b->live);
            continue;
        }
        cr_assert(a->current_bytes == b->current_bytes && a->peak_bytes == b->peak_bytes &&
                      a->allocated_bytes == b->allocated_bytes && a->freed_bytes == b->freed_bytes &&
                      a->live == b->live && a->live_peak == b->live_peak && a->calls == b->calls,
                  "%s: device %u, kind %d: %lld bytes (peak %lld), %lld live (peak %lld) instead of %lld (%lld), %lld "
                  "(%lld)",
                  what, index, kind, (long long)a->current_bytes, (long long)a->peak_bytes, (long long)a->live,
                  (long long)a->live_peak, (long long)b->current_bytes, (long long)b->peak_bytes, (long long)b->live,
                  (long long)b->live_peak);
    }
    cr_assert_eq(is.linear_rounded_bytes, want->linear_rounded_bytes, "%s: rounded", what);
    if (model->scoped)
        cr_assert_eq(is.scopes[0].allocated_peak_bytes, model->scope[index].allocated_peak_bytes, "%s: scope", what);
    if (model->scoped)
        cr_assert_eq(is.scopes[0].reserved_peak_bytes, model->scope[index].reserved_peak_bytes, "%s: scope", what);
}

static void visit(void *arg, const struct gp_tap_block *block)
{
    int64_t *sums = arg;
    sums[block->device] += block->kind == GP_KIND_VMM && !block->mapped ? 0 : (int64_t)block->bytes;
}

static void no_rest(void *arg)
{
    (void)arg;
}

/* The summed rows of a device add up to what the statistics say. */
static void sites_check(unsigned index, const char *what)
{
    const struct gp_wire_site *rows = (const struct gp_wire_site *)((char *)sites + sites->rows_offset);
    struct gp_wire_device device;
    int64_t sum = 0, at_peak = 0, live = 0, linear = 0;
    if (!gp_tap_device(index, &device))
        return;
    int64_t want = gp_tap_site_bytes(index, &device);
    for (uint32_t i = 0; i < sites->rows; i++)
        linear += rows[i].device == index && rows[i].kind == GP_KIND_LINEAR ? rows[i].live_bytes : 0;
    cr_assert(sites_late || linear == device.kinds[GP_KIND_LINEAR].current_bytes, "%s: linear rows", what);
    for (uint32_t i = 0; i < sites->rows; i++)
        if (rows[i].device == index && rows[i].summed) {
            bool kept = rows[i].peak_seq == sites->devices[index].peak_seq;
            sum += rows[i].live_bytes;
            live += rows[i].live_count;
            at_peak += kept ? rows[i].at_peak_bytes : rows[i].live_bytes;
        }
    cr_assert_eq(sum, want, "%s: the sites of device %u hold %lld instead of %lld", what, index, (long long)sum,
                 (long long)want);
    cr_assert_eq(sites->devices[index].live_bytes, want, "%s: device %u", what, index);
    cr_assert_eq(at_peak, sites->devices[index].peak_bytes, "%s: device %u held %lld at the peak of %lld", what, index,
                 (long long)at_peak, (long long)sites->devices[index].peak_bytes);
    cr_assert_geq(live, 0);
}

static void model_check(struct model *model, const char *what)
{
    int64_t sums[256] = {0};
    gp_tap_blocks(GP_TAP_EVERY, sums, visit, no_rest);
    for (unsigned index = 0; index < GP_WIRE_DEVICES; index++) {
        device_check(model, index, what);
        if (sites)
            sites_check(index, what);
        cr_assert_eq(sums[index], model->device[index].stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current,
                     "%s: the walk over the blocks of device %u", what, index);
    }
}

/* The next event of the ring is this one. */
static void event_check(enum gp_wire_event_type type, const struct thing *thing, uint64_t stream, const char *what)
{
    const struct gp_wire_event *event;
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &event), 1, "%s: one event", what);
    cr_assert(event->type == type && event->kind == thing->kind && event->device == thing->device &&
                  event->address == thing->address && event->stream == stream && event->time_ns,
              "%s: event %u of kind %u at %llx, stream %llu, instead of %d of kind %d at %llx, stream %llu", what,
              event->type, event->kind, (unsigned long long)event->address, (unsigned long long)event->stream, type,
              thing->kind, (unsigned long long)thing->address, (unsigned long long)stream);
    cr_assert_eq(event->bytes, (uint64_t)thing->bytes, "%s: bytes of the event", what);
}

static void no_event(const char *what)
{
    const struct gp_wire_event *event;
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &event), 0, "%s: an event of type %u", what, event->type);
}

static void skip_events(void)
{
    const struct gp_wire_event *event;
    cr_assert_geq(gp_ringread_poll(reader, UINT64_MAX, &event), 0);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static const int64_t sizes[] = {1,           511,     512,         513,      MIB - 1,      MIB,      MIB + 1,
                                2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 10 * MIB, 10 * MIB + 1, 20 * MIB, 3 * MIB + 7};
static const struct {
    enum gp_space space;
    enum gp_wire_kind kind;
} shapes[] = {{GP_SPACE_DEVICE, GP_KIND_LINEAR},        {GP_SPACE_DEVICE, GP_KIND_PITCHED},
              {GP_SPACE_ARRAY, GP_KIND_ARRAY},          {GP_SPACE_DEVICE, GP_KIND_POOL},
              {GP_SPACE_DEVICE, GP_KIND_MANAGED},       {GP_SPACE_HOST, GP_KIND_PINNED},
              {GP_SPACE_REGISTERED, GP_KIND_REGISTERED}};

static struct thing *thing_with(struct model *model, bool live, bool handle)
{
    unsigned first = draw_below(ROWS);
    for (unsigned i = 0; i < ROWS; i++) {
        struct thing *thing = &model->things[(first + i) % ROWS];
        if (live ? thing->space && (thing->space == GP_SPACE_VMM) == handle : !thing->space)
            return thing;
    }
    return NULL;
}

static void do_alloc(struct model *model)
{
    struct thing *thing = thing_with(model, false, false);
    if (!thing)
        return;
    unsigned shape = draw_below(sizeof(shapes) / sizeof(shapes[0])), owner = draw_below(2 * CONTEXTS);
    bool host = shapes[shape].space == GP_SPACE_HOST || shapes[shape].space == GP_SPACE_REGISTERED;
    *thing = (struct thing){.space = shapes[shape].space,
                            .kind = shapes[shape].kind,
                            .device = host ? (int)GP_WIRE_HOST : (int)draw_below(GPUS),
                            .bytes = sizes[draw_below(sizeof(sizes) / sizeof(sizes[0]))],
                            .address = model->next += 32u << 20};
    /* Memory of a pool belongs to no context. */
    if (thing->kind != GP_KIND_POOL && owner < CONTEXTS && model->context[owner])
        thing->ctx = model->context[owner];
    gp_feed_poll_wanted();
    gp_feed_alloc(&(struct gp_allocation){.space = thing->space,
                                          .kind = thing->kind,
                                          .device = thing->device,
                                          .ctx = thing->ctx,
                                          .address = thing->address,
                                          .bytes = (uint64_t)thing->bytes,
                                          .requested_bytes = (uint64_t)thing->bytes,
                                          .stream = thing->address >> 20});
    model_block(model, thing, 1);
    event_check(GP_EVENT_ALLOC, thing, thing->address >> 20, "alloc");
    cr_assert_eq(!(gp_feed_poll_wanted() & GP_POLL_POOLS), thing->kind != GP_KIND_POOL, "kind %d", thing->kind);
}

static void do_free(struct model *model)
{
    struct thing *thing = thing_with(model, true, false);
    bool ok = draw_below(4);
    if (!thing)
        return;
    uint32_t token = gp_feed_free_begin(thing->space, thing->address);
    cr_assert(token);
    gp_feed_free_end(token, ok, 77);
    if (!ok) {
        no_event("a failed free");
        return;
    }
    model_block(model, thing, -1);
    event_check(GP_EVENT_FREE, thing, 77, "free");
    cr_assert_eq(gp_feed_free_begin(thing->space, thing->address), 0);
    thing->space = GP_SPACE_NONE;
}

/* The driver hands out an address whose free was not seen. */
static void do_missed(struct model *model)
{
    struct thing *thing = thing_with(model, true, false);
    if (!thing)
        return;
    uint64_t missed = lost[GP_LOST_MISSED_FREE];
    model_block(model, thing, -1);
    thing->ctx = 0;
    thing->bytes = sizes[draw_below(sizeof(sizes) / sizeof(sizes[0]))];
    gp_feed_alloc(&(struct gp_allocation){.space = thing->space,
                                          .kind = thing->kind,
                                          .device = thing->device,
                                          .address = thing->address,
                                          .bytes = (uint64_t)thing->bytes,
                                          .requested_bytes = (uint64_t)thing->bytes});
    model_block(model, thing, 1);
    cr_assert_eq(lost[GP_LOST_MISSED_FREE], missed + 1);
    skip_events();
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */

static uint64_t map_at(const struct thing *thing, unsigned number)
{
    return 0x100000000000ull + (thing->address << 12) + number * (64ull << 20);
}

static void handle_move(struct model *model, const struct thing *thing, unsigned maps_before)
{
    struct thing before = *thing;
    before.maps = maps_before;
    int64_t by = handle_shown(thing) - handle_shown(&before);
    int count = (thing->maps > 0) - (maps_before > 0);
    model_allocated(model, thing->device, thing->bytes, by, count);
}

static void handle_end(struct model *model, struct thing *thing)
{
    if (thing->refs || thing->maps)
        return;
    model_reserved(model, thing->device, -thing->bytes, -1);
    model_kind(model, thing, -1);
    thing->space = GP_SPACE_NONE;
}

static void do_create(struct model *model)
{
    struct thing *thing = thing_with(model, false, false);
    if (!thing)
        return;
    *thing = (struct thing){.space = GP_SPACE_VMM,
                            .kind = GP_KIND_VMM,
                            .device = (int)draw_below(GPUS),
                            .address = model->next += 32u << 20,
                            .bytes = draw_below(3) ? 4 * MIB : MIB,
                            .refs = 1};
    gp_feed_vmm_create(thing->address, (uint64_t)thing->bytes, thing->device);
    model_reserved(model, thing->device, thing->bytes, 1);
    model_kind(model, thing, 1);
    event_check(GP_EVENT_SEGMENT_ALLOC, thing, 0, "create");
}

static void do_map(struct model *model)
{
    struct thing *thing = thing_with(model, true, true);
    if (!thing || thing->maps == 3 || !thing->refs)
        return;
    thing->maps++;
    gp_feed_vmm_map(map_at(thing, thing->maps), (uint64_t)thing->bytes / 2, 0, thing->address);
    handle_move(model, thing, thing->maps - 1);
    cr_assert_eq(gp_feed_vmm_handle_at(map_at(thing, thing->maps) + 100), thing->address);
    skip_events();
}

static void do_unmap(struct model *model)
{
    struct thing *thing = thing_with(model, true, true);
    bool ok = draw_below(4);
    if (!thing || !thing->maps)
        return;
    uint32_t token = gp_feed_vmm_unmap_begin(map_at(thing, thing->maps), (uint64_t)thing->bytes / 2);
    gp_feed_vmm_unmap_end(token, ok);
    if (!ok) {
        no_event("a failed unmap");
        return;
    }
    thing->maps--;
    handle_move(model, thing, thing->maps + 1);
    handle_end(model, thing);
    skip_events();
}

static void do_release(struct model *model)
{
    struct thing *thing = thing_with(model, true, true);
    bool ok = draw_below(4), retain = draw_below(3) == 0;
    if (!thing || !thing->refs)
        return;
    if (retain) {
        gp_feed_vmm_retain(thing->address);
        thing->refs++;
        return;
    }
    bool last = thing->refs == 1 && !thing->maps;
    struct thing old = *thing;
    uint32_t token = gp_feed_vmm_release_begin(thing->address);
    gp_feed_vmm_release_end(token, ok);
    if (ok) {
        thing->refs--;
        handle_end(model, thing);
    }
    if (ok && last)
        event_check(GP_EVENT_SEGMENT_FREE, &old, 0, "the last release");
    else
        no_event("a release");
}

/* ---- contexts, resets, scopes ------------------------------------------------------------------------------------ */

static void do_context(struct model *model)
{
    unsigned i = draw_below(CONTEXTS);
    if (!model->context[i]) {
        model->context[i] = ++model->contexts;
        model->context_device[i] = (int)draw_below(GPUS);
        gp_feed_context_created(model->context[i], model->context_device[i]);
        model->device[model->context_device[i]].kinds[GP_KIND_CONTEXT].live++;
        cr_assert_eq(gp_feed_context_device(model->context[i]), model->context_device[i]);
        return;
    }
    uint32_t gone = model->context[i];
    gp_feed_context_destroyed(gone, model->context_device[i], draw_below(2));
    for (unsigned k = draw_below(3); k > 0; k--) /* inferred once more, as after cuDevicePrimaryCtxReset */
        gp_feed_context_destroyed(gone, model->context_device[i], false);
    model->device[model->context_device[i]].kinds[GP_KIND_CONTEXT].live--;
    for (unsigned k = 0; k < ROWS; k++)
        if (model->things[k].space && model->things[k].ctx == gone) {
            model_block(model, &model->things[k], -1);
            model->things[k].space = GP_SPACE_NONE;
        }
    model->context[i] = 0;
    skip_events();
}

static void value_restart(struct gp_wire_value *value, unsigned what)
{
    if (what == GP_RESET_ACCUMULATED)
        value->allocated = value->freed = 0;
    else
        value->peak = value->current;
}

static void kind_restart(struct gp_wire_kind_value *kind, unsigned what)
{
    if (what == GP_RESET_ACCUMULATED)
        kind->allocated_bytes = kind->freed_bytes = kind->calls = 0;
    else
        kind->peak_bytes = kind->current_bytes, kind->live_peak = kind->live;
}

static void model_reset(struct gp_wire_device *device, unsigned what)
{
    for (int pool = 0; pool < GP_POOLS; pool++)
        for (int stat = 0; stat < GP_STATS; stat++) {
            bool reserved = stat == GP_STAT_SEGMENT || stat == GP_STAT_RESERVED_BYTES ||
                            stat == GP_STAT_INACTIVE_SPLIT || stat == GP_STAT_INACTIVE_SPLIT_BYTES;
            if (what == GP_RESET_ACCUMULATED || what & (reserved ? GP_RESET_RESERVED : GP_RESET_ALLOCATED))
                value_restart(&device->stats[stat][pool], what);
        }
    /* Kinds are reserved and allocated: one word alone leaves them. */
    for (int kind = 1; kind < GP_KINDS; kind++)
        if (what == GP_RESET_ACCUMULATED || what == GP_RESET_PEAKS)
            kind_restart(&device->kinds[kind], what);
}

static void do_reset(struct model *model)
{
    static const unsigned whats[] = {GP_RESET_ALLOCATED, GP_RESET_RESERVED, GP_RESET_PEAKS, GP_RESET_ACCUMULATED};
    unsigned what = whats[draw_below(4)], index = draw_below(3) ? draw_below(GPUS) : GP_WIRE_HOST;
    struct gp_wire_before_after said;
    struct gp_wire_device *device = &model->device[index];
    struct gp_wire_value before[GP_STATS];
    if (!gp_tap_reset(index, what, &said))
        return;
    for (int stat = 0; stat < GP_STATS; stat++)
        before[stat] = model_shown(model, (int)index, stat, GP_POOL_ALL);
    for (int pool = 0; pool < GP_POOLS; pool++)
        if (what != GP_RESET_ACCUMULATED && what & GP_RESET_RESERVED)
            model->reserved_peak[index][pool] = model_shown(model, (int)index, GP_STAT_RESERVED_BYTES, pool).current;
    if (what != GP_RESET_ACCUMULATED && what & GP_RESET_ALLOCATED)
        model->allocated_before[index] = 0;
    else if (what != GP_RESET_ACCUMULATED)
        model->allocated_before[index] = device->stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].peak;
    model_reset(device, what);
    cr_assert_eq(said.device, index);
    for (int stat = 0; stat < GP_STATS; stat++) {
        const struct gp_wire_value after = model_shown(model, (int)index, stat, GP_POOL_ALL);
        value_check(&said.before[stat], &before[stat], "before a reset", (int)index, stat, 0);
        value_check(&said.after[stat], &after, "after a reset", (int)index, stat, 0);
    }
}

static void do_scope(struct model *model)
{
    struct gp_wire_scope_value said[GP_WIRE_DEVICES];
    if (model->scoped) {
        cr_assert_eq(gp_tap_scope_end(0, said), 0);
        cr_assert_eq(gp_tap_scope_end(0, said), -ENOENT);
        for (unsigned i = 0; i < GPUS; i++)
            cr_assert(!gp_tap_known(i) || memcmp(&said[i], &model->scope[i], sizeof(said[i])) == 0, "end of a scope");
    } else {
        cr_assert_eq(gp_tap_scope_begin(0), 0);
        cr_assert_eq(gp_tap_scope_begin(0), -EBUSY);
    }
    model->scoped = !model->scoped;
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        const struct gp_wire_device *device = &model->device[i];
        model->scope[i].allocated_peak_bytes = device->stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current;
        model->scope[i].reserved_peak_bytes = model_shown(model, (int)i, GP_STAT_RESERVED_BYTES, GP_POOL_ALL).current;
    }
}

static void walk(unsigned steps)
{
    static const struct {
        void (*run)(struct model *model);
        const char *name;
        unsigned weight;
    } operations[] = {
        {do_alloc, "alloc", 30}, {do_free, "free", 25},  {do_missed, "missed free", 2}, {do_create, "create", 6},
        {do_map, "map", 9},      {do_unmap, "unmap", 7}, {do_release, "release", 5},    {do_context, "context", 3},
        {do_reset, "reset", 4},  {do_scope, "scope", 2},
    };
    static struct model model = {.next = 1ull << 32};
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++)
        for (int kind = 1; kind < GP_KINDS; kind++)
            model.device[i].kinds[kind].reserved_bytes = -1;
    for (unsigned step = 0; step < steps; step++) {
        unsigned at = draw_below(93), i = 0;
        for (; at >= operations[i].weight; i++)
            at -= operations[i].weight;
        operations[i].run(&model);
        model_check(&model, operations[i].name);
    }
    for (int cause = 0; cause < GP_LOSTS; cause++)
        cr_expect(cause == GP_LOST_MISSED_FREE || lost[cause] == 0, "lost %d", cause);
}

Test(feed, every_operation_moves_what_the_model_moves)
{
    walk(STEPS);
}

static void sites_on(bool late)
{
    uint64_t bytes = gp_site_bytes();
    sites = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(sites != MAP_FAILED);
    sites_late = late;
    int error = (late ? gp_site_switch : gp_site_start)(sites, bytes, GP_SITES_NATIVE);
    cr_assert_eq(error, 0);
}

Test(feed, call_sites_hold_what_the_statistics_say)
{
    sites_on(false);
    walk(STEPS);
}

/* What was allocated without stacks is in the row "before stacks", and leaves it. */
Test(feed, call_sites_that_come_late_and_go_hold_it_too)
{
    walk(300);
    sites_on(true);
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        struct gp_wire_device device;
        if (gp_tap_device(i, &device))
            gp_site_settle(i, gp_tap_site_bytes(i, &device), device.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current);
    }
    walk(STEPS);
    cr_assert_eq(gp_site_switch(NULL, 0, 0), 0);
    walk(300);
    cr_assert_eq(gp_site_switch(NULL, 0, GP_SITES_NATIVE), 0);
    walk(300);
}

/* ---- contexts and pools ------------------------------------------------------------------------------------------ */

static int64_t live_contexts(int device)
{
    struct gp_wire_device is;
    cr_assert(gp_tap_device((unsigned)device, &is));
    return is.kinds[GP_KIND_CONTEXT].live;
}

/* Their numbers share a place in the table of contexts. */
Test(feed, each_of_many_contexts_is_counted_and_ends)
{
    const uint32_t live = 12;
    for (uint32_t i = 0; i < live; i++)
        gp_feed_context_created(5 + 1024 * i, 1);
    cr_expect_eq(live_contexts(1), live);
    for (uint32_t i = 0; i < live; i++)
        cr_expect_eq(gp_feed_context_device(5 + 1024 * i), 1);
    for (uint32_t i = 0; i < live; i++) {
        gp_feed_context_learned(5 + 1024 * (live + i), 1); /* takes no counted one's place */
        gp_feed_context_destroyed(5 + 1024 * i, 1, i % 2);
        gp_feed_context_destroyed(5 + 1024 * i, 1, i % 2); /* told twice */
        cr_expect_eq(live_contexts(1), live - 1 - i);
    }
}

Test(feed, the_end_of_a_context_from_before_us_leaves_the_count)
{
    gp_feed_context_created(6, 1);
    gp_feed_context_learned(5, 1);
    gp_feed_context_destroyed(5, 1, true);
    cr_expect_eq(live_contexts(1), 1);
}

Test(feed, each_device_has_its_primary_context)
{
    gp_feed_primary_context(1, 7);
    cr_expect_eq(gp_feed_primary_of(1), 7);
    cr_expect_eq(gp_feed_primary_of(0), 0);
    cr_expect_eq(gp_feed_primary_of(GP_DEVICE_UNKNOWN), 0);
}

static int64_t live_handles(void)
{
    struct gp_wire_device is;
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, is.kinds[GP_KIND_VMM].live * 4 * MIB);
    return is.kinds[GP_KIND_VMM].live;
}

/* Bindings to a multicast object keep memory alive whose handles were released. */
Test(feed, an_unbind_ends_the_bindings_that_it_covers_and_no_other)
{
    const uint64_t object = 99, step = 4 * MIB;
    gp_feed_vmm_object(object, 0);
    for (uint64_t handle = 1; handle <= 6; handle++) {
        gp_feed_vmm_create(handle, step, 0);
        gp_feed_vmm_bind(object, 0, (handle - 1) * step, step, handle);
        gp_feed_vmm_release_end(gp_feed_vmm_release_begin(handle), true);
    }
    cr_expect_eq(live_handles(), 6);
    gp_feed_vmm_unbind(object, 1, 0, step);
    cr_expect_eq(live_handles(), 6, "another device's");
    gp_feed_vmm_unbind(object, 0, 0, step);
    cr_expect_eq(live_handles(), 5);
    gp_feed_vmm_unbind(object, 0, step, 2 * step);
    cr_expect_eq(live_handles(), 3);
    gp_feed_vmm_unbind(object, 0, 0, step);
    cr_expect_eq(live_handles(), 3, "it has ended");
    gp_feed_vmm_release_end(gp_feed_vmm_release_begin(object), false);
    cr_expect_eq(live_handles(), 3, "the release failed");
    gp_feed_vmm_release_end(gp_feed_vmm_release_begin(object), true);
    cr_expect_eq(live_handles(), 0, "all end with the object");
}

/* Whatever lies between them: the driver passes over addresses at which nothing is mapped. A failed unmap ends none. */
Test(feed, an_unmap_ends_the_mappings_that_it_covers_and_no_other)
{
    const uint64_t base = 1ull << 40, step = 4 * MIB;
    const uint64_t places[] = {0, 1, 3, 4, 600, 5000, 40000, 40001};
    for (uint64_t i = 0; i < GP_COUNT(places); i++) {
        gp_feed_vmm_create(i + 1, step, 0);
        gp_feed_vmm_map(base + places[i] * step, step, 0, i + 1);
        gp_feed_vmm_release_end(gp_feed_vmm_release_begin(i + 1), true);
    }
    static const struct {
        uint64_t from, count;
        bool ok;
        int64_t left;
    } unmaps[] = {
        {2, 1, true, 8},        {5, 595, true, 8},         {0, 50000, false, 8}, {2, 2, true, 7},
        {2, 598, true, 6},      {599, 2, false, 6},        {599, 2, true, 5},    {601, 39400, true, 3},
        {5000, 35000, true, 3}, {0, UINT64_MAX, false, 3}, {0, 40001, true, 1},
    };
    for (unsigned i = 0; i < GP_COUNT(unmaps); i++) {
        uint64_t bytes = unmaps[i].count == UINT64_MAX ? UINT64_MAX : unmaps[i].count * step;
        gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(base + unmaps[i].from * step, bytes), unmaps[i].ok);
        cr_expect_eq(live_handles(), unmaps[i].left, "unmap %u: %lld", i, (long long)live_handles());
    }
    gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(base + 40001 * step, step), true);
    cr_expect_eq(live_handles(), 0);
}

/* For 0 bytes the driver may succeed and hand out nothing, again and again. */
Test(feed, no_address_is_no_memory)
{
    const struct gp_allocation nothing = {.space = GP_SPACE_DEVICE, .kind = GP_KIND_POOL, .device = 0};
    for (unsigned i = 0; i < 3; i++)
        gp_feed_alloc(&nothing);
    gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, 0), true, 0);
    struct gp_wire_device is;
    cr_expect(!gp_tap_device(0, &is) || (is.kinds[GP_KIND_POOL].live == 0 && is.kinds[GP_KIND_POOL].calls == 0));
    for (int cause = 0; cause < GP_LOSTS; cause++)
        cr_expect_eq(lost[cause], 0);
}
