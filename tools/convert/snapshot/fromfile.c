/* SPDX-License-Identifier: MIT
 * fromfile.c: makes a snapshot of a recording; see snapshot.h. */
#include <convert/snapshot/entries.h>
#include <convert/snapshot/internal.h>
#include <convert/snapshot/snapshot.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>

#include <analyze/analyze.h>
#include <errno.h>
#include <gpuprof/gpuprof.h>
#include <stdlib.h>
#include <string.h>

struct gp_snap_live_block { /* facts about a block live at the end that gp_segments_at does not have */
    uint64_t address, requested_bytes, stream;
};

struct gp_snap_range {
    uint64_t begin, end, stream;
    uint32_t event; /* its number */
    uint32_t site;  /* of the request for which a cache took this memory */
    bool grew;      /* mapped into a growable segment */
};

struct gp_snap_file {
    struct gp_snap *snap;
    const struct gp_recording *recording;
    struct gp_entry_ranges cached[GP_WIRE_HOST + 1];
    uint32_t devices; /* entries of device_traces */
    int64_t unix_ns;
    bool expandable;
    struct gp_snap_mappings mappings;
    /* Of the current device, by address. */
    struct gp_snap_live_block *lives;
    size_t live_count;
    struct gp_snap_range *taken; /* memory that caches took; of two at one address the newer is the later */
    size_t taken_count;
};

/* The number of a recording's device in the session; above GP_WIRE_HOST: not shown. */
static uint32_t file_index(const struct gp_snap_file *file, uint32_t device)
{
    return device < file->recording->device_count ? file->recording->devices[device].index : GP_WIRE_HOST + 1;
}

/* ---- what lives at the end --------------------------------------------------------------------------------------- */

static int file_live_compare(const void *left, const void *right)
{
    const struct gp_snap_live_block *l = left, *r = right;
    return l->address < r->address ? -1 : l->address > r->address;
}

static int file_range_compare(const void *left, const void *right)
{
    const struct gp_snap_range *l = left, *r = right;
    if (l->begin != r->begin)
        return l->begin < r->begin ? -1 : 1;
    return l->event < r->event ? -1 : l->event > r->event;
}

static bool file_takes(const struct gp_rec_event *event)
{
    return event->kind == GP_KIND_LINEAR &&
           (event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_MAP);
}

static uint64_t file_stream(const struct gp_snap_file *file, const struct gp_rec_event *event)
{
    return event->stream < file->recording->stream_count ? file->recording->streams[event->stream] : 0;
}

static void file_live(struct gp_snap_file *file, const struct gp_rec_event *event)
{
    file->lives[file->live_count++] =
        (struct gp_snap_live_block){event->address, gp_rec_requested(event), file_stream(file, event)};
}

/* The free of a baseline block is found by the index of its alloc, which lies after those of the
 * events. */
static int file_gather(struct gp_snap_file *file, uint32_t device)
{
    const struct gp_recording *recording = file->recording;
    size_t lives = recording->baseline_count, taken = 0;
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        lives += event->device == device && event->type == GP_EVENT_ALLOC && recording->peer[i] == GP_REC_NONE;
        taken += event->device == device && file_takes(event);
    }
    file->live_count = file->taken_count = 0;
    file->lives = malloc((lives + 1) * sizeof(*file->lives));
    file->taken = malloc((taken + 1) * sizeof(*file->taken));
    if (!file->lives || !file->taken)
        return -ENOMEM;
    for (size_t i = 0; i < recording->baseline_count; i++)
        if (recording->baseline[i].device == device)
            file_live(file, &recording->baseline[i]);
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->device != device)
            continue;
        if (event->type == GP_EVENT_ALLOC && recording->peer[i] == GP_REC_NONE)
            file_live(file, event);
        if (file_takes(event))
            file->taken[file->taken_count++] = (struct gp_snap_range){
                event->address, event->address + event->bytes,      file_stream(file, event), (uint32_t)i,
                event->site,    event->type == GP_EVENT_SEGMENT_MAP};
    }
    qsort(file->lives, file->live_count, sizeof(*file->lives), file_live_compare);
    qsort(file->taken, file->taken_count, sizeof(*file->taken), file_range_compare);
    return 0;
}

static const struct gp_snap_live_block *file_find(const struct gp_snap_file *file, uint64_t address)
{
    const struct gp_snap_live_block key = {.address = address};
    return bsearch(&key, file->lives, file->live_count, sizeof(key), file_live_compare);
}

/* What a cache last took at this address; NULL: nothing that the recording saw. */
static const struct gp_snap_range *file_taken(const struct gp_snap_file *file, uint64_t address)
{
    size_t low = 0, high = file->taken_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (file->taken[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low && file->taken[low - 1].end > address ? &file->taken[low - 1] : NULL;
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

static void file_begin(struct gp_snap_file *file, uint32_t index, const struct gp_map_segment *segment,
                       const struct gp_map_block *block)
{
    const struct gp_snap_live_block *live = file_find(file, block->address);
    const struct gp_snap_range *taken = segment->cached ? file_taken(file, block->address) : NULL;
    bool grew = taken && taken->grew;
    uint64_t size = grew ? taken->end - taken->begin : segment->bytes;
    uint64_t stream = taken ? taken->stream : live ? live->stream : 0;
    file->expandable |= grew;
    gp_snap_segment(file->snap, &(struct gp_snap_segment){
                                    .address = gp_snap_place(file->snap, block->kind, block->address, block->bytes),
                                    .stream = stream <= INT64_MAX ? stream : 0,
                                    .device = index,
                                    .site = !segment->cached ? block->site
                                            : taken          ? taken->site
                                                             : 0,
                                    /* PyTorch's small segments are of this one size, and grow by it. */
                                    .small = index == GP_WIRE_HOST || (segment->cached ? size == 2 * GP_SNAPSHOT_SMALL
                                                                                       : size <= GP_SNAPSHOT_SMALL),
                                    .expandable = grew,
                                });
}

static void file_block(struct gp_snap_file *file, const struct gp_map_block *block)
{
    const struct gp_snap_live_block *live = block->state == GPUPROF_LIVE ? file_find(file, block->address) : NULL;
    uint64_t requested = live && live->requested_bytes ? live->requested_bytes : block->bytes;
    uint64_t address = gp_snap_place(file->snap, block->kind, block->address, block->bytes);
    gp_snap_block(file->snap,
                  &(struct gp_snap_block){address, block->bytes, requested < block->bytes ? requested : block->bytes,
                                          block->site, block->state});
}

static void file_end(struct gp_snap_file *file, uint32_t index, const struct gp_map_segment *segment, uint64_t begin,
                     uint64_t end)
{
    if (begin == end)
        return;
    gp_snap_segment_end(file->snap);
    if (segment->cached)
        gp_ranges_add(&file->cached[index], begin, end - begin);
}

/* Writes one PyTorch segment for each run of mapped memory. */
static void file_segment(struct gp_snap_file *file, uint32_t index, const struct gp_segments *all,
                         const struct gp_map_segment *segment)
{
    uint64_t begin = 0, end = 0; /* of the run; equal: none */
    for (uint32_t i = 0; i < segment->block_count; i++) {
        const struct gp_map_block *block = &all->blocks[segment->first_block + i];
        if (block->state == GPUPROF_UNMAPPED) {
            file_end(file, index, segment, begin, end);
            begin = end;
            continue;
        }
        if (begin == end) {
            file_begin(file, index, segment, block);
            begin = block->address;
        }
        file_block(file, block);
        end = block->address + block->bytes;
    }
    file_end(file, index, segment, begin, end);
}

static void file_mapping(struct gp_snap_file *file, uint32_t index, const struct gp_map_block *block)
{
    uint64_t bytes = block->requested_bytes < block->bytes ? block->requested_bytes : block->bytes;
    gp_mappings_add(&file->mappings, block->address, bytes, index, block->site);
    file->expandable = true;
}

/* The reservations that exist at the end. */
static int file_reservations(struct gp_snap_file *file)
{
    const struct gp_recording *recording = file->recording;
    bool *ended = calloc(recording->baseline_count + 1, sizeof(*ended));
    if (!ended)
        return -ENOMEM;
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        uint32_t peer = recording->peer[i];
        if (event->kind != GP_KIND_VIRTUAL)
            continue;
        if (event->type == GP_EVENT_ALLOC && peer == GP_REC_NONE)
            gp_mappings_reserve(&file->mappings, event->address, event->bytes);
        if (event->type == GP_EVENT_FREE && peer != GP_REC_NONE && peer >= recording->event_count &&
            peer - recording->event_count < recording->baseline_count)
            ended[peer - recording->event_count] = true;
    }
    for (size_t i = 0; i < recording->baseline_count; i++) {
        const struct gp_rec_event *event = &recording->baseline[i];
        if (event->kind == GP_KIND_VIRTUAL && event->type == GP_EVENT_ALLOC && !ended[i])
            gp_mappings_reserve(&file->mappings, event->address, event->bytes);
    }
    free(ended);
    return 0;
}

/* host: the devices of the host alone, else all others. */
static int file_device(struct gp_snap_file *file, uint32_t device, bool host)
{
    uint32_t index = file_index(file, device);
    if (index > GP_WIRE_HOST || (index == GP_WIRE_HOST) != host)
        return 0;
    if (!host && index >= file->devices)
        file->devices = index + 1;
    struct gp_segments *all = gp_segments_at(file->recording, device, file->recording->end_ns);
    int rc = all ? file_gather(file, device) : -ENOMEM;
    for (uint32_t i = 0; !rc && i < all->segment_count; i++) {
        const struct gp_map_segment *segment = &all->segments[i];
        if (!host && segment->kind == GP_KIND_VMM && segment->block_count)
            file_mapping(file, index, &all->blocks[segment->first_block]);
        else if (host ? gp_snap_pins(segment->kind) : gp_snap_shows(segment->kind))
            file_segment(file, index, all, segment);
    }
    free(file->lives);
    free(file->taken);
    file->lives = NULL;
    file->taken = NULL;
    free(all);
    return rc;
}

/* ---- traces ------------------------------------------------------------------------------------------------------ */

static struct gp_snap_event file_event(const struct gp_snap_file *file, size_t i)
{
    const struct gp_recording *recording = file->recording;
    const struct gp_rec_event *event = &recording->events[i], *alloc = event;
    uint32_t peer = recording->peer[i];
    if (event->type == GP_EVENT_FREE && peer != GP_REC_NONE)
        alloc = peer < recording->event_count ? &recording->events[peer]
                                              : &recording->baseline[peer - recording->event_count];
    bool told = event->type == GP_EVENT_OOM && recording->has_oom && recording->oom.time_ns >= event->time_ns &&
                (uint32_t)recording->oom.device == file_index(file, event->device);
    return (struct gp_snap_event){
        .time_ns = event->time_ns,
        .address = event->address,
        .bytes = alloc->bytes,
        .requested_bytes = gp_rec_requested(alloc),
        .stream = file_stream(file, event),
        .site = event->site ? event->site : alloc->site,
        .type = event->type,
        .kind = event->kind,
        .device_free = told ? recording->oom.free_bytes : -1,
    };
}

static void file_trace(struct gp_snap_file *file, uint32_t index)
{
    for (size_t i = 0; i < file->recording->event_count; i++) {
        if (file_index(file, file->recording->events[i].device) != index)
            continue;
        const struct gp_snap_event event = file_event(file, i);
        gp_snap_event(file->snap, &file->cached[index], &event, file->unix_ns);
    }
    gp_snap_trace_end(file->snap);
}

static int file_host(struct gp_snap_file *file)
{
    int rc = 0;
    gp_snap_host(file->snap);
    for (uint32_t device = 0; device < file->recording->device_count && !rc; device++)
        rc = file_device(file, device, true);
    gp_snap_host_trace(file->snap);
    file_trace(file, GP_WIRE_HOST);
    return rc;
}

static void file_traces(struct gp_snap_file *file)
{
    const struct gp_recording *recording = file->recording;
    for (size_t i = recording->event_count; i-- > 0;) {
        uint8_t type = recording->events[i].type;
        uint32_t index = file_index(file, recording->events[i].device);
        /* gp_snap_undo looks at the cache's segments alone. */
        if (index < GP_WIRE_GPUS && type >= GP_EVENT_SEGMENT_ALLOC && type <= GP_EVENT_SEGMENT_UNMAP) {
            const struct gp_snap_event event = file_event(file, i);
            gp_snap_undo(&file->cached[index], &event);
        }
    }
    gp_snap_traces(file->snap);
    for (uint32_t device = 0; device < file->devices; device++) {
        gp_snap_trace(file->snap);
        file_trace(file, device);
    }
}

static int file_notes(struct gp_snap_file *file)
{
    const struct gp_recording *recording = file->recording;
    size_t count = 0, at = 0;
    for (size_t i = 0; i < recording->event_count; i++)
        count += recording->events[i].type == GP_EVENT_MARK;
    struct gp_snap_note *notes = malloc((count + 1) * sizeof(*notes));
    if (!notes)
        return -ENOMEM;
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->type == GP_EVENT_MARK)
            notes[at++] = (struct gp_snap_note){recording->strings + event->bytes,
                                                ((int64_t)event->time_ns + file->unix_ns) / 1000};
    }
    int rc = gp_snap_notes(file->snap, notes, count, file->devices);
    free(notes);
    return rc;
}

/* The limit of the first device that has one. */
static int64_t file_split_limit(const struct gp_recording *recording)
{
    for (uint32_t i = 0; i < recording->device_count; i++)
        if (recording->devices[i].has_last && recording->devices[i].index < GP_WIRE_GPUS)
            return recording->devices[i].last.max_split_size;
    return -1;
}

int gp_snapshot_recording(int fd, const struct gp_recording *recording, const struct gp_snapshot_names *names,
                          struct gp_snapshot_counts *counts)
{
    struct gp_snap_file *file = calloc(1, sizeof(*file));
    struct gp_snap *snap = file ? gp_snap_open(fd, names) : NULL;
    int rc = 0;
    if (!snap) {
        free(file);
        return -ENOMEM;
    }
    file->snap = snap;
    file->recording = recording;
    file->devices = 1;
    file->unix_ns = (int64_t)(recording->begin_unix_ns - recording->begin_ns);
    for (uint32_t device = 0; device < recording->device_count && !rc; device++)
        rc = file_device(file, device, false);
    rc = rc ? rc : file_reservations(file);
    gp_mappings_write(snap, &file->mappings);
    file_traces(file);
    gp_snap_settings(snap,
                     &(struct gp_snap_settings){recording->allocator, file_split_limit(recording), file->expandable});
    int noted = file_notes(file);
    rc = rc ? rc : noted;
    int host = file_host(file);
    rc = rc ? rc : host;
    for (unsigned i = 0; i <= GP_WIRE_HOST; i++) {
        rc = file->cached[i].broken ? -ENOMEM : rc;
        gp_ranges_free(&file->cached[i]);
    }
    rc = file->mappings.broken ? -ENOMEM : rc;
    gp_mappings_free(&file->mappings);
    free(file);
    int closed = gp_snap_close(snap, counts);
    return rc ? rc : closed;
}
