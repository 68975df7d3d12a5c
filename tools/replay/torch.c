/* SPDX-License-Identifier: MIT
 * torch.c: reads PyTorch's memory snapshots (torch.cuda.memory._dump_snapshot): first the blocks
 * that were live when the trace of a device starts, then the trace.  Called through the table in
 * open.c.
 *
 * An alloc entry has the requested size; at free_requested the program frees the block.  segment_*
 * entries belong to the allocator that the replay replaces, so they are skipped.  A snapshot has no
 * threads and does not name the streams that a block was recorded for: such a block counts as free
 * from its free_requested entry on. */
#include "trace.h"
#include <recording/unpickle.h>

#include <base/compiler.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct gp_entry { /* one entry of any device's trace, for sorting by time */
    const struct gp_pickle *at;
    int64_t time_us;
    uint32_t device, order;
};

struct gp_snapshot {
    struct gp_replay_builder *b;
    const struct gp_pickle *traces, *segments;
    struct gp_entry *entries;
    uint32_t count;
    struct gp_hash seen; /* address -> its state, while looking for blocks that were live at the start */
};

enum { GP_SEEN_LIVE = 1, GP_SEEN_GONE = 2 };

static bool torch_knows(const uint8_t *data, size_t bytes)
{
    /* PROTO, a version, then a dictionary, which protocol 4 and later put into a frame. */
    return bytes >= 3 && data[0] == 0x80 && data[1] >= 2 && data[1] <= 5;
}

static int entry_compare(const void *left, const void *right)
{
    const struct gp_entry *l = left, *r = right;
    if (l->time_us != r->time_us)
        return l->time_us < r->time_us ? -1 : 1;
    return l->order < r->order ? -1 : l->order > r->order;
}

/* Snapshots without times keep the order of each device, one device after the other. */
static int snapshot_entries(struct gp_snapshot *s)
{
    uint32_t total = 0, order = 0;
    for (uint32_t d = 0; d < gp_pickle_count(s->traces); d++) {
        uint32_t count = gp_pickle_count(gp_pickle_at(s->traces, d));
        /* A hostile file may name the same list many times, so the bound is on the sum. */
        if (count > GP_REPLAY_OPS - total)
            return -E2BIG;
        total += count;
    }
    s->entries = calloc(total + 1u, sizeof(s->entries[0]));
    if (!s->entries)
        return -ENOMEM;
    for (uint32_t d = 0; d < gp_pickle_count(s->traces); d++) {
        const struct gp_pickle *trace = gp_pickle_at(s->traces, d);
        int64_t last = 0;
        for (uint32_t i = 0; i < gp_pickle_count(trace); i++) {
            const struct gp_pickle *at = gp_pickle_at(trace, i);
            int64_t time_us = gp_pickle_number(gp_pickle_get(at, "time_us"), last);
            last = time_us > last ? time_us : last; /* keep the order of a device even if its clock went back */
            s->entries[s->count++] = (struct gp_entry){at, last, d, order++};
        }
    }
    qsort(s->entries, s->count, sizeof(s->entries[0]), entry_compare);
    return 0;
}

static uint64_t entry_address(const struct gp_pickle *entry)
{
    return (uint64_t)gp_pickle_number(gp_pickle_get(entry, "addr"), 0);
}

static int snapshot_block(struct gp_snapshot *s, const struct gp_pickle *from, uint64_t address, const char *bytes,
                          uint32_t device)
{
    uint32_t stream;
    int64_t size = gp_pickle_number(gp_pickle_get(from, bytes), 0);
    int rc = gp_replay_stream(s->b, (uint64_t)gp_pickle_number(gp_pickle_get(from, "stream"), 0), &stream);
    if (size < 0) {
        gp_replay_say(&s->b->problem, "a block of a negative size");
        return -EINVAL;
    }
    return rc ? rc : gp_replay_alloc(s->b, address, (uint64_t)size, stream, 0, device);
}

/* A block that the trace frees without an allocation was live at the start; its free has its size. */
static int snapshot_freed(struct gp_snapshot *s)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < s->count; i++) {
        const struct gp_pickle *entry = s->entries[i].at, *action = gp_pickle_get(entry, "action");
        bool alloc = gp_pickle_is(action, "alloc");
        uint64_t address = entry_address(entry);
        uint32_t state = 0;
        if (!alloc && !gp_pickle_is(action, "free_requested") && !gp_pickle_is(action, "free_completed"))
            continue;
        if (!alloc && !gp_hash_get(&s->seen, address, &state))
            rc = snapshot_block(s, entry, address, "size", s->entries[i].device);
        if (!rc && gp_hash_set(&s->seen, address, alloc ? GP_SEEN_LIVE : GP_SEEN_GONE) != 0)
            rc = -ENOMEM;
    }
    return rc;
}

static int snapshot_segment(struct gp_snapshot *s, const struct gp_pickle *segment, uint64_t *looked)
{
    const struct gp_pickle *blocks = gp_pickle_get(segment, "blocks");
    int64_t device = gp_pickle_number(gp_pickle_get(segment, "device"), 0);
    uint64_t address = (uint64_t)gp_pickle_number(gp_pickle_get(segment, "address"), 0);
    int rc = device >= 0 && device < (int64_t)GP_REPLAY_DEVICES ? 0 : -ERANGE;
    if (rc)
        gp_replay_say(&s->b->problem, "a segment of device %lld", (long long)device);
    for (uint32_t i = 0; !rc && i < gp_pickle_count(blocks); i++) {
        const struct gp_pickle *block = gp_pickle_at(blocks, i);
        uint32_t state = 0;
        if (++*looked > GP_REPLAY_OPS)
            return -E2BIG;
        /* Blocks of older snapshots have no address: they follow each other. */
        uint64_t at = (uint64_t)gp_pickle_number(gp_pickle_get(block, "address"), (int64_t)address);
        address = at + (uint64_t)gp_pickle_number(gp_pickle_get(block, "size"), 0);
        bool live = gp_pickle_is(gp_pickle_get(block, "state"), "active_allocated");
        if (live && !(gp_hash_get(&s->seen, at, &state) && state == GP_SEEN_LIVE)) {
            /* The stream is that of the segment, the size that of the block. */
            uint32_t stream;
            int64_t size = gp_pickle_number(gp_pickle_get(block, "requested_size"),
                                            gp_pickle_number(gp_pickle_get(block, "size"), 0));
            rc = gp_replay_stream(s->b, (uint64_t)gp_pickle_number(gp_pickle_get(segment, "stream"), 0), &stream);
            /* A name that blocks of the trace, which may have had this address before, cannot have. */
            if (!rc)
                rc = gp_replay_alloc(s->b, at ^ 1ull << 63, (uint64_t)(size < 0 ? 0 : size), stream, 0,
                                     (uint32_t)device);
        }
    }
    return rc;
}

static int snapshot_entry(struct gp_snapshot *s, const struct gp_entry *entry)
{
    const struct gp_pickle *action = gp_pickle_get(entry->at, "action");
    uint64_t address = entry_address(entry->at);
    uint32_t number;
    if (gp_pickle_is(action, "alloc"))
        return snapshot_block(s, entry->at, address, "size", entry->device);
    if (gp_pickle_is(action, "free_requested") || gp_pickle_is(action, "free_completed")) {
        /* The second entry of the pair finds no live block. */
        return gp_hash_get(&s->b->live, address, &number) ? gp_replay_free(s->b, address, GP_REPLAY_ANY, 0) : 0;
    }
    s->b->trace->left_out += !gp_pickle_is(action, "snapshot");
    return gp_pickle_is(action, "oom") ? gp_replay_mark(s->b, "oom", 3, 0) : 0;
}

static int snapshot_read(struct gp_snapshot *s)
{
    uint64_t looked = 0;
    int rc = snapshot_entries(s);
    if (!rc)
        rc = snapshot_freed(s);
    for (uint32_t i = 0; !rc && i < gp_pickle_count(s->segments); i++)
        rc = snapshot_segment(s, gp_pickle_at(s->segments, i), &looked);
    for (uint32_t i = 0; !rc && i < s->count; i++)
        rc = snapshot_entry(s, &s->entries[i]);
    if ((rc == -ENOMEM || rc == -E2BIG) && !s->b->problem.text[0])
        gp_replay_say(&s->b->problem, rc == -ENOMEM ? "out of memory" : "more entries than a trace may have");
    return rc;
}

static int torch_read(struct gp_replay_builder *b, const uint8_t *data, size_t bytes)
{
    struct gp_pickle_file file;
    int rc = gp_pickle_read(&file, data, bytes);
    if (rc) {
        gp_replay_say(&b->problem, "a pickle, but at byte %zu: %s", file.position,
                      file.why        ? file.why
                      : rc == -ENOMEM ? "out of memory"
                                      : "larger than any snapshot");
    } else {
        struct gp_snapshot s = {.b = b,
                                .traces = gp_pickle_get(&file.root, "device_traces"),
                                .segments = gp_pickle_get(&file.root, "segments")};
        if (!s.traces) {
            gp_replay_say(&b->problem, "a pickle, but no PyTorch snapshot: it has no 'device_traces'");
            rc = -EINVAL;
        } else {
            rc = snapshot_read(&s);
        }
        free(s.entries);
        gp_hash_free(&s.seen);
    }
    gp_pickle_free(&file);
    return rc;
}

const struct gp_replay_reader gp_replay_torch = {"PyTorch snapshot", torch_knows, torch_read};
