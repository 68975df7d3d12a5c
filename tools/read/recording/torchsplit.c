/* SPDX-License-Identifier: MIT
 *
 * torchsplit.c: what the trace of a snapshot of PyTorch does not say: which segments were there
 * before it, and the granted sizes.
 */
#include <errno.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/fromtorch.h>
#include <read/recording/internal.h>
#include <read/recording/pickleread.h>
#include <read/recording/recording.h>
#include <stdlib.h>

/* ==== segments from before ======================================================================================== */
/* Which segments were there before the trace of a snapshot.
 *
 * Of each address the first change in the trace decides: memory that is first taken away was there
 * before, memory that is first added was not, and memory that never changes was there if it is there
 * at the end.  A sweep over the addresses keeps the spans that cover the current one in a heap,
 * ordered by time. */

struct gp_torch_heap {
    const struct gp_torch_span **at;
    size_t count;
};

static bool heap_before(const struct gp_torch_span *one, const struct gp_torch_span *other)
{
    return one->order != other->order ? one->order < other->order : one->start < other->start;
}

static void heap_push(struct gp_torch_heap *heap, const struct gp_torch_span *span)
{
    size_t i = heap->count++;
    for (; i && heap_before(span, heap->at[(i - 1) / 2]); i = (i - 1) / 2)
        heap->at[i] = heap->at[(i - 1) / 2];
    heap->at[i] = span;
}

static void heap_pop(struct gp_torch_heap *heap)
{
    const struct gp_torch_span *last = heap->at[--heap->count];
    size_t i = 0;
    for (size_t child = 1; child < heap->count; child = 2 * i + 1) {
        child += child + 1 < heap->count && heap_before(heap->at[child + 1], heap->at[child]);
        if (!heap_before(heap->at[child], last))
            break;
        heap->at[i] = heap->at[child];
        i = child;
    }
    heap->at[i] = last;
}

static int start_compare(const void *one, const void *other)
{
    const struct gp_torch_span *a = one, *b = other;
    return a->start < b->start ? -1 : a->start > b->start;
}

static bool start_add(struct gp_read *read, const struct gp_torch_span *span, uint64_t start, uint64_t end,
                      const struct gp_rec_event *like)
{
    struct gp_recording *r = read->recording;
    if (!GP_READ_ROOM(read, r->baseline, read->baseline_room, r->baseline_count + 1, GP_READ_EVENTS))
        return false;
    struct gp_rec_event *event = &r->baseline[r->baseline_count++];
    *event = *like;
    event->type = span->growable ? GP_EVENT_SEGMENT_MAP : GP_EVENT_SEGMENT_ALLOC;
    event->address = start;
    event->bytes = end - start;
    return true;
}

int gp_torch_start(struct gp_read *read, struct gp_torch_span *spans, size_t count, const struct gp_rec_event *like)
{
    struct gp_torch_heap heap = {.at = malloc((count + 1) * sizeof(*heap.at))};
    const struct gp_torch_span *run = NULL; /* what the run that began at run_start is part of */
    uint64_t at = 0, run_start = 0;
    size_t next = 0;
    bool ok = heap.at;
    if (ok && count)
        qsort(spans, count, sizeof(*spans), start_compare);
    while (ok && (next < count || heap.count)) {
        if (!heap.count)
            at = spans[next].start;
        while (next < count && spans[next].start <= at)
            heap_push(&heap, &spans[next++]);
        while (heap.count && heap.at[0]->end <= at)
            heap_pop(&heap);
        const struct gp_torch_span *top = heap.count && heap.at[0]->there ? heap.at[0] : NULL;
        if (run && run != top)
            ok = start_add(read, run, run_start, at, like);
        if (run != top)
            run_start = at;
        run = top;
        if (!heap.count)
            continue;
        at = next < count && spans[next].start < heap.at[0]->end ? spans[next].start : heap.at[0]->end;
    }
    free(heap.at);
    return ok ? 0 : read->error ? read->error : -ENOMEM;
}

/* ==== granted sizes =============================================================================================== */
/* The granted sizes of the blocks in a trace of PyTorch.
 *
 * Its allocator cuts a request, rounded to 512 bytes, off the start of a free piece, unless what is
 * left would be too small: then the block has the whole piece.  A piece ends at the next live block
 * or at the end of the segment, because free neighbours are always joined.  So the granted size
 * follows from the addresses. */

#define GP_SPLIT_SMALL (1u << 20) /* requests up to this size, and what is left of larger ones */
#define GP_SPLIT_ROUND 512u

struct gp_split {
    uint64_t *points; /* every address at which a block or a segment starts or ends, sorted */
    uint64_t *here;   /* a bit for each point: a live block or a fence is there */
    uint64_t *any;    /* a bit for each word of here that is not 0 */
    uint32_t *fences; /* how many segments start or end at the point now */
    bool *live;       /* a block is there now */
    uint32_t *made;   /* the last event + 1 that allocated a block at the point; 0: none */
    size_t count;
};

static size_t split_find(const struct gp_split *split, uint64_t address)
{
    const uint64_t *found = bsearch(&address, split->points, split->count, sizeof(address), gp_order_u64);
    return found ? (size_t)(found - split->points) : SIZE_MAX;
}

static void split_set(struct gp_split *split, size_t at, bool there)
{
    uint64_t *word = &split->here[at / 64];
    *word = there ? *word | 1ull << at % 64 : *word & ~(1ull << at % 64);
    uint64_t *above = &split->any[at / 4096], bit = 1ull << at / 64 % 64;
    *above = *word ? *above | bit : *above & ~bit;
}

/* The first point behind `at` at which something is; SIZE_MAX. */
static size_t split_next(const struct gp_split *split, size_t at)
{
    size_t word = ++at / 64, words = split->count / 64 + 1;
    if (at % 64 && split->here[word] >> at % 64)
        return at + (size_t)__builtin_ctzll(split->here[word] >> at % 64);
    word += at % 64 != 0;
    while (word < words) {
        uint64_t above = split->any[word / 64] >> word % 64;
        if (above) {
            word += (size_t)__builtin_ctzll(above);
            return word * 64 + (size_t)__builtin_ctzll(split->here[word]);
        }
        word = (word / 64 + 1) * 64;
    }
    return SIZE_MAX;
}

static bool split_on(const struct gp_rec_event *event, uint8_t device, uint8_t type)
{
    return event->device == device && event->type == type;
}

static bool split_collect(struct gp_split *split, const struct gp_recording *r, const struct gp_torch_span *spans,
                          size_t span_count, uint8_t device)
{
    size_t most = r->event_count + r->baseline_count + 2 * span_count + 1, kept = 0;
    split->points = malloc(most * sizeof(*split->points));
    if (!split->points)
        return false;
    for (size_t i = 0; i < r->event_count; i++)
        if (split_on(&r->events[i], device, GP_EVENT_ALLOC))
            split->points[split->count++] = r->events[i].address;
    for (size_t i = 0; i < r->baseline_count; i++)
        if (split_on(&r->baseline[i], device, GP_EVENT_ALLOC))
            split->points[split->count++] = r->baseline[i].address;
    for (size_t i = 0; i < span_count; i++) {
        split->points[split->count++] = spans[i].start;
        split->points[split->count++] = spans[i].end;
    }
    qsort(split->points, split->count, sizeof(*split->points), gp_order_u64);
    for (size_t i = 0; i < split->count; i++)
        if (!kept || split->points[kept - 1] != split->points[i])
            split->points[kept++] = split->points[i];
    split->count = kept;
    split->here = calloc(kept / 64 + 1, sizeof(*split->here));
    split->any = calloc(kept / 4096 + 1, sizeof(*split->any));
    split->fences = calloc(kept + 1, sizeof(*split->fences));
    split->live = calloc(kept + 1, sizeof(*split->live));
    split->made = calloc(kept + 1, sizeof(*split->made));
    return split->here && split->any && split->fences && split->live && split->made;
}

static void split_grant(struct gp_split *split, struct gp_rec_event *event, size_t at)
{
    size_t next = split_next(split, at);
    uint64_t piece = next == SIZE_MAX ? 0 : split->points[next] - event->address, asked = gp_rec_requested(event);
    uint64_t rounded = (asked + GP_SPLIT_ROUND - 1) / GP_SPLIT_ROUND * GP_SPLIT_ROUND;
    if (event->bytes != rounded || piece <= rounded)
        return;
    /* A small piece is split wherever a block fits, a large one if more than a small block is left. */
    uint64_t left = piece - rounded, least = rounded <= GP_SPLIT_SMALL ? GP_SPLIT_ROUND : GP_SPLIT_SMALL + 1;
    if (left < least) {
        event->bytes = piece;
        event->unused = (uint32_t)(piece - asked);
    }
}

static void split_fence(struct gp_split *split, uint64_t address, bool add)
{
    size_t at = split_find(split, address);
    if (at == SIZE_MAX || (!add && !split->fences[at]))
        return;
    split->fences[at] += add ? 1 : UINT32_MAX;
    split_set(split, at, split->live[at] || split->fences[at]);
}

static void split_segment(struct gp_split *split, const struct gp_rec_event *event, bool add)
{
    split_fence(split, event->address, add);
    split_fence(split, event->address + event->bytes, add);
}

static void split_live(struct gp_split *split, size_t at, bool live)
{
    split->live[at] = live;
    split_set(split, at, live || split->fences[at]);
}

static void split_event(struct gp_split *split, struct gp_recording *r, size_t i)
{
    struct gp_rec_event *event = &r->events[i];
    size_t at;
    if (event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_FREE)
        split_segment(split, event, event->type == GP_EVENT_SEGMENT_ALLOC);
    if ((event->type != GP_EVENT_ALLOC && event->type != GP_EVENT_FREE) ||
        (at = split_find(split, event->address)) == SIZE_MAX)
        return;
    if (event->type == GP_EVENT_ALLOC) {
        split_grant(split, event, at);
        split->made[at] = (uint32_t)i + 1;
    } else if (split->made[at]) {
        event->bytes = r->events[split->made[at] - 1].bytes;
        event->unused = r->events[split->made[at] - 1].unused;
    }
    split_live(split, at, event->type == GP_EVENT_ALLOC);
}

int gp_torch_split(struct gp_read *read, const struct gp_torch_span *spans, size_t count, uint8_t device)
{
    struct gp_recording *r = read->recording;
    struct gp_split split = {0};
    bool ok = split_collect(&split, r, spans, count, device);
    for (size_t i = 0; ok && i < r->baseline_count; i++) {
        if (split_on(&r->baseline[i], device, GP_EVENT_SEGMENT_ALLOC))
            split_segment(&split, &r->baseline[i], true);
        if (split_on(&r->baseline[i], device, GP_EVENT_ALLOC))
            split_live(&split, split_find(&split, r->baseline[i].address), true);
    }
    for (size_t i = 0; ok && i < r->event_count; i++)
        if (r->events[i].device == device)
            split_event(&split, r, i);
    free(split.points);
    free(split.here);
    free(split.any);
    free(split.fences);
    free(split.live);
    free(split.made);
    return ok ? 0 : -ENOMEM;
}

bool gp_torch_splits(const struct gp_pickle *settings)
{
    const struct gp_pickle *powers = gp_pickle_get(settings, "roundup_power2_divisions");
    uint32_t count = powers && powers->type == GP_PICKLE_DICT ? powers->items->count : 0;
    for (uint32_t i = 1; i < count; i += 2)
        if (gp_pickle_number(&powers->items->at[i], 0) > 1)
            return false;
    return gp_pickle_number(gp_pickle_get(settings, "max_split_size"), -1) <= 0;
}
