/* SPDX-License-Identifier: MIT
 *
 * test_vmm.c: handles and their mappings against a model, after every one of thousands of random calls: statistics, kinds,
 * events, the visited blocks, and to which handle each address belongs.  Handles are created, imported and multicast
 * objects; an unmap covers many mappings, and every third call of the driver fails, which must leave everything as it was.
 */
#include "account/feed/feed.h"
#include "account/feed/start.h"
#include "account/feed/vmm.h"
#include "account/internal.h"
#include "account/tap.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include "lib/random.h"
#include <criterion/criterion.h>
#include <string.h>

#define MIB      ((uint64_t)1 << 20)
#define PAGE     (2 * MIB)
#define CHUNKS   64u
#define GPUS     2
#define HANDLES  10
#define PLACES   48 /* pages at which mappings may start */
#define BINDINGS 12
#define BASE     (16 * MIB) /* low: a search for an address that is nowhere ends there */

static struct gp_wire_oom oom;
static struct gp_ringread *reader;

static void setup(void)
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.oom = &oom, .map_limit = 1 << 20});
    reader = accounts_reader(CHUNKS);
    cr_assert(gp_thread_enter());
}

TestSuite(vmm, .init = setup, .fini = accounts_check, .timeout = 60);

/* ---- the model --------------------------------------------------------------------------------------------------- */

struct handle {
    bool live;
    enum gp_wire_kind kind;
    int device; /* GP_DEVICE_UNKNOWN: in no total */
    uint64_t bytes;
    unsigned refs, uses;
    uint64_t mapped, extent; /* sum of its mappings, and the size that an imported one has shown since its first one */
};

struct binding {
    unsigned handle; /* 0: none */
    uint64_t object, offset, bytes;
    int device;
};

static struct handle handles[HANDLES]; /* [0] is none */
static struct place {
    unsigned handle;
    unsigned pages;
} places[PLACES];
static struct binding bindings[BINDINGS];
static struct gp_wire_value reserved[GPUS][GP_POOLS], allocated[GPUS][GP_POOLS], mapped_count[GPUS][GP_POOLS];
static uint64_t missed, unknown;

static uint64_t place_address(unsigned place)
{
    return BASE + place * PAGE;
}

static uint64_t shown(const struct handle *handle)
{
    return handle->mapped < handle->bytes ? handle->mapped : handle->bytes;
}

static void value_move(struct gp_wire_value *value, int64_t by)
{
    value->current += by;
    if (by > 0)
        value->allocated += by;
    else
        value->freed -= by;
    value->peak = value->current > value->peak ? value->current : value->peak;
}

static void values_move(struct gp_wire_value values[GPUS][GP_POOLS], const struct handle *handle, int64_t by)
{
    if (handle->kind != GP_KIND_VMM || handle->device < 0)
        return;
    value_move(&values[handle->device][GP_POOL_ALL], by);
    value_move(&values[handle->device][handle->bytes > MIB ? GP_POOL_LARGE : GP_POOL_SMALL], by);
}

static void handle_uses(unsigned number, int uses, int64_t mapped)
{
    struct handle *handle = &handles[number];
    uint64_t before = shown(handle);
    bool was = handle->mapped;
    handle->uses += (unsigned)uses;
    handle->mapped += (uint64_t)mapped;
    values_move(allocated, handle, (int64_t)(shown(handle) - before));
    values_move(mapped_count, handle, (handle->mapped > 0) - was);
    if (!handle->mapped)
        handle->extent = 0;
}

static void binding_end(struct binding *binding);

static void handle_settle(unsigned number)
{
    struct handle *handle = &handles[number];
    if (!handle->live || handle->refs || handle->uses)
        return;
    handle->live = false;
    values_move(reserved, handle, -(int64_t)handle->bytes);
    for (unsigned i = 0; handle->kind == GP_KIND_VIRTUAL && i < BINDINGS; i++)
        if (bindings[i].handle && bindings[i].object == number)
            binding_end(&bindings[i]);
}

static void binding_end(struct binding *binding)
{
    unsigned handle = binding->handle;
    binding->handle = 0;
    handle_uses(handle, -1, 0);
    handle_settle(handle);
}

static void place_end(unsigned place)
{
    unsigned handle = places[place].handle;
    places[place].handle = 0;
    handle_uses(handle, -1, -(int64_t)(places[place].pages * PAGE));
    handle_settle(handle);
}

/* ---- what recordings would hold ---------------------------------------------------------------------------------- */

static struct place heard_place[PLACES];
static bool heard_handle[HANDLES];

static void events_read(const char *what)
{
    const struct gp_wire_event *event;
    ssize_t got = gp_ringread_poll(reader, UINT64_MAX, &event);
    cr_assert_geq(got, 0);
    for (; got > 0; got--, event++) {
        bool comes = event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_MAP;
        uint64_t at = event->address;
        cr_assert(event->time_ns && event->stream == 0);
        if (event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_FREE) {
            cr_assert(at && at < HANDLES && heard_handle[at] != comes, "%s: handle %llu", what, (unsigned long long)at);
            heard_handle[at] = comes;
            if (handles[at].kind == GP_KIND_VMM)
                cr_assert_eq(event->bytes, handles[at].bytes, "%s: bytes of handle %llu", what, (unsigned long long)at);
        } else if (event->type == GP_EVENT_SEGMENT_MAP || event->type == GP_EVENT_SEGMENT_UNMAP) {
            cr_assert(at >= BASE && at < place_address(PLACES) && at % PAGE == 0, "%s: %llx", what,
                      (unsigned long long)at);
            heard_place[(at - BASE) / PAGE] = (struct place){comes, (unsigned)(event->bytes / PAGE)};
        } else
            cr_assert_fail("%s: an event of type %u", what, event->type);
    }
}

static void events_check(const char *what)
{
    events_read(what);
    for (unsigned i = 1; i < HANDLES; i++)
        cr_assert_eq(heard_handle[i], handles[i].live, "%s: handle %u in events", what, i);
    for (unsigned i = 0; i < PLACES; i++)
        cr_assert(!heard_place[i].handle == !places[i].handle &&
                      (!places[i].handle || heard_place[i].pages == places[i].pages),
                  "%s: place %u in events", what, i);
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static void visit(void *arg, const struct gp_tap_block *block)
{
    uint64_t *sums = arg;
    cr_assert(block->bytes && block->device < GPUS && block->kind == GP_KIND_VMM);
    sums[2 * block->device + block->mapped] += block->bytes;
}

static void no_rest(void *arg)
{
    (void)arg;
}

static void value_check(const struct gp_wire_value *is, const struct gp_wire_value *want, const char *what, int device,
                        int pool)
{
    cr_assert(memcmp(is, want, sizeof(*is)) == 0,
              "%s: device %d, pool %d: %lld, peak %lld, allocated %lld, freed %lld, not %lld, %lld, %lld, %lld", what,
              device, pool, (long long)is->current, (long long)is->peak, (long long)is->allocated, (long long)is->freed,
              (long long)want->current, (long long)want->peak, (long long)want->allocated, (long long)want->freed);
}

static void device_check(int index, const char *what)
{
    struct gp_wire_device is;
    uint64_t vmm = 0, imports = 0, imported = 0, unmapped = 0, sums[2 * GPUS] = {0};
    if (!gp_tap_device((unsigned)index, &is))
        return;
    for (int pool = 0; pool < GP_POOLS; pool++) {
        value_check(&is.stats[GP_STAT_RESERVED_BYTES][pool], &reserved[index][pool], what, index, pool);
        value_check(&is.stats[GP_STAT_ALLOCATED_BYTES][pool], &allocated[index][pool], what, index, pool);
        value_check(&is.stats[GP_STAT_ACTIVE_BYTES][pool], &allocated[index][pool], what, index, pool);
        value_check(&is.stats[GP_STAT_ALLOCATION][pool], &mapped_count[index][pool], what, index, pool);
    }
    for (unsigned i = 1; i < HANDLES; i++) {
        const struct handle *handle = &handles[i];
        if (!handle->live || handle->device != index)
            continue;
        vmm += handle->kind == GP_KIND_VMM;
        unmapped += handle->kind == GP_KIND_VMM ? handle->bytes - shown(handle) : 0;
        imports += handle->kind == GP_KIND_IMPORTED && handle->mapped;
        imported += handle->kind == GP_KIND_IMPORTED ? handle->extent : 0;
    }
    cr_assert_eq(is.kinds[GP_KIND_VMM].live, (int64_t)vmm, "%s: live handles", what);
    cr_assert_eq(is.kinds[GP_KIND_IMPORTED].live, (int64_t)imports, "%s: %lld imports, not %llu", what,
                 (long long)is.kinds[GP_KIND_IMPORTED].live, (unsigned long long)imports);
    cr_assert_eq(is.kinds[GP_KIND_IMPORTED].current_bytes, (int64_t)imported, "%s: %lld imported bytes, not %llu", what,
                 (long long)is.kinds[GP_KIND_IMPORTED].current_bytes, (unsigned long long)imported);
    cr_assert_eq(is.kinds[GP_KIND_VIRTUAL].current_bytes, 0);
    int64_t now = is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current;
    cr_assert_eq(gp_tap_site_bytes((unsigned)index, &is), now + (int64_t)unmapped, "%s: unmapped", what);
    gp_tap_blocks((unsigned)index, sums, visit, no_rest);
    cr_assert_eq(sums[2 * index], unmapped, "%s: visited, unmapped: %llu, not %llu", what,
                 (unsigned long long)sums[2 * index], (unsigned long long)unmapped);
    cr_assert_eq(sums[2 * index + 1], (uint64_t)now, "%s: visited, mapped: %llu, not %lld", what,
                 (unsigned long long)sums[2 * index + 1], (long long)now);
}

static void addresses_check(const char *what)
{
    for (unsigned i = 0, next = 0; i < PLACES; i++) {
        uint64_t bytes = places[i].pages * PAGE, at = place_address(i);
        if (places[i].handle) {
            next = i + places[i].pages;
            cr_assert_eq(gp_feed_vmm_handle_at(at), places[i].handle, "%s: start", what);
            cr_assert_eq(gp_feed_vmm_handle_at(at + bytes - 1), places[i].handle, "%s: last byte", what);
        } else if (i >= next)
            cr_assert_eq(gp_feed_vmm_handle_at(at + 5), 0, "%s: place %u", what, i);
    }
}

static void all_check(const char *what)
{
    for (int i = 0; i < GPUS; i++)
        device_check(i, what);
    events_check(what);
    addresses_check(what);
    for (int cause = 0; cause < GP_LOSTS; cause++) {
        uint64_t want = cause == GP_LOST_MISSED_FREE ? missed : cause == GP_LOST_DEVICE ? unknown : 0;
        cr_assert_eq(lost[cause], want, "%s: lost %d: %llu, not %llu", what, cause, (unsigned long long)lost[cause],
                     (unsigned long long)want);
    }
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* A handle, or 0; an unused number, a live one, or one that the program can still name. */
static unsigned handle_with(bool live, bool named)
{
    unsigned first = draw_below(HANDLES);
    for (unsigned i = 0; i < HANDLES; i++) {
        unsigned number = (first + i) % HANDLES;
        const struct handle *handle = &handles[number];
        if (number && handle->live == live && (!named || handle->refs))
            return number;
    }
    return 0;
}

static void do_create(void)
{
    static const uint64_t sizes[] = {MIB - 1, MIB, MIB + 1, PAGE, 2 * PAGE, 3 * PAGE};
    unsigned number = handle_with(false, false), what = draw_below(8);
    if (!number)
        return;
    struct handle *handle = &handles[number];
    *handle = (struct handle){.live = true, .kind = GP_KIND_VMM, .device = (int)draw_below(GPUS), .refs = 1};
    if (draw_below(12) == 0) {
        handle->device = GP_DEVICE_UNKNOWN;
        unknown++;
    }
    if (what == 0) {
        handle->kind = GP_KIND_VIRTUAL;
        gp_feed_vmm_object(number, handle->device);
    } else if (what <= 2) {
        handle->kind = GP_KIND_IMPORTED;
        gp_feed_vmm_import(number, handle->device);
    } else {
        handle->bytes = sizes[draw_below(GP_COUNT(sizes))];
        gp_feed_vmm_create(number, handle->bytes, handle->device);
        values_move(reserved, handle, (int64_t)handle->bytes);
    }
}

/* The driver gives out a number whose release was not seen. */
static void do_create_again(void)
{
    unsigned number = handle_with(true, false);
    struct handle *handle = &handles[number];
    if (!number || handle->uses || handle->kind != GP_KIND_VMM)
        return;
    values_move(reserved, handle, -(int64_t)handle->bytes);
    unknown += handle->device < 0;
    handle->refs = 1;
    missed++;
    values_move(reserved, handle, (int64_t)handle->bytes);
    gp_feed_vmm_create(number, handle->bytes, handle->device);
}

static void do_reference(void)
{
    unsigned number = handle_with(true, false);
    if (!number) {
        gp_feed_vmm_retain(HANDLES + 5);
        missed++;
        return;
    }
    if (draw_below(2))
        gp_feed_vmm_retain(number);
    else
        gp_feed_vmm_import(number, 1);
    handles[number].refs++;
}

static void do_release(void)
{
    unsigned number = handle_with(true, false);
    bool ok = number && handles[number].refs && draw_below(3);
    if (!number) {
        cr_assert_eq(gp_feed_vmm_release_begin(HANDLES + 5), 0);
        return;
    }
    gp_feed_vmm_release_end(gp_feed_vmm_release_begin(number), ok);
    handles[number].refs -= ok;
    handle_settle(number);
}

static bool place_is_free(unsigned first, unsigned pages)
{
    for (unsigned i = 0; i < PLACES; i++) {
        unsigned end = i + (places[i].handle ? places[i].pages : 0);
        if (end > first && i < first + pages)
            return false;
    }
    return first + pages <= PLACES;
}

static void do_map(void)
{
    unsigned number = handle_with(true, true), place = draw_below(PLACES), pages = 1 + draw_below(3);
    bool again = draw_below(10) == 0 && places[place].handle;
    struct handle *handle = &handles[number];
    if (!number) {
        gp_feed_vmm_map(place_address(PLACES + 1), PAGE, 0, HANDLES + 5);
        missed++;
        return;
    }
    pages = again ? places[place].pages : pages;
    if (!again && !place_is_free(place, pages))
        return;
    uint64_t bytes = pages * PAGE, offset = draw_below(3) * PAGE;
    gp_feed_vmm_map(place_address(place), bytes, offset, number);
    handle_uses(number, 1, (int64_t)bytes);
    if (offset + bytes > handle->extent)
        handle->extent = offset + bytes;
    if (again) { /* an unmap that was not seen; it makes no event */
        missed++;
        place_end(place);
    }
    places[place] = (struct place){number, pages};
}

/* All mappings that lie one after the other, up to an end that is drawn. */
static void do_unmap(void)
{
    unsigned place = draw_below(PLACES), pages = 1 + draw_below(12), at = place;
    bool ok = draw_below(3);
    uint32_t token = gp_feed_vmm_unmap_begin(place_address(place), pages * PAGE);
    gp_feed_vmm_unmap_end(token, ok);
    while (at < PLACES && at < place + pages) { /* the driver passes over holes */
        unsigned next = at + (places[at].handle ? places[at].pages : 1);
        if (ok && places[at].handle)
            place_end(at);
        at = next;
    }
}

static void do_bind(void)
{
    unsigned number = handle_with(true, true), at = draw_below(BINDINGS), object = draw_below(HANDLES);
    struct handle *handle = &handles[number];
    if (!number) {
        gp_feed_vmm_bind(1, 0, 0, PAGE, HANDLES + 5);
        missed++;
        return;
    }
    if (handle->kind == GP_KIND_VIRTUAL || !handles[object].live || handles[object].kind != GP_KIND_VIRTUAL)
        return;
    struct binding *binding = &bindings[at];
    bool again = binding->handle;
    struct binding old = *binding;
    *binding = (struct binding){number, object, at * PAGE, PAGE, handle->device < 0 ? GP_NO_DEVICE : handle->device};
    if (again && (old.object != object || old.device != binding->device)) {
        *binding = old;
        return;
    }
    gp_feed_vmm_bind(object, draw_below(2) ? binding->device : GP_DEVICE_UNKNOWN, binding->offset, PAGE, number);
    handle_uses(number, 1, 0);
    missed += again;
    if (again)
        binding_end(&old);
}

static void do_unbind(void)
{
    unsigned first = draw_below(BINDINGS), count = 1 + draw_below(4);
    struct binding from = bindings[first];
    if (!from.handle)
        return;
    gp_feed_vmm_unbind(from.object, from.device, from.offset, count * PAGE);
    for (unsigned i = first; i < BINDINGS && i < first + count; i++) {
        if (!bindings[i].handle || bindings[i].object != from.object || bindings[i].device != from.device)
            break;
        binding_end(&bindings[i]);
    }
}

Test(vmm, every_call_moves_what_the_model_moves)
{
    static const struct {
        void (*run)(void);
        const char *name;
        unsigned weight;
    } calls[] = {{do_create, "create", 6},
                 {do_create_again, "create again", 1},
                 {do_reference, "reference", 3},
                 {do_release, "release", 9},
                 {do_map, "map", 14},
                 {do_unmap, "unmap", 8},
                 {do_bind, "bind", 6},
                 {do_unbind, "unbind", 3}};
    for (unsigned step = 0; step < 12000; step++) {
        unsigned at = draw_below(50), i = 0;
        for (; at >= calls[i].weight; i++)
            at -= calls[i].weight;
        calls[i].run();
        all_check(calls[i].name);
    }
}

/* One handle at thousands of addresses, as sparse arrays have: an unmap costs no walk over them. */
Test(vmm, many_mappings_of_one_handle_end_without_walks)
{
    const unsigned count = 6000;
    for (int order = 0; order < 2; order++) {
        gp_feed_vmm_create(1, PAGE, 0);
        for (unsigned i = 0; i < count; i++)
            gp_feed_vmm_map(BASE + i * PAGE, PAGE, 0, 1);
        uint64_t walked = gp_map_walked(gp_accounts.objects);
        for (unsigned i = 0; i < 500; i++)
            gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE + (order ? count - 1 - i : i) * PAGE, PAGE), true);
        cr_assert_eq(gp_map_walked(gp_accounts.objects), walked);
        gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE, count * PAGE), true);
        gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE + 500 * PAGE, count * PAGE), true);
        gp_feed_vmm_release_end(gp_feed_vmm_release_begin(1), true);
        cr_assert_eq(gp_map_count(gp_accounts.objects), 0);
    }
}

/* ---- multicast objects ------------------------------------------------------------------------------------------- */

Test(vmm, all_bindings_end_with_their_object)
{
    static const unsigned counts[] = {0, 1, 63, 64, 65, 128, 129, 300};
    struct gp_wire_device is;
    const uint64_t object = 5000, other = 5001;
    gp_feed_vmm_object(other, 0);
    gp_feed_vmm_create(4999, PAGE, 0);
    gp_feed_vmm_bind(other, 0, 0, PAGE, 4999);
    gp_feed_vmm_release_end(gp_feed_vmm_release_begin(4999), true);
    for (unsigned i = 0; i < GP_COUNT(counts); i++) {
        gp_feed_vmm_object(object, 0);
        for (unsigned k = 1; k <= counts[i]; k++) {
            gp_feed_vmm_create(k, PAGE, 0);
            gp_feed_vmm_bind(object, 0, k * PAGE, PAGE, k);
            gp_feed_vmm_release_end(gp_feed_vmm_release_begin(k), true);
        }
        cr_assert(gp_tap_device(0, &is));
        cr_assert_eq(is.kinds[GP_KIND_VMM].live, 1 + (int64_t)counts[i]);
        gp_feed_vmm_release_end(gp_feed_vmm_release_begin(object), true);
        cr_assert(gp_tap_device(0, &is));
        cr_assert_eq(is.kinds[GP_KIND_VMM].live, 1, "%u bindings", counts[i]);
        cr_assert_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, (int64_t)PAGE);
    }
}

/* An import does not say what it is of; memory has no team. */
Test(vmm, an_import_whose_device_joins_a_team_is_no_memory)
{
    struct gp_wire_device is;
    const uint64_t object = 5000, memory = 5001, range = 1ull << 40;
    gp_feed_vmm_import(object, 0);
    gp_feed_vmm_import(memory, 0);
    gp_feed_vmm_join(object);
    gp_feed_vmm_map(range, 64 * PAGE, 0, object);
    gp_feed_vmm_map(range + 64 * PAGE, PAGE, 0, memory);
    gp_feed_vmm_join(memory); /* too late: its bytes are counted */
    cr_assert(gp_tap_device(0, &is));
    cr_assert_eq(is.kinds[GP_KIND_IMPORTED].current_bytes, (int64_t)PAGE);
    gp_feed_vmm_create(1, PAGE, 0);
    gp_feed_vmm_bind(object, 0, 0, PAGE, 1);
    gp_feed_vmm_release_end(gp_feed_vmm_release_begin(1), true);
    gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(range, 65 * PAGE), true);
    gp_feed_vmm_release_end(gp_feed_vmm_release_begin(memory), true);
    cr_assert(gp_tap_device(0, &is));
    cr_assert_eq(is.kinds[GP_KIND_IMPORTED].current_bytes, 0);
    cr_assert_eq(is.kinds[GP_KIND_VMM].live, 1);
    gp_feed_vmm_release_end(gp_feed_vmm_release_begin(object), true);
    cr_assert(gp_tap_device(0, &is));
    cr_assert_eq(is.kinds[GP_KIND_VMM].live, 0, "bound memory ends with the object");
    cr_assert_eq(lost[GP_LOST_MISSED_FREE], 0);
}

/* The numbers of objects and handles follow each other, and the devices of a team too. */
Test(vmm, bindings_of_many_objects_places_and_devices_are_apart)
{
    struct gp_wire_device is;
    uint64_t handle = 0, released = 0, far = 1ull << 33;
    for (uint64_t object = 1; object <= 8; object++)
        for (uint64_t number = 0; number < 8; number++)
            for (int device = 0; device < 16; device++) {
                gp_feed_vmm_create(++handle, PAGE, 0);
                gp_feed_vmm_bind(object, device, far + number * PAGE, PAGE, handle);
                gp_feed_vmm_release_end(gp_feed_vmm_release_begin(handle), true);
            }
    cr_assert_eq(lost[GP_LOST_MISSED_FREE], 0, "two have one key");
    for (uint64_t object = 1; object <= 8; object++)
        for (int device = 0; device < 16; device++) {
            gp_feed_vmm_unbind(object, device, far, 3 * PAGE);
            cr_assert(gp_tap_device(0, &is));
            released += 3;
            cr_assert_eq(is.kinds[GP_KIND_VMM].live, (int64_t)(handle - released));
        }
}

/* The end of an object looks for its bindings, unless nothing was ever bound. */
Test(vmm, an_object_without_bindings_ends_without_a_walk)
{
    gp_feed_vmm_create(1, PAGE, 0);
    for (uint64_t object = 5; object < 9; object++) {
        gp_feed_vmm_object(object, 0);
        gp_feed_vmm_release_end(gp_feed_vmm_release_begin(object), true);
    }
    cr_assert_eq(gp_map_walked(gp_accounts.objects), 0);
    cr_assert_eq(gp_map_count(gp_accounts.objects), 1);
}

/* A handle's number is given out again though it is mapped, and released: the old mapping has no memory then. */
Test(vmm, a_mapping_whose_handle_is_gone)
{
    struct gp_wire_device is;
    for (int ok = 0; ok < 2; ok++) {
        for (uint64_t i = 1; i <= 8; i++) { /* so that the peaks have been raised */
            gp_feed_vmm_create(10 + i, i * PAGE, 0);
            gp_feed_vmm_map(BASE + (16 + i * 8) * PAGE, i * PAGE, 0, 10 + i);
        }
        gp_feed_vmm_create(1, PAGE, 0);
        gp_feed_vmm_map(BASE, PAGE, 0, 1);
        gp_feed_vmm_create(1, 2 * PAGE, 0);
        cr_assert_eq(lost[GP_LOST_MISSED_FREE], (uint64_t)ok + 1);
        gp_feed_vmm_release_end(gp_feed_vmm_release_begin(1), true);
        for (int turn = 0; turn < 2; turn++) {
            gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE, PAGE), ok);
            cr_assert(gp_tap_device(0, &is));
            cr_expect_eq(is.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current, 8);
            cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, 36 * (int64_t)PAGE);
            cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, 36 * (int64_t)PAGE);
            cr_expect_eq(gp_tap_site_bytes(0, &is), 36 * (int64_t)PAGE);
        }
        gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE, PAGE), true);
        for (uint64_t i = 1; i <= 8; i++) {
            gp_feed_vmm_release_end(gp_feed_vmm_release_begin(10 + i), true);
            gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE + (16 + i * 8) * PAGE, i * PAGE), true);
        }
        cr_expect_eq(gp_map_count(gp_accounts.objects), 0);
    }
}
