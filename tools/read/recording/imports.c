/* SPDX-License-Identifier: MIT
 *
 * imports.c: the sizes of imported memory; see reading.h.
 *
 * The call that opens memory of another process does not say how much it is. The library asks the
 * driver soon after, and writes a second event for the import. One that ended before has its size
 * in neither; a free that has one gives it to the import.
 */
#include <read/recording/reading.h>

#include <errno.h>
#include <read/common/hash.h>

static struct gp_rec_event *imports_event(struct gp_recording *r, uint32_t index)
{
    return index < r->baseline_count ? &r->baseline[index] : &r->events[index - r->baseline_count];
}

static uint64_t imports_key(const struct gp_rec_event *event)
{
    return event->address ^ (uint64_t)event->device << 56;
}

static void imports_size(struct gp_recording *r, uint32_t open, const struct gp_rec_event *from)
{
    struct gp_rec_event *import = imports_event(r, open);
    if (import->bytes == 0)
        import->bytes = from->bytes;
}

int gp_read_imports(struct gp_recording *r)
{
    struct gp_hash open = {0};
    size_t all = r->baseline_count + r->event_count, kept = 0;
    int error = 0;
    for (size_t i = 0; i < all; i++) {
        const struct gp_rec_event event = *imports_event(r, (uint32_t)i);
        bool opens = event.type == GP_EVENT_ALLOC, is_second = false;
        uint32_t first;
        if (event.kind == GP_KIND_IMPORTED && (opens || event.type == GP_EVENT_FREE) && !error) {
            bool is_open = gp_hash_get(&open, imports_key(&event), &first);
            is_second = opens && is_open && event.bytes && imports_event(r, first)->bytes == 0;
            if (is_open)
                imports_size(r, first, &event);
            if (opens && !is_second)
                error = gp_hash_set(&open, imports_key(&event),
                                    (uint32_t)(i < r->baseline_count ? i : r->baseline_count + kept));
            else if (!opens)
                gp_hash_remove(&open, gp_hash_of_number(imports_key(&event)), NULL, NULL);
        }
        if (i >= r->baseline_count && !is_second)
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
