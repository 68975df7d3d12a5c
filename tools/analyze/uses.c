/* SPDX-License-Identifier: MIT
 *
 * uses.c: see report.h.  Four walks over the flow: the first counts (which sizes the weights have,
 * which call sites recur), the second finds the moments at which all gradients are live
 * (usegradients.c), the third decides (userules.c), the fourth sums up.
 */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <analyze/report.h>
#include <analyze/userules.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>

#include <stdlib.h>
#include <string.h>

/* ---- the first walk: what there is ------------------------------------------------------------------------------- */

static void count_weight(struct uses_work *w, const struct gp_rec_event *item)
{
    uint64_t bytes = gp_rec_requested(item);
    bool added;
    const uint32_t *at = gp_hash_add(&w->by_size, gp_hash_of_number(bytes), NULL, NULL, w->size_count, &added);
    if (at && added && w->size_count == w->size_room) {
        uint32_t room = w->size_room ? w->size_room * 2 : 64;
        struct use_size *grown = realloc(w->sizes, room * sizeof(*grown));
        if (grown) {
            w->sizes = grown;
            w->size_room = room;
        }
    }
    if (!at || (added && w->size_count == w->size_room)) {
        w->failed = true;
        return;
    }
    if (added)
        w->sizes[w->size_count++] = (struct use_size){.bytes = bytes};
    w->sizes[*at].weights++;
    w->weights = (int64_t)(((uint64_t)w->weights + bytes) & INT64_MAX);
}

static bool is_weight_hint(enum gp_use_hint hint)
{
    return hint == GP_HINT_NONE || hint == GP_HINT_WEIGHTS || hint == GP_HINT_FORWARD;
}

static void count_block(struct uses_work *w, const struct gp_flow_change *change)
{
    const struct gp_rec_event *item = change->item;
    uint32_t lived;
    enum use_life life = gp_use_life(w, change, &lived);
    struct use_key *key = gp_use_key(w, item);
    if (life == LIFE_EARLY && !w->has_main) {
        w->has_main = true;
        w->main_thread = item->thread;
    }
    if (life == LIFE_EARLY && item->thread == w->main_thread && is_weight_hint(gp_use_hint_at(w, item)))
        count_weight(w, item);
    if (life == LIFE_STEP) {
        w->brief[item->thread]++;
        key->within += !lived;
        key->crossing += lived;
    }
    struct use_size *size = life == LIFE_FIRST ? gp_use_size(w, item) : NULL;
    if (size)
        size->states++;
    if (life != LIFE_FIRST && life != LIFE_LATE && life != LIFE_SEVERAL)
        return;
    uint32_t step = gp_use_step(w, change->event) + 1;
    uint32_t ends = gp_use_end(w, change->id);
    key->together += key->last_step && key->last_step != step && key->last_end == ends && ends < w->bound_count;
    key->last_end = ends;
    key->steps += key->last_step != step;
    key->last_step = step;
    key->count++;
    key->lived += lived;
}

/* A cache that grows by concatenation: a block a little larger is made, then the old one freed. Its
 * size may fall by what the allocator grants in excess. */
static void count_chain(struct uses_work *w, const struct gp_flow_change *change)
{
    const struct gp_rec_event *events = w->recording->events, *old = change->item, *made = NULL;
    if (change->event == GP_REC_NONE || old->device != w->uses->device || !(change->what & GP_FLOW_SUMMED))
        return;
    if (change->add) {
        w->newest = change->id;
        return;
    }
    if (w->newest < w->recording->event_count)
        made = &events[w->newest];
    if (!made || w->newest == change->id || made->thread != events[change->event].thread)
        return;
    uint8_t length = w->chain[change->id];
    bool larger = made->bytes > old->bytes && made->bytes - old->bytes <= old->bytes / 4 + USE_CHAIN_STEP;
    bool about = length >= USE_CHAIN && made->bytes <= old->bytes && old->bytes - made->bytes <= USE_ROUNDING;
    if (larger || about || (length && made->bytes == old->bytes))
        w->chain[w->newest] = (uint8_t)(length + (larger && length < UINT8_MAX));
    w->newest = GP_REC_NONE;
}

static void walk_counts(struct uses_work *w)
{
    struct gp_flow_walk walk = gp_flow_begin(w->flow);
    struct gp_flow_change change;
    uint64_t brief = 0, of_main;
    while (!w->failed && gp_flow_next(&walk, &change)) {
        if (change.add && w->bound_count)
            count_block(w, &change);
        count_chain(w, &change);
    }
    for (uint32_t i = 0; i < w->recording->thread_count; i++)
        brief += w->brief[i];
    /* The backward pass of PyTorch has a thread of its own.  The threads of a server do all the work,
     * and the one that loaded the weights none. */
    of_main = w->recording->thread_count ? w->brief[w->main_thread] : 0;
    w->backward = (brief - of_main) * 20 >= brief && of_main * 20 >= brief && brief;
}

/* ---- the fourth walk: sums --------------------------------------------------------------------------------------- */

static void walk_sums(struct uses_work *w)
{
    struct gp_use_table *uses = w->uses;
    struct gp_flow_walk walk = gp_flow_begin(w->flow);
    struct gp_flow_change change;
    int64_t held[GP_USE_RULES] = {0}, at_peak[GP_USE_RULES] = {0}, level = 0, peak = 0;
    while (gp_flow_next(&walk, &change)) {
        bool summed = change.what & GP_FLOW_SUMMED;
        if (change.item->device != uses->device || (!summed && uses->rule[change.id] != RULE_GRAPH_NODES))
            continue;
        uint64_t bytes = summed ? gp_flow_bytes(&change) : change.item->bytes;
        bytes = change.add ? bytes : -bytes;
        uint8_t rule = uses->rule[change.id];
        struct gp_use_row *row = &uses->rows[rule];
        held[rule] = (int64_t)((uint64_t)held[rule] + bytes);
        row->count += change.add;
        GP_RAISE(row->peak_bytes, held[rule]);
        if (!summed)
            continue;
        level = (int64_t)((uint64_t)level + bytes);
        if (level > peak) {
            peak = level;
            memcpy(at_peak, held, sizeof(held));
        }
    }
    for (uint32_t i = 0; i < RULES; i++) {
        struct gp_use_row *row = &uses->rows[i];
        row->at_peak_bytes = i == RULE_GRAPH_NODES ? 0 : at_peak[i];
        row->end_bytes = held[i];
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static uint32_t use_event_at(const struct gp_recording *recording, uint64_t time_ns)
{
    size_t low = 0, high = recording->event_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (recording->events[middle].time_ns < time_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

static bool uses_prepare(struct uses_work *w, const struct gp_steps *steps, const struct gp_leaks *leaks)
{
    const struct gp_recording *recording = w->recording;
    bool rhythm = steps && steps->count >= 2 && steps->source != GP_STEPS_TIME && steps->source != GP_STEPS_GIVEN;
    w->bound_count = rhythm ? steps->count + 1 : 0;
    w->bounds = calloc(w->bound_count + 1ul, sizeof(*w->bounds));
    w->keys = calloc((size_t)recording->site_count + USE_SIZE_KEYS, sizeof(*w->keys));
    w->brief = calloc(recording->thread_count + 1ul, sizeof(*w->brief));
    w->uses->rule = calloc(recording->event_count + recording->baseline_count + 1, 1);
    w->chain = calloc(recording->event_count + recording->baseline_count + 1, 1);
    w->newest = GP_REC_NONE;
    if (!w->chain || !w->bounds || !w->keys || !w->brief || !w->uses->rule)
        return false;
    w->few_sites = recording->site_count < 4;
    for (uint32_t i = 0; i < w->bound_count; i++)
        w->bounds[i] = use_event_at(recording, steps->bounds_ns[i]);
    for (uint32_t i = 0; leaks && i < leaks->count; i++) {
        if (leaks->suspects[i].site && leaks->suspects[i].device == w->uses->device)
            w->keys[leaks->suspects[i].site].grows = true;
    }
    return true;
}

struct gp_use_table *gp_uses_find(const struct gp_flow *flow, const struct gp_steps *steps,
                                  const struct gp_leaks *leaks, const uint8_t *hints, uint32_t device)
{
    struct gp_use_table *uses = calloc(1, sizeof(*uses));
    struct uses_work w = {.flow = flow, .recording = flow->recording, .hints = hints, .uses = uses};
    bool ok = uses != NULL;
    if (ok)
        uses->device = device;
    ok = ok && uses_prepare(&w, steps, leaks);
    ok = ok && (!hints || gp_use_find_runs(&w));
    if (ok)
        walk_counts(&w);
    if (ok && w.bound_count)
        gp_use_find_gradients(&w);
    ok = ok && !w.failed;
    if (ok) {
        uses->trains |= w.stacks;
        gp_use_decide(&w);
        walk_sums(&w);
        gp_use_name_rows(uses);
    }
    for (uint32_t i = 0; i < w.size_count; i++)
        free(w.sizes[i].live);
    gp_hash_free(&w.by_size);
    free(w.sizes);
    free(w.bounds);
    free(w.keys);
    free(w.chain);
    free(w.brief);
    free(w.backward_runs.list);
    free(w.optimizer_runs.list);
    free(w.weight_runs.list);
    free(w.forward_runs.list);
    if (ok)
        return uses;
    gp_uses_free(uses);
    return NULL;
}

/* ---- by call site ------------------------------------------------------------------------------------------------ */

/* One part in so many may be for another use: what a row says is of all of it. */
#define USE_REST 64u

struct use_site {
    uint64_t peak[GP_USE_RULES], all[GP_USE_RULES]; /* bytes at the peak, allocated: by rule */
};

static uint8_t use_most(const struct gp_use_table *uses, const uint64_t bytes[GP_USE_RULES])
{
    uint64_t sum = 0, by_use[GP_USES] = {0};
    double sure = 0;
    unsigned most = 0;
    for (unsigned rule = 0; rule < GP_USE_RULES; rule++) {
        by_use[uses->rows[rule].use] += bytes[rule];
        sum += bytes[rule];
    }
    for (unsigned use = 0; use < GP_USES; use++)
        most = by_use[use] > by_use[most] ? use : most;
    if (most == GP_USE_UNKNOWN || !sum || sum - by_use[most] > sum / USE_REST)
        return 0;
    for (unsigned rule = 0; rule < GP_USE_RULES; rule++)
        sure += uses->rows[rule].use == most ? uses->rows[rule].confidence * (double)bytes[rule] : 0;
    bool probably = most != GP_USE_GROWS && sure < GP_USE_PLAIN * (double)by_use[most];
    return (uint8_t)((1 + most) | (probably ? GP_USE_PROBABLY : 0));
}

bool gp_uses_by_site(const struct gp_use_table *uses, const struct gp_flow *flow, uint32_t event, uint8_t *sites)
{
    uint32_t count = flow->recording->site_count;
    struct use_site *work = calloc(count + 1ul, sizeof(*work));
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    bool passed = false;
    while (work && gp_flow_next(&walk, &change)) {
        passed |= change.event != GP_REC_NONE && (event == GP_REC_NONE || change.event > event);
        if (change.item->device != uses->device || !(change.what & GP_FLOW_SUMMED))
            continue;
        unsigned rule = uses->rule[change.id];
        uint64_t bytes = gp_flow_bytes(&change);
        struct use_site *site = &work[change.item->site];
        if (!passed)
            site->peak[rule] += change.add ? bytes : -bytes;
        site->all[rule] += change.add ? bytes : 0;
    }
    for (uint32_t i = 0; work && i < count; i++) {
        bool held = false;
        for (unsigned rule = 0; rule < GP_USE_RULES; rule++)
            held |= work[i].peak[rule] != 0;
        uint8_t most = use_most(uses, held ? work[i].peak : work[i].all);
        sites[i] = most ? most : sites[i];
    }
    free(work);
    return work;
}

/* The last part of the forward pass whose activations the backward pass needs first. */
#define USE_LAST_PART 16u

uint32_t gp_uses_spared(const struct gp_use_table *uses, const struct gp_flow *flow, uint32_t event)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    while (event != GP_REC_NONE && gp_flow_next(&walk, &change)) {
        if (!change.add || change.event == GP_REC_NONE || change.item->device != uses->device ||
            uses->rows[uses->rule[change.id]].use != GP_USE_ACTIVATIONS)
            continue;
        uint32_t end = gp_flow_end(flow, change.id);
        if (change.event > event)
            return 0;
        if (end == GP_REC_NONE || end > event)
            return event - (event - change.event + USE_LAST_PART - 1) / USE_LAST_PART;
    }
    return 0;
}

void gp_uses_free(struct gp_use_table *uses)
{
    if (uses)
        free(uses->rule);
    free(uses);
}
