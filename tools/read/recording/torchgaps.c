/* SPDX-License-Identifier: MIT
 *
 * torchgaps.c: what follows for a snapshot of PyTorch whose trace lacks entries, because it was recorded
 * with skip_actions or is no contiguous part of a program.
 *
 * The segments of the file decide what lives at the end.  A block counts only as long as it is certain
 * that it was there: one whose free is in no entry counts for the moment of its allocation, if the
 * trace has no frees or its address was allocated again, and else until the end of the trace; one
 * whose allocation is in no entry and was not there at the start counts for the moment of its free, or
 * from the end on.  So what is added up is a lower bound, which the device says (enum gp_rec_bound).
 */
#include <errno.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/fromtorch.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>
#include <stdlib.h>

static bool gap_ended(struct gp_read *read, struct gp_torch_gaps *gaps, uint32_t event, uint8_t how)
{
    if (!GP_READ_ROOM(read, gaps->ended, gaps->ended_room, event + (size_t)1, GP_READ_EVENTS))
        return false;
    gaps->ended[event] = how;
    return true;
}

bool gp_torch_gap_keep(struct gp_read *read, struct gp_torch_gaps *gaps, uint32_t event)
{
    return gap_ended(read, gaps, event, GP_TORCH_KEPT);
}

bool gp_torch_gap_reuse(struct gp_read *read, struct gp_torch_gaps *gaps, uint32_t event)
{
    return gap_ended(read, gaps, event, GP_TORCH_REUSED);
}

bool gp_torch_gap_end(struct gp_read *read, struct gp_torch_gaps *gaps, uint32_t end)
{
    size_t block = read->recording->baseline_count - 1;
    if (!GP_READ_ROOM(read, gaps->ends, gaps->ends_room, block + 1, GP_READ_EVENTS))
        return false;
    gaps->ends[block] = end;
    return true;
}

/* ---- what is missing --------------------------------------------------------------------------------------------- */

struct gap_insert {
    size_t at; /* before this event */
    struct gp_rec_event event;
};

struct gap_work {
    struct gp_read *read;
    struct gp_torch_gaps *gaps;
    struct gap_insert *inserts;
    size_t count, room;
};

static bool gap_insert(struct gap_work *work, size_t at, const struct gp_rec_event *event, uint8_t type,
                       uint64_t time_ns)
{
    if (!GP_READ_ROOM(work->read, work->inserts, work->room, work->count + 1, GP_READ_EVENTS))
        return false;
    struct gap_insert *insert = &work->inserts[work->count++];
    *insert = (struct gap_insert){.at = at, .event = *event};
    insert->event.type = type;
    insert->event.time_ns = time_ns;
    return true;
}

/* Blocks that the trace allocates and does not free, and that do not live at the end. */
static bool gap_frees(struct gap_work *work)
{
    struct gp_recording *r = work->read->recording;
    for (size_t i = 0; i < r->event_count; i++) {
        const struct gp_rec_event *event = &r->events[i];
        if (event->type != GP_EVENT_ALLOC)
            continue;
        struct gp_torch_gap *gap = &work->gaps->of[event->device];
        uint8_t how = i < work->gaps->ended_room ? work->gaps->ended[i] : GP_TORCH_OPEN;
        if (how == GP_TORCH_KEPT || !gap->known_end)
            continue;
        bool within = how == GP_TORCH_REUSED || !gap->frees;
        gap->broken |= within;
        if (!gap_insert(work, within ? i + 1 : r->event_count, event, GP_EVENT_FREE,
                        within ? event->time_ns : gap->last_ns))
            return false;
        r->unfreed_blocks++;
        r->unfreed_bytes += event->bytes;
    }
    return true;
}

/* Whether a segment of the baseline, of which those of the device are sorted, has the block. */
static bool gap_was_there(const struct gp_rec_event *segments, size_t count, const struct gp_rec_event *block)
{
    size_t low = 0, high = count;
    while (low < high) { /* the first segment that starts behind the block's start */
        size_t middle = low + (high - low) / 2;
        if (segments[middle].address <= block->address)
            low = middle + 1;
        else
            high = middle;
    }
    return low && block->address - segments[low - 1].address < segments[low - 1].bytes;
}

struct gap_segments { /* of a device in the baseline, sorted */
    const struct gp_rec_event *first;
    size_t count;
};

/* Blocks that the trace does not allocate, in segments that it does.  The first rows of the baseline are blocks. */
static bool gap_allocs(struct gap_work *work, size_t blocks, const struct gap_segments *segments, uint32_t before)
{
    struct gp_recording *r = work->read->recording;
    for (size_t i = 0; i < blocks; i++) {
        struct gp_rec_event *block = &r->baseline[i];
        struct gp_torch_gap *gap = &work->gaps->of[block->device];
        const struct gap_segments *of = &segments[block->device];
        if (!gap->segments || gap_was_there(of->first, of->count, block))
            continue;
        uint32_t end = work->gaps->ends[i];
        bool freed = end != GP_REC_NONE;
        if (block->site == before) {
            block->site = 0;
            if (freed)
                r->events[end].site = 0;
            r->before_blocks--;
            r->before_bytes -= block->bytes;
        }
        if (!gap_insert(work, freed ? end : r->event_count, block, GP_EVENT_ALLOC,
                        freed ? r->events[end].time_ns : gap->changed_ns))
            return false;
        gap->broken = true;
        r->unseen_blocks++;
        r->unseen_bytes += block->bytes;
        block->type = GP_EVENT_NONE;
    }
    return true;
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

/* At one place frees come first: a block of a moment has ended when the next one begins. */
static int gap_order(const void *one, const void *other)
{
    const struct gap_insert *a = one, *b = other;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    if (a->event.type != b->event.type)
        return a->event.type == GP_EVENT_FREE ? -1 : 1;
    return (a->event.address > b->event.address) - (a->event.address < b->event.address);
}

static bool gap_merge(struct gap_work *work)
{
    struct gp_recording *r = work->read->recording;
    size_t from = r->event_count, to = from + work->count, next = work->count;
    if (!work->count)
        return true;
    if (!GP_READ_ROOM(work->read, r->events, work->read->events_room, to, GP_READ_EVENTS))
        return false;
    qsort(work->inserts, work->count, sizeof(*work->inserts), gap_order);
    while (next) {
        if (work->inserts[next - 1].at == from)
            r->events[--to] = work->inserts[--next].event;
        else
            r->events[--to] = r->events[--from];
    }
    r->event_count += work->count;
    return true;
}

static void gap_compact(struct gp_recording *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->baseline_count; i++)
        if (r->baseline[i].type != GP_EVENT_NONE)
            r->baseline[kept++] = r->baseline[i];
    r->baseline_count = kept;
}

/* A free has the site of its allocation. */
static bool gap_sites(struct gp_recording *r)
{
    struct gp_hash live = {0};
    bool ok = true;
    for (size_t i = 0; i < r->event_count && ok; i++) {
        struct gp_rec_event *event = &r->events[i];
        uint64_t key = event->address ^ (uint64_t)event->device << 57;
        uint32_t from;
        if (event->type == GP_EVENT_ALLOC)
            ok = gp_hash_set(&live, key, (uint32_t)i) == 0;
        else if (event->type == GP_EVENT_FREE && !event->site && gp_hash_get(&live, key, &from))
            event->site = r->events[from].site;
    }
    gp_hash_free(&live);
    return ok;
}

int gp_torch_gaps(struct gp_read *read, struct gp_torch_gaps *gaps, size_t blocks, uint32_t before)
{
    struct gp_recording *r = read->recording;
    struct gap_work work = {.read = read, .gaps = gaps};
    bool ok = (!gaps->sites || gap_sites(r)) && gap_frees(&work);
    struct gap_segments segments[256] = {{0}};
    for (size_t i = blocks; i < r->baseline_count; i++) {
        struct gap_segments *of = &segments[r->baseline[i].device];
        of->first = of->count++ ? of->first : &r->baseline[i];
    }
    ok = ok && gap_allocs(&work, blocks, segments, before);
    ok = ok && gap_merge(&work);
    free(work.inserts);
    if (ok)
        gap_compact(r);
    return ok ? 0 : read->error ? read->error : -ENOMEM;
}

void gp_torch_gaps_free(struct gp_torch_gaps *gaps)
{
    free(gaps->ended);
    free(gaps->ends);
}
