/* SPDX-License-Identifier: MIT
 * userules.c: the rules that say what a block is used for, and which of them decides.  Its parts:
 * what the rules share, rules of stacks, gradients, hints of names, the rules. */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <analyze/userules.h>
#include <base/numbers.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- what the rules share ---------------------------------------------------------------------------------------- */
/* What the walks look up about a block. */

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

/* ---- rules of stacks --------------------------------------------------------------------------------------------- */
/* What the stacks say about a block of a training program, with its lifetime measured in passes and
 * not in steps: made in a backward pass and live after it, it is a gradient; live when a backward
 * pass starts, an activation. See userules.h. */

static bool run_add(struct use_runs *runs, uint32_t event)
{
    if (runs->count == runs->room) {
        uint32_t room = runs->room ? runs->room * 2 : 64;
        struct use_run *grown = realloc(runs->list, room * sizeof(*grown));
        if (!grown)
            return false;
        runs->list = grown;
        runs->room = room;
    }
    runs->list[runs->count++] = (struct use_run){event, GP_REC_NONE, false};
    return true;
}

/* The thread that asks for most of what is not made in a backward pass. */
static uint32_t stack_main(const struct uses_work *w)
{
    const struct gp_recording *recording = w->recording;
    uint64_t *counts = calloc(recording->thread_count + 1ul, sizeof(*counts));
    uint32_t most = 0;
    for (size_t i = 0; counts && i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        enum gp_use_hint hint = gp_use_hint_at(w, event);
        if (event->type == GP_EVENT_ALLOC && event->thread < recording->thread_count && hint != GP_HINT_BACKWARD)
            counts[event->thread] += hint == GP_HINT_FORWARD || hint == GP_HINT_OPTIMIZER ? 4 : 1;
    }
    for (uint32_t i = 1; counts && i < recording->thread_count; i++)
        most = counts[i] > counts[most] ? i : most;
    free(counts);
    return most;
}

/* One kind of run: where it ends depends on whether another thread than the main one works in it,
 * since the main one then waits. */
static bool runs_find(struct uses_work *w, enum gp_use_hint kind, struct use_runs *runs)
{
    const struct gp_recording *recording = w->recording;
    bool open = false, ok = true;
    for (size_t i = 0; ok && i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        bool alloc = event->type == GP_EVENT_ALLOC;
        if (event->device != w->uses->device || (!alloc && event->type != GP_EVENT_FREE))
            continue;
        bool here = alloc && gp_use_hint_at(w, event) == kind;
        struct use_run *run = open ? &runs->list[runs->count - 1] : NULL;
        if (open && event->thread == w->stack_thread && !here && (alloc || run->away))
            run->end = (uint32_t)i, open = false;
        if (here && !open)
            ok = open = run_add(runs, (uint32_t)i);
        if (here && ok)
            runs->list[runs->count - 1].away |= event->thread != w->stack_thread;
    }
    return ok;
}

bool gp_use_find_runs(struct uses_work *w)
{
    w->stack_thread = stack_main(w);
    bool ok = runs_find(w, GP_HINT_BACKWARD, &w->backward_runs) &&
              runs_find(w, GP_HINT_OPTIMIZER, &w->optimizer_runs) && runs_find(w, GP_HINT_WEIGHTS, &w->weight_runs) &&
              runs_find(w, GP_HINT_FORWARD, &w->forward_runs);
    w->stacks = w->backward_runs.count > 0;
    return ok;
}

/* The number of runs that begin before the event. */
static uint32_t runs_before(const struct use_runs *runs, uint32_t event)
{
    uint32_t low = 0, high = runs->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (runs->list[middle].begin < event)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether a block that a run made is still there after it. */
static bool outlives(const struct use_runs *runs, uint32_t event, uint32_t end)
{
    uint32_t at = runs_before(runs, event + 1);
    return end == GP_REC_NONE || !at || end >= runs->list[at - 1].end;
}

/* The main thread makes the gradient that the pass starts with, which goes with the call. */
static bool is_root(const struct uses_work *w, const struct gp_rec_event *item, uint32_t event)
{
    uint32_t at = runs_before(&w->backward_runs, event + 1);
    return at && w->backward_runs.list[at - 1].away && item->thread == w->stack_thread;
}

/* A block of the forward pass, or of nothing that a stack names. */
static enum use_rule rule_of_forward(const struct uses_work *w, enum gp_use_hint hint, uint32_t event, uint32_t end)
{
    uint32_t from = runs_before(&w->backward_runs, event + 1);
    if (end == GP_REC_NONE)
        return RULES;
    uint32_t crossed = runs_before(&w->backward_runs, end) - from;
    bool again =
        from && event < w->backward_runs.list[from - 1].end; /* a forward pass that runs again in the backward pass */
    if (again || crossed == 1)
        return crossed <= 1 ? RULE_STACK_ACTIVATIONS : RULES;
    bool begun = from || hint == GP_HINT_FORWARD || (w->bound_count && event >= w->bounds[0]);
    if (crossed || !begun)
        return RULES;
    /* The input of a pass is made before it, and its results may be worked on after it. */
    uint32_t passes = runs_before(&w->forward_runs, end) - runs_before(&w->forward_runs, event + 1);
    return passes > (hint != GP_HINT_FORWARD) ? RULE_FORWARD_KEPT : RULE_STACK_TEMPORARY;
}

/* What PyTorch asks for once for each thread and stream that multiplies matrices: on Hopper, and
 * elsewhere. */
static bool is_workspace(const struct gp_rec_event *item)
{
    uint64_t bytes = gp_rec_requested(item);
    return bytes == 32u << 20 || bytes == 8320u << 10;
}

/* A gradient goes before the next pass, or has the size of a weight. */
static enum use_rule rule_of_backward(const struct uses_work *w, const struct gp_rec_event *item, uint32_t event,
                                      uint32_t end)
{
    const struct use_runs *runs = &w->backward_runs;
    uint32_t later = (end == GP_REC_NONE ? runs->count : runs_before(runs, end)) - runs_before(runs, event + 1);
    if (!outlives(runs, event, end) || is_root(w, item, event))
        return RULE_STACK_TEMPORARY;
    if (later < 2 || !w->size_count || gp_use_size(w, item))
        return RULE_STACK_GRADIENTS;
    return is_workspace(item) ? RULE_WORKSPACE_SIZE : RULES;
}

/* RULES: they do not say what the block is. */
static enum use_rule use_rule_of_stack(const struct uses_work *w, const struct gp_flow_change *change)
{
    enum gp_use_hint hint = gp_use_hint_at(w, change->item);
    uint32_t end = gp_flow_end(w->flow, change->id), event = change->event;
    if (event == GP_REC_NONE)
        return RULES;
    switch (hint) {
    case GP_HINT_WEIGHTS:
        return outlives(&w->weight_runs, event, end) ? RULE_WEIGHTS_NAME : RULE_STACK_TEMPORARY;
    case GP_HINT_OPTIMIZER:
        return outlives(&w->optimizer_runs, event, end) ? RULE_OPTIMIZER_NAME : RULE_STACK_TEMPORARY;
    case GP_HINT_BACKWARD:
        return rule_of_backward(w, change->item, event, end);
    case GP_HINT_FORWARD:
    case GP_HINT_NONE:
        if (w->stacks && end == GP_REC_NONE && runs_before(&w->backward_runs, event) + 2 < w->backward_runs.count &&
            is_workspace(change->item) && !gp_use_size(w, change->item))
            return RULE_WORKSPACE_SIZE;
        return w->stacks ? rule_of_forward(w, hint, event, end) : RULES;
    default:
        return RULES;
    }
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */
/* Finds the moments of a recording at which the gradients of all weights are live. */

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

/* Made by a thread of the backward pass. */
static bool use_is_backward(const struct uses_work *w, const struct gp_rec_event *item)
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
        if (change.add && (life == LIFE_FIRST || life == LIFE_EARLY) && use_is_backward(w, change.item))
            keep_gradient(w, use_size_about(w, change.item));
        if ((life != LIFE_STEP && life != LIFE_SEVERAL && life != LIFE_AFTER) ||
            (w->backward && !use_is_backward(w, change.item)) || gp_use_hint_at(w, change.item) == GP_HINT_WORKSPACE)
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

/* ---- hints of names ---------------------------------------------------------------------------------------------- */
/* What names tell of the use of memory; see report.h. */

static bool has(const char *text, const char *part)
{
    size_t length = strlen(part);
    for (; *text; text++) {
        if (strncasecmp(text, part, length) == 0)
            return true;
    }
    return false;
}

enum gp_use_hint gp_use_hint_of_name(const char *function, const char *file)
{
    static const struct {
        const char *part;
        bool file; /* the part is one of the file's name */
        enum gp_use_hint hint;
    } names[] = {{"torch/optim/", true, GP_HINT_OPTIMIZER},
                 {"/optimizers/", true, GP_HINT_OPTIMIZER},
                 {"torch/cuda/graphs.py", true, GP_HINT_GRAPHS},
                 {"capture_graph", false, GP_HINT_GRAPHS},
                 {"capture_model", false, GP_HINT_GRAPHS},
                 {"kv_cache", false, GP_HINT_KV_CACHE},
                 {"kvcache", false, GP_HINT_KV_CACHE},
                 {"kv_cache", true, GP_HINT_KV_CACHE},
                 {"cache_utils.py", true, GP_HINT_KV_CACHE},
                 {"workspace", false, GP_HINT_WORKSPACE},
                 {"load_weights", false, GP_HINT_WEIGHTS},
                 {"load_state_dict", false, GP_HINT_WEIGHTS},
                 {"from_pretrained", false, GP_HINT_WEIGHTS},
                 {"/model_loader/", true, GP_HINT_WEIGHTS},
                 {"cuda_graph", true, GP_HINT_GRAPHS}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (has(names[i].file ? file : function, names[i].part))
            return names[i].hint;
    }
    return GP_HINT_NONE;
}

enum gp_use_hint gp_use_hint_of_owner(const char *owner)
{
    static const char *const math[] = {"cublas", "cudnn", "cufft", "cusparse", "cusolver", "cutensor", "curand", "npp"};
    if (strcmp(owner, "nccl") == 0 || strcmp(owner, "nvshmem") == 0)
        return GP_HINT_COMMUNICATION;
    for (size_t i = 0; i < sizeof(math) / sizeof(math[0]); i++) {
        if (strcmp(owner, math[i]) == 0)
            return GP_HINT_LIBRARY;
    }
    return GP_HINT_NONE;
}

/* ---- the rules --------------------------------------------------------------------------------------------------- */

static const struct {
    enum gp_use use;
    double confidence;
    const char *reason;
} use_rules[RULES] = {
    [RULE_NO_STEPS] = {GP_USE_UNKNOWN, 0, "no steps were found, so lifetimes tell nothing"},
    [RULE_BEFORE] = {GP_USE_UNKNOWN, 0, "was there when the recording began"},
    [RULE_FIRST] = {GP_USE_UNKNOWN, 0, "came in the first steps and stays; its size and place tell nothing"},
    [RULE_SIZE] = {GP_USE_UNKNOWN, 0, "lives for a step and has the size of a weight: gradient or activation"},
    [RULE_GROWS] = {GP_USE_UNKNOWN, 0, "comes with the steps and stays, while the program trains"},
    [RULE_SUSPECT] = {GP_USE_GROWS, 0, "its call site holds more with every step: see gpuprof leaks"},
    [RULE_NO_FRAMEWORK] = {GP_USE_UNKNOWN, 0, "no framework is on a stack, so lifetimes and sizes tell no use"},
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
    [RULE_GRAPH_USED] = {GP_USE_GRAPHS, 1, "CUDA graphs have it in use, as the driver says"},
    [RULE_GRAPH_NODES] = {GP_USE_GRAPHS, 1, "nodes of CUDA graphs asked for it (not part of the allocated bytes)"},
    [RULE_GRAPHS_NAME] = {GP_USE_GRAPHS, 0.8, "a function or file on its stack captures graphs"},
    [RULE_LIBRARY] = {GP_USE_WORKSPACE, 0.9, "a library of mathematical functions asked for it"},
    [RULE_WORKSPACE_NAME] = {GP_USE_WORKSPACE, 0.8, "a function on its stack has a workspace in its name"},
    [RULE_COMMUNICATION] = {GP_USE_COMMUNICATION, 0.95, "a library of communication asked for it"},
    [RULE_POOL] = {GP_USE_UNKNOWN, 0, "XLA's pool: what it is used for is not seen"},
    [RULE_TEMPORARY] = {GP_USE_TEMPORARY, 0.8, "came and went before the steps"},
    [RULE_WORKSPACE_SIZE] = {GP_USE_WORKSPACE, 0.7,
                             "stays, and has the size of the workspace that PyTorch gives cuBLAS"},
    [RULE_STACK_GRADIENTS] = {GP_USE_GRADIENTS, 0.95, "made in a backward pass, and there after it"},
    [RULE_STACK_ACTIVATIONS] = {GP_USE_ACTIVATIONS, 0.95,
                                "is there when a backward pass starts, and goes before the next one"},
    [RULE_FORWARD_KEPT] = {GP_USE_UNKNOWN, 0, "outlives its forward pass, and the program keeps it over others"},
    [RULE_STACK_TEMPORARY] = {GP_USE_TEMPORARY, 0.9,
                              "made and freed in one forward pass, backward pass or step of an optimizer"},
};

const char *gp_use_name(enum gp_use use)
{
    static const char *const names[GP_USES] = {
        [GP_USE_WEIGHTS] = "weights",     [GP_USE_GRADIENTS] = "gradients",
        [GP_USE_OPTIMIZER] = "optimizer", [GP_USE_ACTIVATIONS] = "activations",
        [GP_USE_KV_CACHE] = "kv_cache",   [GP_USE_GRAPHS] = "graphs",
        [GP_USE_WORKSPACE] = "workspace", [GP_USE_COMMUNICATION] = "communication",
        [GP_USE_TEMPORARY] = "temporary", [GP_USE_GROWS] = "grows",
        [GP_USE_UNKNOWN] = "unknown"};
    return names[use];
}

static const char *use_text(enum gp_use use)
{
    switch (use) {
    case GP_USE_OPTIMIZER:
        return "optimizer state";
    case GP_USE_KV_CACHE:
        return "KV cache";
    case GP_USE_GRAPHS:
        return "graph memory";
    default:
        return gp_use_name(use);
    }
}

const char *gp_use_words(char text[GP_USE_WORDS], enum gp_use use, double sure)
{
    bool plain = sure >= GP_USE_PLAIN || use == GP_USE_GROWS || use == GP_USE_UNKNOWN;
    snprintf(text, GP_USE_WORDS, "%s%s", plain ? "" : "probably ", use_text(use));
    return text;
}

double gp_use_sure(const struct gp_use_table *uses, enum gp_use use)
{
    double sure[2] = {0}, bytes[2] = {0};
    for (uint32_t i = 0; i < GP_USE_RULES; i++) {
        const struct gp_use_row *row = &uses->rows[i];
        if (!row->count || row->use != use)
            continue;
        bytes[0] += (double)row->at_peak_bytes;
        sure[0] += row->confidence * (double)row->at_peak_bytes;
        bytes[1] += (double)row->peak_bytes;
        sure[1] += row->confidence * (double)row->peak_bytes;
    }
    return bytes[0] > 0 ? sure[0] / bytes[0] : bytes[1] > 0 ? sure[1] / bytes[1] : 0;
}

void gp_use_name_rows(struct gp_use_table *uses)
{
    for (uint32_t i = 0; i < RULES; i++) {
        uses->rows[i].use = use_rules[i].use;
        uses->rows[i].confidence = use_rules[i].confidence;
        uses->rows[i].reason = use_rules[i].reason;
    }
}

/* ---- decisions --------------------------------------------------------------------------------------------------- */

static enum use_rule rule_of_hint(enum gp_use_hint hint, enum use_life life)
{
    bool stays = life == LIFE_EARLY || life == LIFE_FIRST || life == LIFE_LATE || life == LIFE_BEFORE;
    switch (hint) {
    case GP_HINT_COMMUNICATION:
        return RULE_COMMUNICATION;
    case GP_HINT_LIBRARY:
        return RULE_LIBRARY;
    case GP_HINT_POOL:
        return RULE_POOL;
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
    case GP_HINT_FORWARD:
    case GP_HINT_BACKWARD:
    case GP_HINT_NO_FRAMEWORK:
        break;
    }
    return RULES;
}

/* Blocks that come with many steps and stay longer than their step. */
static enum use_rule rule_of_growth(const struct uses_work *w, const struct use_key *key, enum use_life life)
{
    uint32_t often = w->bound_count / 8 > 4 ? w->bound_count / 8 : 4;
    if (life == LIFE_STEP || key->steps < often)
        return RULES;
    if (w->uses->trains)
        return RULE_GROWS;
    /* The blocks of a request go together. A buffer goes when the next one comes. */
    return key->together >= 4 && key->together >= key->count / 16 ? RULE_KV_LONG : RULE_SEVERAL;
}

static enum use_rule rule_of_first(const struct uses_work *w, const struct gp_rec_event *item, struct use_size *size)
{
    if (!size)
        return RULE_FIRST;
    if (use_is_backward(w, item))
        return RULE_GRADIENTS_KEPT;
    /* Optimizers of PyTorch keep up to three numbers for each weight. */
    if (w->uses->trains && size->gradients && size->first++ < size->weights * 3)
        return RULE_OPTIMIZER_SIZE;
    return RULE_FIRST;
}

static enum use_rule rule_of_transient(struct uses_work *w, const struct gp_rec_event *item, uint32_t lived)
{
    const struct use_size *size = gp_use_size(w, item);
    const struct use_key *key = gp_use_key(w, item);
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
    struct use_key *key = gp_use_key(w, item);
    struct use_size *size = gp_use_size(w, item);
    enum use_rule rule;
    switch (life) {
    case LIFE_BEFORE:
        return RULE_BEFORE;
    case LIFE_START:
        return RULE_TEMPORARY;
    case LIFE_EARLY:
        if (size && use_is_backward(w, item)) /* the steps were found late */
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

/* What a rule says that concludes from lifetimes and sizes alone, or from a name that any program may have: the
 * buffers of an image program live as weights and activations do. */
static bool needs_framework(enum use_rule rule)
{
    switch (use_rules[rule].use) {
    case GP_USE_WEIGHTS:
    case GP_USE_GRADIENTS:
    case GP_USE_OPTIMIZER:
    case GP_USE_ACTIVATIONS:
        return true;
    case GP_USE_KV_CACHE:
        return rule != RULE_KV_NAME;
    default:
        return rule == RULE_SIZE;
    }
}

static void decide(struct uses_work *w, const struct gp_flow_change *change)
{
    const struct gp_rec_event *item = change->item;
    uint8_t *rule = &w->uses->rule[change->id];
    uint32_t lived;
    enum use_life life = gp_use_life(w, change, &lived);
    if (item->device == w->uses->device && item->kind == GP_KIND_GRAPH && item->type == GP_EVENT_ALLOC)
        *rule = RULE_GRAPH_NODES;
    if (gp_wire_is_poll(item->type, item->kind)) {
        *rule = RULE_GRAPH_USED;
        return;
    }
    if (life == LIFE_NONE)
        return;
    if (item->site && w->keys[item->site].grows) {
        *rule = RULE_SUSPECT;
        return;
    }
    enum use_rule told = rule_of_hint(gp_use_hint_at(w, item), life);
    if (told == RULES && w->chain[change->id] < USE_CHAIN)
        told = use_rule_of_stack(w, change);
    if (told != RULES) {
        *rule = (uint8_t)told;
    } else if (w->chain[change->id] >= USE_CHAIN) {
        *rule = RULE_KV_CHAIN;
    } else if (!w->bound_count) {
        *rule = life == LIFE_BEFORE ? RULE_BEFORE : RULE_NO_STEPS;
    } else if (!w->uses->trains || (*rule != RULE_GRADIENTS_THREAD && *rule != RULE_GRADIENTS_SIZE)) {
        *rule = (uint8_t)rule_of_life(w, item, life, lived);
    }
    if (w->hints && w->hints[0] == GP_HINT_NO_FRAMEWORK && needs_framework((enum use_rule) * rule))
        *rule = RULE_NO_FRAMEWORK;
    if (life == LIFE_STEP || life == LIFE_SEVERAL || life == LIFE_LATE)
        gp_use_key(w, item)->rule = *rule;
}

void gp_use_decide(struct uses_work *w)
{
    struct gp_flow_walk walk = gp_flow_begin(w->flow);
    struct gp_flow_change change;
    while (gp_flow_next(&walk, &change)) {
        if (change.add)
            decide(w, &change);
    }
}
