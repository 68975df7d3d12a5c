/* SPDX-License-Identifier: MIT
 *
 * joined.c: events of which another event says more; see internal.h. Called by read.c when all events
 * are in order.
 */
#include <read/common/hash.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>

/* ==== sizes of imported memory ==================================================================================== */
/* The call that opens memory of another process does not say how much it is. The library asks the
 * driver soon after, and writes a second event for the import. One that ended before has its size in
 * neither; a free that has one gives it to the import. */

static struct gp_rec_event *joined_event(struct gp_recording *r, uint32_t index)
{
    return index < r->baseline_count ? &r->baseline[index] : &r->events[index - r->baseline_count];
}

static uint64_t joined_key(const struct gp_rec_event *event)
{
    return event->address ^ (uint64_t)event->device << 56;
}

static void import_size(struct gp_recording *r, uint32_t open, const struct gp_rec_event *from)
{
    struct gp_rec_event *import = joined_event(r, open);
    if (import->bytes == 0)
        import->bytes = from->bytes;
}

int gp_read_imports(struct gp_recording *r)
{
    struct gp_hash open = {0};
    size_t all = r->baseline_count + r->event_count, kept = 0;
    int error = 0;
    for (size_t i = 0; i < all; i++) {
        const struct gp_rec_event event = *joined_event(r, (uint32_t)i);
        bool opens = event.type == GP_EVENT_ALLOC, is_second = false;
        uint32_t first;
        if (event.kind == GP_KIND_IMPORTED && (opens || event.type == GP_EVENT_FREE) && !error) {
            bool is_open = gp_hash_get(&open, joined_key(&event), &first);
            is_second = opens && is_open && event.bytes && joined_event(r, first)->bytes == 0;
            if (is_open)
                import_size(r, first, &event);
            if (opens && !is_second)
                error = gp_hash_set(&open, joined_key(&event),
                                    (uint32_t)(i < r->baseline_count ? i : r->baseline_count + kept));
            else if (!opens)
                gp_hash_remove(&open, gp_hash_of_number(joined_key(&event)), NULL, NULL);
        }
        if (i >= r->baseline_count && !is_second && event.type != GP_EVENT_NONE)
            r->events[kept++] = event;
    }
    /* What is joined counts as one event. */
    size_t joined = r->event_count - kept;
    r->event_count = kept;
    r->delivered -= joined < r->delivered ? joined : r->delivered;
    r->tried -= joined < r->tried ? joined : r->tried;
    gp_hash_free(&open);
    return error;
}

/* ==== segments from the start ===================================================================================== */
/* What a pool takes counts as an allocation until the pool shows what it is. Then there are a marked
 * free, which no peak of the process has, and a segment of the same memory. The three become one
 * segment, from the first one's time. */

/* The key of what a marked free waits for. */
static uint64_t turned_key(const struct gp_rec_event *event, bool freed)
{
    return joined_key(event) ^ (uint64_t)freed << 63;
}

static void turned_drop(struct gp_hash *open, const struct gp_rec_event *event, bool freed)
{
    gp_hash_remove(open, gp_hash_of_number(turned_key(event, freed)), NULL, NULL);
}

static bool turned_end(struct gp_recording *r, struct gp_hash *open, uint32_t segment)
{
    struct gp_rec_event *event = joined_event(r, segment);
    uint32_t start, freed;
    if (!gp_hash_get(open, turned_key(event, true), &freed) || !gp_hash_get(open, turned_key(event, false), &start) ||
        joined_event(r, start)->bytes != event->bytes)
        return false;
    joined_event(r, start)->type = GP_EVENT_SEGMENT_ALLOC;
    joined_event(r, start)->site = event->site;
    joined_event(r, freed)->type = GP_EVENT_NONE;
    turned_drop(open, event, true);
    turned_drop(open, event, false);
    return true;
}

int gp_read_turned(struct gp_recording *r)
{
    struct gp_hash open = {0};
    size_t all = r->baseline_count + r->event_count;
    int error = 0;
    for (uint32_t i = 0; i < all && !error; i++) {
        struct gp_rec_event *event = joined_event(r, i);
        if (event->kind != GP_KIND_LINEAR)
            continue;
        if (event->type == GP_EVENT_ALLOC)
            turned_drop(&open, event, true);
        if (event->type == GP_EVENT_ALLOC || event->type == GP_READ_TURNED)
            error = gp_hash_set(&open, turned_key(event, event->type != GP_EVENT_ALLOC), i);
        else if (event->type == GP_EVENT_FREE)
            turned_drop(&open, event, false);
        else if (event->type == GP_EVENT_SEGMENT_ALLOC && turned_end(r, &open, i))
            event->type = GP_EVENT_NONE;
        if (event->type == GP_READ_TURNED)
            event->type = GP_EVENT_FREE;
    }
    gp_hash_free(&open);
    return error;
}
