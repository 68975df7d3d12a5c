/* SPDX-License-Identifier: MIT
 *
 * ending.c: allocations that one driver call ends together, with their context or their graph.
 * Before the call their records leave the map and their bytes leave the totals, at one instant of
 * each device: during the call the driver may hand the memory to another thread. If the call fails,
 * records and bytes come back. Called by context.c and graph.c.
 */
#include "account/ending.h"
#include "account/event.h"
#include "account/internal.h"
#include "account/move.h"
#include "account/segment.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/kept.h"
#include "base/map.h"
#include "base/thread.h"
#include <gpuprof/wire.h>

struct gp_ending {
    uint64_t room, count;
    uint64_t since_ns[GP_WIRE_DEVICES]; /* when the bytes left; 0: none did */
    struct gp_record records[];
};

static size_t ending_bytes(uint64_t room)
{
    return sizeof(struct gp_ending) + room * sizeof(struct gp_record);
}

struct gp_ending *gp_ending_new(uint64_t room)
{
    struct gp_ending *ending = room ? gp_kept_map(ending_bytes(room), 0) : NULL;
    if (ending)
        ending->room = room;
    return ending;
}

bool gp_ending_add(struct gp_ending *ending, const struct gp_record *record)
{
    if (ending->count == ending->room)
        return false;
    ending->records[ending->count++] = *record;
    return true;
}

uint64_t gp_ending_count(const struct gp_ending *ending)
{
    return ending ? ending->count : 0;
}

/* The changes of the gauges by all records of one device. Returns how many there are. */
static unsigned ending_deltas(const struct gp_ending *ending, unsigned device, struct gp_delta out[GP_GAUGES])
{
    int64_t sums[GP_GAUGES] = {0};
    unsigned count = 0;
    for (uint64_t i = 0; i < ending->count; i++) {
        struct gp_delta deltas[GP_DELTAS];
        if (ending->records[i].device != device)
            continue;
        struct gp_move move = gp_account_block_move(&ending->records[i]);
        for (unsigned k = 0, n = gp_gauge_deltas(&move, deltas); k < n; k++)
            sums[deltas[k].gauge] += deltas[k].amount;
    }
    for (unsigned gauge = 0; gauge < GP_GAUGES; gauge++)
        if (sums[gauge])
            out[count++] = (struct gp_delta){.gauge = gauge, .amount = sums[gauge]};
    return count;
}

static void ending_segments(const struct gp_ending *ending, enum gp_counter_op op)
{
    for (uint64_t i = 0; i < ending->count; i++)
        if (ending->records[i].segment && ending->records[i].device != GP_NO_DEVICE)
            gp_segment_framework(&ending->records[i], op);
}

static uint64_t ending_since(const struct gp_ending *ending, const struct gp_record *record)
{
    return record->device < GP_WIRE_DEVICES ? ending->since_ns[record->device] : 0;
}

void gp_ending_begin(struct gp_ending *ending)
{
    struct gp_delta deltas[GP_GAUGES];
    for (unsigned i = 0; ending && i < GP_WIRE_DEVICES; i++) {
        unsigned count = ending_deltas(ending, i, deltas);
        struct gp_account *account = count ? gp_account_of((int)i) : NULL;
        if (account)
            ending->since_ns[i] = gp_counter_apply_timed(account->counter, gp_thread.number, GP_SUB, deltas, count);
    }
    if (ending)
        ending_segments(ending, GP_SUB);
    /* Before the call, as in gp_feed_free_begin. */
    for (uint64_t i = 0; ending && i < ending->count; i++)
        if (ending->records[i].segment == GP_SEGMENT_HEAP)
            gp_event_record_at(GP_EVENT_FREE, &ending->records[i], 0, ending_since(ending, &ending->records[i]));
}

static void ending_over(struct gp_ending *ending)
{
    gp_kept_unmap(ending, ending_bytes(ending->room));
}

void gp_ending_done(struct gp_ending *ending)
{
    for (uint64_t i = 0; ending && i < ending->count; i++)
        if (ending->records[i].segment != GP_SEGMENT_HEAP)
            gp_event_record_at(GP_EVENT_FREE, &ending->records[i], 0, ending_since(ending, &ending->records[i]));
    if (ending)
        ending_over(ending);
}

void gp_ending_refused(struct gp_ending *ending, void (*put)(struct gp_record *record, void *arg), void *arg)
{
    struct gp_delta deltas[GP_GAUGES];
    for (unsigned i = 0; ending && i < GP_WIRE_DEVICES; i++) {
        struct gp_account *account = ending->since_ns[i] ? gp_account_of((int)i) : NULL;
        unsigned count = account ? ending_deltas(ending, i, deltas) : 0;
        if (count)
            gp_counter_putback(account->counter, gp_thread.number, ending->since_ns[i], deltas, count);
    }
    if (ending)
        ending_segments(ending, GP_ADD);
    for (uint64_t i = 0; ending && i < ending->count; i++)
        put(&ending->records[i], arg);
    if (ending)
        ending_over(ending);
}
