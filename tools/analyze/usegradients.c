/* SPDX-License-Identifier: MIT
 *
 * usegradients.c: finds the moments of a recording at which the gradients of all weights are live;
 * see userules.h.
 */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <analyze/userules.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <stdlib.h>
#include <string.h>

/* PyTorch's allocator does not cut a rest of up to 1 MiB off a block, and reports what it granted.
 * So a gradient may be larger or smaller than its weight by that. */
static struct use_size *use_size_about(struct uses_work *w, const struct gp_rec_event *item)
{
    uint64_t bytes = gp_rec_requested(item), least = USE_ROUNDING + 1;
    uint32_t at, found = UINT32_MAX;
    if (gp_hash_get(&w->by_size, bytes, &at) || bytes <= USE_ROUNDING || w->size_count > USE_ABOUT)
        return gp_use_size(w, item);
    for (uint32_t i = 0; i < w->size_count; i++) {
        uint64_t size = w->sizes[i].bytes, apart = size > bytes ? size - bytes : bytes - size;
        if (size > USE_ROUNDING && apart < least) {
            least = apart;
            found = i;
        }
    }
    /* Also if there is none, so that it is looked for once. */
    w->failed |= gp_hash_set(&w->by_size, bytes, found) != 0;
    return gp_use_size(w, item);
}

static void follow(struct uses_work *w, struct use_size *size, uint32_t id)
{
    if (size->count == size->room && size->room < size->weights * 4 + USE_FOLLOWED) {
        uint32_t room = size->room ? size->room * 2 : 4;
        uint32_t *grown = realloc(size->live, room * sizeof(*grown));
        w->failed |= !grown;
        if (!grown)
            return;
        size->live = grown;
        size->room = room;
    }
    if (size->count == size->room)
        return;
    w->covered += size->count < size->weights ? (int64_t)size->bytes : 0;
    size->live[size->count++] = id;
}

static void unfollow(struct uses_work *w, struct use_size *size, uint32_t id)
{
    for (uint32_t i = 0; i < size->count; i++) {
        if (size->live[i] != id)
            continue;
        memmove(&size->live[i], &size->live[i + 1], (--size->count - i) * sizeof(size->live[0]));
        w->covered -= size->count < size->weights ? (int64_t)size->bytes : 0;
        return;
    }
}

/* Now all gradients are live. Without a thread of the backward pass they are the oldest of each size,
 * because newer ones may be activations of the next step. */
static void mark_gradients(struct uses_work *w)
{
    for (uint32_t i = 0; i < w->size_count; i++) {
        struct use_size *size = &w->sizes[i];
        uint32_t count = w->backward || size->count < size->weights ? size->count : size->weights;
        for (uint32_t k = 0; k < count; k++)
            w->uses->rule[size->live[k]] = w->backward ? RULE_GRADIENTS_THREAD : RULE_GRADIENTS_SIZE;
        GP_RAISE(size->gradients, count);
    }
    w->moments++;
}

static bool is_covered(const struct uses_work *w)
{
    return w->weights > 0 && (double)w->covered >= USE_COVERED * (double)w->weights;
}

/* The main thread waits for the backward pass, so its next event is after the pass. */
static void end_burst(struct uses_work *w, uint32_t event)
{
    bool main = w->recording->events[event].thread == w->main_thread;
    if (main && w->burst && w->covered > 0 && w->covered >= w->other / 2 && w->other <= w->weights + w->weights / 4)
        mark_gradients(w);
    w->burst = !main;
}

/* The first of several frees: all gradients are still there. */
static void cover_falls(struct uses_work *w)
{
    if (w->covered < w->weights / 2)
        w->marked = 0;
    if (!is_covered(w) || w->covered <= w->marked)
        return;
    mark_gradients(w);
    w->marked = w->covered;
}

bool gp_use_is_backward(const struct uses_work *w, const struct gp_rec_event *item)
{
    return w->backward && item->thread != w->main_thread;
}

/* A gradient that is set to zero and not freed. */
static void keep_gradient(struct uses_work *w, struct use_size *size)
{
    if (!size)
        return;
    size->gradients++;
    w->kept++;
}

/* If only some weights are trained, the optimizer has state for these alone. */
static void only_trained(struct uses_work *w)
{
    int64_t trained = 0;
    for (uint32_t i = 0; i < w->size_count; i++) {
        const struct use_size *size = &w->sizes[i];
        trained += size->states >= size->weights ? (int64_t)(size->bytes * size->weights & INT64_MAX >> 8) : 0;
    }
    if (!trained)
        return;
    for (uint32_t i = 0; i < w->size_count; i++) {
        if (w->sizes[i].states < w->sizes[i].weights)
            w->sizes[i].weights = 0;
    }
    w->weights = trained;
}

void gp_use_find_gradients(struct uses_work *w)
{
    struct gp_flow_walk walk = gp_flow_begin(w->flow);
    struct gp_flow_change change;
    if (!w->backward)
        only_trained(w);
    if (!w->backward && w->size_count < 3) /* too few sizes: activations have them by chance */
        return;
    while (!w->failed && gp_flow_next(&walk, &change)) {
        uint32_t lived;
        if (change.event == GP_REC_NONE || change.item->device != w->uses->device || !(change.what & GP_FLOW_SUMMED) ||
            change.what & GP_FLOW_BEFORE)
            continue;
        if (w->backward)
            end_burst(w, change.event);
        struct gp_flow_change start = change;
        start.event = change.id < w->recording->event_count ? change.id : GP_REC_NONE;
        enum use_life life = gp_use_life(w, &start, &lived);
        if (change.add && (life == LIFE_FIRST || life == LIFE_EARLY) && gp_use_is_backward(w, change.item))
            keep_gradient(w, use_size_about(w, change.item));
        if ((life != LIFE_STEP && life != LIFE_SEVERAL && life != LIFE_AFTER) ||
            (w->backward && !gp_use_is_backward(w, change.item)) || gp_use_hint_at(w, change.item) == GP_HINT_WORKSPACE)
            continue;
        struct use_size *size = w->backward ? use_size_about(w, change.item) : gp_use_size(w, change.item);
        int64_t bytes = (int64_t)(gp_rec_requested(change.item) & INT64_MAX >> 8);
        w->other += w->backward ? change.add ? bytes : -bytes : 0;
        if (!size)
            continue;
        if (change.add) {
            follow(w, size, change.id);
            continue;
        }
        if (!w->backward && size->count <= size->weights)
            cover_falls(w);
        unfollow(w, size, change.id);
    }
    if (!w->backward && is_covered(w))
        mark_gradients(w);
    /* One moment is chance, or a program without steps. */
    w->uses->trains = w->moments >= 2 || w->kept >= 2;
}
