/* SPDX-License-Identifier: MIT
 * stepstack.c: the steps of a program from its stacks; see steptree.h and docs/analyses.md.  A training
 * program ends a step with an optimizer's call; where the optimizer asks for no memory, with a backward
 * pass or with several, whose gradients add up.  In any other program a step is a call of a net from one
 * place of the user's. */
#include <analyze/analyze.h>
#include <analyze/steptree.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls of one line of the user's that are enough to pass over the lines within. */
#define GP_CALLS_ENOUGH 5u

/* ---- calls of a net ---------------------------------------------------------------------------------------------- */

struct gp_net_call *gp_steps_calls(const struct gp_recording *recording)
{
    struct gp_net_call *calls = calloc(recording->site_count + 1ul, sizeof(*calls));
    for (uint32_t i = 0; calls && i < recording->site_count; i++) {
        const struct gp_rec_site *site = &recording->sites[i];
        const struct gp_rec_frame *frames = &recording->frames[site->first_frame];
        for (uint32_t k = site->frame_count; k-- > 0 && !calls[i].net;) { /* the outermost first */
            if (!gp_calls_python(recording, &frames[k]))
                continue;
            calls[i].net = gp_calls_net(recording, &frames[k]);
            if (calls[i].net)
                break;
            calls[i].key = gp_hash_of_number(calls[i].key + gp_hash_of_text(recording->strings + frames[k].file));
            calls[i].key = gp_hash_of_number(
                calls[i].key + gp_hash_of_text(recording->strings + frames[k].function) * 2 + frames[k].line);
        }
    }
    return calls;
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* The event with which the thread begins again after this run: the first one from an earlier line than
 * the run.  What follows in the same round (logging, an optimizer) belongs to it.  GP_REC_NONE: there is
 * none before `until`. */
static uint32_t run_again(const struct gp_call_tree *tree, struct gp_call_runs *runs, uint32_t i, uint32_t until)
{
    const struct gp_recording *recording = tree->recording;
    struct gp_call_run *run = &runs->list[i];
    for (uint32_t at = run->end; at < until; at++) {
        const struct gp_rec_event *event = &recording->events[at];
        uint32_t leaf = event->type == GP_EVENT_ALLOC ? tree->leaf[event->site] : 0;
        if (!leaf || event->thread != recording->events[run->begin].thread)
            continue;
        if (tree->what[event->site] == GP_CALL_OPTIMIZER)
            run->last = at;
        else if (gp_call_starts_again(tree, runs->node, leaf))
            return at;
    }
    return GP_REC_NONE;
}

/* The end of the last step, which no other step follows. It frees what it made until it holds no more
 * than the step before left. What a program frees when it ends is older. */
static uint64_t last_end(const struct gp_recording *recording, uint32_t first, uint32_t last)
{
    uint32_t at = last;
    uint64_t made = 0, freed = 0;
    for (uint32_t i = first; i < recording->event_count && (i <= last || made > freed); i++) {
        const struct gp_rec_event *event = &recording->events[i];
        made += event->type == GP_EVENT_ALLOC ? event->bytes : 0;
        if (event->type != GP_EVENT_FREE)
            continue;
        freed += event->bytes;
        if (i < last)
            continue;
        if (recording->peer[i] < first || recording->peer[i] >= recording->event_count)
            break;
        at = i;
    }
    return recording->events[at].time_ns + 1;
}

/* Where the first step starts, which no other step precedes: with the first event from a line of which
 * the second step, of the events from..to, has some too.  Without a second one, with the first call of
 * a net in the function that makes the run. */
static uint32_t first_start(const struct gp_call_tree *tree, const struct gp_call_runs *runs, uint32_t from,
                            uint32_t to)
{
    const struct gp_recording *recording = tree->recording;
    const struct gp_call_node *node = &tree->nodes[runs->node];
    const uint32_t begin = runs->list[0].begin, thread = recording->events[begin].thread;
    const uint32_t depth = node->what == GP_CALL_LINE ? node->depth : node->depth - 1;
    const uint32_t caller = gp_call_at_depth(tree, runs->node, depth ? depth - 1 : 0);
    bool *of_second = calloc(tree->count, sizeof(*of_second));
    uint32_t found = begin;
    for (uint32_t i = from; of_second && i < to && i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->type == GP_EVENT_ALLOC && event->thread == thread && tree->leaf[event->site])
            of_second[gp_call_at_depth(tree, tree->leaf[event->site], depth)] = true;
    }
    for (uint32_t i = 0; of_second && i < begin; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        uint32_t leaf = event->type == GP_EVENT_ALLOC && event->thread == thread ? tree->leaf[event->site] : 0;
        if (!leaf)
            continue;
        if (from < to ? of_second[gp_call_at_depth(tree, leaf, depth)]
                      : tree->what[event->site] == GP_CALL_NET && gp_call_at_depth(tree, leaf, depth - 1) == caller) {
            found = i;
            break;
        }
    }
    free(of_second);
    return of_second ? found : GP_REC_NONE;
}

static void bound_add(struct gp_steps *steps, uint32_t *bounds, uint64_t time_ns)
{
    if (*bounds && time_ns <= steps->bounds_ns[*bounds - 1])
        return;
    steps->bounds_ns[(*bounds)++] = time_ns;
    steps->count = *bounds - 1;
}

/* ends: of each run, whether a step ends with it; NULL: each. NULL: out of memory. */
static struct gp_steps *steps_of_runs(const struct gp_call_tree *tree, struct gp_call_runs *runs, const bool *ends)
{
    const struct gp_recording *recording = tree->recording;
    struct gp_steps *steps = calloc(1, sizeof(*steps) + (runs->count + 2ul) * sizeof(uint64_t));
    uint32_t *at = calloc(runs->count + 1ul, sizeof(*at)), bounds = 0, count = 0, second = 0;
    for (uint32_t i = 0; steps && at && i < runs->count; i++) {
        bool is_last = i + 1 == runs->count;
        if (!is_last && ends && !ends[i])
            continue;
        uint32_t until = is_last ? (uint32_t)recording->event_count : runs->list[i + 1].begin;
        uint32_t again = run_again(tree, runs, i, until);
        second = count == 1 ? i : second;
        at[count++] = again == GP_REC_NONE && !is_last ? until : again;
    }
    uint32_t first =
        steps && at ? first_start(tree, runs, at[0], count > 1 ? runs->list[second].last : 0) : GP_REC_NONE;
    if (first == GP_REC_NONE) {
        free(steps);
        free(at);
        return NULL;
    }
    bound_add(steps, &bounds, recording->events[first].time_ns);
    for (uint32_t i = 0; i < count; i++)
        bound_add(steps, &bounds,
                  at[i] != GP_REC_NONE ? recording->events[at[i]].time_ns
                                       : last_end(recording, i ? at[i - 1] : first, runs->list[runs->count - 1].last));
    steps->source = GP_STEPS_STACKS;
    steps->told = true;
    steps->ended = steps->count && at[count - 1] == GP_REC_NONE ? steps->count - 1 : steps->count;
    free(at);
    return steps;
}

/* "serve.py:24" */
static void name_place(struct gp_steps *steps, const struct gp_recording *recording, const struct gp_rec_frame *frame)
{
    const char *file = recording->strings + frame->file, *slash = strrchr(file, '/');
    char text[512];
    snprintf(text, sizeof(text), "%.480s:%u", slash ? slash + 1 : file, frame->line);
    size_t n = strlen(text), most = sizeof(steps->name) - 1, skip = n > most ? n - most : 0;
    while (((unsigned char)text[skip] & 0xc0) == 0x80) /* not within a character */
        skip++;
    memcpy(steps->name, text + skip, n - skip + 1);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* The node of this kind that is entered most often; 0: there is none. */
static uint32_t node_most(const struct gp_call_tree *tree, enum gp_call_what what)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < tree->count; i++)
        if (tree->nodes[i].what == what && tree->nodes[i].visits > (best ? tree->nodes[best].visits : 0))
            best = i;
    return best;
}

/* An optimizer may ask for memory in its first call alone.  Then more backward passes follow its last call
 * that asked than lie before or between those. */
static bool optimizer_goes_on(const struct gp_call_runs *optimizer, const struct gp_call_runs *backward)
{
    uint32_t at = 0, since = 0, most = 0;
    for (uint32_t i = 0; i < backward->count; i++) {
        for (; at < optimizer->count && optimizer->list[at].begin < backward->list[i].begin; at++, since = 0)
            GP_RAISE(most, since);
        since++;
    }
    if (at < optimizer->count) { /* no pass follows */
        GP_RAISE(most, since);
        since = 0;
    }
    return since > most;
}

struct pass_work {
    uint32_t *tail;        /* of each backward pass: the last event that allocates in it */
    int64_t *across;       /* of the gap after it: gradients that are there in the next pass, as differences */
    uint32_t *freed, kept; /* freed in it; made in the first pass and kept to the last */
    uint32_t first;        /* the pass that makes the first of them; GP_REC_NONE: none does */
    bool forward; /* the passes are calls of a net: a call that no backward pass follows before the next ends no step */
};

/* Sorts a block that a backward pass made and that is there after it. */
static void gap_block(struct pass_work *w, const struct gp_call_runs *runs, uint32_t pass, uint32_t freed)
{
    uint32_t low = pass, high = runs->count; /* the last pass whose tail is before the free */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        *(w->tail[middle] < freed ? &low : &high) = middle;
    }
    if (w->first == GP_REC_NONE)
        w->first = pass;
    if (low + 1 == runs->count) { /* gradients that are kept are those of the first pass */
        w->kept += pass == w->first;
        if (pass == w->first)
            return;
    } else if (freed >= runs->list[low + 1].begin) {
        return; /* another pass took it */
    } else {
        w->freed[low]++;
    }
    w->across[pass]++;
    w->across[low]--;
}

/* The event allocates in a backward pass: on the thread of the pass, or in the call. */
static bool gap_made(const struct gp_call_tree *tree, uint32_t i)
{
    const struct gp_rec_event *event = &tree->recording->events[i];
    const struct gp_rec_site *site = &tree->recording->sites[event->site];
    return event->type == GP_EVENT_ALLOC && !site->truncated &&
           (!tree->leaf[event->site] || tree->what[event->site] == GP_CALL_BACKWARD);
}

static bool gap_init(struct pass_work *w, const struct gp_call_tree *tree, const struct gp_call_runs *runs)
{
    const struct gp_recording *recording = tree->recording;
    const bool net = tree->nodes[runs->node].what == GP_CALL_NET; /* then the pass comes after the call */
    w->first = GP_REC_NONE;
    w->forward = net;
    w->tail = calloc(runs->count + 1ul, sizeof(*w->tail));
    w->across = calloc(runs->count + 1ul, sizeof(*w->across));
    w->freed = calloc(runs->count + 1ul, sizeof(*w->freed));
    if (!w->tail || !w->across || !w->freed)
        return false;
    for (uint32_t i = 0; i < runs->count; i++) {
        uint32_t end = net && i + 1 < runs->count ? runs->list[i + 1].begin : net ? GP_REC_NONE : runs->list[i].end;
        end = end < recording->event_count ? end : (uint32_t)recording->event_count;
        w->tail[i] = runs->list[i].last;
        for (uint32_t at = runs->list[i].begin; at < end; at++)
            if (gap_made(tree, at))
                w->tail[i] = at;
    }
    for (uint32_t i = 0; i < runs->count; i++)
        for (uint32_t at = runs->list[i].begin; at <= w->tail[i]; at++)
            if (gap_made(tree, at) && recording->peer[at] > w->tail[i])
                gap_block(w, runs, i, recording->peer[at]);
    return true;
}

/* Whether the gradients that the passes make tell which of them end a step: they are freed when it ends, and else are there
 * in the next pass, which adds to them.  Fills in ends[]. */
static bool gaps_tell(const struct pass_work *w, const struct gp_call_runs *runs, bool *ends)
{
    int64_t across = 0;
    bool told = false;
    for (uint32_t i = 0; i + 1 < runs->count; i++) {
        across += w->across[i];
        ends[i] = across <= w->freed[i];
        told |= !ends[i] || w->freed[i] > w->kept;
        if (w->forward && w->tail[i] == runs->list[i].last)
            ends[i] = false;
    }
    return told;
}

/* Steps of backward passes, or where those ask for nothing on the thread of the program (the gradient is given) of the calls
 * of a net before them.  Where their gradients do not tell, as many make a step as precede the first call of an
 * optimizer. */
static struct gp_steps *steps_of_passes(const struct gp_call_tree *tree, struct gp_call_runs *runs,
                                        const struct gp_call_runs *optimizer)
{
    struct pass_work w = {0};
    bool *ends = calloc(runs->count + 1ul, sizeof(*ends)), ok = gap_init(&w, tree, runs) && ends;
    bool told = ok && gaps_tell(&w, runs, ends);
    struct gp_steps *steps = NULL;
    if (ok && !told) {
        uint32_t each = 0;
        while (optimizer->count && each < runs->count && runs->list[each].begin < optimizer->list[0].begin)
            each++;
        for (uint32_t i = 0; i < runs->count; i++)
            ends[i] = !each || (i + 1) % each == 0;
        told = each;
    }
    if (ok && (steps = steps_of_runs(tree, runs, ends))) {
        const struct gp_call_node *node = &tree->nodes[runs->node];
        steps->call = node->what == GP_CALL_NET ? GP_STEP_NET : GP_STEP_BACKWARD;
        steps->ended = told ? steps->ended : 0;
        if (steps->call == GP_STEP_NET)
            name_place(steps, tree->recording, &tree->recording->frames[tree->nodes[node->parent].frame]);
        else
            strcpy(steps->name, "backward");
    }
    free(w.tail);
    free(w.across);
    free(w.freed);
    free(ends);
    return steps;
}

/* *after: an event of the last step.  False: out of memory. */
static bool steps_train(const struct gp_call_tree *tree, struct gp_steps **out, uint32_t *after)
{
    struct gp_call_runs optimizer = {0}, backward = {0};
    uint32_t pass = node_most(tree, GP_CALL_BACKWARD);
    bool ok = gp_call_runs_find(tree, node_most(tree, GP_CALL_OPTIMIZER), &optimizer);
    const bool forward = !pass && optimizer.count == 1;
    pass = forward ? node_most(tree, GP_CALL_NET) : pass;
    /* A pipeline calls its net where it fills and where it goes on: from two places. */
    ok = ok && (forward ? gp_call_runs_of_line : gp_call_runs_find)(tree, pass, &backward);
    bool ends =
        optimizer.count && (!backward.count || (optimizer.count > 1 && !optimizer_goes_on(&optimizer, &backward)));
    if (ok && ends) {
        *after = optimizer.list[optimizer.count - 1].last;
        if ((*out = steps_of_runs(tree, &optimizer, NULL))) {
            (*out)->call = GP_STEP_OPTIMIZER;
            strcpy((*out)->name, "optimizer");
        }
        ok = *out;
    } else if (ok && backward.count) {
        *after = backward.list[backward.count - 1].last;
        ok = (*out = steps_of_passes(tree, &backward, &optimizer)) != NULL;
    }
    gp_call_runs_fini(&optimizer);
    gp_call_runs_fini(&backward);
    return ok;
}

/* ---- service ----------------------------------------------------------------------------------------------------- */

/* A library's function that the user's line calls was called as often as its first line that allocates was
 * reached.  Not if that is on the path to the net: its loop may be there.  0: the loop is within the library. */
static uint32_t node_prologue(const struct gp_call_tree *tree, uint32_t line, uint32_t net)
{
    for (uint32_t depth = tree->nodes[line].depth + 1; depth <= tree->nodes[net].depth; depth++) {
        uint32_t child = gp_call_at_depth(tree, net, depth), first = child;
        if (tree->nodes[child].visits < 2)
            continue;
        for (uint32_t i = tree->nodes[child].parent + 1; i < tree->count; i++)
            if (tree->nodes[i].parent == tree->nodes[child].parent && tree->nodes[i].code == tree->nodes[child].code &&
                tree->nodes[i].visits && tree->nodes[i].first < tree->nodes[first].first)
                first = i;
        return tree->nodes[first].visits > 1 && first != child ? first : 0;
    }
    return 0;
}

/* The calls of nets by a place of the user's: the outermost line that was reached often, else one that was twice.
 * Loops of a library that lie within (words of a text, steps of a scheduler) are none.  0: there are none. */
static uint32_t node_service(const struct gp_call_tree *tree, uint32_t *place)
{
    uint32_t net = node_most(tree, GP_CALL_NET), often = 0, twice = 0, inner = 0;
    bool own = false;
    for (uint32_t at = net; at; at = tree->nodes[at].parent)
        own |= tree->nodes[at].own && tree->nodes[at].what == GP_CALL_LINE;
    for (uint32_t at = net; at; at = tree->nodes[at].parent) {
        const struct gp_call_node *node = &tree->nodes[at];
        if (node->what != GP_CALL_LINE || !(own ? node->own : node->package))
            continue;
        inner = inner ? inner : at;
        often = node->visits >= GP_CALLS_ENOUGH ? at : often;
        twice = node->visits > 1 ? at : twice;
    }
    *place = often ? often : twice ? twice : inner;
    if (often || twice || !inner)
        return *place;
    /* One line, that does something else between its calls. */
    return tree->nodes[net].parent == inner && tree->nodes[net].visits > 1 ? net : node_prologue(tree, inner, net);
}

/* after: the calls must go on after this event.  A loop that fills less than half of a recording is no step of it.  *out
 * stays NULL if there is none.  False: out of memory. */
static bool steps_serve(const struct gp_call_tree *tree, uint32_t after, struct gp_steps **out)
{
    const struct gp_recording *recording = tree->recording;
    struct gp_call_runs runs;
    uint32_t place, node = node_service(tree, &place);
    bool ok = gp_call_runs_find(tree, node, &runs);
    if (ok && runs.count > 1 && runs.list[runs.count - 1].begin > after) {
        uint32_t end = runs.list[runs.count - 1].end;
        end = end < recording->event_count ? end : (uint32_t)recording->event_count;
        struct gp_steps *steps =
            (end - runs.list[0].begin) * 2ull >= recording->event_count ? steps_of_runs(tree, &runs, NULL) : NULL;
        ok = steps || (end - runs.list[0].begin) * 2ull < recording->event_count;
        if (steps) {
            steps->call = GP_STEP_NET;
            name_place(steps, recording, &recording->frames[tree->nodes[place].frame]);
            free(*out);
            *out = steps;
        }
    }
    gp_call_runs_fini(&runs);
    return ok;
}

bool gp_steps_of_stacks(const struct gp_recording *recording, struct gp_steps **out)
{
    struct gp_call_tree tree;
    uint32_t after = 0;
    bool ok = gp_call_tree_init(&tree, recording) && gp_call_tree_visit(&tree) && steps_train(&tree, out, &after);
    /* A program that makes one backward pass, and then something else again and again. */
    if (ok && (!*out || (*out)->count < 2))
        ok = steps_serve(&tree, after, out);
    if (*out)
        (*out)->sure = 1;
    gp_call_tree_fini(&tree);
    return ok;
}
