/* SPDX-License-Identifier: MIT
 *
 * test_ground.c: what lies under a framework's blocks. A model of places, each with memory of some maker or none and a
 * block or none, is compared with the accounts after each of thousands of random calls: allocated, reserved, asleep,
 * their peaks, the number of allocations, the owners, and what a walk and the events say. The blocks are of two devices,
 * the memory under them may be the other one's, and graphs with memory of their own come and go.
 */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/framework.h"
#include "account/feed/graph.h"
#include "account/feed/start.h"
#include "account/feed/vmm.h"
#include "account/ground.h"
#include "account/internal.h"
#include "account/tap.h"
#include "base/map.h"
#include "base/thread.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include "lib/random.h"
#include "record/ringread.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <gpuprof/batch.h>
#include <gpuprof/wire.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define CHUNKS  256u
#define UNIT    (4ull << 20)
#define AREAS   6u /* reservations of addresses */
#define UNITS   16u
#define PLACES  (AREAS * UNITS)
#define DEVICES 2u
#define GRAPHS  8u
#define PYTORCH 3u

static struct gp_wire_oom oom;
static uint32_t heard = 1;

static struct gp_ringread *reader;

static void setup(void)
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.oom = &oom, .listened = &heard, .map_limit = 1 << 20});
    reader = accounts_reader(CHUNKS);
    cr_assert(gp_thread_enter());
    cr_assert_eq(gp_owner_start(), 0);
    gp_feed_framework_start("pytorch");
}

TestSuite(ground, .init = setup, .fini = accounts_check, .timeout = 120);

/* Whoever is on the stack is the framework, or nobody is. */
static void by_framework(bool is)
{
    gp_owner_segments_of(is ? "" : NULL);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

enum what { NONE, SEGMENT, PLAIN, BESIDE };

struct memory { /* of neighbouring places */
    enum what what;
    bool mapped;
    unsigned from, count, device;
    uint64_t handle;
};

struct block {
    unsigned from, count; /* 0: none */
};

static struct {
    struct memory memory[PLACES]; /* at its first place */
    struct block blocks[PLACES];
    bool fields[AREAS]; /* a segment was taken away there */
    int64_t peaks[DEVICES][3];
    uint64_t next;
    int64_t theirs[DEVICES];
    unsigned nodes[GRAPHS];
} model;

/* Whose blocks the place has. */
static unsigned device_of(unsigned at)
{
    return at / UNITS % DEVICES;
}

static uint64_t place(unsigned at)
{
    return 0x7000000000ull + (at / UNITS << 12) * UNIT + at % UNITS * UNIT;
}

static struct memory *memory_at(unsigned at)
{
    for (unsigned i = 0; i < PLACES; i++)
        if (model.memory[i].what && model.memory[i].from <= at && at < model.memory[i].from + model.memory[i].count)
            return &model.memory[i];
    return NULL;
}

static struct block *block_at(unsigned at)
{
    for (unsigned i = 0; i < PLACES; i++)
        if (model.blocks[i].count && model.blocks[i].from <= at && at < model.blocks[i].from + model.blocks[i].count)
            return &model.blocks[i];
    return NULL;
}

static bool claimed(unsigned from, unsigned count)
{
    bool any = false;
    for (unsigned at = from; at < from + count; at++) {
        const struct block *block = block_at(at);
        for (unsigned k = 0; block && k < block->count; k++) {
            const struct memory *memory = memory_at(block->from + k);
            any |= !memory || memory->what != SEGMENT || memory->device != device_of(at);
        }
    }
    return any;
}

/* Ordinary memory with a block in it is a segment. */
static void model_adopt(void)
{
    for (unsigned at = 0; at < PLACES; at++) {
        struct memory *memory = block_at(at) ? memory_at(at) : NULL;
        if (memory && memory->what == PLAIN && memory->device == device_of(at))
            memory->what = SEGMENT;
    }
}

enum { ALLOCATED, RESERVED, ASLEEP, COUNT, SUMS };

static void model_sums(int64_t sums[DEVICES][SUMS])
{
    memset(sums, 0, DEVICES * sizeof(*sums));
    for (unsigned at = 0; at < PLACES; at++) {
        const struct memory *memory = memory_at(at);
        const struct block *block = block_at(at);
        bool counts = memory && (memory->what == PLAIN || (memory->what == SEGMENT && block));
        if (memory && memory->what != BESIDE)
            sums[memory->device][RESERVED] += (int64_t)UNIT;
        if (counts)
            sums[memory->device][ALLOCATED] += (int64_t)UNIT;
        if (block && !memory)
            sums[device_of(at)][ASLEEP] += (int64_t)UNIT;
        if (memory && memory->what == PLAIN && memory->from == at)
            sums[memory->device][COUNT]++;
    }
    for (unsigned i = 0; i < PLACES; i++) {
        bool any = false;
        for (unsigned k = 0; k < model.blocks[i].count; k++) {
            const struct memory *memory = memory_at(model.blocks[i].from + k);
            any |= memory && memory->what == SEGMENT;
        }
        sums[device_of(i)][COUNT] += any;
    }
}

static void walked(void *arg, const struct gp_tap_block *block)
{
    if (block->inside || !block->segment)
        *(int64_t *)arg += block->kind == GP_KIND_VIRTUAL || block->kind == GP_KIND_GRAPH ? 0 : (int64_t)block->bytes;
}

static void no_rest(void *arg)
{
    (void)arg;
}

/* The blocks and plain allocations of a recording, as its readers add them up. */
static int64_t told(unsigned device)
{
    static int64_t sums[DEVICES];
    const struct gp_wire_event *event;
    ssize_t got;
    while ((got = gp_ringread_poll(reader, UINT64_MAX, &event)) > 0)
        for (ssize_t i = 0; i < got; i++) {
            bool block = event[i].type == GP_EVENT_ALLOC || event[i].type == GP_EVENT_FREE;
            bool plain = event[i].kind == GP_KIND_VMM &&
                         (event[i].type == GP_EVENT_SEGMENT_MAP || event[i].type == GP_EVENT_SEGMENT_UNMAP);
            int sign = event[i].type == GP_EVENT_ALLOC || event[i].type == GP_EVENT_SEGMENT_MAP ? 1 : -1;
            int64_t bytes = (int64_t)(plain ? event[i].requested_bytes : event[i].bytes);
            bool kind = event[i].kind == GP_KIND_LINEAR || plain;
            if ((block || plain) && kind)
                sums[event[i].device % DEVICES] += sign * bytes;
        }
    return sums[device];
}

static void check_device(const char *what, unsigned on, const int64_t want[SUMS])
{
    struct gp_wire_device device;
    struct gp_wire_owner_value owners[GP_WIRE_OWNERS];
    int64_t walk = 0, owned[2] = {0}, *peaks = model.peaks[on];
    cr_assert(gp_tap_owned(on, &device, owners));
    gp_tap_blocks((int)on, &walk, walked, no_rest);
    const struct gp_wire_value *is[3] = {&device.stats[GP_STAT_ALLOCATED_BYTES][0],
                                         &device.stats[GP_STAT_RESERVED_BYTES][0], &device.asleep_bytes};
    for (int i = 0; i < 3; i++) {
        peaks[i] = want[i] > peaks[i] ? want[i] : peaks[i];
        cr_assert(is[i]->current == want[i] && is[i]->peak == peaks[i],
                  "%s: device %u: %s: %lld (peak %lld), not %lld (%lld)", what, on,
                  i == ALLOCATED  ? "allocated"
                  : i == RESERVED ? "reserved"
                                  : "asleep",
                  (long long)(is[i]->current / (int64_t)UNIT), (long long)(is[i]->peak / (int64_t)UNIT),
                  (long long)(want[i] / (int64_t)UNIT), (long long)(peaks[i] / (int64_t)UNIT));
    }
    for (int i = 0; i < (int)GP_WIRE_OWNERS; i++)
        owned[0] += owners[i].allocated_bytes, owned[1] += owners[i].reserved_bytes;
    cr_assert(owned[0] == want[ALLOCATED] && owned[1] == want[RESERVED], "%s: the owners' sums", what);
    cr_assert_eq(device.stats[GP_STAT_ALLOCATION][0].current, want[COUNT], "%s: %lld allocations, not %lld", what,
                 (long long)device.stats[GP_STAT_ALLOCATION][0].current, (long long)want[COUNT]);
    cr_assert_eq(walk, want[ALLOCATED], "%s: a walk", what);
    cr_assert_eq(told(on), want[ALLOCATED], "%s: the events", what);
    cr_assert(!(device.flags & GP_DEVICE_UNSOUND));
}

static void check(const char *what)
{
    int64_t want[DEVICES][SUMS];
    gp_ground_next(0);
    model_sums(want);
    for (unsigned device = 0; device < DEVICES; device++)
        check_device(what, device, want[device]);
}

/* ---- what happens ------------------------------------------------------------------------------------------------ */

static bool free_range(unsigned from, unsigned count)
{
    if (from / UNITS != (from + count - 1) / UNITS)
        return false;
    for (unsigned at = from; at < from + count; at++)
        if (memory_at(at))
            return false;
    return true;
}

static struct memory *memory_new(enum what what, bool mapped, unsigned from, unsigned count, unsigned device)
{
    struct memory *memory = &model.memory[from];
    *memory = (struct memory){what, mapped, from, count, device, 0};
    return memory;
}

/* Is such memory a segment from the start?  Another device's never is. */
static bool wanted(unsigned from, unsigned count, unsigned device)
{
    return device == device_of(from) && (claimed(from, count) || model.fields[from / UNITS]);
}

static void linear_taken(unsigned from, unsigned count, enum gp_wire_kind kind, unsigned device)
{
    bool segment = wanted(from, count, device);
    if (!free_range(from, count))
        return;
    by_framework(false);
    gp_feed_alloc(&(struct gp_allocation){.space = GP_SPACE_DEVICE,
                                          .device = (int)device,
                                          .kind = kind,
                                          .address = place(from),
                                          .bytes = count * UNIT,
                                          .requested_bytes = count * UNIT});
    memory_new(kind == GP_KIND_MANAGED ? BESIDE : segment ? SEGMENT : PLAIN, false, from, count, device);
    model_adopt();
}

static void mapped(unsigned from, unsigned count, bool framework, unsigned device)
{
    bool segment = framework || wanted(from, count, device);
    if (!free_range(from, count))
        return;
    by_framework(framework);
    gp_feed_vmm_create(++model.next, count * UNIT, (int)device);
    gp_feed_vmm_map(place(from), count * UNIT, 0, model.next);
    memory_new(segment ? SEGMENT : PLAIN, true, from, count, device)->handle = model.next;
    model_adopt();
}

static void taken_away(unsigned at, bool framework, bool ok)
{
    struct memory *memory = memory_at(at);
    if (!memory)
        return;
    bool any = false;
    for (unsigned k = 0; k < memory->count; k++)
        any |= block_at(memory->from + k) != NULL;
    by_framework(framework && !any); /* the framework takes nothing from under its blocks */
    bool foreign = !(framework && !any) && memory->what == SEGMENT;
    if (memory->mapped) {
        if (ok && draw_below(2)) { /* released first: the mapping keeps it */
            gp_feed_vmm_release_end(gp_feed_vmm_release_begin(memory->handle), true);
            gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(place(memory->from), memory->count * UNIT), true);
        } else {
            gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(place(memory->from), memory->count * UNIT), ok);
            if (ok)
                gp_feed_vmm_release_end(gp_feed_vmm_release_begin(memory->handle), true);
        }
        model.fields[memory->from / UNITS] |= foreign;
    } else {
        gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, place(memory->from)), ok, 0);
    }
    /* For an instant its blocks were asleep. */
    enum what what = memory->what;
    memory->what = NONE;
    int64_t meanwhile[DEVICES][SUMS];
    model_sums(meanwhile);
    for (unsigned device = 0; device < DEVICES; device++)
        if (meanwhile[device][ASLEEP] > model.peaks[device][ASLEEP])
            model.peaks[device][ASLEEP] = meanwhile[device][ASLEEP];
    memory->what = ok ? NONE : what;
}

static void block_made(unsigned from, unsigned count)
{
    if (from / UNITS != (from + count - 1) / UNITS)
        return;
    for (unsigned at = from; at < from + count; at++)
        if (block_at(at))
            return;
    model.blocks[from] = (struct block){from, count};
    unsigned device = device_of(from);
    model.theirs[device] += (int64_t)(count * UNIT);
    bool all = true;
    for (unsigned at = from; at < from + count; at++)
        all &= memory_at(at) && memory_at(at)->what == SEGMENT && memory_at(at)->device == device;
    struct gp_wire_framework is, heaps;
    bool known = gp_tap_framework((int)device, &is, &heaps);
    gp_feed_framework_block(
        &(struct gp_framework_event){.device = (int)device,
                                     .address = place(from),
                                     .bytes = (int64_t)(count * UNIT),
                                     .allocated_bytes = model.theirs[device],
                                     .reserved_bytes = all && known && draw_below(2) ? is.reserved_bytes : 1},
        PYTORCH);
    model_adopt();
}

static void block_ends(unsigned at)
{
    struct block *block = block_at(at);
    if (!block)
        return;
    unsigned device = device_of(block->from);
    model.theirs[device] -= (int64_t)(block->count * UNIT);
    gp_feed_framework_block(&(struct gp_framework_event){.device = (int)device,
                                                         .address = place(block->from),
                                                         .bytes = -(int64_t)(block->count * UNIT),
                                                         .allocated_bytes = model.theirs[device],
                                                         .reserved_bytes = 1},
                            PYTORCH);
    block->count = 0;
}

static void reserve(unsigned area)
{
    accounts_block(GP_SPACE_RANGE, GP_KIND_VIRTUAL, 0, place(area * UNITS), UNITS * UNIT);
}

static void unreserve(unsigned area)
{
    for (unsigned at = area * UNITS; at < (area + 1) * UNITS; at++)
        if (memory_at(at))
            return;
    gp_feed_free_end(gp_feed_free_begin(GP_SPACE_RANGE, place(area * UNITS)), true, 0);
    model.fields[area] = false;
    reserve(area);
}

/* The memory of graphs is virtual, and on no place. */
static void graph_turn(unsigned graph, unsigned device)
{
    unsigned *nodes = &model.nodes[graph];
    uint64_t first = 100 * (graph + 1);
    if (*nodes == 0 || (*nodes < 5 && draw_below(3))) {
        ++*nodes;
        gp_feed_graph_node(0x9000000000ull + (first + *nodes) * UNIT, UNIT, (int)device, first + *nodes, graph + 1);
    } else if (draw_below(2)) {
        gp_feed_graph_node_destroyed(first + (*nodes)--);
    } else {
        gp_feed_graph_destroy_end(gp_feed_graph_destroy_begin(graph + 1), true);
        *nodes = 0;
    }
}

Test(ground, allocated_reserved_and_asleep_are_the_model_s)
{
    struct gp_wire_framework is, heaps;
    for (unsigned area = 0; area < AREAS; area++)
        reserve(area);
    for (unsigned step = 0; step < 20000; step++) {
        unsigned at = draw_below(PLACES), count = 1 + draw_below(5), what = draw_below(22);
        bool framework = draw_below(2);
        unsigned device = framework || draw_below(4) ? device_of(at) : draw_below(DEVICES);
        if (what < 7)
            block_made(at, 1 + draw_below(3));
        else if (what < 11)
            block_ends(at);
        else if (what < 12)
            linear_taken(at, count, draw_below(3) ? GP_KIND_LINEAR : GP_KIND_MANAGED, device);
        else if (what < 15)
            mapped(at, count, framework, device);
        else if (what < 19)
            taken_away(at, framework, draw_below(5));
        else if (what < 20)
            unreserve(at / UNITS);
        else
            graph_turn(draw_below(GRAPHS), draw_below(DEVICES));
        check("a step");
    }
    for (unsigned device = 0; device < DEVICES; device++) {
        cr_assert(gp_tap_framework((int)device, &is, &heaps));
        cr_expect_eq(is.allocated_differs, 0, "its totals are what is allocated, asleep and beside");
    }
    for (int cause = 0; cause < GP_LOSTS; cause++)
        cr_expect_eq(lost[cause], 0, "lost %d", cause);
}

/* The cache of the framework is off: each of its driver allocations is one. */
Test(ground, a_segment_in_which_no_block_follows_is_ordinary)
{
    struct gp_wire_device is;
    by_framework(true);
    for (unsigned i = 0; i < 3; i++)
        accounts_linear(place(i), UNIT);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][0].current, 3 * UNIT);
    cr_expect_eq(is.stats[GP_STAT_ALLOCATION][0].current, 3);
    gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, place(1)), true, 0);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][0].current, 2 * UNIT);
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][0].peak, 3 * UNIT);
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][0].current, 2 * UNIT);
    cr_expect_eq(told(0), 2 * UNIT);
}

/* A block follows: the peak of allocated has never seen the segment. */
Test(ground, a_segment_is_never_allocated_before_its_block)
{
    struct gp_wire_device is;
    by_framework(true);
    accounts_linear(place(0), 5 * UNIT);
    gp_feed_framework_block(
        &(struct gp_framework_event){
            .device = 0, .address = place(0), .bytes = 512, .allocated_bytes = 512, .reserved_bytes = 5 * UNIT},
        PYTORCH);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][0].peak, 512);
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][0].current, 5 * UNIT);
}

static void *look(void *out)
{
    cr_assert(gp_thread_enter());
    cr_assert(gp_tap_device(0, out));
    gp_thread_leave();
    return NULL;
}

/* Nor if the thread waits for a processor before it reports the block, and a viewer looks meanwhile. */
Test(ground, a_viewer_does_not_make_a_late_block_s_segment_ordinary)
{
    struct gp_wire_device is;
    pthread_t thread;
    by_framework(true);
    for (unsigned i = 0; i < 2; i++) {
        accounts_linear(place(16 * i), 5 * UNIT);
        for (unsigned looks = 0; i > 0 && looks < 2; looks++) {
            usleep(15000);
            cr_assert_eq(pthread_create(&thread, NULL, look, &is), 0);
            pthread_join(thread, NULL);
            cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][0].current, 512);
        }
        gp_feed_framework_block(&(struct gp_framework_event){.device = 0,
                                                             .address = place(16 * i),
                                                             .bytes = 512,
                                                             .allocated_bytes = 512 * (i + 1),
                                                             .reserved_bytes = 5 * UNIT * (i + 1)},
                                PYTORCH);
    }
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][0].peak, 1024);
}

/* The context ends below the blocks, as in cudaDeviceReset. */
Test(ground, what_a_context_takes_along_leaves_its_blocks_asleep)
{
    struct gp_wire_device is;
    struct gp_batch_device batch;
    by_framework(true);
    gp_tap_batch_begin();
    gp_feed_context_created(7, 0);
    gp_feed_alloc(&(struct gp_allocation){.space = GP_SPACE_DEVICE,
                                          .kind = GP_KIND_LINEAR,
                                          .ctx = 7,
                                          .address = place(0),
                                          .bytes = 5 * UNIT,
                                          .requested_bytes = 5 * UNIT});
    gp_feed_framework_block(
        &(struct gp_framework_event){
            .address = place(1), .bytes = UNIT, .allocated_bytes = UNIT, .reserved_bytes = 5 * UNIT},
        PYTORCH);
    gp_feed_context_destroyed(7, 0, true);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][0].current, 0);
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][0].current, 0);
    cr_expect_eq(is.asleep_bytes.current, UNIT);
    cr_assert(gp_tap_batch(0, &batch));
    cr_expect_eq(batch.asleep_bytes, UNIT);
    cr_expect_eq(batch.asleep_high_bytes, UNIT);
    cr_expect_eq(batch.allocated_bytes + batch.reserved_bytes, 0);
    gp_feed_framework_block(
        &(struct gp_framework_event){
            .address = place(1), .bytes = -(int64_t)UNIT, .allocated_bytes = 0, .reserved_bytes = 5 * UNIT},
        PYTORCH);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.asleep_bytes.current, 0);
    cr_expect_eq(gp_ground_x_odd, 0);
    for (int64_t high = UNIT; high >= 0; high -= UNIT) { /* what slept since the batch before, once */
        cr_assert(gp_tap_batch(0, &batch));
        cr_expect_eq(batch.asleep_bytes, 0);
        cr_expect_eq(batch.asleep_high_bytes, high);
    }
}

/* The memory of a green context is the primary context's after it, and ends with that. */
Test(ground, what_a_green_context_leaves_ends_with_the_primary_one)
{
    struct gp_wire_device is;
    gp_feed_context_created(7, 0);
    gp_feed_primary_context(0, 7);
    gp_feed_context_created(8, 0);
    by_framework(false);
    gp_feed_alloc(&(struct gp_allocation){.space = GP_SPACE_DEVICE,
                                          .kind = GP_KIND_LINEAR,
                                          .ctx = 8,
                                          .address = place(0),
                                          .bytes = 5 * UNIT,
                                          .requested_bytes = 5 * UNIT});
    gp_feed_framework_block(
        &(struct gp_framework_event){.address = place(1), .bytes = UNIT, .allocated_bytes = UNIT, .reserved_bytes = 1},
        PYTORCH);
    gp_feed_green_destroyed(8, 0);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][0].current, UNIT);
    gp_feed_context_destroyed(7, 0, true);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][0].current, 0);
    cr_expect_eq(is.asleep_bytes.current, UNIT);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

#define THREADS 4u

static pthread_mutex_t torch = PTHREAD_MUTEX_INITIALIZER; /* the framework's lock */
static bool x_stop;

static void theirs_move(unsigned at, int64_t bytes)
{
    static int64_t theirs[DEVICES];
    unsigned device = device_of(at);
    pthread_mutex_lock(&torch);
    theirs[device] += bytes;
    gp_feed_framework_block(&(struct gp_framework_event){.device = (int)device,
                                                         .address = place(at),
                                                         .bytes = bytes,
                                                         .allocated_bytes = theirs[device],
                                                         .reserved_bytes = 1},
                            PYTORCH);
    pthread_mutex_unlock(&torch);
}

/* Each thread has an area, in which it maps, unmaps, hands out and takes back. */
static void *area_thread(void *arg)
{
    unsigned area = *(unsigned *)arg;
    uint64_t handles[UNITS] = {0};
    bool blocks[UNITS] = {false};
    cr_assert(gp_thread_enter());
    for (unsigned step = 0; step < 30000 || step % 2; step++) {
        unsigned k = draw_below(UNITS), at = area * UNITS + k;
        if (draw_below(2)) {
            theirs_move(at, blocks[k] ? -(int64_t)UNIT : (int64_t)UNIT);
            blocks[k] = !blocks[k];
        } else if (handles[k]) {
            gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(place(at), UNIT), true);
            gp_feed_vmm_release_end(gp_feed_vmm_release_begin(handles[k]), true);
            handles[k] = 0;
        } else {
            handles[k] = __atomic_add_fetch(&model.next, 1, __ATOMIC_RELAXED);
            gp_feed_vmm_create(handles[k], UNIT, (int)device_of(at));
            gp_feed_vmm_map(place(at), UNIT, 0, handles[k]);
        }
    }
    for (unsigned k = 0; k < UNITS; k++) {
        if (handles[k])
            memory_new(SEGMENT, true, area * UNITS + k, 1, device_of(area * UNITS))->handle = handles[k];
        if (blocks[k])
            model.blocks[area * UNITS + k] = (struct block){area * UNITS + k, 1};
    }
    gp_thread_leave();
    return NULL;
}

static void *reader_thread(void *arg)
{
    struct gp_wire_device device;
    uint64_t unsound = 0;
    cr_assert(gp_thread_enter());
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED)) {
        for (unsigned i = 0; i < DEVICES; i++) {
            if (gp_tap_device((int)i, &device)) /* it has memory by now */
                unsound += device.flags & GP_DEVICE_UNSOUND;
        }
    }
    gp_thread_leave();
    *(uint64_t *)arg = unsound;
    return NULL;
}

Test(ground, threads_that_map_and_unmap_below_the_blocks_of_others)
{
    pthread_t threads[THREADS], watch;
    unsigned areas[THREADS];
    uint64_t unsound = 1;
    int64_t want[DEVICES][SUMS];
    struct gp_wire_device is;
    heard = 0;
    by_framework(false);
    for (unsigned area = 0; area < THREADS; area++)
        reserve(area);
    cr_assert_eq(pthread_create(&watch, NULL, reader_thread, &unsound), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        areas[i] = i;
        cr_assert_eq(pthread_create(&threads[i], NULL, area_thread, &areas[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    __atomic_store_n(&x_stop, true, __ATOMIC_RELAXED);
    pthread_join(watch, NULL);
    for (unsigned at = 0; at < PLACES; at++) { /* what never had a block may be ordinary still */
        struct memory *memory = memory_at(at);
        struct gp_record record;
        if (memory && gp_map_find(gp_accounts.objects, GP_SPACE_MAPPING, place(at), &record) == 0)
            memory->what = record.segment ? SEGMENT : PLAIN;
    }
    model_sums(want);
    for (unsigned device = 0; device < DEVICES; device++) {
        cr_assert(gp_tap_device(device, &is));
        cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][0].current, want[device][ALLOCATED]);
        cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][0].current, want[device][RESERVED]);
        cr_expect_eq(is.asleep_bytes.current, want[device][ASLEEP]);
    }
    cr_expect_eq(unsound, 0, "allocated was never more than reserved");
}
