/* SPDX-License-Identifier: MIT
 *
 * expect.c: estimates the size of a snapshot before it is written, from the numbers of events and
 * blocks: a trace of many events makes a file that PyTorch's viewer cannot open. Called by
 * cmd/snapshot.c; see snapshot.h.
 */
#include <convert/snapshot/snapshot.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <string.h>

/* Bytes of an entry and of a block with its segment (docs/snapshot.md); names are few. */
#define GP_EXPECT_ENTRY 40u
#define GP_EXPECT_BLOCK 90u

struct gp_expect {
    uint64_t entries[GP_WIRE_HOST + 1]; /* of each device */
};

/* What entries.c writes for the event, if memory outside the cache's segments has entries for
 * segments of its own. */
static void expect_event(struct gp_expect *expect, uint32_t device, uint8_t type, bool cached)
{
    if (device > GP_WIRE_HOST)
        return;
    cached &= device != GP_WIRE_HOST;
    if (type == GP_EVENT_ALLOC)
        expect->entries[device] += 1u + !cached;
    else if (type == GP_EVENT_FREE)
        expect->entries[device] += 2u + !cached;
    else
        expect->entries[device] += type >= GP_EVENT_SEGMENT_ALLOC && type <= GP_EVENT_OOM;
}

static struct gp_snapshot_size expect_size(const struct gp_expect *expect, uint64_t blocks, uint64_t limit)
{
    struct gp_snapshot_size size = {0};
    for (unsigned i = 0; i <= GP_WIRE_HOST; i++)
        size.entries += expect->entries[i] < limit ? expect->entries[i] : limit;
    size.bytes = size.entries * GP_EXPECT_ENTRY + blocks * GP_EXPECT_BLOCK;
    return size;
}

struct gp_snapshot_size gp_snapshot_expect(const struct gp_recording *recording, uint64_t limit)
{
    struct gp_expect expect = {0};
    uint64_t blocks = recording->baseline_count;
    bool cached = false;
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        cached |= event->type == GP_EVENT_SEGMENT_ALLOC && event->kind == GP_KIND_LINEAR;
        blocks += event->type == GP_EVENT_ALLOC && recording->peer[i] == GP_REC_NONE;
        if (event->device < recording->device_count)
            expect_event(&expect, recording->devices[event->device].index, event->type, cached);
    }
    return expect_size(&expect, blocks, limit);
}

struct gp_snapshot_size gp_snapshot_expect_live(const struct gp_snapshot_live *live, uint64_t limit)
{
    struct gp_expect expect = {0};
    bool cached = live->allocator && strcmp(live->allocator, "off") != 0;
    for (size_t i = 0; i < live->event_count; i++)
        expect_event(&expect, live->events[i].device, live->events[i].type, cached);
    return expect_size(&expect, live->pieces->count, limit);
}
