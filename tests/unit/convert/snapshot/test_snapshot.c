/* SPDX-License-Identifier: MIT
 *
 * test_snapshot.c: PyTorch's snapshot from extents and events, and from recordings, read back with
 * the unpickler.  tests/python/check_snapshot.py checks the rules of every file, in
 * tests/integration/test_snapshot.c.
 */
#include <convert/snapshot/internal.h>
#include <convert/snapshot/snapshot.h>
#include <gpuprof/wire.h>
#include <lib/random.h>
#include <lib/recmake.h>
#include <read/collect/collect.h>
#include <read/recording/pickleread.h>
#include <read/recording/recording.h>
#include <symbol/symbol.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/gpuprof.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)

/* ---- reading back ------------------------------------------------------------------------------------------------ */

struct loaded {
    uint8_t *data;
    size_t bytes;
    struct gp_pickle_file file;
};

static struct loaded load(int fd)
{
    struct loaded loaded = {.bytes = (size_t)lseek(fd, 0, SEEK_END)};
    loaded.data = malloc(loaded.bytes);
    cr_assert_eq(pread(fd, loaded.data, loaded.bytes, 0), (ssize_t)loaded.bytes);
    close(fd);
    cr_assert_eq(gp_pickle_read(&loaded.file, loaded.data, loaded.bytes), 0, "byte %zu: %s", loaded.file.position,
                 loaded.file.why);
    return loaded;
}

static void unload(struct loaded *loaded)
{
    gp_pickle_free(&loaded->file);
    free(loaded->data);
}

static int64_t number(const struct gp_pickle *dict, const char *key)
{
    const struct gp_pickle *value = gp_pickle_get(dict, key);
    cr_assert(value, "no '%s'", key);
    return gp_pickle_number(value, -77);
}

static void expect_text(const struct gp_pickle *dict, const char *key, const char *text)
{
    const struct gp_pickle *value = gp_pickle_get(dict, key);
    cr_assert(value && value->type == GP_PICKLE_TEXT, "no text '%s'", key);
    cr_assert(gp_pickle_is(value, text), "%s: %.*s instead of %s", key, (int)value->length, value->text, text);
}

static const struct gp_pickle *item(const struct gp_pickle *dict, const char *list, uint32_t index)
{
    const struct gp_pickle *value = gp_pickle_at(gp_pickle_get(dict, list), index);
    cr_assert(value, "%s[%u] is not there", list, index);
    return value;
}

/* ---- live -------------------------------------------------------------------------------------------------------- */

static struct loaded live(const struct gp_wire_extent *pieces, uint64_t count, const struct gp_wire_event *events,
                          size_t event_count, const struct gp_snapshot_names *names, struct gp_snapshot_counts *counts)
{
    static const struct gp_snapshot_names none;
    const struct gp_extents all = {
        .begin_ns = 1000000, .end_ns = 2000000, .count = count, .pieces = (struct gp_wire_extent *)(uintptr_t)pieces};
    const struct gp_snapshot_live in = {.pieces = &all,
                                        .events = events,
                                        .event_count = event_count,
                                        .device_count = 1,
                                        .unix_ns = 1000000000000,
                                        .allocator = "caching",
                                        .split_limit = -1};
    int fd = memfd_create("snapshot", 0);
    cr_assert_eq(gp_snapshot_live(fd, &in, names ? names : &none, counts), 0);
    return load(fd);
}

/* Around each limit of how an integer is written. */
Test(snapshot, integers_of_any_size)
{
    static const uint64_t bytes[] = {
        1, 255, 256, 65535, 65536, INT32_MAX, 1ull << 31, (1ull << 39) - 1, 1ull << 39, (1ull << 46) - 1};
    struct gp_wire_extent pieces[sizeof(bytes) / sizeof(bytes[0])];
    struct gp_snapshot_counts counts;
    const uint32_t count = sizeof(bytes) / sizeof(bytes[0]);
    for (uint32_t i = 0; i < count; i++)
        pieces[i] = (struct gp_wire_extent){.what = GP_EXTENT_WHOLE,
                                            .kind = GP_KIND_LINEAR,
                                            .address = (uint64_t)(i + 1) << 47,
                                            .bytes = bytes[i],
                                            .requested_bytes = bytes[i]};
    struct loaded loaded = live(pieces, count, NULL, 0, NULL, &counts);
    for (uint32_t i = 0; i < count; i++) {
        const struct gp_pickle *segment = item(&loaded.file.root, "segments", i);
        cr_expect_eq(number(segment, "address"), (int64_t)pieces[i].address);
        cr_expect_eq(number(segment, "total_size"), (int64_t)bytes[i]);
        cr_expect_eq(number(segment, "requested_size"), (int64_t)bytes[i]);
    }
    unload(&loaded);
}

Test(snapshot, a_full_disk_is_told)
{
    static const struct gp_snapshot_names none;
    const struct gp_extents all = {.begin_ns = 1, .end_ns = 2};
    const struct gp_snapshot_live in = {.pieces = &all, .device_count = 1, .allocator = "off", .split_limit = -1};
    struct gp_snapshot_counts counts;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    cr_assert_geq(full, 0);
    cr_expect_eq(gp_snapshot_live(full, &in, &none, &counts), -ENOSPC);
    close(full);
}

#define SEGMENT(_address, _bytes, _flags)                                                                              \
    {                                                                                                                  \
        .what = GP_EXTENT_SEGMENT, .address = (_address), .bytes = (_bytes), .kind = GP_KIND_LINEAR, .stream = 7,      \
        .flags = (uint8_t)(GPUPROF_OURS | (_flags))                                                                    \
    }
#define BLOCK(_address, _bytes, _state, _requested)                                                                    \
    {                                                                                                                  \
        .what = GP_EXTENT_BLOCK, .address = (_address), .bytes = (_bytes), .kind = GP_KIND_LINEAR, .state = (_state),  \
        .requested_bytes = (_requested)                                                                                \
    }

Test(snapshot, unmapped_blocks_part_a_segment)
{
    struct gp_wire_extent pieces[] = {
        SEGMENT(0x1000, 0x6000, GPUPROF_GROWABLE),  BLOCK(0x1000, 0x1000, GPUPROF_UNMAPPED, 0),
        BLOCK(0x2000, 0x1000, GPUPROF_LIVE, 100),   BLOCK(0x3000, 0x1000, GPUPROF_IDLE, 0),
        BLOCK(0x4000, 0x1000, GPUPROF_UNMAPPED, 0), BLOCK(0x5000, 0x1000, GPUPROF_WAITING, 0),
        BLOCK(0x6000, 0x1000, GPUPROF_UNMAPPED, 0),
    };
    pieces[0].pool = 1ull << 63 | 7ull << 32 | 2;
    struct loaded loaded = live(pieces, 7, NULL, 0, NULL, NULL);
    const struct gp_pickle *root = &loaded.file.root, *first = item(root, "segments", 0),
                           *second = item(root, "segments", 1);
    cr_expect_eq(gp_pickle_count(gp_pickle_get(root, "segments")), 2);
    cr_expect_eq(number(first, "address"), 0x2000);
    cr_expect_eq(number(first, "total_size"), 0x2000);
    cr_expect_eq(number(first, "allocated_size"), 0x1000);
    cr_expect_eq(number(first, "requested_size"), 100);
    cr_expect_eq(number(first, "is_expandable"), 1);
    cr_expect_eq(number(first, "stream"), 7);
    cr_expect_eq(gp_pickle_number(gp_pickle_at(gp_pickle_get(first, "segment_pool_id"), 0), -1), 7);
    cr_expect_eq(gp_pickle_number(gp_pickle_at(gp_pickle_get(first, "segment_pool_id"), 1), -1), 2);
    cr_expect_eq(number(second, "address"), 0x5000);
    cr_expect_eq(number(second, "allocated_size"), 0);
    cr_expect_eq(number(second, "active_size"), 0x1000);
    expect_text(item(second, "blocks", 0), "state", "active_pending_free");
    unload(&loaded);
}

/* 2500 blocks and entries: three batches each. */
Test(snapshot, long_lists_keep_their_order)
{
    enum { MANY = 2500 };
    static struct gp_wire_extent pieces[MANY];
    static struct gp_wire_event events[MANY];
    struct gp_snapshot_counts counts;
    for (uint64_t i = 0; i < MANY; i++) {
        pieces[i] = (struct gp_wire_extent){.what = GP_EXTENT_WHOLE,
                                            .kind = GP_KIND_LINEAR,
                                            .address = 0x7f0000000000 + i * 4096,
                                            .bytes = 4096,
                                            .requested_bytes = i + 1};
        events[i] = (struct gp_wire_event){.type = GP_EVENT_ALLOC,
                                           .kind = GP_KIND_LINEAR,
                                           .time_ns = 1000 + i,
                                           .address = pieces[i].address,
                                           .bytes = 4096,
                                           .requested_bytes = i + 1};
    }
    struct loaded loaded = live(pieces, MANY, events, MANY, NULL, &counts);
    const struct gp_pickle *trace = gp_pickle_at(gp_pickle_get(&loaded.file.root, "device_traces"), 0);
    cr_expect_eq(gp_pickle_count(gp_pickle_get(&loaded.file.root, "segments")), MANY);
    cr_expect_eq(gp_pickle_count(trace), 2 * MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        cr_assert_eq(number(item(&loaded.file.root, "segments", i), "requested_size"), i + 1);
        expect_text(gp_pickle_at(trace, 2 * i), "action", "segment_alloc");
        cr_assert_eq(number(gp_pickle_at(trace, 2 * i + 1), "size"), i + 1);
    }
    cr_expect_eq(counts.segments, MANY);
    cr_expect_eq(counts.entries, 2 * MANY);
    cr_expect_eq(counts.bytes, loaded.bytes);
    unload(&loaded);
}

static struct gp_wire_event event(uint8_t type, uint64_t address, uint64_t bytes)
{
    static uint64_t now = 1000;
    return (struct gp_wire_event){.type = type,
                                  .kind = GP_KIND_LINEAR,
                                  .time_ns = now++,
                                  .address = address,
                                  .bytes = bytes,
                                  .requested_bytes = bytes};
}

/* The trace starts in the middle of a run: one segment is released in it, one is made, and one exists
 * all the time. Blocks outside all segments belong to the program itself. */
Test(snapshot, memory_of_the_cache_is_told_from_the_program_s)
{
    const struct gp_wire_extent pieces[] = {SEGMENT(2000, 100, 0), BLOCK(2000, 100, GPUPROF_IDLE, 0),
                                            SEGMENT(3000, 100, 0), BLOCK(3000, 100, GPUPROF_IDLE, 0)};
    const struct gp_wire_event events[] = {
        event(GP_EVENT_ALLOC, 1010, 10), event(GP_EVENT_SEGMENT_FREE, 1000, 100),  event(GP_EVENT_ALLOC, 2010, 10),
        event(GP_EVENT_ALLOC, 1020, 10), event(GP_EVENT_SEGMENT_ALLOC, 3000, 100), event(GP_EVENT_ALLOC, 3000, 10),
        event(GP_EVENT_FREE, 1020, 10),  event(GP_EVENT_FREE, 3000, 10),
    };
    static const struct {
        const char *action;
        int64_t address;
    } want[] = {{"alloc", 1010},          {"segment_free", 1000},  {"alloc", 2010},          {"segment_alloc", 1020},
                {"alloc", 1020},          {"segment_alloc", 3000}, {"alloc", 3000},          {"free_requested", 1020},
                {"free_completed", 1020}, {"segment_free", 1020},  {"free_requested", 3000}, {"free_completed", 3000}};
    struct loaded loaded = live(pieces, 4, events, 8, NULL, NULL);
    const struct gp_pickle *trace = gp_pickle_at(gp_pickle_get(&loaded.file.root, "device_traces"), 0);
    cr_assert_eq(gp_pickle_count(trace), sizeof(want) / sizeof(want[0]));
    for (uint32_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        expect_text(gp_pickle_at(trace, i), "action", want[i].action);
        cr_expect_eq(number(gp_pickle_at(trace, i), "addr"), want[i].address, "entry %u", i);
        cr_expect_eq(number(gp_pickle_at(trace, i), "time_us"), 1000000000 + 1);
    }
    unload(&loaded);
}

/* PyTorch 2.15 has it in lists of their own, of the device -1. */
static void expect_host(const struct gp_pickle *root)
{
    static const char *const want[] = {"segment_alloc",  "alloc",          "segment_alloc", "alloc",
                                       "free_requested", "free_completed", "segment_free"};
    const struct gp_pickle *segment = item(root, "host_segments", 0), *trace = gp_pickle_get(root, "host_traces");
    cr_expect_eq(gp_pickle_count(gp_pickle_get(root, "segments")), 0);
    cr_expect_eq(gp_pickle_count(gp_pickle_get(root, "device_traces")), 1);
    cr_expect_eq(gp_pickle_count(gp_pickle_get(root, "host_segments")), 1);
    cr_expect_eq(number(segment, "device"), -1);
    cr_expect_eq(number(segment, "address"), 0x20000);
    cr_expect_eq(number(segment, "allocated_size"), 8192);
    cr_expect_eq(number(item(segment, "blocks", 0), "requested_size"), 8192);
    cr_assert_eq(gp_pickle_count(trace), 7);
    for (uint32_t i = 0; i < 7; i++)
        expect_text(gp_pickle_at(trace, i), "action", want[i]);
}

Test(snapshot, pinned_memory_is_of_the_host)
{
    const struct gp_wire_extent piece = {.what = GP_EXTENT_WHOLE,
                                         .device = GP_WIRE_HOST,
                                         .kind = GP_KIND_PINNED,
                                         .address = 0x20000,
                                         .bytes = 8192,
                                         .requested_bytes = 8192};
    struct gp_wire_event events[] = {event(GP_EVENT_ALLOC, 0x10000, 4096), event(GP_EVENT_ALLOC, 0x20000, 8192),
                                     event(GP_EVENT_FREE, 0x10000, 4096)};
    for (int i = 0; i < 3; i++) {
        events[i].device = GP_WIRE_HOST;
        events[i].kind = i == 1 ? GP_KIND_PINNED : GP_KIND_REGISTERED;
    }
    struct loaded loaded = live(&piece, 1, events, 3, NULL, NULL);
    expect_host(&loaded.file.root);
    unload(&loaded);
}

Test(snapshot, what_came_after_the_walk_began_is_left_out)
{
    struct gp_wire_event events[] = {event(GP_EVENT_ALLOC, 1000, 10), event(GP_EVENT_ALLOC, 2000, 10)};
    events[1].time_ns = 1000001; /* pieces.begin_ns + 1 */
    struct loaded loaded = live(NULL, 0, events, 2, NULL, NULL);
    cr_expect_eq(gp_pickle_count(gp_pickle_at(gp_pickle_get(&loaded.file.root, "device_traces"), 0)), 2);
    unload(&loaded);
}

Test(snapshot, damaged_events_become_no_entries)
{
    struct gp_wire_event events[] = {event(GP_EVENT_ALLOC, UINT64_MAX - 3, 10),
                                     event(GP_EVENT_SEGMENT_MAP, 5, UINT64_MAX), event(GP_EVENT_ALLOC, 10, 0),
                                     event(GP_EVENT_ALLOC, 100, 10)};
    events[3].device = 200;
    struct loaded loaded = live(NULL, 0, events, 4, NULL, NULL);
    cr_expect_eq(gp_pickle_count(gp_pickle_get(&loaded.file.root, "device_traces")), 1);
    cr_expect_eq(gp_pickle_count(gp_pickle_at(gp_pickle_get(&loaded.file.root, "device_traces"), 0)), 0);
    unload(&loaded);
}

Test(snapshot, every_begun_mark_ends)
{
    static const char *const names[] = {"alone",     "nvtx:step", "nvtx:step", "/nvtx:step",     "/nvtx:step",
                                        "nvtx.here", "/lost",     "/nvtx:",    "nvtx:unfinished"};
    static const char *const want[] = {"START alone", "END alone", "START step",       "START step",
                                       "END step",    "END step",  "START here",       "END here",
                                       "START lost",  "END lost",  "START unfinished", "END unfinished"};
    struct gp_wire_event events[9];
    for (int i = 0; i < 9; i++) {
        events[i] = (struct gp_wire_event){.type = GP_EVENT_MARK, .time_ns = 1000, .device = 255};
        memcpy(events[i].name, names[i], strlen(names[i]) + 1);
    }
    struct loaded loaded = live(NULL, 0, events, 9, NULL, NULL);
    const struct gp_pickle *notes = gp_pickle_get(&loaded.file.root, "external_annotations");
    cr_assert_eq(gp_pickle_count(notes), 12, "%u", gp_pickle_count(notes));
    for (uint32_t i = 0; i < 12; i++) {
        char stage[8], name[32];
        cr_assert_eq(sscanf(want[i], "%7s %31s", stage, name), 2);
        expect_text(gp_pickle_at(notes, i), "stage", stage);
        expect_text(gp_pickle_at(notes, i), "name", name);
    }
    unload(&loaded);
}

static unsigned asked[8];

static uint32_t frames_of(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text **frames)
{
    static const struct gp_frame_text stack[] = {{.function = "inner", .file = "a.py", .module = "", .line = 3},
                                                 {.function = "outer", .file = "", .module = "libx.so"}};
    (void)symbols;
    asked[site]++;
    *frames = stack;
    return site == 1 ? 2 : 1;
}

Test(snapshot, frames_are_written_once)
{
    struct gp_wire_extent pieces[100];
    for (uint64_t i = 0; i < 100; i++)
        pieces[i] = (struct gp_wire_extent){.what = GP_EXTENT_WHOLE,
                                            .kind = GP_KIND_LINEAR,
                                            .address = 4096 * (i + 1),
                                            .bytes = 4096,
                                            .site = (uint32_t)(i % 4)}; /* 0: unknown; 3: beyond the table */
    const struct gp_snapshot_names names = {.frames = frames_of, .count = 3};
    struct loaded loaded = live(pieces, 100, NULL, 0, &names, NULL);
    cr_expect_eq(asked[0] + asked[3], 0);
    cr_expect_eq(asked[1], 1);
    cr_expect_eq(asked[2], 1);
    const struct gp_pickle *frames =
        gp_pickle_get(item(item(&loaded.file.root, "segments", 97), "blocks", 0), "frames");
    cr_assert_eq(gp_pickle_count(frames), 2);
    expect_text(gp_pickle_at(frames, 0), "name", "inner");
    expect_text(gp_pickle_at(frames, 0), "filename", "a.py");
    cr_expect_eq(number(gp_pickle_at(frames, 0), "line"), 3);
    expect_text(gp_pickle_at(frames, 1), "filename", "libx.so");
    cr_expect_eq(gp_pickle_count(gp_pickle_get(item(&loaded.file.root, "segments", 99), "frames")), 0);
    size_t inners = 0;
    for (size_t i = 0; i + 5 <= loaded.bytes; i++)
        inners += memcmp(loaded.data + i, "inner", 5) == 0;
    cr_expect_eq(inners, 1);
    unload(&loaded);
}

/* Segments that differ from the one before in a few fields at most, in any of them. */
static void write_one(struct gp_snap *snap, uint64_t *random, bool whole)
{
    static const uint64_t bytes[] = {0, 1, 255, 256, 65535, 65536, INT32_MAX, 1ull << 31, 1ull << 39};
    static struct gp_snap_segment segment;
    static struct gp_snap_block block;
    uint64_t r = random_next(random);
    if (!snap->counts.segments) {
        memset(&segment, 0, sizeof(segment));
        block = (struct gp_snap_block){.state = GPUPROF_LIVE};
    }
    switch (r % 32) {
    case 0:
        segment.stream = r >> 8 & 1 ? 0 : UINT64_MAX >> (r >> 9 & 63);
        break;
    case 1:
        segment.pool = r >> 8 & 1 ? 0 : UINT64_MAX >> (r >> 9 & 63);
        break;
    case 2:
        segment.device = r >> 8 & 1 ? GP_WIRE_HOST : r >> 9 & 3;
        break;
    case 3:
        segment.site = r >> 8 & 3;
        break;
    case 4:
        segment.small = r >> 8 & 1;
        break;
    case 5:
        segment.expandable = r >> 8 & 1;
        break;
    case 6:
        block.site = r >> 8 & 3;
        break;
    case 7:
        block.state = (uint8_t)(GPUPROF_LIVE + (r >> 8) % 3);
        break;
    default:
        break;
    }
    segment.address = block.address = (r >> 16) >> (r >> 8) % 40;
    block.bytes = bytes[(r >> 32) % 9];
    block.requested_bytes = bytes[(r >> 40) % 9];
    if (whole) {
        gp_snap_whole(snap, &segment, &block);
    } else {
        gp_snap_segment(snap, &segment);
        gp_snap_block(snap, &block);
        gp_snap_segment_end(snap);
    }
}

Test(snapshot, a_segment_of_one_block_is_written_as_any)
{
    const struct gp_snapshot_names names = {.frames = frames_of, .count = 3};
    uint8_t *data[2];
    off_t bytes[2];
    for (unsigned whole = 0; whole < 2; whole++) {
        int fd = memfd_create("whole", 0);
        struct gp_snap *snap = gp_snap_open(fd, &names);
        struct gp_snapshot_counts counts;
        uint64_t random = 4711;
        for (unsigned i = 0; i < 20000; i++)
            write_one(snap, &random, whole);
        gp_snap_traces(snap);
        cr_assert_eq(gp_snap_close(snap, &counts), 0);
        cr_expect_eq(counts.segments, 20000);
        cr_expect_eq(counts.blocks, 20000);
        bytes[whole] = lseek(fd, 0, SEEK_END);
        data[whole] = malloc((size_t)bytes[whole]);
        cr_assert_eq(pread(fd, data[whole], (size_t)bytes[whole], 0), bytes[whole]);
        close(fd);
    }
    cr_assert_eq(bytes[0], bytes[1]);
    cr_expect_eq(memcmp(data[0], data[1], (size_t)bytes[0]), 0);
    free(data[0]);
    free(data[1]);
}

enum { LONG_NAMES = 300, LONG_NAME = 4000 };

static uint32_t long_frames_of(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text **frames)
{
    static struct gp_frame_text stack[2];
    static char names[2][LONG_NAME + 1];
    (void)symbols;
    for (unsigned i = 0; i < 2; i++) {
        memset(names[i], 'a' + (int)i, LONG_NAME);
        snprintf(names[i], 16, "%u", site);
        names[i][strlen(names[i])] = '.';
        stack[i] = (struct gp_frame_text){.function = names[i], .file = "", .module = "libx.so", .line = site};
    }
    *frames = stack;
    return 2;
}

/* 2.4 MB of names: a name, a block and what is between them lie on each side of the writer's buffer once. */
Test(snapshot, long_names_are_complete)
{
    static struct gp_wire_extent pieces[LONG_NAMES];
    struct gp_snapshot_counts counts;
    for (uint64_t i = 0; i < LONG_NAMES; i++)
        pieces[i] = (struct gp_wire_extent){.what = GP_EXTENT_WHOLE,
                                            .kind = GP_KIND_LINEAR,
                                            .address = 4096 * (i + 1),
                                            .bytes = 4096,
                                            .site = (uint32_t)i};
    const struct gp_snapshot_names names = {.frames = long_frames_of, .count = LONG_NAMES};
    struct loaded loaded = live(pieces, LONG_NAMES, NULL, 0, &names, &counts);
    cr_expect_eq(counts.bytes, loaded.bytes);
    for (uint32_t i = 1; i < LONG_NAMES; i++) {
        const struct gp_pickle *frames = gp_pickle_get(item(&loaded.file.root, "segments", i), "frames");
        const struct gp_frame_text *stack;
        long_frames_of(NULL, i, &stack);
        cr_assert_eq(gp_pickle_count(frames), 2);
        for (uint32_t k = 0; k < 2; k++) {
            expect_text(gp_pickle_at(frames, k), "name", stack[k].function);
            cr_assert_eq(number(gp_pickle_at(frames, k), "line"), i);
        }
        cr_assert_eq(number(item(&loaded.file.root, "segments", i), "address"), 4096 * (i + 1));
    }
    unload(&loaded);
}

Test(snapshot, the_host_is_no_device)
{
    const struct gp_wire_extent pieces[] = {
        {.what = GP_EXTENT_WHOLE, .kind = GP_KIND_PINNED, .device = GP_WIRE_HOST, .address = 4096, .bytes = 4096},
        {.what = GP_EXTENT_WHOLE, .kind = GP_KIND_LINEAR, .device = 3, .address = 4096, .bytes = 4096}};
    struct loaded loaded = live(pieces, 2, NULL, 0, NULL, NULL);
    cr_expect_eq(gp_pickle_count(gp_pickle_get(&loaded.file.root, "segments")), 1);
    cr_expect_eq(number(item(&loaded.file.root, "segments", 0), "device"), 3);
    cr_expect_eq(gp_pickle_count(gp_pickle_get(&loaded.file.root, "device_traces")), 4);
    unload(&loaded);
}

/* ---- recordings -------------------------------------------------------------------------------------------------- */

static struct loaded recorded(struct recmake *make)
{
    static const struct gp_snapshot_names none;
    struct gp_recording *recording = recmake_done(make);
    int fd = memfd_create("snapshot", 0);
    cr_assert_eq(gp_snapshot_recording(fd, recording, &none, NULL), 0);
    gp_recording_free(recording);
    return load(fd);
}

static void segment_event(struct recmake *make, uint8_t type, uint64_t address, uint64_t bytes, uint64_t time_ns)
{
    recmake_event(
        make, &(struct gp_rec_event){
                  .time_ns = time_ns, .address = address, .bytes = bytes, .type = type & 15, .kind = GP_KIND_LINEAR});
}

Test(snapshot, a_recording_ends_with_what_lives)
{
    struct recmake *make = recmake_new(1ll << 34);
    recmake_at(make, 2000000000);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000, 4096, 0);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x20000, 8192, 0);
    recmake_alloc(make, 0, GP_KIND_MANAGED, 0x90000, 8192, 0); /* not summed: not shown */
    recmake_free(make, 0, GP_KIND_LINEAR, 0x10000);
    recmake_mark(make, "end");
    struct loaded loaded = recorded(make);
    const struct gp_pickle *root = &loaded.file.root, *trace = gp_pickle_at(gp_pickle_get(root, "device_traces"), 0);
    static const char *const want[] = {"segment_alloc",  "alloc",          "segment_alloc", "alloc",
                                       "free_requested", "free_completed", "segment_free"};
    cr_assert_eq(gp_pickle_count(gp_pickle_get(root, "segments")), 1);
    cr_expect_eq(number(item(root, "segments", 0), "address"), 0x20000);
    cr_expect_eq(number(item(root, "segments", 0), "allocated_size"), 8192);
    cr_assert_eq(gp_pickle_count(trace), 7);
    for (uint32_t i = 0; i < 7; i++)
        expect_text(gp_pickle_at(trace, i), "action", want[i]);
    cr_expect_eq(gp_pickle_count(gp_pickle_get(root, "external_annotations")), 2);
    unload(&loaded);
}

Test(snapshot, pinned_memory_of_a_recording_is_of_the_host)
{
    struct recmake *make = recmake_new(1ll << 34);
    uint32_t host = recmake_device(make, GP_WIRE_HOST, -1);
    recmake_at(make, 2000000000);
    recmake_alloc(make, (uint8_t)host, GP_KIND_REGISTERED, 0x10000, 4096, 0);
    recmake_alloc(make, (uint8_t)host, GP_KIND_PINNED, 0x20000, 8192, 0);
    recmake_free(make, (uint8_t)host, GP_KIND_REGISTERED, 0x10000);
    struct loaded loaded = recorded(make);
    expect_host(&loaded.file.root);
    unload(&loaded);
}

Test(snapshot, growable_memory_of_a_recording_is_a_segment_a_run)
{
    struct recmake *make = recmake_new(1ll << 34);
    uint64_t now = 2000000000;
    segment_event(make, GP_EVENT_SEGMENT_MAP, 16 * MIB, 2 * MIB, now);
    segment_event(make, GP_EVENT_SEGMENT_MAP, 18 * MIB, 2 * MIB, now + 1);
    segment_event(make, GP_EVENT_SEGMENT_MAP, 32 * MIB, 4 * MIB, now + 2);
    segment_event(make, GP_EVENT_SEGMENT_ALLOC, 64 * MIB, 2 * MIB, now + 3);
    recmake_at(make, now + 10);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 16 * MIB, 3 * MIB, 0);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 64 * MIB, 512, 0);
    struct loaded loaded = recorded(make);
    const struct gp_pickle *segments = gp_pickle_get(&loaded.file.root, "segments");
    uint64_t total = 0, allocated = 0, expandable = 0;
    for (uint32_t i = 0; i < gp_pickle_count(segments); i++) {
        const struct gp_pickle *segment = gp_pickle_at(segments, i);
        int64_t at = number(segment, "address"), sum = 0;
        for (uint32_t k = 0; k < gp_pickle_count(gp_pickle_get(segment, "blocks")); k++) {
            const struct gp_pickle *block = item(segment, "blocks", k);
            cr_expect_eq(number(block, "address"), at + sum);
            sum += number(block, "size");
        }
        cr_expect_eq(sum, number(segment, "total_size"));
        total += (uint64_t)sum;
        allocated += (uint64_t)number(segment, "allocated_size");
        expandable += (uint64_t)number(segment, "is_expandable");
    }
    cr_expect_eq(total, 10 * MIB);
    cr_expect_eq(allocated, 3 * MIB + 512);
    cr_expect_eq(gp_pickle_count(segments), 3, "%u segments", gp_pickle_count(segments));
    cr_expect_eq(expandable, 2);
    const struct gp_pickle *trace = gp_pickle_at(gp_pickle_get(&loaded.file.root, "device_traces"), 0);
    cr_expect_eq(gp_pickle_count(trace), 6, "cached memory brings no segments of its own");
    unload(&loaded);
}
