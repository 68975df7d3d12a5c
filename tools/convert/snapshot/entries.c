/* SPDX-License-Identifier: MIT
 * entries.c: Turns events into entries of a trace.  Blocks of a cache lie in segments, which have
 * entries of their own. An allocation from the driver lies in no segment, so it becomes a segment of
 * its own with the same lifetime, and a mapping a part of an expandable segment: the viewers show
 * only memory inside segments.  Its parts: entries, notes, mappings. */
#include <convert/snapshot/entries.h>
#include <base/numbers.h>
#include <convert/snapshot/internal.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <stdlib.h>

/* ---- entries ----------------------------------------------------------------------------------------------------- */

/* ---- events ------------------------------------------------------------------------------------------------------ */

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

/* ---- notes ------------------------------------------------------------------------------------------------------- */
/* Turns marks into PyTorch's annotations (entries.h).  The viewers draw ranges, so every START has
 * an END. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* tdestroy */
#endif

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct gp_note {
    const char *name; /* "": the end of a range whose start was not seen; left out */
    bool ends, paired, alone;
};

struct gp_note_open { /* by name: the newest start without an end, and those before it */
    const char *name;
    size_t last; /* + 1; 0 none */
};

static struct gp_note note_of(const char *name)
{
    struct gp_note note = {.name = name, .ends = name[0] == '/', .alone = strncmp(name, "nvtx.", 5) == 0};
    note.name += note.ends;
    if (note.alone || strncmp(note.name, "nvtx:", 5) == 0)
        note.name += 5;
    return note;
}

static int note_compare(const void *left, const void *right)
{
    return strcmp(((const struct gp_note_open *)left)->name, ((const struct gp_note_open *)right)->name);
}

/* Pairs an end with the newest open start of its name.  below[i]: the start that was open before i. */
static int notes_pair(struct gp_note *pairs, size_t *below, size_t count)
{
    void *tree = NULL;
    int rc = 0;
    for (size_t i = 0; i < count && !rc; i++) {
        struct gp_note_open key = {.name = pairs[i].name}, **found = tfind(&key, &tree, note_compare);
        if (pairs[i].alone)
            continue;
        if (!found && !pairs[i].ends) {
            struct gp_note_open *node = malloc(sizeof(*node));
            if (node)
                *node = key;
            found = node ? tsearch(node, &tree, note_compare) : NULL;
            if (!found)
                free(node);
            rc = found ? 0 : -ENOMEM;
        }
        if (rc || !found)
            continue;
        struct gp_note_open *open = *found;
        if (!pairs[i].ends) {
            below[i] = open->last;
            open->last = i + 1;
        } else if (open->last) {
            pairs[i].paired = pairs[open->last - 1].paired = true;
            open->last = below[open->last - 1];
        }
    }
    tdestroy(tree, free);
    return rc;
}

static void notes_write(struct gp_snap *snap, const struct gp_snap_note *notes, const struct gp_note *pairs,
                        size_t count, uint32_t devices)
{
    struct gp_snapshot_pickled_list list;
    gp_snap_word(snap, GP_WORD_EXTERNAL_ANNOTATIONS);
    gp_snapshot_pickled_list(&snap->out, &list);
    for (size_t i = 0; i < count; i++)
        for (uint32_t device = 0; device < devices && pairs[i].name[0]; device++) {
            if (!pairs[i].paired || !pairs[i].ends)
                gp_snap_note(snap, &list, pairs[i].name, false, device, notes[i].time_us);
            if (!pairs[i].paired || pairs[i].ends)
                gp_snap_note(snap, &list, pairs[i].name, true, device, notes[i].time_us);
        }
    gp_snapshot_pickled_list_end(&snap->out, &list);
}

int gp_snap_notes(struct gp_snap *snap, const struct gp_snap_note *notes, size_t count, uint32_t devices)
{
    struct gp_note *pairs = malloc((count + 1) * sizeof(*pairs));
    size_t *below = malloc((count + 1) * sizeof(*below));
    int rc = pairs && below ? 0 : -ENOMEM;
    for (size_t i = 0; i < count && !rc; i++)
        pairs[i] = note_of(notes[i].name);
    if (!rc)
        rc = notes_pair(pairs, below, count);
    if (!rc)
        notes_write(snap, notes, pairs, count, devices);
    free(pairs);
    free(below);
    return rc;
}

/* ---- mappings ---------------------------------------------------------------------------------------------------- */
/* The program's own virtual memory management as PyTorch's expandable segments (entries.h). */

struct gp_mapping_row {
    uint64_t address, bytes;
    uint32_t device, site;
};

static bool mapping_put(struct gp_snap_mappings *mappings, struct gp_mapping_table *table,
                        const struct gp_mapping_row *row)
{
    if (row->bytes == 0)
        return false;
    if (table->count == table->room) {
        size_t room = table->room ? 2 * table->room : 64;
        struct gp_mapping_row *rows = realloc(table->rows, room * sizeof(*rows));
        if (!rows) {
            mappings->broken = true;
            return false;
        }
        table->rows = rows;
        table->room = room;
    }
    table->rows[table->count++] = *row;
    return true;
}

void gp_mappings_add(struct gp_snap_mappings *mappings, uint64_t address, uint64_t bytes, uint32_t device,
                     uint32_t site)
{
    mapping_put(mappings, &mappings->mapped, &(struct gp_mapping_row){address, bytes, device, site});
}

void gp_mappings_reserve(struct gp_snap_mappings *mappings, uint64_t address, uint64_t bytes)
{
    mapping_put(mappings, &mappings->reserved, &(struct gp_mapping_row){address, bytes, 0, 0});
}

void gp_mappings_free(struct gp_snap_mappings *mappings)
{
    free(mappings->mapped.rows);
    free(mappings->reserved.rows);
    *mappings = (struct gp_snap_mappings){0};
}

static int mapping_compare(const void *left, const void *right)
{
    const struct gp_mapping_row *l = left, *r = right;
    return l->address < r->address ? -1 : l->address > r->address;
}

static void mapping_sort(struct gp_mapping_table *table)
{
    if (table->count)
        qsort(table->rows, table->count, sizeof(*table->rows), mapping_compare);
}

/* The start of the reservation that holds the address; 0: it was made before the library could see it. */
static uint64_t mapping_reservation(const struct gp_mapping_table *reserved, uint64_t address)
{
    size_t low = 0, high = reserved->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (reserved->rows[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    const struct gp_mapping_row *row = low ? &reserved->rows[low - 1] : NULL;
    return row && address - row->address < row->bytes ? row->address : 0;
}

void gp_mappings_write(struct gp_snap *snap, struct gp_snap_mappings *mappings)
{
    uint64_t end = 0, reservation = 0;
    uint32_t device = UINT32_MAX;
    mapping_sort(&mappings->mapped);
    mapping_sort(&mappings->reserved);
    for (size_t i = 0; i < mappings->mapped.count; i++) {
        const struct gp_mapping_row *row = &mappings->mapped.rows[i];
        uint64_t within = mapping_reservation(&mappings->reserved, row->address);
        if (row->address < end)
            continue; /* an unmap was lost, or happened during the walk */
        if (row->address != end || row->device != device || within != reservation) {
            if (device != UINT32_MAX)
                gp_snap_segment_end(snap);
            gp_snap_segment(snap,
                            &(struct gp_snap_segment){
                                .address = row->address, .device = row->device, .site = row->site, .expandable = true});
        }
        gp_snap_block(snap, &(struct gp_snap_block){row->address, row->bytes, row->bytes, row->site, GPUPROF_LIVE});
        end = row->address + row->bytes;
        device = row->device;
        reservation = within;
    }
    if (device != UINT32_MAX)
        gp_snap_segment_end(snap);
}
