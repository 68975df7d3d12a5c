/* SPDX-License-Identifier: MIT
 * fromtorch.c: makes a recording of a memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot,
 * gpuprof snapshot), a pickle or JSON; see internal.h and docs/snapshot.md.  The file is as untrusted
 * as a recording.
 *
 * Bounds: entries, blocks, segments and annotations are together at most one for GP_TORCH_LEAST bytes
 * of the file, each looked at for a constant number of keys; lists of frames are named as often as
 * entries, and read once.
 *
 * A trace holds the last entries only.  Memory that was there before it is the baseline: what the
 * trace frees without an allocation, and what is there at the end and never changes.  What lives at
 * the end, the segments of the file decide; torchgaps.c says what follows for actions that the trace
 * was recorded without.  An entry has the requested size; the granted one is known of blocks that
 * live at the end, and is the next multiple of 512 bytes of all others. */
#include <errno.h>
#include <read/common/hash.h>
#include <read/recording/fromtorch.h>
#include <read/recording/internal.h>
#include <read/recording/pickleread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GP_TORCH_ROUND 512u
/* An entry or a block takes more than this many bytes in a file that any writer makes; a hostile one
 * can name one list many times. */
#define GP_TORCH_LEAST 8u
#define GP_TORCH_GONE  UINT32_MAX
/* What the functions of a name say about memory that was allocated before the first entry, and about
 * memory that was allocated later, in no entry. */
#define GP_TORCH_BEFORE "allocated before the trace"
#define GP_TORCH_UNSEEN "allocation not in the trace"

enum gp_torch_action {
    GP_TORCH_OTHER,
    GP_TORCH_ALLOC,
    GP_TORCH_FREE_REQUESTED,
    GP_TORCH_FREE_COMPLETED,
    GP_TORCH_SEGMENT_ALLOC,
    GP_TORCH_SEGMENT_FREE,
    GP_TORCH_SEGMENT_MAP,
    GP_TORCH_SEGMENT_UNMAP,
    GP_TORCH_OOM,
    GP_TORCH_SNAPSHOT,
    GP_TORCH_ANNOTATE,
    GP_TORCH_ACTIONS
};

static const char *const action_names[GP_TORCH_ACTIONS] = {
    [GP_TORCH_OTHER] = "",
    [GP_TORCH_ALLOC] = "alloc",
    [GP_TORCH_FREE_REQUESTED] = "free_requested",
    [GP_TORCH_FREE_COMPLETED] = "free_completed",
    [GP_TORCH_SEGMENT_ALLOC] = "segment_alloc",
    [GP_TORCH_SEGMENT_FREE] = "segment_free",
    [GP_TORCH_SEGMENT_MAP] = "segment_map",
    [GP_TORCH_SEGMENT_UNMAP] = "segment_unmap",
    [GP_TORCH_OOM] = "oom",
    [GP_TORCH_SNAPSHOT] = "snapshot",
    [GP_TORCH_ANNOTATE] = "annotate",
};

struct gp_torch_entry { /* of a trace */
    enum gp_torch_action action;
    uint64_t address, stream;
    int64_t bytes, time_us;
    int64_t granted; /* in our own snapshots, where it is not the rounded size; 0: not known */
    const struct gp_pickle *frames, *label;
};

struct gp_torch {
    struct gp_read *read;
    struct gp_torch_sites sites;
    char *why;
    size_t why_bytes, entries_left, span_room[GP_WIRE_DEVICES], span_count[GP_WIRE_DEVICES];
    struct gp_torch_span *spans[GP_WIRE_DEVICES];
    struct gp_hash live; /* a block's address -> the event + 1 or the block of the baseline, see torch_event */
    struct gp_torch_gaps gaps;
    struct gp_hash firsts;   /* a segment's address -> the event of the block for which it was made */
    uint32_t before, unseen; /* sites of such memory; 0: not made yet */
    uint64_t first_us;       /* the lowest time */
    bool splits;             /* blocks are cut as PyTorch does with its default settings */
    bool ours;               /* the file is of gpuprof, which says the granted size of each block */
    bool json;
};

static int torch_refuse(struct gp_torch *torch, const char *why)
{
    snprintf(torch->why, torch->why_bytes, "a %s of PyTorch, but %s", torch->json ? "JSON snapshot" : "pickle", why);
    return -EPROTO;
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

static enum gp_torch_action torch_action(const struct gp_pickle *value)
{
    for (unsigned i = GP_TORCH_ALLOC; i < GP_TORCH_ACTIONS; i++)
        if (gp_pickle_is(value, action_names[i]))
            return (enum gp_torch_action)i;
    return GP_TORCH_OTHER;
}

/* One walk over the keys, of which an entry has about seven. */
static struct gp_torch_entry torch_entry(const struct gp_pickle *from, int64_t time_us)
{
    struct gp_torch_entry entry = {.time_us = time_us};
    uint32_t count = from->type == GP_PICKLE_DICT ? from->items->count : 0;
    for (uint32_t i = 0; i + 1 < count && i < 128; i += 2) {
        const struct gp_pickle *key = &from->items->at[i], *value = key + 1;
        if (key->type != GP_PICKLE_TEXT)
            continue;
        if (gp_pickle_is(key, "action"))
            entry.action = torch_action(value);
        else if (gp_pickle_is(key, "addr"))
            entry.address = (uint64_t)gp_pickle_number(value, 0);
        else if (gp_pickle_is(key, "size"))
            entry.bytes = gp_pickle_number(value, 0);
        else if (gp_pickle_is(key, "stream"))
            entry.stream = (uint64_t)gp_pickle_number(value, 0);
        else if (gp_pickle_is(key, "time_us"))
            entry.time_us = gp_pickle_number(value, time_us);
        else if (gp_pickle_is(key, "gpuprof_bytes"))
            entry.granted = gp_pickle_number(value, 0);
        else if (gp_pickle_is(key, "frames"))
            entry.frames = value;
        else if (gp_pickle_is(key, "user_metadata"))
            entry.label = value;
    }
    return entry;
}

static bool torch_sane(const struct gp_torch_entry *entry)
{
    return entry->bytes >= 0 && (uint64_t)entry->bytes <= GP_READ_ALLOCATION_LIMIT &&
           entry->address <= UINT64_MAX - GP_READ_ALLOCATION_LIMIT;
}

static uint8_t torch_kind(const struct gp_torch *torch, uint8_t device)
{
    const struct gp_recording *r = torch->read->recording;
    bool host = device < r->device_count && r->devices[device].index == GP_WIRE_HOST;
    return host ? GP_KIND_PINNED : GP_KIND_LINEAR;
}

static struct gp_rec_event *torch_add(struct gp_torch *torch, bool baseline, uint8_t type, uint8_t device)
{
    struct gp_read *read = torch->read;
    struct gp_recording *r = read->recording;
    bool room = baseline ? GP_READ_ROOM(read, r->baseline, read->baseline_room, r->baseline_count + 1, GP_READ_EVENTS)
                         : GP_READ_ROOM(read, r->events, read->events_room, r->event_count + 1, GP_READ_EVENTS);
    if (!room)
        return NULL;
    struct gp_rec_event *event = baseline ? &r->baseline[r->baseline_count++] : &r->events[r->event_count++];
    *event = (struct gp_rec_event){.type = type, .kind = torch_kind(torch, device), .device = device};
    return event;
}

/* asked: at least 0.  granted: 0 if it is not known. */
static void torch_size(struct gp_rec_event *event, int64_t asked, int64_t granted)
{
    uint64_t bytes = (uint64_t)asked, rounded = (bytes + GP_TORCH_ROUND - 1) / GP_TORCH_ROUND * GP_TORCH_ROUND;
    event->bytes = granted > 0 && granted <= (int64_t)GP_READ_ALLOCATION_LIMIT ? (uint64_t)granted : rounded;
    event->unused = event->bytes > bytes && event->bytes - bytes < UINT32_MAX ? (uint32_t)(event->bytes - bytes) : 0;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static uint64_t torch_key(uint8_t device, uint64_t address)
{
    return address ^ (uint64_t)device << 57;
}

/* The start of the block with this number: events have even ones, the baseline odd ones. */
static struct gp_rec_event *torch_event(struct gp_torch *torch, uint32_t number)
{
    struct gp_recording *r = torch->read->recording;
    return number % 2 ? &r->baseline[number / 2] : &r->events[number / 2];
}

static uint32_t torch_number(const struct gp_recording *r, bool baseline)
{
    return (uint32_t)(baseline ? (r->baseline_count - 1) * 2 + 1 : (r->event_count - 1) * 2);
}

static bool torch_keep(struct gp_torch *torch, uint64_t key, uint32_t number)
{
    if (gp_hash_set(&torch->live, key, number) == 0)
        return true;
    torch->read->error = -ENOMEM;
    return false;
}

static uint32_t torch_site_named(struct gp_torch *torch, uint32_t *site, const char *name)
{
    if (!*site)
        *site = gp_torch_site_named(torch->read, &torch->sites, name);
    return *site;
}

static struct gp_rec_event *torch_baseline(struct gp_torch *torch, uint8_t device, uint64_t address, int64_t asked,
                                           int64_t granted)
{
    struct gp_rec_event *event = torch_add(torch, true, GP_EVENT_ALLOC, device);
    if (!event)
        return NULL;
    event->address = address;
    torch_size(event, asked < 0 ? 0 : asked, granted);
    return torch_keep(torch, torch_key(device, address), torch_number(torch->read->recording, true)) ? event : NULL;
}

static void torch_was_before(struct gp_torch *torch, struct gp_rec_event *event)
{
    struct gp_recording *r = torch->read->recording;
    event->site = torch_site_named(torch, &torch->before, GP_TORCH_BEFORE);
    r->before_blocks++;
    r->before_bytes += event->bytes;
}

static struct gp_rec_event *torch_begins(struct gp_torch *torch, const struct gp_torch_entry *entry, uint8_t device)
{
    struct gp_rec_event *event = torch_add(torch, false, GP_EVENT_ALLOC, device);
    if (!event)
        return NULL;
    event->time_ns = (uint64_t)entry->time_us * 1000;
    event->address = entry->address;
    event->stream = gp_read_stream(torch->read, entry->stream);
    return event;
}

/* A block of which no entry says when it was allocated, but that it was not there when the trace began: an
 * allocation at the latest moment possible. */
static struct gp_rec_event *torch_unseen(struct gp_torch *torch, const struct gp_torch_entry *entry, uint8_t device)
{
    struct gp_rec_event *event = torch_begins(torch, entry, device);
    if (!event)
        return NULL;
    event->site = torch_site_named(torch, &torch->unseen, GP_TORCH_UNSEEN);
    torch_size(event, entry->bytes, entry->granted);
    torch->read->recording->unseen_blocks++;
    torch->read->recording->unseen_bytes += event->bytes;
    return event;
}

static void torch_alloc(struct gp_torch *torch, const struct gp_torch_entry *entry, uint8_t device)
{
    struct gp_rec_event *event = torch_begins(torch, entry, device);
    if (!event)
        return;
    event->site = gp_torch_site(torch->read, &torch->sites, entry->frames, entry->label);
    torch_size(event, entry->bytes, event->kind == GP_KIND_PINNED ? entry->bytes : entry->granted);
    uint64_t key = torch_key(device, entry->address);
    uint32_t older;
    if (gp_hash_get(&torch->live, key, &older) && older != GP_TORCH_GONE && older % 2 == 0)
        gp_torch_gap_reuse(torch->read, &torch->gaps, older / 2);
    torch_keep(torch, key, torch_number(torch->read->recording, false));
}

/* The program frees a block at free_requested, and free_completed then finds it gone.  A trace that
 * begins between the two entries has only free_completed: that block was not allocated any more.
 * With skip_actions a trace may have only one of the two for every block: it ends the block. */
static bool torch_frees(struct gp_torch *torch, const struct gp_torch_entry *entry, uint8_t device, bool known)
{
    if (entry->action == GP_TORCH_FREE_REQUESTED || !torch->gaps.of[device].requested || known)
        return true;
    torch_keep(torch, torch_key(device, entry->address), GP_TORCH_GONE);
    return false;
}

/* Whether the trace may have been recorded without allocations; ours never are. */
static bool torch_skips(const struct gp_torch *torch, uint8_t device)
{
    return !torch->ours && !torch->gaps.of[device].allocs;
}

/* The number of a block that the trace frees and does not allocate.  It was there before the trace, unless
 * the trace has no allocations at all or has freed the address before.  False: an error. */
static bool torch_freed_unknown(struct gp_torch *torch, const struct gp_torch_entry *entry, uint8_t device, bool gone,
                                uint32_t *number)
{
    struct gp_recording *r = torch->read->recording;
    if (gone || torch_skips(torch, device)) {
        if (!torch_unseen(torch, entry, device))
            return false;
        torch->gaps.of[device].broken = true;
        *number = torch_number(r, false);
        return true;
    }
    struct gp_rec_event *before = torch_baseline(torch, device, entry->address, entry->bytes, 0);
    if (!before)
        return false;
    torch_was_before(torch, before);
    before->stream = gp_read_stream(torch->read, entry->stream);
    *number = torch_number(r, true);
    return gp_torch_gap_end(torch->read, &torch->gaps, (uint32_t)r->event_count);
}

static void torch_free(struct gp_torch *torch, const struct gp_torch_entry *entry, uint8_t device)
{
    uint64_t key = torch_key(device, entry->address);
    uint32_t number = GP_TORCH_GONE;
    bool known = gp_hash_get(&torch->live, key, &number), gone = known && number == GP_TORCH_GONE;
    if (!torch_frees(torch, entry, device, known) ||
        (gone && entry->action == GP_TORCH_FREE_COMPLETED && torch->gaps.of[device].requested))
        return;
    if ((!known || gone) && !torch_freed_unknown(torch, entry, device, gone, &number))
        return;
    struct gp_rec_event *event = torch_add(torch, false, GP_EVENT_FREE, device);
    if (!event)
        return;
    const struct gp_rec_event *start = torch_event(torch, number);
    event->time_ns = (uint64_t)entry->time_us * 1000;
    event->address = entry->address;
    event->stream = gp_read_stream(torch->read, entry->stream);
    event->bytes = start->bytes;
    event->unused = start->unused;
    event->site = start->site;
    if (number % 2 == 0)
        gp_torch_gap_keep(torch->read, &torch->gaps, number / 2);
    torch_keep(torch, key, GP_TORCH_GONE);
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

static void torch_span(struct gp_torch *torch, uint8_t device, struct gp_torch_span span)
{
    uint32_t gpu = torch->read->recording->devices[device].index;
    if (span.end > span.start &&
        GP_READ_ROOM(torch->read, torch->spans[gpu], torch->span_room[gpu], torch->span_count[gpu] + 1, GP_READ_EVENTS))
        torch->spans[gpu][torch->span_count[gpu]++] = span;
}

static void torch_segment(struct gp_torch *torch, const struct gp_torch_entry *entry, uint8_t device)
{
    static const uint8_t types[GP_TORCH_ACTIONS] = {[GP_TORCH_SEGMENT_ALLOC] = GP_EVENT_SEGMENT_ALLOC,
                                                    [GP_TORCH_SEGMENT_FREE] = GP_EVENT_SEGMENT_FREE,
                                                    [GP_TORCH_SEGMENT_MAP] = GP_EVENT_SEGMENT_MAP,
                                                    [GP_TORCH_SEGMENT_UNMAP] = GP_EVENT_SEGMENT_UNMAP};
    struct gp_rec_event *event = torch_add(torch, false, types[entry->action], device);
    if (!event)
        return;
    event->time_ns = (uint64_t)entry->time_us * 1000;
    event->address = entry->address;
    event->bytes = (uint64_t)entry->bytes;
    event->stream = gp_read_stream(torch->read, entry->stream);
    torch_span(torch, device,
               (struct gp_torch_span){.start = event->address,
                                      .end = event->address + event->bytes,
                                      .order = (uint32_t)(torch->read->recording->event_count - 1),
                                      .there = entry->action == GP_TORCH_SEGMENT_FREE ||
                                               entry->action == GP_TORCH_SEGMENT_UNMAP,
                                      .growable = entry->action >= GP_TORCH_SEGMENT_MAP});
}

static void torch_other(struct gp_torch *torch, const struct gp_torch_entry *entry, uint8_t device)
{
    bool oom = entry->action == GP_TORCH_OOM;
    struct gp_rec_event *event = torch_add(torch, false, oom ? GP_EVENT_OOM : GP_EVENT_SNAPSHOT, device);
    if (!event)
        return;
    event->time_ns = (uint64_t)entry->time_us * 1000;
    event->bytes = oom ? (uint64_t)entry->bytes : 0;
    event->stream = gp_read_stream(torch->read, entry->stream);
    event->site = oom ? gp_torch_site(torch->read, &torch->sites, entry->frames, entry->label) : 0;
    event->kind = oom ? GP_KIND_LINEAR : GP_KIND_NONE;
}

static void torch_mark(struct gp_torch *torch, const char *name, size_t length, int64_t time_us)
{
    struct gp_rec_event *event = torch_add(torch, false, GP_EVENT_MARK, GP_REC_NO_DEVICE);
    if (!event)
        return;
    event->kind = GP_KIND_NONE;
    event->time_ns = (uint64_t)time_us * 1000;
    event->bytes = gp_read_string(torch->read, name, length);
}

/* ---- traces ------------------------------------------------------------------------------------------------------ */

static void torch_take(struct gp_torch *torch, const struct gp_torch_entry *entry, uint8_t device)
{
    switch (entry->action) {
    case GP_TORCH_ALLOC:
        torch_alloc(torch, entry, device);
        break;
    case GP_TORCH_FREE_REQUESTED:
    case GP_TORCH_FREE_COMPLETED:
        torch_free(torch, entry, device);
        break;
    case GP_TORCH_SEGMENT_ALLOC:
    case GP_TORCH_SEGMENT_FREE:
    case GP_TORCH_SEGMENT_MAP:
    case GP_TORCH_SEGMENT_UNMAP:
        torch_segment(torch, entry, device);
        break;
    case GP_TORCH_OOM:
    case GP_TORCH_SNAPSHOT:
        torch_other(torch, entry, device);
        break;
    case GP_TORCH_ANNOTATE:
        if (entry->label && entry->label->type == GP_PICKLE_TEXT)
            torch_mark(torch, entry->label->text, entry->label->length, entry->time_us);
        break;
    default:
        torch->read->recording->torch_unknown++;
    }
}

/* Which actions a trace has. */
static void torch_actions(struct gp_torch_gap *gap, const struct gp_pickle *trace)
{
    for (uint32_t i = 0; i < gp_pickle_count(trace); i++) {
        enum gp_torch_action action = torch_action(gp_pickle_get(gp_pickle_at(trace, i), "action"));
        gap->allocs |= action == GP_TORCH_ALLOC;
        gap->frees |= action == GP_TORCH_FREE_REQUESTED || action == GP_TORCH_FREE_COMPLETED;
        gap->requested |= action == GP_TORCH_FREE_REQUESTED;
        gap->segments |= action >= GP_TORCH_SEGMENT_ALLOC && action <= GP_TORCH_SEGMENT_UNMAP;
    }
}

/* The allocation of the next event is the one for which the segment was made, so the segment's stack is its own. */
static void torch_first(struct gp_torch *torch, uint8_t device, uint64_t segment)
{
    if (gp_hash_set(&torch->firsts, torch_key(device, segment), (uint32_t)torch->read->recording->event_count) != 0)
        torch->read->error = -ENOMEM;
}

static int torch_trace(struct gp_torch *torch, const struct gp_pickle *trace, uint32_t gpu)
{
    struct gp_read *read = torch->read;
    uint32_t count = gp_pickle_count(trace);
    int64_t last = 0;
    uint64_t made = 0; /* the segment of the entry before */
    if (!count)
        return 0;
    if (count > torch->entries_left)
        return torch_refuse(torch, "it names one list of entries many times");
    torch->entries_left -= count;
    uint8_t device = gp_read_device(read, gpu);
    struct gp_torch_gap *gap = &torch->gaps.of[device];
    torch_actions(gap, trace);
    for (uint32_t i = 0; i < count && !read->error; i++) {
        /* Entries of versions before 2.1 have no times: each then counts as a microsecond.  The order
         * is kept even where the clock was set back. */
        struct gp_torch_entry entry = torch_entry(gp_pickle_at(trace, i), last + (last < INT32_MAX));
        if (!torch_sane(&entry))
            return torch_refuse(torch, "it has an entry with an impossible size or address");
        if (entry.time_us < last)
            entry.time_us = last;
        if (entry.time_us > INT64_MAX / 1000)
            return torch_refuse(torch, "it has an entry with an impossible time");
        last = entry.time_us;
        if (i == 0 && (uint64_t)entry.time_us < torch->first_us)
            torch->first_us = (uint64_t)entry.time_us;
        if (entry.action == GP_TORCH_ALLOC && made && entry.address == made)
            torch_first(torch, device, made);
        made = entry.action == GP_TORCH_SEGMENT_ALLOC ? entry.address : 0;
        gap->last_ns = (uint64_t)last * 1000;
        if (entry.action != GP_TORCH_OOM && entry.action != GP_TORCH_SNAPSHOT)
            gap->changed_ns = gap->last_ns;
        torch_take(torch, &entry, device);
    }
    return read->error;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Versions up to 2.0 keep the stack in the block's history, the last allocation first. */
static uint32_t torch_block_site(struct gp_torch *torch, const struct gp_pickle *block)
{
    const struct gp_pickle *last = gp_pickle_at(gp_pickle_get(block, "history"), 0);
    const struct gp_pickle *frames = gp_pickle_get(block, "frames");
    return gp_torch_site(torch->read, &torch->sites, frames || !last ? frames : gp_pickle_get(last, "frames"),
                         gp_pickle_get(block, "user_metadata"));
}

/* A block at the end of which the trace has no allocation, or which it has freed since: number is then GONE.
 * It was there before the trace, unless that would have its allocation. */
static void torch_live_unknown(struct gp_torch *torch, const struct gp_pickle *block, uint8_t device,
                               struct gp_torch_entry *at, bool gone)
{
    struct gp_torch_gap *gap = &torch->gaps.of[device];
    int64_t asked = gp_pickle_number(gp_pickle_get(block, "requested_size"), at->bytes);
    bool unseen = gone || (gap->frees && torch_skips(torch, device));
    struct gp_rec_event *event;
    at->granted = at->bytes;
    at->bytes = asked < 0 ? 0 : asked;
    at->time_us = (int64_t)(gap->changed_ns / 1000);
    event =
        unseen ? torch_unseen(torch, at, device) : torch_baseline(torch, device, at->address, at->bytes, at->granted);
    if (!event || (!unseen && !gp_torch_gap_end(torch->read, &torch->gaps, GP_REC_NONE)))
        return;
    event->stream = gp_read_stream(torch->read, at->stream);
    uint32_t site = torch_block_site(torch, block);
    if (site)
        event->site = site;
    else if (!unseen)
        torch_was_before(torch, event);
    if (!unseen)
        return;
    uint32_t number = torch_number(torch->read->recording, false);
    gap->unseen_end = true;
    torch_keep(torch, torch_key(device, at->address), number);
    gp_torch_gap_keep(torch->read, &torch->gaps, number / 2);
}

/* A block that is live at the end: now its true size is known, and its call site if the trace does
 * not have its allocation, or that without frames. */
static void torch_live_block(struct gp_torch *torch, const struct gp_pickle *block, uint8_t device,
                             struct gp_torch_entry *at)
{
    uint32_t number;
    bool known = gp_hash_get(&torch->live, torch_key(device, at->address), &number);
    if (!known || number == GP_TORCH_GONE) {
        torch_live_unknown(torch, block, device, at, known);
        return;
    }
    struct gp_rec_event *event = torch_event(torch, number);
    int64_t asked = gp_pickle_number(gp_pickle_get(block, "requested_size"), at->bytes);
    torch_size(event, asked < 0 ? 0 : asked, at->bytes);
    if (number % 2 == 0)
        gp_torch_gap_keep(torch->read, &torch->gaps, number / 2);
    if (!event->site)
        event->site = torch_block_site(torch, block);
}

static int torch_blocks(struct gp_torch *torch, const struct gp_pickle *segment, uint8_t device, uint64_t address)
{
    const struct gp_pickle *blocks = gp_pickle_get(segment, "blocks");
    uint32_t count = gp_pickle_count(blocks);
    torch->gaps.of[device].unlisted |= !blocks || blocks->type != GP_PICKLE_LIST;
    if (count > torch->entries_left)
        return torch_refuse(torch, "it names one list of blocks many times");
    torch->entries_left -= count;
    for (uint32_t i = 0; i < count && !torch->read->error; i++) {
        const struct gp_pickle *block = gp_pickle_at(blocks, i);
        int64_t bytes = gp_pickle_number(gp_pickle_get(block, "size"), 0);
        /* Blocks of older snapshots have no address: they follow each other. */
        struct gp_torch_entry at = {.bytes = bytes,
                                    .stream = (uint64_t)gp_pickle_number(gp_pickle_get(segment, "stream"), 0),
                                    .address =
                                        (uint64_t)gp_pickle_number(gp_pickle_get(block, "address"), (int64_t)address)};
        if (!torch_sane(&at))
            return torch_refuse(torch, "it has a block with an impossible size or address");
        address = at.address + (uint64_t)bytes;
        if (gp_pickle_is(gp_pickle_get(block, "state"), "active_allocated"))
            torch_live_block(torch, block, device, &at);
    }
    return torch->read->error;
}

/* Of an entry without frames (context="state") the segment has them, if the block was its first. */
static void torch_segment_site(struct gp_torch *torch, const struct gp_pickle *segment, uint8_t device,
                               uint64_t address)
{
    uint32_t first;
    if (!gp_hash_get(&torch->firsts, torch_key(device, address), &first) || torch->read->recording->events[first].site)
        return;
    torch->read->recording->events[first].site =
        gp_torch_site(torch->read, &torch->sites, gp_pickle_get(segment, "frames"), NULL);
    torch->gaps.sites = true;
}

/* host: of pinned memory, whatever device they name: 2.15 has -1. */
static int torch_segments(struct gp_torch *torch, const struct gp_pickle *segments, bool host)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < gp_pickle_count(segments); i++) {
        const struct gp_pickle *segment = gp_pickle_at(segments, i);
        int64_t gpu = host ? GP_WIRE_HOST : gp_pickle_number(gp_pickle_get(segment, "device"), 0);
        const struct gp_torch_entry at = {.bytes = gp_pickle_number(gp_pickle_get(segment, "total_size"), 0),
                                          .address = (uint64_t)gp_pickle_number(gp_pickle_get(segment, "address"), 0)};
        if (gpu < 0 || (gpu >= GP_WIRE_GPUS && !host))
            return torch_refuse(torch, "it has a segment of an impossible device");
        if (!torch_sane(&at) || !torch->entries_left)
            return torch_refuse(torch, "it has a segment with an impossible size or address");
        torch->entries_left--;
        uint8_t device = gp_read_device(torch->read, (uint32_t)gpu);
        torch_span(
            torch, device,
            (struct gp_torch_span){.start = at.address,
                                   .end = at.address + (uint64_t)at.bytes,
                                   .order = GP_TORCH_AT_END,
                                   .there = true,
                                   .growable = gp_pickle_number(gp_pickle_get(segment, "is_expandable"), 0) != 0});
        rc = torch_blocks(torch, segment, device, at.address);
        torch_segment_site(torch, segment, device, at.address);
    }
    return rc ? rc : torch->read->error;
}

/* ---- annotations ------------------------------------------------------------------------------------------------- */

static bool torch_same_text(const struct gp_pickle *one, const struct gp_pickle *other)
{
    return one && other && one->type == GP_PICKLE_TEXT && other->type == GP_PICKLE_TEXT &&
           one->length == other->length && memcmp(one->text, other->text, one->length) == 0;
}

/* An annotation is a mark: NAME where it starts and /NAME where it ends, or one if both are at one
 * instant, as gpuprof snapshot writes a mark without a partner. */
static void torch_note(struct gp_torch *torch, const struct gp_pickle *note, const struct gp_pickle *before)
{
    char name[512];
    const struct gp_pickle *text = gp_pickle_get(note, "name");
    bool ends = gp_pickle_is(gp_pickle_get(note, "stage"), "END");
    int64_t time_us = gp_pickle_number(gp_pickle_get(note, "time_us"), -1);
    if (!text || text->type != GP_PICKLE_TEXT || time_us < 0 || time_us > INT64_MAX / 1000)
        return;
    if (ends && torch_same_text(text, gp_pickle_get(before, "name")) &&
        gp_pickle_number(gp_pickle_get(before, "time_us"), -1) == time_us)
        return;
    int length = snprintf(name, sizeof(name), "%s%.*s", ends ? "/" : "", (int)(text->length < 500 ? text->length : 500),
                          text->text);
    torch_mark(torch, name, (size_t)length, time_us);
    if ((uint64_t)time_us < torch->first_us)
        torch->first_us = (uint64_t)time_us;
}

static int torch_notes(struct gp_torch *torch, const struct gp_pickle *notes)
{
    uint32_t count = gp_pickle_count(notes);
    if (count > torch->entries_left)
        return torch_refuse(torch, "it names one list of annotations many times");
    torch->entries_left -= count;
    for (uint32_t i = 0; i < count && !torch->read->error; i++)
        torch_note(torch, gp_pickle_at(notes, i), i ? gp_pickle_at(notes, i - 1) : NULL);
    return torch->read->error;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Whether the device has only growable segments, or none: pieces of those also end where nothing is mapped, but every
 * block in them has the size asked for, in steps of 512 bytes. */
static bool torch_growable(const struct gp_torch *torch, uint32_t gpu, bool growable)
{
    for (size_t i = 0; i < torch->span_count[gpu]; i++)
        if (torch->spans[gpu][i].growable != growable)
            return false;
    return true;
}

/* Pinned memory, since 2.9: the traces are one list of entries, or a list of such lists. */
static int torch_host(struct gp_torch *torch, const struct gp_pickle *root)
{
    const struct gp_pickle *traces = gp_pickle_get(root, "host_traces"), *first = gp_pickle_at(traces, 0);
    bool lists = first && first->type == GP_PICKLE_LIST;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < (lists ? gp_pickle_count(traces) : 1); i++)
        rc = torch_trace(torch, lists ? gp_pickle_at(traces, i) : traces, GP_WIRE_HOST);
    return rc ? rc : torch_segments(torch, gp_pickle_get(root, "host_segments"), true);
}

/* Of which devices the file has the segments, and so what lives at the end. */
static void torch_ends(struct gp_torch *torch, const struct gp_pickle *root, const struct gp_pickle *segments)
{
    const struct gp_recording *r = torch->read->recording;
    const struct gp_pickle *host = gp_pickle_get(root, "host_segments");
    for (uint32_t i = 0; i < r->device_count; i++) {
        const struct gp_pickle *of = r->devices[i].index == GP_WIRE_HOST ? host : segments;
        torch->gaps.of[i].known_end = of && of->type == GP_PICKLE_LIST && !torch->gaps.of[i].unlisted;
    }
}

static int torch_tables(struct gp_torch *torch, const struct gp_pickle *root, const struct gp_pickle *segments)
{
    struct gp_read *read = torch->read;
    struct gp_recording *r = read->recording;
    const struct gp_pickle *traces = gp_pickle_get(root, "device_traces");
    const struct gp_pickle *settings = gp_pickle_get(root, "allocator_settings");
    const struct gp_pickle *ours = gp_pickle_get(settings, "gpuprof_allocator");
    int rc = 0;
    if (gp_pickle_count(traces) > GP_WIRE_GPUS)
        return torch_refuse(torch, "it has traces of too many devices");
    if (ours && ours->type == GP_PICKLE_TEXT)
        read->allocator = gp_read_string(read, ours->text, ours->length < 64 ? ours->length : 64);
    torch->ours = ours;
    torch->splits = !ours && gp_torch_splits(settings);
    if (!GP_READ_ROOM(read, r->sites, read->sites_room, 1, GP_READ_ROWS))
        return read->error;
    r->site_count = 1;
    gp_read_thread(read, 0);
    for (uint32_t d = 0; !rc && d < gp_pickle_count(traces); d++)
        rc = torch_trace(torch, gp_pickle_at(traces, d), d);
    if (!rc)
        rc = torch_segments(torch, segments, false);
    if (!rc)
        rc = torch_host(torch, root);
    torch_ends(torch, root, segments);
    return rc ? rc : torch_notes(torch, gp_pickle_get(root, "external_annotations"));
}

static bool torch_lacks(const struct gp_torch *torch, uint8_t device)
{
    return torch->gaps.of[device].broken || torch->gaps.of[device].unseen_end;
}

/* What the sums of each device are.  A trace that begins while there is memory may have missed the peak. */
static void torch_bounds(struct gp_torch *torch)
{
    struct gp_recording *r = torch->read->recording;
    bool low[256] = {false};
    for (size_t i = 0; i < r->baseline_count; i++)
        low[r->baseline[i].device] = true;
    for (uint32_t i = 0; i < r->device_count; i++) {
        const struct gp_torch_gap *gap = &torch->gaps.of[i];
        uint32_t gpu = r->devices[i].index;
        bool sized = torch->ours || gpu == GP_WIRE_HOST || !gap->allocs || torch_growable(torch, gpu, true) ||
                     (torch->splits && torch_growable(torch, gpu, false));
        low[i] |= torch_lacks(torch, (uint8_t)i) || !sized || (gap->segments && torch_skips(torch, (uint8_t)i));
        /* Blocks that another stream still uses are freed some time before free_completed. */
        bool high = (gap->frees && !gap->requested) || (gap->allocs && !gap->frees && !gap->known_end);
        r->devices[i].bound = (uint8_t)((low[i] ? GP_REC_AT_LEAST : 0) | (high ? GP_REC_AT_MOST : 0));
    }
}

static int torch_finish(struct gp_torch *torch)
{
    struct gp_read *read = torch->read;
    struct gp_recording *r = read->recording;
    uint64_t first_ns = torch->first_us == UINT64_MAX ? 0 : torch->first_us * 1000;
    size_t blocks = r->baseline_count;
    int rc = 0;
    for (uint32_t gpu = 0; gpu < GP_WIRE_DEVICES && !rc; gpu++) {
        if (!torch->span_count[gpu])
            continue;
        uint8_t device = gp_read_device(read, gpu);
        const struct gp_rec_event like = {.time_ns = first_ns, .kind = torch_kind(torch, device), .device = device};
        rc = gp_torch_start(read, torch->spans[gpu], torch->span_count[gpu], &like);
    }
    if (!rc)
        rc = gp_torch_gaps(read, &torch->gaps, blocks, torch->before);
    for (uint32_t gpu = 0; gpu < GP_WIRE_GPUS && !rc && torch->splits; gpu++)
        /* Where blocks are missing, pieces end at others. */
        if (torch->span_count[gpu] && torch_growable(torch, gpu, false) &&
            !torch_lacks(torch, gp_read_device(read, gpu)))
            rc = gp_torch_split(read, torch->spans[gpu], torch->span_count[gpu], gp_read_device(read, gpu));
    for (size_t i = 0; i < r->baseline_count; i++)
        r->baseline[i].time_ns = first_ns;
    for (size_t i = 0; i < r->event_count; i++)
        r->end_ns = r->events[i].time_ns > r->end_ns ? r->events[i].time_ns : r->end_ns;
    r->end_ns = r->end_ns > first_ns ? r->end_ns : first_ns;
    torch_bounds(torch);
    r->begin_ns = r->begin_unix_ns = first_ns;
    r->from_torch = r->complete = true;
    r->tried = r->delivered = r->event_count;
    read->comm = gp_read_string(read, "PyTorch snapshot", strlen("PyTorch snapshot"));
    read->has_process = read->has_counts = true;
    return rc ? rc : read->error;
}

/* What torch.cuda.memory_snapshot() returns is the list of segments alone. */
static bool torch_is_segments(const struct gp_pickle *root)
{
    const struct gp_pickle *first = gp_pickle_at(root, 0);
    return gp_pickle_get(first, "total_size") != NULL;
}

static int torch_root(struct gp_torch *torch, const struct gp_pickle *root)
{
    bool segments = torch_is_segments(root);
    if (segments || gp_pickle_get(root, "device_traces") || gp_pickle_get(root, "segments"))
        return torch_tables(torch, root, segments ? root : gp_pickle_get(root, "segments"));
    snprintf(torch->why, torch->why_bytes, "%s, but no memory snapshot of PyTorch: it has no 'device_traces'",
             torch->json ? "JSON" : "a pickle");
    return -EPROTO;
}

int gp_read_torch(struct gp_read *read, struct gp_pickle_file *file, const struct gp_input *from, char *why,
                  size_t why_bytes)
{
    struct gp_torch torch = {.read = read,
                             .why = why,
                             .why_bytes = why_bytes,
                             .entries_left = from->bytes / GP_TORCH_LEAST,
                             .first_us = UINT64_MAX,
                             .json = from->format == GP_INPUT_JSON};
    int rc = torch_root(&torch, &file->root);
    gp_pickle_free(file); /* the texts that are still needed were copied */
    if (!rc)
        rc = torch_finish(&torch);
    gp_torch_sites_free(&torch.sites);
    gp_torch_gaps_free(&torch.gaps);
    gp_hash_free(&torch.firsts);
    gp_hash_free(&torch.live);
    for (uint32_t i = 0; i < GP_WIRE_DEVICES; i++)
        free(torch.spans[i]);
    return rc;
}
