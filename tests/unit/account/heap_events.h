/* SPDX-License-Identifier: MIT
 *
 * heap_events.h: what a recording of heaps and mappings adds up to. Every event that ends something has the address and the
 * size of what it ends; what is left is what the statistics call allocated and reserved.
 */
#ifndef GP_TEST_UNIT_HEAP_EVENTS_H
#define GP_TEST_UNIT_HEAP_EVENTS_H

#include "record/ringread.h"
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <string.h>

#define HEARD_ROWS 4096u

enum heard_what { HEARD_NOTHING, HEARD_BLOCK, HEARD_SEGMENT, HEARD_MAPPING };

static struct heard {
    enum heard_what what;
    uint8_t kind, device;
    uint64_t address, bytes, added; /* added: to allocated, by a mapping */
} heard[HEARD_ROWS];

static struct gp_ringread *heard_reader;
static int64_t heard_allocated, heard_reserved, heard_blocks; /* bytes; and how many blocks and mappings there are */

/* Memory of cuMemCreate is a segment without addresses; its mappings are allocated. A segment of a heap is linear memory,
 * whether it was allocated or mapped. */
static inline void heard_count(const struct heard *one, int sign)
{
    bool block = one->what == HEARD_BLOCK, mapping = one->what == HEARD_MAPPING, linear = one->kind == GP_KIND_LINEAR;
    if (block || (mapping && !linear)) {
        heard_allocated += sign * (int64_t)one->added;
        heard_blocks += sign * (one->added > 0);
    }
    /* A plain driver allocation is reserved too; a block that was cut out of a segment is not, but both look alike. */
    if (one->what == HEARD_SEGMENT || (mapping && linear))
        heard_reserved += sign * (int64_t)one->bytes;
}

static inline void heard_one(const struct gp_wire_event *event)
{
    static const enum heard_what whats[] = {
        [GP_EVENT_ALLOC] = HEARD_BLOCK,           [GP_EVENT_FREE] = HEARD_BLOCK,
        [GP_EVENT_SEGMENT_ALLOC] = HEARD_SEGMENT, [GP_EVENT_SEGMENT_FREE] = HEARD_SEGMENT,
        [GP_EVENT_SEGMENT_MAP] = HEARD_MAPPING,   [GP_EVENT_SEGMENT_UNMAP] = HEARD_MAPPING};
    bool begins =
        event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_MAP;
    enum heard_what what = event->type < sizeof(whats) / sizeof(whats[0]) ? whats[event->type] : HEARD_NOTHING;
    struct heard *row = NULL, *idle = NULL;
    cr_assert(what != HEARD_NOTHING && event->time_ns && event->stream == 0, "an event of type %u", event->type);
    for (unsigned i = 0; i < HEARD_ROWS && !row; i++) {
        idle = heard[i].what == HEARD_NOTHING && !idle ? &heard[i] : idle;
        row = heard[i].what == what && heard[i].address == event->address ? &heard[i] : NULL;
        if (heard[i].what == HEARD_NOTHING && i > 200)
            break;
    }
    if (begins) {
        cr_assert(!row && idle, "type %u begins twice at %llx", event->type, (unsigned long long)event->address);
        *idle =
            (struct heard){what,           event->kind,  event->device,
                           event->address, event->bytes, what == HEARD_MAPPING ? event->requested_bytes : event->bytes};
        heard_count(idle, 1);
        return;
    }
    cr_assert(row && row->bytes == event->bytes && row->kind == event->kind && row->device == event->device,
              "type %u ends what has not begun at %llx: %llu bytes", event->type, (unsigned long long)event->address,
              (unsigned long long)event->bytes);
    heard_count(row, -1);
    row->what = HEARD_NOTHING;
}

static inline void heard_read(void)
{
    const struct gp_wire_event *event;
    ssize_t got;
    while ((got = gp_ringread_poll(heard_reader, UINT64_MAX, &event)) > 0)
        for (ssize_t i = 0; i < got; i++)
            heard_one(&event[i]);
    cr_assert_eq(got, 0);
}

#endif
