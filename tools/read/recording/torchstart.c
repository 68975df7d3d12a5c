/* SPDX-License-Identifier: MIT
 * torchstart.c: which segments were there before the trace of a snapshot; see torch.h.
 *
 * Of each address the first change in the trace decides: memory that is first taken away was there
 * before, memory that is first added was not, and memory that never changes was there if it is there
 * at the end.  A sweep over the addresses keeps the spans that cover the current one in a heap,
 * ordered by time. */
#include <read/recording/torch.h>

#include <errno.h>
#include <stdlib.h>

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
