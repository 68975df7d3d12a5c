/* SPDX-License-Identifier: MIT
 * stepstack.c: the steps of a training program from its stacks: each call of an optimizer's step
 * ends one, or, where none allocates, each call of a backward pass starts one; see internal.h. A loop
 * calls them from one place, so a call is known by the Python frames outside of it.  Its parts:
 * calls, steps of stacks. */
#include <analyze/internal.h>
#include <read/common/hash.h>
#include <stdlib.h>
#include <string.h>

/* ---- calls ------------------------------------------------------------------------------------------------------- */
/* Which call of a net each call site belongs to; see internal.h. */

static bool calls_python(const struct gp_recording *recording, const struct gp_rec_frame *frame)
{
    const char *file = recording->strings + frame->file;
    size_t length = strlen(file);
    return !frame->pc && (file[0] == '<' || (length > 3 && strcmp(file + length - 3, ".py") == 0));
}

/* The frame runs inside a call of a torch.nn.Module, whatever its class. */
static bool calls_net(const struct gp_recording *recording, const struct gp_rec_frame *frame)
{
    const char *name = recording->strings + frame->function, *dot = strrchr(name, '.');
    name = dot ? dot + 1 : name;
    return strcmp(name, "forward") == 0 || strcmp(name, "_call_impl") == 0 || strcmp(name, "_wrapped_call_impl") == 0;
}

struct gp_net_call *gp_steps_calls(const struct gp_recording *recording)
{
    struct gp_net_call *calls = calloc(recording->site_count + 1ul, sizeof(*calls));
    for (uint32_t i = 0; calls && i < recording->site_count; i++) {
        const struct gp_rec_site *site = &recording->sites[i];
        const struct gp_rec_frame *frames = &recording->frames[site->first_frame];
        for (uint32_t k = site->frame_count; k-- > 0 && !calls[i].net;) { /* the outermost first */
            if (!calls_python(recording, &frames[k]))
                continue;
            calls[i].net = calls_net(recording, &frames[k]);
            if (calls[i].net)
                break;
            calls[i].line = k;
            calls[i].key = gp_hash_of_number(calls[i].key + gp_hash_of_text(recording->strings + frames[k].file));
            calls[i].key = gp_hash_of_number(
                calls[i].key + gp_hash_of_text(recording->strings + frames[k].function) * 2 + frames[k].line);
        }
    }
    return calls;
}

/* ---- steps of stacks --------------------------------------------------------------------------------------------- */

enum stack_call { CALL_NONE, CALL_OPTIMIZER, CALL_BACKWARD };

struct stack_site {
    enum stack_call call;
    uint64_t key; /* of the frames outside of the call */
};

struct stack_run {       /* events of one call: from the first until before `end` */
    uint32_t begin, end; /* end: GP_REC_NONE in the last one of a program */
    uint32_t last;       /* of its own */
};

struct stack_runs {
    struct stack_run *list;
    uint32_t count, room;
};

static bool has_end(const char *text, const char *end)
{
    size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0 &&
           (length == bytes || text[length - bytes - 1] == '.');
}

static enum stack_call frame_call(const char *function, const char *file)
{
    if (has_end(function, "step") && strstr(file, "/optim") && !strstr(file, "lr_scheduler"))
        return CALL_OPTIMIZER;
    if (has_end(function, "backward") &&
        (strstr(file, "/torch/_tensor.py") || strstr(file, "/torch/autograd/__init__")))
        return CALL_BACKWARD;
    return CALL_NONE;
}

/* From the outermost frame to the call. */
static struct stack_site site_call(const struct gp_recording *recording, const struct gp_rec_site *site)
{
    struct stack_site found = {CALL_NONE, 0};
    for (uint32_t k = site->frame_count; k-- > 0 && !found.call;) {
        const struct gp_rec_frame *frame = &recording->frames[site->first_frame + k];
        const char *function = recording->strings + frame->function, *file = recording->strings + frame->file;
        if (frame->pc)
            continue;
        found.call = frame_call(function, file);
        if (!found.call)
            found.key =
                gp_hash_of_number(found.key + gp_hash_of_text(file) + gp_hash_of_text(function) * 2 + frame->line);
    }
    return found;
}

static bool run_add(struct stack_runs *runs, uint32_t begin)
{
    if (runs->count == runs->room) {
        uint32_t room = runs->room ? runs->room * 2 : 64;
        struct stack_run *grown = realloc(runs->list, room * sizeof(*grown));
        if (!grown)
            return false;
        runs->list = grown;
        runs->room = room;
    }
    runs->list[runs->count++] = (struct stack_run){begin, GP_REC_NONE, begin};
    return true;
}

/* The calls of this key. One ends before the next allocation of its thread elsewhere. */
static bool runs_find(const struct gp_recording *recording, const struct stack_site *sites, uint64_t key,
                      enum stack_call call, struct stack_runs *runs)
{
    uint32_t thread = 0;
    bool open = false;
    runs->count = 0;
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->type != GP_EVENT_ALLOC)
            continue;
        bool here = sites[event->site].call == call && sites[event->site].key == key;
        if (open && event->thread == thread && !here)
            runs->list[runs->count - 1].end = (uint32_t)i, open = false;
        if (here && open)
            runs->list[runs->count - 1].last = (uint32_t)i;
        if (!here || open)
            continue;
        if (!run_add(runs, (uint32_t)i))
            return false;
        thread = event->thread;
        open = true;
    }
    return true;
}

/* Of the calls of one kind, those from the place that calls most often. False: out of memory. */
static bool runs_most(const struct gp_recording *recording, const struct stack_site *sites, enum stack_call call,
                      struct stack_runs *best)
{
    struct stack_runs runs = {0};
    struct gp_hash known = {0};
    bool ok = true, added;
    for (uint32_t i = 0; ok && i < recording->site_count && known.count < 64; i++) {
        if (sites[i].call != call)
            continue;
        ok = gp_hash_add(&known, gp_hash_of_number(sites[i].key), NULL, NULL, i, &added) != NULL;
        if (ok && added)
            ok = runs_find(recording, sites, sites[i].key, call, &runs);
        if (!ok || !added || runs.count <= best->count)
            continue;
        struct stack_runs before = *best;
        *best = runs;
        runs = before;
    }
    gp_hash_free(&known);
    free(runs.list);
    return ok;
}

/* The first step of several starts where its loop first allocates: at the place that the others start with.
 * GP_REC_NONE: it occurs more often there, so the loop has another beginning. */
static uint32_t first_step(const struct gp_recording *recording, const struct stack_runs *runs)
{
    uint32_t start = runs->list[0].end, before = 0, within = 0, first = GP_REC_NONE;
    uint32_t site = recording->events[start].site;
    for (uint32_t i = 0; i < runs->list[1].begin; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->type != GP_EVENT_ALLOC || event->site != site)
            continue;
        first = first == GP_REC_NONE && i < runs->list[0].begin ? i : first;
        before += i < runs->list[0].begin;
        within += i >= start;
    }
    return before && before <= within ? first : GP_REC_NONE;
}

/* The end of the last step, which no other step follows. It frees what it made until it holds no more
 * than the step before left. What a program frees when it ends is older. */
static uint64_t last_end(const struct gp_recording *recording, const struct stack_runs *runs)
{
    const struct stack_run *run = &runs->list[runs->count - 1];
    uint32_t at = run->last, first = runs->count > 1 ? run[-1].end : run->begin;
    uint64_t made = 0, freed = 0;
    for (uint32_t i = first; i < recording->event_count && (i <= run->last || made > freed); i++) {
        const struct gp_rec_event *event = &recording->events[i];
        made += event->type == GP_EVENT_ALLOC ? event->bytes : 0;
        if (event->type != GP_EVENT_FREE)
            continue;
        freed += event->bytes;
        if (i < run->last)
            continue;
        if (recording->peer[i] < first || recording->peer[i] >= recording->event_count)
            break;
        at = i;
    }
    return recording->events[at].time_ns + 1;
}

static void bound_add(struct gp_steps *steps, uint32_t *bounds, uint64_t time_ns)
{
    if (*bounds && time_ns <= steps->bounds_ns[*bounds - 1])
        return;
    steps->bounds_ns[(*bounds)++] = time_ns;
    steps->count = *bounds - 1;
}

static struct gp_steps *steps_of_runs(const struct gp_recording *recording, const struct stack_runs *runs, bool ends)
{
    struct gp_steps *steps = calloc(1, sizeof(*steps) + (runs->count + 2ul) * sizeof(uint64_t));
    uint32_t bounds = 0, first = ends && steps ? first_step(recording, runs) : GP_REC_NONE;
    if (!steps)
        return NULL;
    if (first != GP_REC_NONE)
        bound_add(steps, &bounds, recording->events[first].time_ns);
    for (uint32_t i = 0; i < runs->count; i++) {
        uint32_t at = ends ? runs->list[i].end : runs->list[i].begin;
        bound_add(steps, &bounds, at == GP_REC_NONE ? last_end(recording, runs) : recording->events[at].time_ns);
    }
    steps->source = GP_STEPS_STACKS;
    steps->told = true;
    strcpy(steps->name, ends ? "optimizer" : "backward");
    return steps;
}

bool gp_steps_of_stacks(const struct gp_recording *recording, struct gp_steps **out)
{
    struct stack_site *sites = calloc(recording->site_count + 1ul, sizeof(*sites));
    struct stack_runs runs = {0};
    bool ok = sites, ends = true;
    for (uint32_t i = 0; ok && i < recording->site_count; i++)
        sites[i] = site_call(recording, &recording->sites[i]);
    ok = ok && runs_most(recording, sites, CALL_OPTIMIZER, &runs);
    if (ok && runs.count < 2) {
        ends = false;
        runs.count = 0;
        ok = runs_most(recording, sites, CALL_BACKWARD, &runs);
    }
    if (ok && runs.count >= (ends ? 2 : 3))
        ok = (*out = steps_of_runs(recording, &runs, ends)) != NULL;
    free(runs.list);
    free(sites);
    return ok;
}
