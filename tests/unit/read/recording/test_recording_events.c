/* SPDX-License-Identifier: MIT
 *
 * test_recording_events.c: what the reader makes of blocks of events (tools/read/recording/events.c), their order (finish.c),
 * and which free ends which allocation.
 */
#include <base/compiler.h>
#include <base/numbers.h>
#include <criterion/criterion.h>
#include <lib/recfile.h>
#include <read/recording/recording.h>
#include <stdio.h>
#include <stdlib.h>

#include <unit/analyze/train_fixture.h>

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static struct columns {
    uint8_t bytes[GP_COLUMNS][20000];
    struct gp_pack at[GP_COLUMNS];
    uint64_t count; /* of columns that the block says it has */
} columns;

static void clear(void)
{
    for (unsigned i = 0; i < GP_COLUMNS; i++)
        columns.at[i] = (struct gp_pack){
            .at = columns.bytes[i], .start = columns.bytes[i], .end = columns.bytes[i] + sizeof(columns.bytes[i])};
    columns.count = GP_COLUMNS;
}

static void tag(uint8_t type, uint8_t kind, uint8_t device, uint8_t mask)
{
    gp_pack_raw(&columns.at[GP_COLUMN_TAGS], (const uint8_t[]){type, kind, device, mask}, 4);
}

static void event(uint8_t number, int64_t time)
{
    gp_pack_raw(&columns.at[GP_COLUMN_TAG], &number, 1);
    gp_pack_signed(&columns.at[GP_COLUMN_TIME], time);
}

static void number(enum gp_format_column column, uint64_t value)
{
    gp_pack_number(&columns.at[column], value);
}

static void step(enum gp_format_column column, int64_t value)
{
    gp_pack_signed(&columns.at[column], value);
}

static struct recfile file;

static void begin(void)
{
    const struct gp_format_head head = recfile_head_of(1, 1);
    free(file.at);
    recfile_begin(&file);
    recfile_head(&file, &head);
    recfile_block(&file, (enum gp_format_type)999, 0, "", 0);
}

static void block(enum gp_format_type type, uint32_t count, uint64_t first_ns)
{
    const uint64_t times[3] = {first_ns, first_ns, first_ns};
    struct gp_pack *pack = recfile_rows(&file);
    gp_pack_raw(pack, times, sizeof(times));
    gp_pack_number(pack, columns.count);
    for (uint64_t i = 0; i < columns.count; i++)
        gp_pack_number(pack, i < GP_COLUMNS ? gp_pack_bytes(&columns.at[i]) : i);
    for (unsigned i = 0; i < GP_COLUMNS; i++)
        gp_pack_raw(pack, columns.bytes[i], gp_pack_bytes(&columns.at[i]));
    recfile_block_rows(&file, type, count);
}

/* Valid until the next one is read. */
static struct gp_recording *parse(void)
{
    static struct gp_recording *r;
    char why[256];
    uint8_t *exact = malloc(file.size); /* so that a sanitizer detects a read beyond it */
    memcpy(exact, file.at, file.size);
    int rc = gp_recording_parse(&r, exact, file.size, why, sizeof(why));
    free(exact);
    cr_assert_eq(rc, 0, "%s", why);
    return r;
}

/* Damaged blocks of a file with this block only; its events. */
static uint64_t damage(uint32_t count, size_t *events)
{
    begin();
    block(GP_BLOCK_EVENTS, count, 1000);
    struct gp_recording *r = parse();
    uint64_t damaged = r->damaged_blocks;
    *events = r->event_count;
    return damaged;
}

static void expect_sound(uint32_t count, const char *what)
{
    size_t events;
    cr_expect_eq(damage(count, &events), 0, "%s", what);
    cr_expect_eq(events, count, "%s: %zu", what, events);
}

static void expect_damage(uint32_t count, const char *what)
{
    size_t events;
    cr_expect_eq(damage(count, &events), 1, "%s", what);
    cr_expect_eq(events, 0, "%s: %zu", what, events);
}

/* ---- the fields of an event -------------------------------------------------------------------------------------- */

#define ALL (GP_TAG_BYTES | GP_TAG_UNUSED | GP_TAG_SITE | GP_TAG_STREAM | GP_TAG_THREAD | GP_TAG_ERROR | GP_TAG_COST)

/* Eight events with two addresses.  The same columns are the base of the damaged blocks below. */
static void eight(void)
{
    clear();
    tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 3, ALL);
    tag(GP_EVENT_FREE, GP_KIND_LINEAR, 3, GP_TAG_SEEN);
    tag(GP_EVENT_ALLOC, GP_KIND_MODULE, 64, 0);
    tag(GP_EVENT_FREE, GP_KIND_LINEAR, 3, GP_TAG_SEEN | GP_TAG_STREAM);
    tag(GP_EVENT_MARK, GP_KIND_NONE, 65, GP_TAG_THREAD | GP_TAG_COST);
    tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 255, GP_TAG_SEEN | GP_TAG_BYTES | GP_TAG_SITE);
    tag(GP_EVENT_PROCESS_EXIT, GP_KIND_NONE, 3, GP_TAG_STREAM);
    number(GP_COLUMN_TIDS, 71), number(GP_COLUMN_TIDS, 72);
    number(GP_COLUMN_STREAMS, 0x99), number(GP_COLUMN_STREAMS, 0x88);
    static const int64_t times[] = {5, 10, 0, 7, 1, 20, 3, 2};
    static const uint8_t tags[] = {0, 1, 2, 3, 4, 5, 6, 1};
    for (unsigned i = 0; i < 8; i++)
        event(tags[i], times[i]);
    step(GP_COLUMN_ADDRESS, 0x5000), step(GP_COLUMN_ADDRESS, -0x1000), step(GP_COLUMN_ADDRESS, 0x10);
    number(GP_COLUMN_BYTES, 700), number(GP_COLUMN_BYTES, 300);
    step(GP_COLUMN_UNUSED, 44);
    step(GP_COLUMN_SITE, 9), step(GP_COLUMN_SITE, -4);
    number(GP_COLUMN_STREAM, 1), number(GP_COLUMN_STREAM, 0), number(GP_COLUMN_STREAM, 0);
    number(GP_COLUMN_THREAD, 1), number(GP_COLUMN_THREAD, 0);
    number(GP_COLUMN_ERROR, 77);
    number(GP_COLUMN_PLACE, 0), number(GP_COLUMN_PLACE, 0), number(GP_COLUMN_PLACE, 1), number(GP_COLUMN_PLACE, 0);
    number(GP_COLUMN_NAME, 4), gp_pack_raw(&columns.at[GP_COLUMN_NAME], "s\1ep", 4);
    gp_pack_raw(&columns.at[GP_COLUMN_COST], "\xc8\x07", 2);
}

struct wanted {
    uint64_t time, address, bytes, unused, site, tid, cost, stream;
    uint8_t type, kind, device;
};

static void sites_block(uint32_t count)
{
    struct gp_pack *pack = recfile_rows(&file);
    gp_pack_number(pack, 0);
    for (uint32_t i = 0; i < 5 * count; i++)
        gp_pack_number(pack, 0);
    recfile_block_rows(&file, GP_BLOCK_SITES, count);
}

Test(recording_events, every_field_of_the_events)
{
    static const struct wanted rows[] = {
        {1005, 0x5000, 700, 44, 9, 72, 200, 0x88, GP_EVENT_ALLOC, GP_KIND_LINEAR, 3},
        {1015, 0x5000, 700, 44, 9, 72, 0, 0x88, GP_EVENT_FREE, GP_KIND_LINEAR, 3},
        {1015, 0x4000, 0, 0, 9, 72, 0, 0x88, GP_EVENT_ALLOC, GP_KIND_MODULE, 64},
        {1022, 0x5000, 700, 44, 9, 72, 0, 0x99, GP_EVENT_FREE, GP_KIND_LINEAR, 3},
        {1023, 0, 0, 0, 0, 71, 7, 0, GP_EVENT_MARK, GP_KIND_NONE, 255},
        {1043, 0x4000, 300, 0, 5, 71, 0, 0x88, GP_EVENT_ALLOC, GP_KIND_LINEAR, 255},
        {1046, 0x4010, 0, 0, 5, 71, 0, 0x99, GP_EVENT_PROCESS_EXIT, GP_KIND_NONE, 3},
        {1048, 0x5000, 700, 44, 9, 71, 0, 0x99, GP_EVENT_FREE, GP_KIND_LINEAR, 3},
    };
    begin();
    sites_block(10);
    eight();
    block(GP_BLOCK_EVENTS, 8, 1000);
    block(GP_BLOCK_EVENTS, 8, 1000);
    struct gp_recording *r = parse();
    cr_assert(r->event_count == 16 && r->damaged_blocks == 0 && r->baseline_count == 0 && r->device_count == 2);
    cr_assert_eq(r->thread_count, 2);
    for (size_t i = 0; i < 8; i++) {
        const struct gp_rec_event *e = NULL;
        for (size_t k = 0; k < 16;
             k++) /* the blocks have the same times: of equal ones the first is the first block's */
            e = !e && r->events[k].time_ns == rows[i].time &&
                        (r->events[k].type == rows[i].type || rows[i].type == GP_EVENT_MARK)
                    ? &r->events[k]
                    : e;
        cr_assert(e, "%zu", i);
        cr_expect(e->address == rows[i].address && e->unused == rows[i].unused && e->site == rows[i].site, "%zu", i);
        cr_expect(r->threads[e->thread].tid == rows[i].tid && e->cost == rows[i].cost, "%zu: %u", i, e->cost);
        cr_expect(e->type == rows[i].type && e->kind == rows[i].kind, "%zu", i);
        cr_expect_eq(e->device == GP_REC_NO_DEVICE ? 255 : r->devices[e->device].index, rows[i].device, "%zu", i);
        cr_expect_eq(r->streams[e->stream], rows[i].stream, "%zu: %llx", i, (unsigned long long)r->streams[e->stream]);
        if (e->type == GP_EVENT_MARK)
            cr_expect_str_eq(r->strings + e->bytes, "s?ep");
        else
            cr_expect_eq(e->bytes, rows[i].bytes, "%zu", i);
    }
    cr_expect(r->tried == 16 && r->delivered == 16 && r->begin_ns == 1005 && r->end_ns == 1048);
}

/* Without a thread in the first event it is thread 0. */
Test(recording_events, events_without_a_thread)
{
    begin();
    clear();
    tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, 0);
    event(0, 1), event(0, 1);
    step(GP_COLUMN_ADDRESS, 1), step(GP_COLUMN_ADDRESS, 1);
    block(GP_BLOCK_BASELINE, 2, 1000);
    struct gp_recording *r = parse();
    cr_assert(r->baseline_count == 2 && r->thread_count == 1 && r->threads[0].tid == 0 && r->event_count == 0);
    cr_expect(r->baseline[0].address == 1 && r->baseline[1].address == 2 && r->baseline[1].time_ns == 1002);
    cr_expect(r->baseline[0].stream == 0 && r->baseline[0].site == 0 && r->begin_ns == 0);
}

Test(recording_events, sizes_that_cannot_be)
{
    const uint64_t most = 1ull << 50, wide = UINT32_MAX;
    static const struct {
        uint64_t bytes;
        int64_t unused;
        uint64_t is_bytes, is_unused;
    } rows[] = {{most - 1, 5, most - 1, 5},
                {most, 5, most, 5},
                {most + 1, 5, most, 5},
                {UINT64_MAX, -1, most, 0},
                {100, 99, 100, 99},
                {100, 100, 100, 100},
                {100, 101, 100, 100},
                {100, INT64_MIN, 100, 0},
                {100, INT64_MAX, 100, 100},
                {most, (int64_t)wide - 1, most, wide - 1},
                {most, (int64_t)wide + 1, most, wide},
                {wide, (int64_t)wide + 1, wide, wide},
                {wide - 1, (int64_t)wide, wide - 1, wide - 1}};
    begin();
    clear();
    tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, GP_TAG_BYTES | GP_TAG_UNUSED);
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        event(0, 1);
        step(GP_COLUMN_ADDRESS, 4096);
        number(GP_COLUMN_BYTES, rows[i].bytes);
        step(GP_COLUMN_UNUSED, rows[i].unused);
    }
    block(GP_BLOCK_EVENTS, GP_COUNT(rows), 1000);
    struct gp_recording *r = parse();
    cr_assert_eq(r->event_count, GP_COUNT(rows));
    for (size_t i = 0; i < GP_COUNT(rows); i++)
        cr_expect(r->events[i].bytes == rows[i].is_bytes && r->events[i].unused == rows[i].is_unused, "%zu: %llu, %u",
                  i, (unsigned long long)r->events[i].bytes, r->events[i].unused);
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

Test(recording_events, each_column_that_is_too_short_is_damage)
{
    for (unsigned column = 0; column < GP_COLUMNS; column++) {
        eight();
        expect_sound(8, "whole");
        columns.at[column].at--;
        if (column != GP_COLUMN_TAGS) /* three quarters of a tag are none, and the last is not needed here */
            expect_damage(8, "a column without its last byte");
    }
    eight();
    columns.at[GP_COLUMN_TAGS].at -= 4;
    expect_damage(8, "a tag is missing");
    eight();
    gp_pack_raw(&columns.at[GP_COLUMN_TAG], "", 1);
    expect_damage(8, "a tag too many");
    expect_damage(7, "two events too many");
}

Test(recording_events, blocks_have_the_columns_of_the_first_version)
{
    eight();
    columns.count = GP_COLUMNS_FIRST - 1;
    expect_damage(8, "too few columns");
    columns.count = GP_COLUMNS_FIRST;
    expect_damage(8, "the cost is missing");
    columns.count = 256;
    expect_sound(8, "more columns");
    columns.count = 257;
    expect_damage(8, "too many columns");
    clear();
    tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, 0);
    event(0, 1), step(GP_COLUMN_ADDRESS, 1);
    columns.count = GP_COLUMNS_FIRST;
    expect_sound(1, "of the first version");
    expect_sound(0, "no event"); /* whatever it has */
}

Test(recording_events, numbers_of_entries_that_are_not_there)
{
    static const struct {
        enum gp_format_column column;
        uint64_t count;
    } rows[] = {{GP_COLUMN_PLACE, 1}, {GP_COLUMN_STREAM, 2}, {GP_COLUMN_THREAD, 3}};
    for (size_t i = 0; i < GP_COUNT(rows); i++)
        for (uint64_t index = 0; index < 5; index++) {
            clear();
            tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, 0);
            tag(GP_EVENT_FREE, GP_KIND_LINEAR, 0, GP_TAG_SEEN | GP_TAG_STREAM | GP_TAG_THREAD);
            for (uint64_t k = 0; k < 3; k++)
                number(GP_COLUMN_TIDS, k + 5);
            number(GP_COLUMN_STREAMS, 0), number(GP_COLUMN_STREAMS, 7);
            event(0, 1), event(1, 1);
            step(GP_COLUMN_ADDRESS, 1);
            for (size_t k = 0; k < GP_COUNT(rows); k++)
                number(rows[k].column, k == i ? index : 0);
            if (index < rows[i].count)
                expect_sound(2, "an entry");
            else
                expect_damage(2, "no entry");
        }
    for (uint8_t entry = 0; entry < 4; entry++) {
        clear();
        tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, 0);
        tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, 0);
        event(entry, 1);
        step(GP_COLUMN_ADDRESS, 1);
        if (entry < 2)
            expect_sound(1, "a tag");
        else
            expect_damage(1, "no tag");
    }
}

Test(recording_events, tags_that_cannot_be)
{
    for (unsigned type = 0; type < GP_EVENT_TYPES + 2; type++)
        for (unsigned kind = 0; kind < GP_KINDS + 2; kind++) {
            clear();
            tag((uint8_t)type, (uint8_t)kind, 0, 0);
            event(0, 1);
            number(type == GP_EVENT_MARK ? GP_COLUMN_NAME : GP_COLUMN_ADDRESS, 0);
            if (type > GP_EVENT_NONE && type < GP_EVENT_TYPES && kind < GP_KINDS)
                expect_sound(gp_wire_is_poll((uint8_t)type, (uint8_t)kind) ? 0 : 1, "a tag"); /* half a poll is none */
            else
                expect_damage(1, "no tag");
        }
    for (unsigned count = 254; count < 258; count++) {
        clear();
        for (unsigned i = 0; i < count; i++)
            tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, 0);
        event(253, 1);
        step(GP_COLUMN_ADDRESS, 1);
        if (count <= GP_FORMAT_TAGS)
            expect_sound(1, "tags");
        else
            expect_damage(1, "too many tags");
    }
}

Test(recording_events, dictionaries_end_at_their_limit)
{
    for (unsigned way = 0; way < 2; way++)
        for (uint64_t index = 4094; index < 4098; index++) {
            clear();
            tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, GP_TAG_STREAM | GP_TAG_THREAD);
            for (uint64_t i = 0; i < 4100; i++)
                number(way ? GP_COLUMN_STREAMS : GP_COLUMN_TIDS, i + 1);
            number(way ? GP_COLUMN_TIDS : GP_COLUMN_STREAMS, 1);
            event(0, 1);
            step(GP_COLUMN_ADDRESS, 1);
            number(way ? GP_COLUMN_STREAM : GP_COLUMN_THREAD, index);
            number(way ? GP_COLUMN_THREAD : GP_COLUMN_STREAM, 0);
            if (index < 4096)
                expect_sound(1, "an entry");
            else
                expect_damage(1, "beyond the limit");
        }
}

Test(recording_events, more_events_than_a_block_has)
{
    static uint8_t payload[4 * GP_FORMAT_EVENTS + 200];
    for (uint32_t more = 0; more < 2; more++) {
        const uint32_t count = GP_FORMAT_EVENTS + more;
        struct gp_pack pack = {.at = payload, .start = payload, .end = payload + sizeof(payload)};
        gp_pack_raw(&pack, (const uint64_t[]){1000, 1000, 1000}, 24);
        gp_pack_number(&pack, GP_COLUMNS_FIRST);
        for (unsigned i = 0; i < GP_COLUMNS_FIRST; i++)
            gp_pack_number(&pack, i == GP_COLUMN_TAGS                                                   ? 4
                                  : i == GP_COLUMN_TAG || i == GP_COLUMN_TIME || i == GP_COLUMN_ADDRESS ? count
                                                                                                        : 0);
        gp_pack_raw(&pack, (const uint8_t[]){GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, 0}, 4);
        memset(pack.at, 0, 2 * count); /* the only tag, the time of the one before */
        memset(pack.at + 2 * count, 2, count);
        pack.at += 3 * count;
        begin();
        recfile_block(&file, GP_BLOCK_EVENTS, count, payload, gp_pack_bytes(&pack));
        struct gp_recording *r = parse();
        cr_expect_eq(r->damaged_blocks, more);
        cr_assert_eq(r->event_count, more ? 0 : count);
        cr_expect(more || r->events[count - 1].address == count);
    }
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* Events of these times, in one block or several; the i-th has the address i + 1. */
static void events_at(enum gp_format_type type, const uint64_t *times, uint32_t count, uint32_t most)
{
    for (uint32_t at = 0; at < count; at += most) {
        uint32_t part = count - at < most ? count - at : most;
        uint64_t last = 1000;
        clear();
        tag(GP_EVENT_SNAPSHOT, GP_KIND_NONE, 0, 0);
        for (uint32_t i = at; i < at + part; i++) {
            event(0, (int64_t)(times[i] - last));
            last = times[i];
            step(GP_COLUMN_ADDRESS, i == at ? i + 1 : 1);
        }
        block(type, part, 1000);
    }
}

static void expect_order(const struct gp_rec_event *events, size_t found, const uint64_t *times, uint32_t count)
{
    bool used[300] = {false};
    cr_assert_eq(found, count);
    for (uint32_t i = 0; i < count; i++) { /* the earliest that is left, of equal ones the first */
        uint32_t next = count;
        for (uint32_t k = 0; k < count; k++)
            if (!used[k] && (next == count || times[k] < times[next]))
                next = k;
        used[next] = true;
        cr_assert(events[i].time_ns == times[next], "%u of %u: %llu", i, count, (unsigned long long)events[i].time_ns);
        cr_assert_eq(events[i].address, next + 1, "%u of %u", i, count);
    }
}

Test(recording_events, they_are_in_order_of_time)
{
    uint64_t seed = 5;
    for (unsigned round = 0; round < 400; round++) {
        uint64_t times[300];
        const uint32_t count = round < 40 ? round % 8 : (uint32_t)(random_next(&seed) % 300),
                       late = (uint32_t)(1 + random_next(&seed) % (round % 3 ? 40 : 3));
        for (uint32_t i = 0; i < count; i++)
            times[i] = random_next(&seed) % late == 0 ? 2000 + random_next(&seed) % 300 : 2000 + i - i % 3;
        bool baseline = round % 2;
        begin();
        events_at(baseline ? GP_BLOCK_BASELINE : GP_BLOCK_EVENTS, times, count,
                  1 + (uint32_t)(random_next(&seed) % 200));
        struct gp_recording *r = parse();
        expect_order(baseline ? r->baseline : r->events, baseline ? r->baseline_count : r->event_count, times, count);
        cr_expect_eq(baseline ? r->event_count : r->baseline_count, 0);
    }
}

/* ---- the recorded time, and the counts ---------------------------------------------------------------------------- */

struct ending {
    enum gp_format_type type; /* of the counts; NONE: there are none */
    uint64_t end_ns, tried, delivered, unwritten, error, error_ns, before;
    bool process, first; /* the counts are of format 1.0, which end before the error */
    unsigned events;     /* at 2000, 2010, ... */
    struct {
        uint64_t begin_ns, end_ns, stopped_ns, tried, delivered, dropped;
        bool ended_early;
        unsigned samples; /* of those at 2000, 2005, ... 2100 */
    } is;
};

static void expect_ending(const struct ending *e, size_t number)
{
    uint64_t times[16];
    begin();
    if (e->process) {
        struct gp_pack *pack = recfile_rows(&file);
        for (uint64_t i = 0; i < 10; i++)
            gp_pack_number(pack, i == 4 ? 1900 : 0);
        recfile_block_rows(&file, GP_BLOCK_PROCESS, 1);
    }
    for (unsigned i = 0; i < e->events; i++)
        times[i] = 2000 + 10 * i;
    events_at(GP_BLOCK_EVENTS, times, e->events, 100);
    struct gp_pack *pack = recfile_rows(&file);
    for (uint64_t at = 2000; at <= 2100; at += 5) {
        gp_pack_number(pack, at);
        gp_pack_number(pack, 0);
        for (unsigned i = 0; i < 6; i++)
            gp_pack_signed(pack, 1);
    }
    recfile_block_rows(&file, GP_BLOCK_SAMPLES, 21);
    if (e->type) {
        const uint64_t counts[] = {0, 0, e->end_ns,    e->tried, e->delivered, GP_DROP_FILE + 1, 0,
                                   0, 0, e->unwritten, 0,        e->error,     e->error_ns,      e->before};
        pack = recfile_rows(&file);
        for (size_t i = 0; i < GP_COUNT(counts) - (e->first ? 3 : 0); i++)
            gp_pack_number(pack, counts[i]);
        recfile_block_rows(&file, e->type, 1);
    }
    struct gp_recording *r = parse();
    cr_expect_eq(r->begin_ns, e->is.begin_ns, "%zu: %llu", number, (unsigned long long)r->begin_ns);
    cr_expect_eq(r->end_ns, e->is.end_ns, "%zu: %llu", number, (unsigned long long)r->end_ns);
    cr_expect_eq(r->stopped_ns, e->is.stopped_ns, "%zu: %llu", number, (unsigned long long)r->stopped_ns);
    cr_expect_eq(r->tried, e->is.tried, "%zu: %llu", number, (unsigned long long)r->tried);
    cr_expect_eq(r->delivered, e->is.delivered, "%zu: %llu", number, (unsigned long long)r->delivered);
    cr_expect_eq(r->dropped, e->is.dropped, "%zu", number);
    cr_expect_eq(r->ended_early, e->is.ended_early, "%zu", number);
    cr_expect_eq(r->sample_count, e->is.samples, "%zu: %zu", number, r->sample_count);
    cr_expect_eq(gp_rec_missing(r), e->is.ended_early ? 0 : e->is.dropped, "%zu", number);
}

Test(recording_events, the_recorded_time_ends_where_the_counts_say)
{
    static const struct ending rows[] = {
        /* no counts: the events are all that is known */
        {0, .events = 3, .is = {2000, 2020, 2020, 3, 3, 0, false, 21}},
        {0, .events = 3, .process = true, .is = {1900, 2020, 2020, 3, 3, 0, false, 21}},
        {0, .process = true, .is = {1900, 1900, 1900, 0, 0, 0, false, 21}},
        {0, .is = {0, 0, 0, 0, 0, 0, false, 21}},
        /* counts in the middle: the later events count too */
        {GP_BLOCK_COUNTS, 2015, 9, 2, .events = 3, .is = {2000, 2020, 2020, 10, 3, 0, false, 21}},
        {GP_BLOCK_COUNTS, 2020, 9, 3, .events = 3, .is = {2000, 2020, 2020, 9, 3, 0, false, 21}},
        {GP_BLOCK_COUNTS, 2050, 9, 4, .events = 3, .is = {2000, 2050, 2050, 9, 4, 0, false, 21}},
        /* at the end */
        {GP_BLOCK_END, 2015, 9, 2, .events = 3, .is = {2000, 2015, 2015, 9, 2, 0, false, 21}},
        {GP_BLOCK_END, 2050, 3, 3, .events = 3, .is = {2000, 2050, 2050, 3, 3, 0, false, 21}},
        {GP_BLOCK_END, 2050, 8, 3, 5, 28, 2040, 3, .first = true, .events = 3,
         .is = {2000, 2050, 2050, 8, 3, 5, false, 21}},
        /* a full disk: nothing was written after it */
        {GP_BLOCK_END, 2090, 8, 3, 5, 28, 2040, 3, .events = 3, .is = {2000, 2040, 2090, 8, 3, 5, true, 9}},
        {GP_BLOCK_END, 2090, 8, 3, 5, 28, 2042, 3, .events = 3, .is = {2000, 2042, 2090, 8, 3, 5, true, 9}},
        {GP_BLOCK_END, 2090, 8, 3, 5, 28, 2011, 3, .events = 3, .is = {2000, 2020, 2090, 8, 3, 5, true, 5}},
        {GP_BLOCK_END, 2090, 8, 3, 5, 28, 2090, 3, .events = 3, .is = {2000, 2090, 2090, 8, 3, 5, true, 19}},
        {GP_BLOCK_END, 2090, 8, 3, 5, 28, 1, 3, .events = 3, .is = {2000, 2020, 2090, 8, 3, 5, true, 5}},
        {GP_BLOCK_END, 2090, 5, 0, 5, 28, 1950, 0, .process = true, .is = {1900, 1950, 2090, 5, 0, 5, true, 0}},
        {GP_BLOCK_END, 2090, 5, 0, 5, 28, 1850, 0, .process = true, .is = {1900, 1900, 2090, 5, 0, 5, true, 0}},
        /* or it was: then, or the error is later than the end, or events are missing */
        {GP_BLOCK_END, 2090, 8, 3, 5, 28, 2040, 2, .events = 3, .is = {2000, 2090, 2090, 8, 3, 5, false, 21}},
        {GP_BLOCK_END, 2090, 8, 3, 5, 28, 2091, 3, .events = 3, .is = {2000, 2090, 2090, 8, 3, 5, false, 21}},
        {GP_BLOCK_END, 2090, 8, 4, 5, 28, 2040, 4, .events = 3, .is = {2000, 2090, 2090, 8, 4, 5, false, 21}},
        {GP_BLOCK_END, 2090, 8, 3, 0, 28, 2040, 3, .events = 3, .is = {2000, 2090, 2090, 8, 3, 0, false, 21}},
        {GP_BLOCK_END, 2090, 8, 3, 5, 0, 2040, 3, .events = 3, .is = {2000, 2090, 2090, 8, 3, 5, false, 21}},
    };
    for (size_t i = 0; i < GP_COUNT(rows); i++)
        expect_ending(&rows[i], i);
}

/* ---- sites of a cut file ------------------------------------------------------------------------------------------ */

/* `count` events of one address and site 1, each of a petabyte. */
static void petabytes(uint8_t type, uint32_t count)
{
    clear();
    tag(type, GP_KIND_LINEAR, 0, GP_TAG_BYTES | GP_TAG_SITE);
    tag(type, GP_KIND_LINEAR, 0, GP_TAG_SEEN);
    number(GP_COLUMN_BYTES, 1ull << 50);
    step(GP_COLUMN_SITE, 1);
    step(GP_COLUMN_ADDRESS, 1);
    for (uint32_t i = 0; i < count; i++) {
        event(i > 0, 1);
        if (i)
            number(GP_COLUMN_PLACE, 0);
    }
    block(GP_BLOCK_EVENTS, count, 1000);
}

/* 2^63 bytes are the first that a sum cannot have. */
Test(recording_events, sums_of_sites_do_not_overflow)
{
    for (uint32_t more = 0; more < 3; more++) {
        begin();
        sites_block(2);
        petabytes(GP_EVENT_ALLOC, 8191 + more);
        struct gp_recording *r = parse();
        cr_expect_eq(r->sites[1].allocated_bytes, 8191ll << 50);
        cr_expect_eq(r->sites[1].live_bytes, 8191ll << 50);
        cr_expect_eq(r->sites[1].peak_bytes, 8191ll << 50);
        cr_expect(r->sites[1].live_count == 8191 && r->sites[1].calls == 8191 && r->sites[1].at_peak_bytes == 0);
        begin();
        sites_block(2);
        petabytes(GP_EVENT_FREE, 8192 + more);
        r = parse();
        cr_expect(r->sites[1].live_bytes == INT64_MIN && r->sites[1].live_count == -8192 && r->sites[1].calls == 0);
        cr_expect(r->sites[1].peak_bytes == 0 && r->sites[1].allocated_bytes == 0);
    }
}

/* Also of what was live at the start; an event of a site that is not there is one of the unknown site. */
Test(recording_events, sites_have_what_was_there_at_the_start)
{
    for (uint32_t sites = 1; sites < 4; sites++) {
        begin();
        sites_block(sites);
        clear();
        tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, GP_TAG_BYTES | GP_TAG_SITE);
        tag(GP_EVENT_SEGMENT_ALLOC, GP_KIND_LINEAR, 0, GP_TAG_BYTES);
        event(0, 1), event(1, 1);
        step(GP_COLUMN_ADDRESS, 1), step(GP_COLUMN_ADDRESS, 1);
        number(GP_COLUMN_BYTES, 700), number(GP_COLUMN_BYTES, 900);
        step(GP_COLUMN_SITE, 2);
        block(GP_BLOCK_BASELINE, 2, 1000);
        clear();
        tag(GP_EVENT_FREE, GP_KIND_LINEAR, 0, GP_TAG_BYTES | GP_TAG_SITE);
        event(0, 1);
        step(GP_COLUMN_ADDRESS, 1), number(GP_COLUMN_BYTES, 200), step(GP_COLUMN_SITE, 2);
        block(GP_BLOCK_EVENTS, 1, 2000);
        struct gp_recording *r = parse();
        const uint32_t site = sites == 3 ? 2 : 0;
        cr_expect(r->baseline[0].site == site && r->events[0].site == site && r->peer[0] == 1);
        cr_expect(r->sites[site].live_bytes == 500 && r->sites[site].live_count == 0 && r->sites[site].calls == 1);
        cr_expect(r->sites[site].peak_bytes == 700 && r->sites[site].allocated_bytes == 700);
    }
}

/* A marked free and the segment of the same memory after it: it was a segment from the start. */
Test(recording_events, memory_that_was_a_segment_from_the_start)
{
    enum { ALLOC, MARKED, SEGMENT, FREE };
    static const struct {
        uint8_t tag, type; /* type: as which it is read; GP_EVENT_NONE: not at all */
        uint64_t address, bytes;
    } rows[] = {
        {ALLOC, GP_EVENT_SEGMENT_ALLOC, 1, 64},   {MARKED, GP_EVENT_NONE, 1, 64},
        {SEGMENT, GP_EVENT_NONE, 1, 64},          {ALLOC, GP_EVENT_ALLOC, 1, 8}, /* of it */
        {ALLOC, GP_EVENT_ALLOC, 2, 64},           {MARKED, GP_EVENT_FREE, 2, 64},
        {ALLOC, GP_EVENT_ALLOC, 2, 64},           {SEGMENT, GP_EVENT_SEGMENT_ALLOC, 2, 64}, /* of another allocation */
        {ALLOC, GP_EVENT_ALLOC, 3, 64},           {MARKED, GP_EVENT_FREE, 3, 64},
        {SEGMENT, GP_EVENT_SEGMENT_ALLOC, 3, 32}, /* of another size */
        {ALLOC, GP_EVENT_ALLOC, 4, 64},           {FREE, GP_EVENT_FREE, 4, 64},
        {MARKED, GP_EVENT_FREE, 4, 64},           {SEGMENT, GP_EVENT_SEGMENT_ALLOC, 4, 64}, /* nothing was live */
        {ALLOC, GP_EVENT_ALLOC, 5, 64},           {MARKED, GP_EVENT_FREE, 5, 64},
    };
    begin();
    sites_block(2);
    clear();
    tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, GP_TAG_BYTES | GP_TAG_SITE);
    tag(GP_EVENT_FREE, GP_KIND_LINEAR, 0, GP_TAG_BYTES | GP_TAG_SITE | GP_TAG_ERROR);
    tag(GP_EVENT_SEGMENT_ALLOC, GP_KIND_LINEAR, 0, GP_TAG_BYTES);
    tag(GP_EVENT_FREE, GP_KIND_LINEAR, 0, GP_TAG_BYTES | GP_TAG_SITE);
    uint64_t at = 0;
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        event(rows[i].tag, 1);
        step(GP_COLUMN_ADDRESS, (int64_t)(rows[i].address - at));
        number(GP_COLUMN_BYTES, rows[i].bytes);
        if (rows[i].tag != SEGMENT)
            step(GP_COLUMN_SITE, i == 0);
        if (rows[i].tag == MARKED)
            number(GP_COLUMN_ERROR, GP_FREE_SEGMENT);
        at = rows[i].address;
    }
    block(GP_BLOCK_EVENTS, GP_COUNT(rows), 1000);
    struct gp_recording *r = parse();
    size_t found = 0;
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        if (rows[i].type == GP_EVENT_NONE)
            continue;
        cr_assert_lt(found, r->event_count);
        const struct gp_rec_event *is = &r->events[found++];
        cr_expect(is->type == rows[i].type && is->address == rows[i].address && is->bytes == rows[i].bytes &&
                      is->time_ns == 1001 + i,
                  "row %zu: type %u", i, is->type);
    }
    cr_expect_eq(found, r->event_count);
    cr_expect_eq(r->sites[1].peak_bytes, 136, "%lld", (long long)r->sites[1].peak_bytes);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* 65 535 streams are told apart, number 0 being the default stream's. */
Test(recording_events, more_streams_than_are_told_apart)
{
    uint32_t next = 1;
    begin();
    for (unsigned part = 0; part < 17; part++) {
        clear();
        tag(GP_EVENT_ALLOC, GP_KIND_LINEAR, 0, GP_TAG_STREAM);
        for (uint64_t i = 0; i < 4000; i++, next++) {
            number(GP_COLUMN_STREAMS, next);
            event(0, 1);
            step(GP_COLUMN_ADDRESS, 1);
            number(GP_COLUMN_STREAM, i);
        }
        block(GP_BLOCK_EVENTS, 4000, 1000 + 4000 * part);
    }
    struct gp_recording *r = parse();
    cr_assert_eq(r->stream_count, 65535);
    cr_assert_eq(r->event_count, next - 1);
    for (uint32_t i = 0; i < r->event_count; i++) {
        cr_assert_eq(r->events[i].stream, i + 1 < 65535 ? i + 1 : GP_REC_OTHERS, "%u", i);
        cr_assert(i + 1 >= 65535 || r->streams[i + 1] == i + 1);
    }
}

/* ---- which free ends which allocation ---------------------------------------------------------------------------- */

/* A word is + or -, a kind, an address, and what differs: d the second device, ! and ^ bits above the 48th, @ the time in
 * microseconds (of the event before, if there is none). */
static struct gp_rec_event pair_event(const char *word, uint64_t *time_ns)
{
    static const struct {
        char letter;
        uint8_t begin, end, kind;
    } kinds[] = {{'l', GP_EVENT_ALLOC, GP_EVENT_FREE, GP_KIND_LINEAR},
                 {'p', GP_EVENT_ALLOC, GP_EVENT_FREE, GP_KIND_PINNED},
                 {'o', GP_EVENT_ALLOC, GP_EVENT_FREE, GP_KIND_POOL},
                 {'a', GP_EVENT_ALLOC, GP_EVENT_FREE, GP_KIND_ARRAY},
                 {'v', GP_EVENT_ALLOC, GP_EVENT_FREE, GP_KIND_VMM},
                 {'V', GP_EVENT_ALLOC, GP_EVENT_FREE, GP_KIND_VIRTUAL},
                 {'m', GP_EVENT_ALLOC, GP_EVENT_FREE, GP_KIND_MODULE},
                 {'c', GP_EVENT_ALLOC, GP_EVENT_FREE, GP_KIND_CONTEXT},
                 {'r', GP_EVENT_ALLOC, GP_EVENT_FREE, GP_KIND_REGISTERED},
                 {'g', GP_EVENT_ALLOC, GP_EVENT_FREE, GP_KIND_GRAPH},
                 {'S', GP_EVENT_SEGMENT_ALLOC, GP_EVENT_SEGMENT_FREE, GP_KIND_LINEAR},
                 {'T', GP_EVENT_SEGMENT_ALLOC, GP_EVENT_SEGMENT_FREE, GP_KIND_VMM},
                 {'M', GP_EVENT_SEGMENT_MAP, GP_EVENT_SEGMENT_UNMAP, GP_KIND_VMM},
                 {'G', GP_EVENT_SEGMENT_MAP, GP_EVENT_SEGMENT_UNMAP, GP_KIND_LINEAR},
                 {'s', GP_EVENT_SNAPSHOT, GP_EVENT_MARK, GP_KIND_LINEAR}};
    struct gp_rec_event event = {.address = 4096 * (uint64_t)(word[2] - '0')};
    size_t i = 0;
    while (kinds[i].letter != word[1])
        cr_assert_lt(++i, GP_COUNT(kinds), "%s", word);
    event.type = (word[0] == '+' ? kinds[i].begin : kinds[i].end) & 15;
    event.kind = kinds[i].kind & 15;
    for (const char *at = word + 3; *at && *at != ' '; at++) {
        event.device |= *at == 'd';
        event.address |= (uint64_t)(*at == '!') << 48 | (uint64_t)(*at == '^') << 56;
        *time_ns = *at == '@' ? strtoull(at + 1, NULL, 10) * 1000 : *time_ns;
    }
    event.time_ns = *time_ns;
    return event;
}

static size_t pair_events(struct gp_rec_event events[24], const char *words)
{
    uint64_t time_ns = 0;
    size_t count = 0;
    for (; *words; words += strcspn(words, " "), words += strspn(words, " "))
        events[count++] = pair_event(words, &time_ns);
    return count;
}

/* For each event the index of its peer; that of what was there at the start follows those of the events. */
Test(recording_events, which_free_ends_which_allocation)
{
    static const struct {
        bool dropped; /* events are missing */
        const char *what, *before, *events, *peers;
    } rows[] = {
        {false, "in any order", "", "+l1 +l2 -l1 -l2", "2 3 0 1"},
        {false, "never freed, freed without an allocation, freed twice", "", "+l1 -l2 +l3 -l3 -l3", "- - 3 2 -"},
        {false, "again at one address", "", "+l1 -l1 +l1 -l1 +l1", "1 0 3 2 -"},
        {false, "another device", "", "+l1 +l1d -l1d -l1", "3 2 1 0"},
        {false, "bits above the 48th", "", "+l1 +l1! +l1^ +l1d +l1!d +l1^d -l1 -l1! -l1^ -l1d -l1!d -l1^d",
         "6 7 8 9 10 11 0 1 2 3 4 5"},
        {false, "each space of addresses", "",
         "+l1 +a1 +v1 +V1 +m1 +c1 +r1 +g1 +S1 +T1 +M1 -M1 -T1 -S1 -g1 -r1 -c1 -m1 -V1 -v1 -a1 -l1",
         "21 20 19 18 17 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0"},
        {false, "other kinds share one", "", "+p1 -o1 +o2 -l2", "1 0 3 2"},
        {false, "a growable segment has no pairs", "", "+G1 -G1 +M1 -M1", "- - 3 2"},
        {false, "what is neither", "", "+l1 +s1 -s1 -l1", "3 - - 0"},
        {false, "what was there", "+l1 +l2", "-l1 +l2 -l2 -l2", "4 2 1 -"},
        {false, "a late free", "", "+l1 +l1 -l1@5000 -l1", "1 3 0 1"},
        {false, "a late free of one that stays", "", "+l1 +l1 -l1", "1 - 0"},
        {true, "one that may be late where events are lost", "", "+l1@1 +l1@2 -l1@1001 -l1", "1 3 0 1"},
        {true, "one that is not", "", "+l1@1 +l1@2 -l1@1002 -l1", "1 2 1 -"},
        {false, "not even of what was there", "+l1", "+l1 -l1 -l1", "1 0 -"},
    };
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        struct gp_rec_event events[24], before[24];
        uint32_t peer[24];
        char found[128] = "";
        struct gp_recording r = {.events = events, .baseline = before, .peer = peer, .dropped = rows[i].dropped};
        r.event_count = pair_events(events, rows[i].events);
        r.baseline_count = pair_events(before, rows[i].before);
        memset(peer, 0x11, sizeof(peer));
        cr_assert_eq(gp_recording_match(&r), 0);
        for (size_t k = 0; k < r.event_count; k++)
            snprintf(found + strlen(found), sizeof(found) - strlen(found), peer[k] == GP_REC_NONE ? "%s-" : "%s%u",
                     k ? " " : "", peer[k]);
        cr_expect_str_eq(found, rows[i].peers, "%s: %s", rows[i].what, found);
    }
}
