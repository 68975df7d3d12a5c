/* SPDX-License-Identifier: MIT
 *
 * usestacks.c: what the stacks say about a block of a training program, with its lifetime measured
 * in passes and not in steps: made in a backward pass and live after it, it is a gradient; live
 * when a backward pass starts, an activation. See userules.h.
 */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <analyze/userules.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <stdlib.h>

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

/* A request failed, or the program was ended, before the backward pass freed what the last forward pass
 * made.  Blocks that a program keeps until it ends come from call sites that made no activations. */
static bool is_of_cut_pass(const struct uses_work *w, const struct gp_rec_event *item, uint32_t event, uint32_t end)
{
    return end == GP_REC_NONE && gp_use_key(w, item)->crossed &&
           runs_before(&w->backward_runs, event + 1) + 1 >= w->backward_runs.count;
}

/* RULES: they do not say what the block is. */
enum use_rule gp_use_rule_of_stack(const struct uses_work *w, const struct gp_flow_change *change)
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
        if (w->stacks && is_of_cut_pass(w, change->item, event, end))
            return RULE_CUT_ACTIVATIONS;
        return w->stacks ? rule_of_forward(w, hint, event, end) : RULES;
    default:
        return RULES;
    }
}
