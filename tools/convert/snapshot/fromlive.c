/* SPDX-License-Identifier: MIT
 *
 * fromlive.c: A snapshot of a running process: its pieces, and what its ring still knows
 * (snapshot.h).
 */
#include <convert/snapshot/entries.h>
#include <convert/snapshot/internal.h>
#include <convert/snapshot/snapshot.h>
#include <errno.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <stdlib.h>
#include <string.h>

/* ---- the snapshot ---- */

struct gp_snap_live {
    struct gp_snap *snap;
    const struct gp_snapshot_live *in;
    struct gp_entry_ranges cached[GP_WIRE_HOST + 1]; /* at the end; later moved to the start of the trace */
    uint32_t devices;
    bool expandable;
    struct gp_snap_mappings mappings;
};

/* ---- segments ---------------------------------------------------------------------------------------------------- */

static struct gp_snap_segment live_head(const struct gp_wire_extent *head, uint64_t address)
{
    bool ours = head->flags & GPUPROF_OURS;
    return (struct gp_snap_segment){
        .address = address,
        .stream = head->stream,
        .pool = head->pool,
        .device = head->device,
        .site = head->site,
        .small =
            head->device == GP_WIRE_HOST || head->flags & GPUPROF_SMALL || (!ours && head->bytes <= GP_SNAPSHOT_SMALL),
        .expandable = (head->flags & GPUPROF_GROWABLE) != 0,
    };
}

static void live_begin(struct gp_snap_live *live, const struct gp_wire_extent *head, uint64_t address)
{
    struct gp_snap_segment segment = live_head(head, address);
    gp_snap_segment(live->snap, &segment);
}

static struct gp_snap_block live_piece(const struct gp_wire_extent *piece, uint64_t address)
{
    /* The requested size of a block that waits for a fence is no longer known. */
    uint64_t requested = piece->requested_bytes ? piece->requested_bytes : piece->bytes;
    return (struct gp_snap_block){address, piece->bytes, requested, piece->site, piece->state};
}

static void live_block(struct gp_snap_live *live, const struct gp_wire_extent *piece)
{
    struct gp_snap_block block = live_piece(piece, piece->address);
    gp_snap_block(live->snap, &block);
}

/* A segment of one block. */
static void live_one(struct gp_snap_live *live, const struct gp_wire_extent *piece, uint64_t address)
{
    struct gp_snap_segment segment = live_head(piece, address);
    struct gp_snap_block block = live_piece(piece, address);
    gp_snap_whole(live->snap, &segment, &block);
}

static void live_end(struct gp_snap_live *live, const struct gp_wire_extent *head, uint64_t begin, uint64_t end)
{
    if (begin == end)
        return;
    gp_snap_segment_end(live->snap);
    if (head->kind == GP_KIND_LINEAR)
        gp_ranges_add(&live->cached[head->device], begin, end - begin);
}

/* Memory that the program maps itself is collected, since its runs are known at the end. */
static void live_whole(struct gp_snap_live *live, const struct gp_wire_extent *piece)
{
    if (piece->flags & GPUPROF_GROWABLE) {
        gp_mappings_add(&live->mappings, piece->address, piece->bytes, piece->device, piece->site);
        live->expandable = true;
        return;
    }
    live_one(live, piece, gp_snap_place(live->snap, piece->kind, piece->address, piece->bytes));
}

/* Writes one segment with its blocks from `at` on: one PyTorch segment for each run of mapped
 * memory.  Returns the index of the next segment. */
static uint64_t live_segment(struct gp_snap_live *live, uint64_t at)
{
    const struct gp_extents *pieces = live->in->pieces;
    const struct gp_wire_extent *head = &pieces->pieces[at++];
    uint64_t begin = 0, end = 0; /* of the run; equal: none */
    for (; at < pieces->count && pieces->pieces[at].what == GP_EXTENT_BLOCK; at++) {
        const struct gp_wire_extent *block = &pieces->pieces[at];
        if (block->state == GPUPROF_UNMAPPED) {
            live_end(live, head, begin, end);
            begin = end;
            continue;
        }
        if (begin == end) {
            live_begin(live, head, block->address);
            begin = block->address;
        }
        live_block(live, block);
        end = block->address + block->bytes;
    }
    live_end(live, head, begin, end);
    return at;
}

static void live_segments(struct gp_snap_live *live)
{
    const struct gp_extents *pieces = live->in->pieces;
    for (uint64_t at = 0; at < pieces->count;) {
        const struct gp_wire_extent *piece = &pieces->pieces[at];
        if (piece->device < GP_WIRE_GPUS && piece->device >= live->devices)
            live->devices = piece->device + 1;
        if (piece->what == GP_EXTENT_SEGMENT && piece->kind == GP_KIND_VIRTUAL)
            gp_mappings_reserve(&live->mappings, piece->address, piece->bytes);
        bool placed = piece->kind == GP_KIND_LINEAR; /* of our cache, or of a framework */
        if (piece->device >= GP_WIRE_GPUS || piece->what == GP_EXTENT_BLOCK ||
            (piece->what == GP_EXTENT_SEGMENT && !placed)) {
            at++; /* the host's come later, and physical memory that is not mapped has no address */
        } else if (piece->what == GP_EXTENT_WHOLE) {
            live_whole(live, piece);
            at++;
        } else {
            live->expandable |= (piece->flags & GPUPROF_GROWABLE) != 0;
            at = live_segment(live, at);
        }
    }
    gp_mappings_write(live->snap, &live->mappings);
}

/* ---- traces ------------------------------------------------------------------------------------------------------ */

static int64_t live_device_free(const struct gp_snap_live *live, const struct gp_wire_event *event)
{
    const struct gp_wire_oom *oom = live->in->oom;
    /* The report describes only the last failure. */
    bool told = oom && oom->count && oom->device == event->device && oom->time_ns >= event->time_ns;
    return told ? oom->free_bytes : -1;
}

static bool live_event(const struct gp_snap_live *live, size_t i, struct gp_snap_event *out)
{
    const struct gp_wire_event *event = &live->in->events[i];
    if (event->device > GP_WIRE_HOST || event->time_ns > live->in->pieces->begin_ns)
        return false;
    *out = (struct gp_snap_event){
        .time_ns = event->time_ns,
        .address = event->address,
        .bytes = event->bytes,
        .requested_bytes = event->requested_bytes,
        .stream = event->stream,
        .site = event->site,
        .type = event->type,
        .kind = event->kind,
        .device_free = event->type == GP_EVENT_OOM ? live_device_free(live, event) : -1,
    };
    return true;
}

static void live_trace(struct gp_snap_live *live, uint32_t device)
{
    struct gp_snap_event event;
    for (size_t i = 0; i < live->in->event_count; i++)
        if (live->in->events[i].device == device && live_event(live, i, &event))
            gp_snap_event(live->snap, &live->cached[device], &event, live->in->unix_ns);
    gp_snap_trace_end(live->snap);
}

static void live_host(struct gp_snap_live *live)
{
    gp_snap_host(live->snap);
    for (uint64_t i = 0; i < live->in->pieces->count; i++) {
        const struct gp_wire_extent *piece = &live->in->pieces->pieces[i];
        if (piece->device != GP_WIRE_HOST || piece->what != GP_EXTENT_WHOLE || !gp_snap_pins(piece->kind))
            continue;
        live_one(live, piece, piece->address);
    }
    gp_snap_host_trace(live->snap);
    live_trace(live, GP_WIRE_HOST);
}

static void live_traces(struct gp_snap_live *live)
{
    struct gp_snap_event event;
    for (size_t i = live->in->event_count; i-- > 0;)
        if (live_event(live, i, &event)) {
            uint32_t device = live->in->events[i].device;
            gp_snap_undo(&live->cached[device], &event);
            if (device >= live->devices && device != GP_WIRE_HOST)
                live->devices = device + 1;
        }
    gp_snap_traces(live->snap);
    for (uint32_t device = 0; device < live->devices; device++) {
        gp_snap_trace(live->snap);
        live_trace(live, device);
    }
}

/* The names of marks, each terminated. */
static int live_notes(struct gp_snap_live *live)
{
    enum { NAME = sizeof(live->in->events[0].name) + 1 };
    size_t count = 0, at = 0;
    for (size_t i = 0; i < live->in->event_count; i++)
        count += live->in->events[i].type == GP_EVENT_MARK;
    struct gp_snap_note *notes = malloc((count + 1) * sizeof(*notes));
    char(*names)[NAME] = calloc(count + 1, NAME);
    for (size_t i = 0; notes && names && i < live->in->event_count; i++) {
        const struct gp_wire_event *event = &live->in->events[i];
        if (event->type != GP_EVENT_MARK)
            continue;
        memcpy(names[at], event->name, sizeof(event->name));
        notes[at] = (struct gp_snap_note){names[at], ((int64_t)event->time_ns + live->in->unix_ns) / 1000};
        at++;
    }
    int rc = notes && names ? gp_snap_notes(live->snap, notes, count, live->devices) : -ENOMEM;
    free(notes);
    free(names);
    return rc;
}

int gp_snapshot_live(int fd, const struct gp_snapshot_live *in, const struct gp_snapshot_names *names,
                     struct gp_snapshot_counts *counts)
{
    struct gp_snap_live *live = calloc(1, sizeof(*live));
    struct gp_snap *snap = live ? gp_snap_open(fd, names) : NULL;
    if (!snap) {
        free(live);
        return -ENOMEM;
    }
    live->snap = snap;
    live->in = in;
    live->devices = in->device_count ? in->device_count : 1;
    if (live->devices > GP_WIRE_GPUS)
        live->devices = GP_WIRE_GPUS;
    live_segments(live);
    live_traces(live);
    gp_snap_settings(snap, &(struct gp_snap_settings){in->allocator, in->split_limit, live->expandable});
    int rc = live_notes(live);
    live_host(live);
    for (unsigned i = 0; i <= GP_WIRE_HOST; i++) {
        rc = live->cached[i].broken ? -ENOMEM : rc;
        gp_ranges_free(&live->cached[i]);
    }
    rc = live->mappings.broken ? -ENOMEM : rc;
    gp_mappings_free(&live->mappings);
    free(live);
    int closed = gp_snap_close(snap, counts);
    return rc ? rc : closed;
}
