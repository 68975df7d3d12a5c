/* SPDX-License-Identifier: MIT
 *
 * test_columns.c: a block of events (src/record/columns.c) takes as many events, tags, threads and streams as the format
 * allows, and not one more.
 */
#include <criterion/criterion.h>
#include <record/columns.h>
#include <stdlib.h>

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
