/* SPDX-License-Identifier: MIT
 *
 * fromlive.c: A snapshot of a running process: its pieces, and what its ring still knows
 * (snapshot.h).  Its parts: the snapshot, what it will hold.
 */
#include <base/clock.h>
#include <convert/snapshot/entries.h>
#include <convert/snapshot/internal.h>
#include <convert/snapshot/snapshot.h>
#include <errno.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>
#include <read/recording/recording.h>
#include <record/ringread.h>
#include <stdlib.h>
#include <string.h>

/* ==== the last events ============================================================================================= */

/* 4 GiB of events, far more than PyTorch's viewer can load. */
#define GP_RECENT_MOST (1u << 26)

int gp_snapshot_recent_open(struct gp_recent *recent, pid_t pid)
{
    struct gp_proc proc;
    struct gp_peer *session = &recent->session;
    char problem[GP_PROBLEM_BYTES];
    memset(recent, 0, sizeof(*recent));
    session->fd = -1;
    int rc = gp_proc_open(&proc, pid);
    if (rc)
        return rc;
    rc = gp_peer_open(session, &proc, problem);
    gp_proc_close(&proc);
    if (rc)
        return rc == -ENOENT ? -ESRCH : rc == -EPERM ? -EACCES : rc;
    rc = gp_ringread_new_fd(&recent->reader, session->fd, session->ring_offset, session->chunk_count,
                            GP_RINGREAD_OLDEST);
    if (rc)
        gp_snapshot_recent_close(recent);
    else
        gp_listen(&recent->listen, session);
    return rc;
}

static int recent_grow(struct gp_recent *recent, size_t more)
{
    size_t need = recent->count + more, room = recent->room ? recent->room : 65536;
    if (need > GP_RECENT_MOST)
        return -EFBIG;
    while (room < need)
        room *= 2;
    if (room == recent->room)
        return 0;
    struct gp_wire_event *events = realloc(recent->events, room * sizeof(*events));
    if (!events)
        return -ENOMEM;
    recent->events = events;
    recent->room = room;
    return 0;
}

int gp_snapshot_recent_poll(struct gp_recent *recent, int last)
{
    const struct gp_wire_event *events;
    struct gp_ringread_stats stats;
    gp_listen_again(&recent->listen);
    ssize_t count = gp_ringread_poll(recent->reader, last ? UINT64_MAX : gp_clock_ns(), &events);
    int rc = count < 0 ? (int)count : recent_grow(recent, (size_t)count);
    if (rc)
        return rc;
    if (count)
        memcpy(recent->events + recent->count, events, (size_t)count * sizeof(*events));
    recent->count += (size_t)count;
    gp_ringread_stats(recent->reader, &stats);
    recent->missed = stats.overwritten + stats.damaged;
    return 0;
}

void gp_snapshot_recent_close(struct gp_recent *recent)
{
    gp_ringread_free(recent->reader);
    gp_peer_close(&recent->session);
    free(recent->events);
    memset(recent, 0, sizeof(*recent));
    recent->session.fd = -1;
}

/* ==== the snapshot ================================================================================================ */

struct gp_snap_live {
    struct gp_snap *snap;
    const struct gp_snapshot_live *in;
    struct gp_entry_ranges cached[GP_WIRE_HOST + 1]; /* at the end; later moved to the start of the trace */
    uint32_t devices;
    bool expandable;
    struct gp_snap_mappings mappings;
};

/* ---- segments ---------------------------------------------------------------------------------------------------- */

static void live_begin(struct gp_snap_live *live, const struct gp_wire_extent *head, uint64_t address)
{
    bool ours = head->flags & GPUPROF_OURS;
    gp_snap_segment(live->snap, &(struct gp_snap_segment){
                                    .address = address,
                                    .stream = head->stream,
                                    .pool = head->pool,
                                    .device = head->device,
                                    .site = head->site,
                                    .small = head->device == GP_WIRE_HOST || head->flags & GPUPROF_SMALL ||
                                             (!ours && head->bytes <= GP_SNAPSHOT_SMALL),
                                    .expandable = (head->flags & GPUPROF_GROWABLE) != 0,
                                });
}

static void live_block(struct gp_snap_live *live, const struct gp_wire_extent *piece)
{
    /* The requested size of a block that waits for a fence is no longer known. */
    uint64_t requested = piece->requested_bytes ? piece->requested_bytes : piece->bytes;
    gp_snap_block(live->snap,
                  &(struct gp_snap_block){piece->address, piece->bytes, requested, piece->site, piece->state});
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
    struct gp_wire_extent placed = *piece;
    placed.address = gp_snap_place(live->snap, piece->kind, piece->address, piece->bytes);
    live_begin(live, piece, placed.address);
    live_block(live, &placed);
    gp_snap_segment_end(live->snap);
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
        live_begin(live, piece, piece->address);
        live_block(live, piece);
        gp_snap_segment_end(live->snap);
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

/* ---- what it will hold ------------------------------------------------------------------------------------------- */
/* Estimates the size of a snapshot before it is written, from the numbers of events and blocks: a
 * trace of many events makes a file that PyTorch's viewer cannot open. Called by cmd/snapshot.c. */

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
