/* SPDX-License-Identifier: MIT
 * uses.c: see uses.h.  Four walks over the flow: the first counts (which sizes the weights have,
 * which call sites recur), the second finds the moments at which all gradients are live, the third
 * decides, the fourth sums up. */
#include <analyze/uses.h>

#include <common/hash.h>
#include <stdlib.h>
#include <string.h>

/* ---- rules ------------------------------------------------------------------------------------------------------- */

enum use_rule {
    RULE_NO_STEPS,
    RULE_BEFORE,
    RULE_FIRST,
    RULE_SIZE,
    RULE_GROWS,
    RULE_SEVERAL,
    RULE_CROSSES,
    RULE_ALONE,
    RULE_WEIGHTS_MATCHED,
    RULE_WEIGHTS_NAME,
    RULE_WEIGHTS_LIFE,
    RULE_GRADIENTS_THREAD,
    RULE_GRADIENTS_SIZE,
    RULE_GRADIENTS_KEPT,
    RULE_OPTIMIZER_NAME,
    RULE_OPTIMIZER_SIZE,
    RULE_ACTIVATIONS,
    RULE_IN_STEP,
    RULE_KV_NAME,
    RULE_KV_CHAIN,
    RULE_KV_LONG,
    RULE_KV_GROWS,
    RULE_GRAPH_NODES,
    RULE_GRAPHS_NAME,
    RULE_LIBRARY,
    RULE_WORKSPACE_NAME,
    RULE_COMMUNICATION,
    RULE_TEMPORARY,
    RULES
};
_Static_assert(RULES <= GP_USE_RULES, "the rows have room for all rules");

static const struct {
    enum gp_use use;
    double confidence;
    const char *reason;
} use_rules[RULES] = {
    [RULE_NO_STEPS] = {GP_USE_UNKNOWN, 0, "no steps were found, so lifetimes tell nothing"},
    [RULE_BEFORE] = {GP_USE_UNKNOWN, 0, "was there when the recording began"},
    [RULE_FIRST] = {GP_USE_UNKNOWN, 0, "came in the first steps and stays; its size and place tell nothing"},
    [RULE_SIZE] = {GP_USE_UNKNOWN, 0, "lives for a step and has the size of a weight: gradient or activation"},
    [RULE_GROWS] = {GP_USE_UNKNOWN, 0, "comes with the steps and stays, while the program trains: see gpuprof leaks"},
    [RULE_SEVERAL] = {GP_USE_UNKNOWN, 0, "lives for several steps, without a rhythm"},
    [RULE_CROSSES] = {GP_USE_UNKNOWN, 0, "is still there when the next step begins, and goes in it"},
    [RULE_ALONE] = {GP_USE_UNKNOWN, 0, "came after the steps, where nothing came before"},
    [RULE_WEIGHTS_MATCHED] = {GP_USE_WEIGHTS, 0.9, "stays from before the first step; gradients have its size"},
    [RULE_WEIGHTS_NAME] = {GP_USE_WEIGHTS, 0.9, "stays, and a function on its stack loads weights"},
    [RULE_WEIGHTS_LIFE] = {GP_USE_WEIGHTS, 0.6, "stays from before the first step: a weight, or a buffer made early"},
    [RULE_GRADIENTS_THREAD] = {GP_USE_GRADIENTS, 0.9,
                               "outlives the backward pass, whose thread made it; weights have its size"},
    [RULE_GRADIENTS_SIZE] = {GP_USE_GRADIENTS, 0.7, "in each step there is one for each weight, of its size"},
    [RULE_GRADIENTS_KEPT] = {GP_USE_GRADIENTS, 0.8,
                             "made by the thread of the backward pass, and stays; weights have its size"},
    [RULE_OPTIMIZER_NAME] = {GP_USE_OPTIMIZER, 0.95, "stays, and an optimizer is on its stack"},
    [RULE_OPTIMIZER_SIZE] = {GP_USE_OPTIMIZER, 0.7, "came in the first steps and stays; weights have its size"},
    [RULE_ACTIVATIONS] = {GP_USE_ACTIVATIONS, 0.8, "lives for a step at most"},
    [RULE_IN_STEP] = {GP_USE_ACTIVATIONS, 0.6, "lives for a step at most; no backward pass was seen"},
    [RULE_KV_NAME] = {GP_USE_KV_CACHE, 0.9, "a function or file on its stack has a KV cache in its name"},
    [RULE_KV_CHAIN] = {GP_USE_KV_CACHE, 0.7, "replaces a block that is a little smaller, time after time"},
    [RULE_KV_LONG] = {GP_USE_KV_CACHE, 0.6, "comes step by step, and goes together after several steps"},
    [RULE_KV_GROWS] = {GP_USE_KV_CACHE, 0.5, "comes with the steps and stays; a leak looks the same"},
    [RULE_GRAPH_NODES] = {GP_USE_GRAPHS, 1, "nodes of CUDA graphs asked for it (not part of the allocated bytes)"},
    [RULE_GRAPHS_NAME] = {GP_USE_GRAPHS, 0.8, "a function or file on its stack captures graphs"},
    [RULE_LIBRARY] = {GP_USE_WORKSPACE, 0.9, "a library of mathematical functions asked for it"},
    [RULE_WORKSPACE_NAME] = {GP_USE_WORKSPACE, 0.8, "a function on its stack has a workspace in its name"},
    [RULE_COMMUNICATION] = {GP_USE_COMMUNICATION, 0.95, "a library of communication asked for it"},
    [RULE_TEMPORARY] = {GP_USE_TEMPORARY, 0.8, "came and went before the steps"},
};

const char *gp_use_name(enum gp_use use)
{
    static const char *const names[GP_USES] = {
        [GP_USE_WEIGHTS] = "weights",     [GP_USE_GRADIENTS] = "gradients",
        [GP_USE_OPTIMIZER] = "optimizer", [GP_USE_ACTIVATIONS] = "activations",
        [GP_USE_KV_CACHE] = "kv_cache",   [GP_USE_GRAPHS] = "graphs",
        [GP_USE_WORKSPACE] = "workspace", [GP_USE_COMMUNICATION] = "communication",
        [GP_USE_TEMPORARY] = "temporary", [GP_USE_UNKNOWN] = "unknown"};
    return names[use];
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

/* Blocks without a stack are told apart by their sizes. */
#define USE_SIZE_KEYS 4096u
/* A weight may have a few transient blocks of its size at once.  More are not followed. */
#define USE_FOLLOWED   64u
#define USE_ROUNDING   (1u << 20)
#define USE_CHAIN      8u          /* so often a block is replaced by a larger one before it is a cache */
#define USE_CHAIN_STEP (64u << 10) /* a small cache may double */
#define USE_ABOUT      1024u       /* sizes of weights among which a near one is looked for */
#define USE_COVERED    0.9         /* part of the weights that must have a gradient */

enum use_life {
    LIFE_NONE,    /* not allocated memory of this device */
    LIFE_BEFORE,  /* was there when the recording began */
    LIFE_START,   /* came and went before the first step */
    LIFE_EARLY,   /* from before the first step to the end */
    LIFE_FIRST,   /* from one of the first two steps to the end */
    LIFE_LATE,    /* from a later step to the end, two bounds of steps at least */
    LIFE_STEP,    /* at most one bound of steps in its life */
    LIFE_SEVERAL, /* several, but not to the end */
    LIFE_AFTER    /* after the last bound */
};

struct use_size { /* blocks of one size that a weight has */
    uint64_t bytes;
    uint32_t weights;            /* blocks that are weights by their lifetime */
    uint32_t gradients;          /* the most that were gradients at a moment */
    uint32_t states;             /* blocks that came in the first steps and stay */
    uint32_t first;              /* of blocks that came in the first steps: how many were seen */
    uint32_t count, room, *live; /* ids of transient blocks, oldest first */
};

struct use_key {               /* a call site, or a size without one */
    uint32_t last_step, steps; /* steps in which blocks that outlive their step came */
    uint32_t count;
    uint32_t last_end, together; /* blocks that came in another step than the one before, and go in the same */
    uint32_t within, crossing;   /* blocks that live for a step at most, without and with a bound in their life */
    uint64_t lived;              /* sum of their lives, in bounds of steps */
    uint8_t rule;                /* of its newest transient block */
    bool grows;                  /* a suspect of `leaks` */
};

struct uses_work {
    const struct gp_flow *flow;
    const struct gp_recording *recording;
    const uint8_t *hints;
    struct gp_use_table *uses;
    uint32_t *bounds; /* events; bound_count of them, 0 without a rhythm */
    uint32_t bound_count;
    struct gp_hash by_size;
    struct use_size *sizes;
    uint32_t size_count, size_room;
    struct use_key *keys;
    uint64_t *brief; /* by thread: blocks that live for a step */
    bool has_main;
    uint32_t main_thread;     /* asked for the first weight */
    bool few_sites;           /* hardly more than one, which tell nothing */
    bool backward;            /* other threads make part of the transient blocks */
    int64_t weights, covered; /* bytes of weights; of those that have a transient block of their size now */
    int64_t other;            /* bytes of transient blocks of other threads */
    bool burst;               /* the newest event was one of another thread */
    int64_t marked;           /* covered, when gradients were found last; 0 after the weights were hardly covered */
    uint32_t kept;            /* gradients that stay from step to step */
    uint32_t moments;         /* at which gradients were found */
    uint8_t *chain;           /* by id: how often it and its forerunners replaced a smaller block */
    uint32_t newest;          /* id of the newest block; GP_REC_NONE */
    bool failed;
};

/* How many bounds are at this event or before: 0 is before the first step. */
static uint32_t use_step(const struct uses_work *w, uint32_t event)
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

static uint32_t use_end(const struct uses_work *w, uint32_t id)
{
    uint32_t end = gp_flow_end(w->flow, id);
    return end == GP_REC_NONE ? w->bound_count : use_step(w, end);
}

static enum use_life use_life(const struct uses_work *w, const struct gp_flow_change *change, uint32_t *lived)
{
    uint32_t last = w->bound_count;
    *lived = 0;
    if (change->item->device != w->uses->device || !(change->what & GP_FLOW_SUMMED))
        return LIFE_NONE;
    if (change->event == GP_REC_NONE)
        return LIFE_BEFORE;
    uint32_t from = use_step(w, change->event), to = use_end(w, change->id);
    to = to < from ? from : to;
    *lived = to - from;
    if (from >= last)
        return LIFE_AFTER;
    if (from == 0)
        return to >= last ? LIFE_EARLY : !to ? LIFE_START : to == 1 ? LIFE_STEP : LIFE_SEVERAL;
    if (*lived <= 1)
        return LIFE_STEP;
    return to < last ? LIFE_SEVERAL : from <= 2 ? LIFE_FIRST : LIFE_LATE;
}

static struct use_key *use_key(const struct uses_work *w, const struct gp_rec_event *item)
{
    uint32_t size = (uint32_t)(gp_hash_of_number(gp_rec_requested(item)) % USE_SIZE_KEYS);
    return &w->keys[item->site && !w->few_sites ? item->site : w->recording->site_count + size];
}

static enum gp_use_hint use_hint(const struct uses_work *w, const struct gp_rec_event *item)
{
    return w->hints && item->site ? (enum gp_use_hint)w->hints[item->site] : GP_HINT_NONE;
}

static struct use_size *use_size(const struct uses_work *w, const struct gp_rec_event *item)
{
    uint32_t at;
    return gp_hash_get(&w->by_size, gp_rec_requested(item), &at) && at < w->size_count ? &w->sizes[at] : NULL;
}

/* PyTorch's allocator does not cut a rest of up to 1 MiB off a block, and reports what it granted.
 * So a gradient may be larger or smaller than its weight by that. */
static struct use_size *use_size_about(struct uses_work *w, const struct gp_rec_event *item)
{
    uint64_t bytes = gp_rec_requested(item), least = USE_ROUNDING + 1;
    uint32_t at, found = UINT32_MAX;
    if (gp_hash_get(&w->by_size, bytes, &at) || bytes <= USE_ROUNDING || w->size_count > USE_ABOUT)
        return use_size(w, item);
    for (uint32_t i = 0; i < w->size_count; i++) {
        uint64_t size = w->sizes[i].bytes, apart = size > bytes ? size - bytes : bytes - size;
        if (size > USE_ROUNDING && apart < least) {
            least = apart;
            found = i;
        }
    }
    /* Also if there is none, so that it is looked for once. */
    w->failed |= gp_hash_set(&w->by_size, bytes, found) != 0;
    return use_size(w, item);
}

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

static void count_block(struct uses_work *w, const struct gp_flow_change *change)
{
    const struct gp_rec_event *item = change->item;
    uint32_t lived;
    enum use_life life = use_life(w, change, &lived);
    struct use_key *key = use_key(w, item);
    if (life == LIFE_EARLY && !w->has_main) {
        w->has_main = true;
        w->main_thread = item->thread;
    }
    if (life == LIFE_EARLY && item->thread == w->main_thread &&
        (use_hint(w, item) == GP_HINT_NONE || use_hint(w, item) == GP_HINT_WEIGHTS))
        count_weight(w, item);
    if (life == LIFE_STEP) {
        w->brief[item->thread]++;
        key->within += !lived;
        key->crossing += lived;
    }
    struct use_size *size = life == LIFE_FIRST ? use_size(w, item) : NULL;
    if (size)
        size->states++;
    if (life != LIFE_FIRST && life != LIFE_LATE && life != LIFE_SEVERAL)
        return;
    uint32_t step = use_step(w, change->event) + 1;
    uint32_t ends = use_end(w, change->id);
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
    const struct gp_rec_event *events = w->recording->events, *old = change->item, *new = NULL;
    if (change->event == GP_REC_NONE || old->device != w->uses->device || !(change->what & GP_FLOW_SUMMED))
        return;
    if (change->add) {
        w->newest = change->id;
        return;
    }
    if (w->newest < w->recording->event_count)
        new = &events[w->newest];
    if (!new || w->newest == change->id || new->thread != events[change->event].thread)
        return;
    uint8_t length = w->chain[change->id];
    bool larger = new->bytes > old->bytes &&new->bytes - old->bytes <= old->bytes / 4 + USE_CHAIN_STEP;
    bool about = length >= USE_CHAIN && new->bytes <= old->bytes && old->bytes - new->bytes <= USE_ROUNDING;
    if (larger || about || (length && new->bytes == old->bytes))
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

/* ---- the second walk: gradients ---------------------------------------------------------------------------------- */

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
        size->gradients = count > size->gradients ? count : size->gradients;
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

static bool is_backward(const struct uses_work *w, const struct gp_rec_event *item)
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

static void walk_gradients(struct uses_work *w)
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
        enum use_life life = use_life(w, &start, &lived);
        if (change.add && (life == LIFE_FIRST || life == LIFE_EARLY) && is_backward(w, change.item))
            keep_gradient(w, use_size_about(w, change.item));
        if ((life != LIFE_STEP && life != LIFE_SEVERAL && life != LIFE_AFTER) ||
            (w->backward && !is_backward(w, change.item)) || use_hint(w, change.item) == GP_HINT_WORKSPACE)
            continue;
        struct use_size *size = w->backward ? use_size_about(w, change.item) : use_size(w, change.item);
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

/* ---- the third walk: decisions ----------------------------------------------------------------------------------- */

static enum use_rule rule_of_hint(enum gp_use_hint hint, enum use_life life)
{
    bool stays = life == LIFE_EARLY || life == LIFE_FIRST || life == LIFE_LATE || life == LIFE_BEFORE;
    switch (hint) {
    case GP_HINT_COMMUNICATION:
        return RULE_COMMUNICATION;
    case GP_HINT_LIBRARY:
        return RULE_LIBRARY;
    case GP_HINT_WORKSPACE:
        return RULE_WORKSPACE_NAME;
    case GP_HINT_GRAPHS:
        return life == LIFE_STEP ? RULES : RULE_GRAPHS_NAME;
    case GP_HINT_KV_CACHE:
        return RULE_KV_NAME;
    case GP_HINT_OPTIMIZER:
        return stays ? RULE_OPTIMIZER_NAME : RULES;
    case GP_HINT_WEIGHTS:
        return stays ? RULE_WEIGHTS_NAME : RULES;
    case GP_HINT_NONE:
        break;
    }
    return RULES;
}

/* Blocks that come with many steps and stay longer than their step. */
static enum use_rule rule_of_growth(const struct uses_work *w, const struct use_key *key, enum use_life life)
{
    uint32_t often = w->bound_count / 8 > 4 ? w->bound_count / 8 : 4;
    if (life == LIFE_STEP)
        return key->grows ? RULE_KV_GROWS : RULES;
    if (key->steps < often)
        return RULES;
    if (w->uses->trains)
        return RULE_GROWS;
    if (life != LIFE_SEVERAL && key->grows)
        return RULE_KV_GROWS;
    /* The blocks of a request go together. A buffer goes when the next one comes. */
    return key->together >= 4 && key->together >= key->count / 16 ? RULE_KV_LONG : RULE_SEVERAL;
}

static enum use_rule rule_of_first(const struct uses_work *w, const struct gp_rec_event *item, struct use_size *size)
{
    if (!size)
        return RULE_FIRST;
    if (is_backward(w, item))
        return RULE_GRADIENTS_KEPT;
    /* Optimizers of PyTorch keep up to three numbers for each weight. */
    if (w->uses->trains && size->gradients && size->first++ < size->weights * 3)
        return RULE_OPTIMIZER_SIZE;
    return RULE_FIRST;
}

static enum use_rule rule_of_transient(struct uses_work *w, const struct gp_rec_event *item, uint32_t lived)
{
    const struct use_size *size = use_size(w, item);
    const struct use_key *key = use_key(w, item);
    bool told = w->uses->trains || w->backward; /* which transient blocks are gradients */
    /* Most of its kind live longer: it came shortly before they went. */
    if (!told && key->count > key->within + key->crossing && rule_of_growth(w, key, LIFE_SEVERAL) != RULES)
        return rule_of_growth(w, key, LIFE_SEVERAL);
    /* A name may keep the newest result of a loop until the next one is there. */
    if (lived && key->crossing > key->within / 4)
        return RULE_CROSSES;
    return size && !told && (w->size_count < 3 || size->states) ? RULE_SIZE
           : w->uses->trains                                    ? RULE_ACTIVATIONS
                                                                : RULE_IN_STEP;
}

static enum use_rule rule_of_life(struct uses_work *w, const struct gp_rec_event *item, enum use_life life,
                                  uint32_t lived)
{
    struct use_key *key = use_key(w, item);
    struct use_size *size = use_size(w, item);
    enum use_rule rule;
    switch (life) {
    case LIFE_BEFORE:
        return RULE_BEFORE;
    case LIFE_START:
        return RULE_TEMPORARY;
    case LIFE_EARLY:
        if (size && is_backward(w, item)) /* the steps were found late */
            return RULE_GRADIENTS_KEPT;
        return size && size->gradients ? RULE_WEIGHTS_MATCHED : RULE_WEIGHTS_LIFE;
    case LIFE_STEP:
        rule = w->uses->trains ? RULES : rule_of_growth(w, key, life);
        return rule != RULES ? rule : rule_of_transient(w, item, lived);
    case LIFE_AFTER:
        return key->rule ? key->rule : RULE_ALONE;
    case LIFE_FIRST:
        rule = rule_of_first(w, item, size);
        if (rule != RULE_FIRST)
            return rule;
        __attribute__((fallthrough));
    default:
        rule = rule_of_growth(w, key, life);
        return rule != RULES ? rule : life == LIFE_FIRST ? RULE_FIRST : RULE_SEVERAL;
    }
}

static void decide(struct uses_work *w, const struct gp_flow_change *change)
{
    const struct gp_rec_event *item = change->item;
    uint8_t *rule = &w->uses->rule[change->id];
    uint32_t lived;
    enum use_life life = use_life(w, change, &lived);
    if (item->device == w->uses->device && item->kind == GP_KIND_GRAPH && item->type == GP_EVENT_ALLOC)
        *rule = RULE_GRAPH_NODES;
    if (life == LIFE_NONE)
        return;
    enum use_rule told = rule_of_hint(use_hint(w, item), life);
    if (told != RULES) {
        *rule = (uint8_t)told;
    } else if (w->chain[change->id] >= USE_CHAIN) {
        *rule = RULE_KV_CHAIN;
    } else if (!w->bound_count) {
        *rule = life == LIFE_BEFORE ? RULE_BEFORE : RULE_NO_STEPS;
    } else if (!w->uses->trains || (*rule != RULE_GRADIENTS_THREAD && *rule != RULE_GRADIENTS_SIZE)) {
        *rule = (uint8_t)rule_of_life(w, item, life, lived);
    }
    if (life == LIFE_STEP || life == LIFE_SEVERAL || life == LIFE_LATE)
        use_key(w, item)->rule = *rule;
}

static void walk_decisions(struct uses_work *w)
{
    struct gp_flow_walk walk = gp_flow_begin(w->flow);
    struct gp_flow_change change;
    while (gp_flow_next(&walk, &change)) {
        if (change.add)
            decide(w, &change);
    }
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
        row->peak_bytes = held[rule] > row->peak_bytes ? held[rule] : row->peak_bytes;
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
        row->use = use_rules[i].use;
        row->confidence = use_rules[i].confidence;
        row->reason = use_rules[i].reason;
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
    if (ok)
        walk_counts(&w);
    if (ok && w.bound_count)
        walk_gradients(&w);
    ok = ok && !w.failed;
    if (ok) {
        walk_decisions(&w);
        walk_sums(&w);
    }
    for (uint32_t i = 0; i < w.size_count; i++)
        free(w.sizes[i].live);
    gp_hash_free(&w.by_size);
    free(w.sizes);
    free(w.bounds);
    free(w.keys);
    free(w.chain);
    free(w.brief);
    if (ok)
        return uses;
    gp_uses_free(uses);
    return NULL;
}

void gp_uses_free(struct gp_use_table *uses)
{
    if (uses)
        free(uses->rule);
    free(uses);
}
