/* SPDX-License-Identifier: MIT
 * refused.c: the requests of a recording that got no memory, and that nothing served later; see analyze.h.
 *
 * An allocator that finds no memory gives back what it holds idle and asks again: its thread's next request of the device
 * is the same one.  A program that falls back asks for less, or for something else, and what it first wanted is
 * refused for good, also if a later step gets as much. */
#include <analyze/analyze.h>
#include <base/numbers.h>
#include <read/common/hash.h>
#include <stdlib.h>

struct refused_chain { /* one request that a thread repeats; GP_REC_NONE: it has none */
    uint32_t last;     /* ordinal among the failures */
    uint64_t bytes;
};

struct refused_work {
    const struct gp_recording *recording;
    struct gp_refused *found; /* all failures, in order */
    uint32_t *before;         /* of each failure: the one that it repeats */
    bool *served;
    struct gp_hash threads; /* of a thread on a device: index in chains */
    struct refused_chain *chains;
    uint32_t chain_count;
};

static uint64_t refused_key(const struct gp_rec_event *event)
{
    return gp_hash_of_number((uint64_t)event->thread << 8 | event->device);
}

static void refused_serve(struct refused_work *w, struct refused_chain *chain)
{
    for (uint32_t at = chain->last; at != GP_REC_NONE; at = w->before[at])
        w->served[at] = true;
}

static bool refused_fails(struct refused_work *w, uint32_t ordinal, const struct gp_rec_event *event)
{
    bool added = false;
    uint32_t *at = gp_hash_add(&w->threads, refused_key(event), NULL, NULL, w->chain_count, &added);
    if (!at)
        return false;
    struct refused_chain *chain = &w->chains[*at];
    if (added)
        w->chain_count++;
    bool again = !added && chain->last != GP_REC_NONE && chain->bytes == event->bytes;
    w->before[ordinal] = again ? chain->last : GP_REC_NONE;
    *chain = (struct refused_chain){ordinal, event->bytes};
    return true;
}

/* Whether it is what the program has asked for: not a segment, in which an allocator puts that. */
static bool refused_is_asked(const struct gp_rec_event *event)
{
    bool type = event->type == GP_EVENT_ALLOC || (event->type == GP_EVENT_SEGMENT_ALLOC && event->kind == GP_KIND_VMM);
    return type && event->device != GP_REC_NO_DEVICE && gp_kind_sums(event->kind);
}

static void refused_gets(struct refused_work *w, const struct gp_rec_event *event)
{
    const uint32_t *at = gp_hash_find(&w->threads, refused_key(event), NULL, NULL);
    if (!at || w->chains[*at].last == GP_REC_NONE)
        return;
    if (event->bytes == w->chains[*at].bytes || gp_rec_requested(event) == w->chains[*at].bytes)
        refused_serve(w, &w->chains[*at]);
    w->chains[*at].last = GP_REC_NONE;
}

/* A context or code that got no memory has no size of its own.  Who then gets memory of the device has a context. */
static void refused_contexts(struct refused_work *w, const uint64_t *last)
{
    for (size_t i = 0; i < w->found->count; i++) {
        const struct gp_rec_event *event = &w->recording->events[w->found->events[i]];
        uint64_t until = 0;
        for (unsigned device = 0; device < GP_REC_NO_DEVICE; device++)
            if (event->device == device || event->device == GP_REC_NO_DEVICE)
                GP_RAISE(until, last[device]);
        w->served[i] |= event->bytes == 0 && until > w->found->events[i];
    }
}

static bool refused_walk(struct refused_work *w)
{
    const struct gp_recording *recording = w->recording;
    uint64_t last[GP_REC_NO_DEVICE] = {0}; /* the last event with which a device gave memory */
    uint32_t ordinal = 0;
    for (uint32_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->type == GP_EVENT_OOM) {
            w->found->events[ordinal] = i;
            if (!refused_fails(w, ordinal++, event))
                return false;
        } else if (refused_is_asked(event)) {
            last[event->device] = i;
            refused_gets(w, event);
        }
    }
    refused_contexts(w, last);
    return true;
}

struct gp_refused *gp_refused_find(const struct gp_recording *recording)
{
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < recording->event_count; i++)
        count += recording->events[i].type == GP_EVENT_OOM;
    struct gp_refused *found = calloc(1, sizeof(*found) + (count + 1) * sizeof(found->events[0]));
    struct refused_work w = {.recording = recording, .found = found};
    w.before = calloc(count + 1, sizeof(*w.before));
    w.served = calloc(count + 1, sizeof(*w.served));
    w.chains = calloc(count + 1, sizeof(*w.chains));
    bool ok = found && w.before && w.served && w.chains;
    if (ok) {
        found->count = count;
        ok = count == 0 || refused_walk(&w);
    }
    for (size_t i = 0; ok && i < count; i++)
        if (!w.served[i])
            found->events[kept++] = found->events[i];
    if (ok)
        found->count = kept;
    free(w.before);
    free(w.served);
    free(w.chains);
    gp_hash_free(&w.threads);
    if (ok)
        return found;
    free(found);
    return NULL;
}
