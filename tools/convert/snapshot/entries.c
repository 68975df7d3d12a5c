/* SPDX-License-Identifier: MIT
 * entries.c: Turns events into entries of a trace.  Blocks of a cache lie in segments, which
 * have entries of their own. An allocation from the driver lies in no segment, so it becomes a
 * segment of its own with the same lifetime, and a mapping a part of an expandable segment: the
 * viewers show only memory inside segments. */
#include <base/numbers.h>
#include <convert/snapshot/entries.h>
#include <convert/snapshot/internal.h>
#include <stdlib.h>

bool gp_snap_shows(uint8_t kind)
{
    return gp_kind_sums(kind) && !gp_kind_is(kind, GP_TRAIT_HOST);
}

bool gp_snap_pins(uint8_t kind)
{
    return gp_kind_sums(kind) && gp_kind_is(kind, GP_TRAIT_HOST);
}

/* An address beyond any memory comes from a damaged event. */
static bool snap_sane(const struct gp_snap_event *event)
{
    return event->bytes > 0 && event->bytes <= INT64_MAX && event->address <= INT64_MAX - event->bytes;
}

/* Only segments of a cache: memory of cuMemCreate is shown where it is mapped, by mappings of its kind. */
static bool snap_begins(const struct gp_snap_event *event)
{
    return event->kind == GP_KIND_LINEAR &&
           (event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_MAP);
}

static bool snap_ends(const struct gp_snap_event *event)
{
    return event->kind == GP_KIND_LINEAR &&
           (event->type == GP_EVENT_SEGMENT_FREE || event->type == GP_EVENT_SEGMENT_UNMAP);
}

static bool snap_maps(const struct gp_snap_event *event)
{
    return event->kind == GP_KIND_VMM && (event->type == GP_EVENT_SEGMENT_MAP || event->type == GP_EVENT_SEGMENT_UNMAP);
}

void gp_snap_undo(struct gp_entry_ranges *cached, const struct gp_snap_event *event)
{
    if (snap_sane(event) && snap_begins(event))
        gp_ranges_remove(cached, event->address, event->bytes);
    if (snap_sane(event) && snap_ends(event))
        gp_ranges_add(cached, event->address, event->bytes);
}

/* Readers other than ours do not know the granted size, so it is written where PyTorch's rounding does not give it. */
static uint64_t snap_granted(enum gp_word action, const struct gp_snap_event *event, uint64_t bytes)
{
    return action == GP_WORD_ALLOC && event->bytes != (bytes + 511) / 512 * 512 ? event->bytes : 0;
}

static void snap_say(struct gp_snap *snap, enum gp_word action, const struct gp_snap_event *event, uint64_t bytes,
                     int64_t unix_ns)
{
    gp_snap_entry(snap, &(struct gp_snap_entry){
                            .action = action,
                            .address = event->address,
                            .bytes = bytes,
                            .granted = snap_granted(action, event, bytes),
                            .stream = event->stream > INT64_MAX ? 0 : event->stream,
                            .time_us = ((int64_t)event->time_ns + unix_ns) / 1000,
                            .device_free = event->device_free,
                            .site = event->site,
                        });
}

static void snap_memory(struct gp_snap *snap, const struct gp_entry_ranges *cached, const struct gp_snap_event *at,
                        int64_t unix_ns)
{
    struct gp_snap_event placed = *at, *event = &placed;
    event->address = gp_snap_place(snap, at->kind, at->address, at->bytes);
    bool own = gp_kind_is(event->kind, GP_TRAIT_HANDLE) || !gp_ranges_hold(cached, event->address);
    uint64_t requested =
        event->requested_bytes && event->requested_bytes <= event->bytes ? event->requested_bytes : event->bytes;
    if (event->type == GP_EVENT_ALLOC) {
        if (own)
            snap_say(snap, GP_WORD_SEGMENT_ALLOC, event, event->bytes, unix_ns);
        snap_say(snap, GP_WORD_ALLOC, event, requested, unix_ns);
        return;
    }
    snap_say(snap, GP_WORD_FREE_REQUESTED, event, requested, unix_ns);
    snap_say(snap, GP_WORD_FREE_COMPLETED, event, requested, unix_ns);
    if (own)
        snap_say(snap, GP_WORD_SEGMENT_FREE, event, event->bytes, unix_ns);
}

/* A mapping of memory that is mapped elsewhere too asked for no bytes (src/account/vmm.c): each byte is shown once. */
static void snap_mapping(struct gp_snap *snap, const struct gp_snap_event *event, int64_t unix_ns)
{
    if (event->type == GP_EVENT_SEGMENT_MAP) {
        gp_ranges_remove(&snap->aliases, event->address, event->bytes);
        if (event->requested_bytes == 0) {
            gp_ranges_add(&snap->aliases, event->address, event->bytes);
            return;
        }
        snap_say(snap, GP_WORD_SEGMENT_MAP, event, event->bytes, unix_ns);
        snap_say(snap, GP_WORD_ALLOC, event, event->bytes, unix_ns);
        return;
    }
    if (gp_ranges_hold(&snap->aliases, event->address)) {
        gp_ranges_remove(&snap->aliases, event->address, event->bytes);
        return;
    }
    snap_say(snap, GP_WORD_FREE_REQUESTED, event, event->bytes, unix_ns);
    snap_say(snap, GP_WORD_FREE_COMPLETED, event, event->bytes, unix_ns);
    snap_say(snap, GP_WORD_SEGMENT_UNMAP, event, event->bytes, unix_ns);
}

void gp_snap_event(struct gp_snap *snap, struct gp_entry_ranges *cached, const struct gp_snap_event *event,
                   int64_t unix_ns)
{
    static const enum gp_word actions[GP_EVENT_TYPES] = {
        [GP_EVENT_SEGMENT_ALLOC] = GP_WORD_SEGMENT_ALLOC,
        [GP_EVENT_SEGMENT_FREE] = GP_WORD_SEGMENT_FREE,
        [GP_EVENT_SEGMENT_MAP] = GP_WORD_SEGMENT_MAP,
        [GP_EVENT_SEGMENT_UNMAP] = GP_WORD_SEGMENT_UNMAP,
    };
    if (event->type == GP_EVENT_OOM) {
        uint64_t asked = event->requested_bytes ? event->requested_bytes : event->bytes;
        snap_say(snap, GP_WORD_OOM, event, asked > INT64_MAX ? INT64_MAX : asked, unix_ns);
    }
    if (!snap_sane(event))
        return;
    bool shown = gp_snap_shows(event->kind) || gp_snap_pins(event->kind);
    if ((event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_FREE) && shown)
        snap_memory(snap, cached, event, unix_ns);
    if (snap_maps(event))
        snap_mapping(snap, event, unix_ns);
    if (!snap_begins(event) && !snap_ends(event))
        return;
    snap_say(snap, actions[event->type], event, event->bytes, unix_ns);
    if (snap_begins(event))
        gp_ranges_add(cached, event->address, event->bytes);
    else
        gp_ranges_remove(cached, event->address, event->bytes);
}
