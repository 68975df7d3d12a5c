/* SPDX-License-Identifier: MIT
 *
 * import.c: memory of other processes, which owns 0 bytes here. The calls do not report its
 * size; the poller asks the driver.
 */
#include "account/event.h"
#include "account/feed/block.h"
#include "account/feed/feed.h"
#include "account/feed/poll.h"
#include "account/feed/want.h"
#include "account/frame.h"
#include "account/internal.h"
#include "account/move.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/lock.h"
#include "base/map.h"
#include <gpuprof/wire.h>

static struct gp_move import_moves(int64_t bytes, int64_t count)
{
    return (struct gp_move){.kind = GP_KIND_IMPORTED, .parts = GP_PART_KIND, .bytes = bytes, .count = count};
}

static uint64_t import_move(const struct gp_record *record, enum gp_counter_op op, int64_t bytes, int64_t count)
{
    struct gp_move move = import_moves(bytes, count);
    return gp_account_move(record->device, op, &move);
}

static bool import_reference(struct gp_record *record, void *arg)
{
    record->import.opens += *(uint32_t *)arg;
    return false;
}

static bool import_close(struct gp_record *record, void *arg)
{
    struct gp_frame *frame = arg;
    record->import.opens--;
    frame->record = *record;
    frame->died = record->import.opens == 0;
    return frame->died;
}

uint32_t gp_feed_ipc_close_begin(uint64_t address)
{
    struct gp_frame *frame;
    uint32_t token = gp_account_frame_get(&frame);
    if (!token)
        return 0;
    frame->what = GP_SPACE_IPC;
    if (gp_map_update(gp_accounts.objects, GP_SPACE_IPC, address, import_close, frame) != 0) {
        gp_account_frame_put(token);
        return 0;
    }
    if (frame->died)
        frame->time_ns = import_move(&frame->record, GP_SUB, (int64_t)frame->record.bytes, 1);
    return token;
}

void gp_feed_ipc_close_end(uint32_t token, bool ok)
{
    struct gp_frame *frame = gp_account_frame_of(token, GP_SPACE_IPC);
    uint32_t more = 1;
    if (!frame)
        return;
    struct gp_record *record = &frame->record;
    if (ok && frame->died) {
        gp_event_record(GP_EVENT_FREE, record, 0);
    } else if (!ok && frame->died) {
        record->import.opens = 1;
        if (gp_map_insert(gp_accounts.objects, record, NULL) < 0)
            gp_feed_lost(GP_LOST_MAP);
        struct gp_move move = import_moves((int64_t)record->bytes, 1);
        gp_account_putback(record->device, frame->time_ns, &move);
    } else if (!ok) {
        gp_map_update(gp_accounts.objects, GP_SPACE_IPC, record->key, import_reference, &more);
    }
    gp_account_frame_put(token);
}

/* Imports whose size the poller has yet to learn. Beyond 256 between two polls the size stays
 * unknown (bytes 0), which loses nothing that this process owns. */
static struct {
    uint32_t count;
    struct {
        uint8_t space;
        uint64_t address;
    } asked[256];
} gp_imports;

static void import_ask(enum gp_space space, uint64_t address)
{
    gp_lock_take(&gp_accounts.lock);
    if (gp_imports.count < GP_COUNT(gp_imports.asked)) {
        gp_imports.asked[gp_imports.count].space = (uint8_t)space;
        gp_imports.asked[gp_imports.count++].address = address;
    }
    gp_lock_give(&gp_accounts.lock);
    gp_feed_poll_want(GP_POLL_IMPORTS);
}

bool gp_feed_poll_import_waits(void)
{
    gp_lock_take(&gp_accounts.lock);
    bool waits = gp_imports.count > 0;
    gp_lock_give(&gp_accounts.lock);
    return waits;
}

bool gp_feed_poll_import_next(struct gp_poll_import *out)
{
    gp_lock_take(&gp_accounts.lock);
    bool any = gp_imports.count > 0;
    if (any) {
        gp_imports.count--;
        *out = (struct gp_poll_import){gp_imports.asked[gp_imports.count].space,
                                       gp_imports.asked[gp_imports.count].address};
    }
    gp_lock_give(&gp_accounts.lock);
    return any;
}

/* The time is from before the import can be closed, so its free is later. */
static bool import_sized(struct gp_record *record, void *arg)
{
    struct gp_record *answer = arg;
    if (record->kind == GP_KIND_IMPORTED && record->bytes == 0) {
        record->bytes = record->requested_bytes = answer->bytes;
        *answer = *record;
        answer->time_ns = gp_clock_ns();
    }
    return false;
}

/* The event of the import had no size yet: it has a second one, which recordings join with the first. */
void gp_feed_poll_import(const struct gp_poll_import *import, uint64_t bytes)
{
    struct gp_record answer = {.bytes = bytes};
    struct gp_map *map = import->space == GP_SPACE_DEVICE ? gp_accounts.blocks : gp_accounts.objects;
    if (gp_map_update(map, import->space, import->address, import_sized, &answer) != 0 || !answer.space)
        return;
    import_move(&answer, GP_ADD, (int64_t)bytes, 0);
    gp_event_record(GP_EVENT_ALLOC, &answer, 0);
}

void gp_feed_pool_import_pointer(uint64_t address, int device)
{
    struct gp_allocation block = {
        .space = GP_SPACE_DEVICE, .kind = GP_KIND_IMPORTED, .device = device, .address = address};
    gp_feed_alloc(&block);
    import_ask(GP_SPACE_DEVICE, address);
}

void gp_feed_ipc_open(uint64_t address, int device, uint32_t ctx)
{
    uint32_t more = 1;
    if (gp_map_update(gp_accounts.objects, GP_SPACE_IPC, address, import_reference, &more) == 0)
        return; /* the driver returns the same address again and counts */
    struct gp_record old, record = {
                              .key = address,
                              .space = GP_SPACE_IPC,
                              .kind = GP_KIND_IMPORTED,
                              .device = (uint8_t)device,
                              .ctx = ctx,
                              .time_ns = gp_clock_ns(),
                              .import.opens = 1,
                          };
    if (!gp_account_of(device))
        return;
    int status = gp_map_insert(gp_accounts.objects, &record, &old);
    if (status < 0) {
        gp_feed_lost(GP_LOST_MAP);
        return;
    }
    if (status == 1) { /* another thread opened it meanwhile: merge both references into one import */
        more = old.import.opens;
        gp_map_update(gp_accounts.objects, GP_SPACE_IPC, address, import_reference, &more);
        import_move(&old, GP_SUB, (int64_t)old.bytes, 1);
    }
    import_move(&record, GP_ADD, 0, 1);
    gp_event_record(GP_EVENT_ALLOC, &record, 0);
    import_ask(GP_SPACE_IPC, address);
}
