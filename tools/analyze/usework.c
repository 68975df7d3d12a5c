/* SPDX-License-Identifier: MIT
 *
 * usework.c: what the walks look up about a block; see userules.h.
 */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <analyze/userules.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>

uint32_t gp_use_step(const struct uses_work *w, uint32_t event)
{
    uint32_t low = 0, high = w->bound_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (w->bounds[middle] <= event)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t gp_use_end(const struct uses_work *w, uint32_t id)
{
    uint32_t end = gp_flow_end(w->flow, id);
    return end == GP_REC_NONE ? w->bound_count : gp_use_step(w, end);
}

enum use_life gp_use_life(const struct uses_work *w, const struct gp_flow_change *change, uint32_t *lived)
{
    uint32_t last = w->bound_count;
    *lived = 0;
    if (change->item->device != w->uses->device || !(change->what & GP_FLOW_SUMMED))
        return LIFE_NONE;
    if (change->event == GP_REC_NONE)
        return LIFE_BEFORE;
    uint32_t from = gp_use_step(w, change->event), to = gp_use_end(w, change->id);
    to = to < from ? from : to;
    *lived = to - from;
    if (from >= last)
        return LIFE_AFTER;
    if (from == 0 && to >= last)
        return LIFE_EARLY;
    if (from == 0 && to <= 1)
        return to ? LIFE_STEP : LIFE_START;
    if (from == 0)
        return LIFE_SEVERAL;
    if (*lived <= 1)
        return LIFE_STEP;
    return to < last ? LIFE_SEVERAL : from <= 2 ? LIFE_FIRST : LIFE_LATE;
}

struct use_key *gp_use_key(const struct uses_work *w, const struct gp_rec_event *item)
{
    uint32_t size = (uint32_t)(gp_hash_of_number(gp_rec_requested(item)) % USE_SIZE_KEYS);
    return &w->keys[item->site && !w->few_sites ? item->site : w->recording->site_count + size];
}

enum gp_use_hint gp_use_hint_at(const struct uses_work *w, const struct gp_rec_event *item)
{
    return w->hints && item->site ? (enum gp_use_hint)w->hints[item->site] : GP_HINT_NONE;
}

struct use_size *gp_use_size(const struct uses_work *w, const struct gp_rec_event *item)
{
    uint32_t at;
    return gp_hash_get(&w->by_size, gp_rec_requested(item), &at) && at < w->size_count ? &w->sizes[at] : NULL;
}
