/* SPDX-License-Identifier: MIT
 *
 * test_columns.c: a block of events (core/record/columns.c) takes as many events, tags, threads and streams as the format
 * allows, and not one more; and any events come back as they were.
 */
#include "lib/random.h"
#include <criterion/criterion.h>
#include <read/recording/recording.h>
#include <record/file.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct gp_columns *columns;
static uint8_t *memory;

static void clear(void)
{
    free(columns);
    free(memory);
    columns = calloc(1, sizeof(*columns));
    memory = calloc(1, gp_columns_bytes());
    cr_assert(columns && memory);
    gp_columns_init(columns, memory);
}

enum { EVENTS, TAGS, TIDS, STREAMS, WAYS };

/* The i-th event, which needs one more of what the way fills; 0 of each is there from the start. */
static struct gp_wire_event event_of(unsigned way, uint32_t i)
{
    struct gp_wire_event event = {.type = GP_EVENT_ALLOC, .kind = 1, .time_ns = 1000 + i, .bytes = 512, .tid = 0};
    event.requested_bytes = 512;
    event.address = 0x1000 + (uint64_t)(way == EVENTS ? i : i % 7) * 512;
    event.device = way == TAGS ? (uint8_t)i : 0;
    event.tid = way == TIDS ? i + 1 : 0;
    event.stream = way == STREAMS ? (uint64_t)(i + 1) * 0x10001 : 0;
    return event;
}

static uint32_t fill(unsigned way, uint32_t most)
{
    struct gp_wire_event event;
    uint32_t count = 0;
    clear();
    do
        event = event_of(way, count);
    while (count < most && gp_columns_add(columns, &event) && ++count);
    return count;
}

Test(columns, each_limit_is_reached_exactly)
{
    cr_expect_eq(fill(EVENTS, 40000), GP_FORMAT_EVENTS);
    cr_expect_eq(columns->count, GP_FORMAT_EVENTS);
    fill(TAGS, 256);
    cr_expect_eq(columns->tags, GP_FORMAT_TAGS);
    cr_expect_eq(fill(TIDS, 5000), GP_FORMAT_TIDS);
    cr_expect_eq(columns->tids, GP_FORMAT_TIDS);
    cr_expect_eq(fill(STREAMS, 5000), GP_FORMAT_STREAMS);
    cr_expect_eq(columns->streams, GP_FORMAT_STREAMS);
}

/* A full block takes no event, and a cleared one as many as before, with the same bytes. */
Test(columns, a_cleared_block_is_as_a_new_one)
{
    static uint8_t payload[2][1 << 22];
    for (unsigned way = 0; way < WAYS; way++) {
        struct gp_pack out[2];
        uint32_t count = fill(way, 40000 - way * 100);
        for (unsigned turn = 0; turn < 2; turn++) {
            out[turn] = (struct gp_pack){
                .at = payload[turn], .start = payload[turn], .end = payload[turn] + sizeof(payload[turn])};
            gp_columns_payload(columns, &out[turn]);
            gp_columns_clear(columns);
            for (uint32_t i = 0; turn == 0 && i < count; i++) {
                struct gp_wire_event event = event_of(way, i);
                cr_assert(gp_columns_add(columns, &event));
            }
        }
        cr_expect_eq(gp_pack_bytes(&out[0]), gp_pack_bytes(&out[1]));
        cr_expect_arr_eq(payload[0], payload[1], gp_pack_bytes(&out[0]));
    }
}

/* The lowest and the highest time, wherever they stand. */
Test(columns, times_of_a_block)
{
    static const uint64_t orders[6][3] = {{5, 6, 7}, {5, 7, 6}, {6, 5, 7}, {6, 7, 5}, {7, 5, 6}, {7, 6, 5}};
    for (unsigned i = 0; i < 6; i++) {
        clear();
        for (unsigned k = 0; k < 3; k++) {
            struct gp_wire_event event = event_of(EVENTS, k);
            event.time_ns = orders[i][k];
            cr_assert(gp_columns_add(columns, &event));
        }
        cr_expect(columns->first_ns == 5 && columns->last_ns == 7 && columns->base_ns == orders[i][0]);
    }
}

/* ---- there and back ---------------------------------------------------------------------------------------------- */

#define WRITTEN (GP_FORMAT_EVENTS + 5000u)

static struct gp_wire_event written[WRITTEN];

/* Few of each, so that a place sees all of its fields change, alone and together; the time may go back. */
static struct gp_wire_event drawn(uint32_t i)
{
    static const uint8_t types[] = {GP_EVENT_ALLOC,         GP_EVENT_FREE,        GP_EVENT_ALLOC, GP_EVENT_FREE,
                                    GP_EVENT_SEGMENT_ALLOC, GP_EVENT_SEGMENT_MAP, GP_EVENT_OOM};
    struct gp_wire_event event = {.type = types[draw_below(7)], .kind = GP_KIND_LINEAR, .time_ns = 5000 + 10 * i};
    if (draw_below(50) == 0) {
        event.type = GP_EVENT_MARK;
        snprintf(event.name, sizeof(event.name), "%.*s", (int)draw_below(32), "a mark with a name of 31 letter");
        return event;
    }
    event.address = draw_below(40) ? 0x7f0000000000ull + draw_below(300) * 512ull : (uint64_t)draw_below(9) << 60;
    event.bytes = 512ull << draw_below(draw_below(9) ? 3 : 20);
    event.requested_bytes = event.bytes - draw_below(2) * draw_below(512);
    event.stream = draw_below(3) * 0x100ull * draw_below(3);
    event.tid = 100 + draw_below(draw_below(5) ? 2 : 30);
    event.cost = (uint8_t)(draw_below(2) * draw_below(256));
    event.error = event.type == GP_EVENT_OOM ? 2 : 0;
    return event;
}

static void same(const struct gp_recording *r, size_t i)
{
    const struct gp_rec_event *is = &r->events[i];
    const struct gp_wire_event *was = &written[i];
    cr_assert_eq(is->time_ns, was->time_ns, "event %zu", i);
    cr_assert(is->type == was->type && is->kind == was->kind, "event %zu", i);
    if (was->type == GP_EVENT_MARK) {
        cr_assert_str_eq(r->strings + is->bytes, was->name, "event %zu", i);
        return;
    }
    cr_assert(is->address == was->address && is->bytes == was->bytes && is->cost == was->cost, "event %zu", i);
    cr_assert_eq(is->unused, was->bytes - was->requested_bytes, "event %zu", i);
    cr_assert_eq(r->streams[is->stream], was->stream, "event %zu: type %u", i, was->type);
    cr_assert_eq(r->threads[is->thread].tid, was->tid, "event %zu", i);
}

Test(columns, any_events_come_back, .timeout = 60)
{
    char path[] = "/tmp/gpuprof-test-columns-XXXXXX", why[256];
    struct gp_recording *r = NULL;
    struct gp_file *file;
    int fd = mkstemp(path);
    cr_assert_eq(gp_file_new(&file, fd, &(struct gp_file_who){.pid = 7}), 0);
    for (uint32_t i = 0; i < WRITTEN; i++) {
        written[i] = drawn(i);
        gp_file_add(file, &written[i], GP_BLOCK_EVENTS);
    }
    gp_file_flush(file, GP_BLOCK_EVENTS);
    cr_assert_eq(gp_file_end(file), 0);
    int rc = gp_recording_open(&r, path, why, sizeof(why), NULL, NULL);
    unlink(path);
    cr_assert_eq(rc, 0, "%s", why);
    cr_assert_eq(r->event_count, WRITTEN);
    for (size_t i = 0; i < WRITTEN; i++)
        same(r, i);
    gp_recording_free(r);
}

/* A thread, a stream or a tag that was there before takes no place of its own. */
Test(columns, names_are_kept_once)
{
    clear();
    for (uint32_t i = 0; i < 3000; i++) {
        struct gp_wire_event event = event_of(EVENTS, i);
        event.address = 0x1000;
        event.stream = 0x100 + i % 5 * 0x777;
        event.tid = 1 + i % 3;
        event.device = (uint8_t)(i % 2);
        cr_assert(gp_columns_add(columns, &event));
    }
    cr_expect_eq(columns->streams, 5);
    cr_expect_eq(columns->tids, 3);
    cr_expect_eq(columns->places, 1);
    cr_expect_leq(columns->tags, 2 * 8);
}
