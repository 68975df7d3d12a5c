/* SPDX-License-Identifier: MIT
 * test_columns.c: a block of a recording takes exactly as many events, threads, streams and sorts of events as the format
 * allows, in every block. */
#include "record/columns.h"
#include <criterion/criterion.h>
#include <stdlib.h>

static struct gp_columns *columns;

static void setup(void)
{
    columns = calloc(1, sizeof(*columns));
    uint8_t *memory = calloc(1, gp_columns_bytes());
    cr_assert(columns && memory);
    gp_columns_init(columns, memory);
}

TestSuite(columns, .init = setup);

/* Adds events until one does not fit. */
static void check_room(void (*vary)(struct gp_wire_event *event, uint32_t number), uint32_t most)
{
    for (int block = 0; block < 2; block++) {
        uint32_t count = 0;
        for (; count <= GP_FORMAT_EVENTS; count++) {
            struct gp_wire_event event = {.time_ns = 1000 + count, .type = GP_EVENT_ALLOC, .kind = GP_KIND_LINEAR};
            event.address = count + 1;
            vary(&event, count + 1);
            if (!gp_columns_add(columns, &event))
                break;
        }
        cr_expect_eq(count, most, "block %d: %u events, not %u", block, count, most);
        cr_expect_eq(columns->count, most);
        gp_columns_clear(columns);
    }
}

static void vary_nothing(struct gp_wire_event *event, uint32_t number)
{
    (void)event;
    (void)number;
}

static void vary_thread(struct gp_wire_event *event, uint32_t number)
{
    event->tid = number;
}

static void vary_stream(struct gp_wire_event *event, uint32_t number)
{
    event->stream = number;
}

static void vary_sort(struct gp_wire_event *event, uint32_t number)
{
    event->device = (uint8_t)number;
    event->kind = (uint8_t)(1 + number / 256);
}

Test(columns, as_many_events_as_the_format_allows)
{
    check_room(vary_nothing, GP_FORMAT_EVENTS);
}

Test(columns, as_many_threads)
{
    check_room(vary_thread, GP_FORMAT_TIDS);
}

Test(columns, as_many_streams)
{
    check_room(vary_stream, GP_FORMAT_STREAMS);
}

Test(columns, as_many_sorts_of_events)
{
    check_room(vary_sort, GP_FORMAT_TAGS);
}
