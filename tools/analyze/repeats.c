/* SPDX-License-Identifier: MIT
 * repeats.c: whether what repeats in a recording is the program's step; see flow.h.  Layers of one forward pass repeat
 * too, and so do the tensors of a file that is loaded.  Both keep memory, and neither leaks. */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>

#include <read/common/hash.h>

#include <string.h>

/* A step gives back what it takes: at most this part of its range stays.  A layer of a forward pass keeps two thirds and
 * more. */
#define GP_REPEATS_DRIFT 0.5
/* A loader that copies each tensor through a buffer of the same size keeps half of its range, and with one of twice the
 * size a third.  It frees few blocks for each one that it keeps. */
#define GP_REPEATS_LOADS 0.3
#define GP_REPEATS_FEW   8.0
/* A checkpointed layer keeps its input alone.  It frees less than this for it, is one of fewer, and takes less time: the
 * CPU only starts the kernels. */
#define GP_REPEATS_MANY 64.0
#define GP_REPEATS_NS   5000000u
/* Stretches of time hold any number of layers, so the whole time counts. */
#define GP_REPEATS_PASS_NS 10000000000u

struct repeats_walk {
    const struct gp_flow *flow;
    const struct gp_steps *steps;
    uint32_t warm;
    int64_t level, begin, low, high;
    double moved, range, kept, freed;
    uint32_t bound; /* the next one to pass */
};

/* Ends the repeats that end before time_ns. */
static void repeats_bounds(struct repeats_walk *walk, uint64_t time_ns)
{
    const struct gp_steps *steps = walk->steps;
    for (; walk->bound <= steps->count && steps->bounds_ns[walk->bound] <= time_ns; walk->bound++) {
        double by = (double)walk->level - (double)walk->begin;
        if (walk->bound > walk->warm) {
            walk->moved += by < 0 ? -by : by;
            walk->range += (double)walk->high - (double)walk->low;
        }
        walk->begin = walk->low = walk->high = walk->level;
    }
}

/* A block counts as freed if it is gone before the next repeat ends: a result may be in use until then.  What the program
 * frees after its last repeat says nothing of it. */
static void repeats_block(struct repeats_walk *walk, const struct gp_flow_change *change)
{
    const struct gp_steps *steps = walk->steps;
    uint32_t end = gp_flow_end(walk->flow, change->id);
    if (walk->bound <= walk->warm || walk->bound >= steps->count)
        return;
    if (end != GP_REC_NONE && walk->flow->recording->events[end].time_ns < steps->bounds_ns[walk->bound + 1])
        walk->freed++;
    else
        walk->kept++;
}

/* Marks and ranges of one name. */
static bool repeats_named_layers(const struct gp_steps *steps)
{
    return steps->source <= GP_STEPS_NVTX && (strcasestr(steps->name, "layer") || strcasestr(steps->name, "block"));
}

struct gp_repeats gp_flow_repeats(const struct gp_flow *flow, const struct gp_steps *steps, uint32_t warm)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct repeats_walk to = {.flow = flow, .steps = steps, .warm = warm};
    while (gp_flow_next(&walk, &change)) {
        if (change.event != GP_REC_NONE)
            repeats_bounds(&to, change.time_ns);
        if (!(change.what & GP_FLOW_SUMMED))
            continue;
        uint64_t bytes = change.add ? gp_flow_bytes(&change) : -gp_flow_bytes(&change);
        to.level = (int64_t)((uint64_t)to.level + bytes); /* sizes of a damaged file may wrap */
        GP_LOWER(to.low, to.level);
        GP_RAISE(to.high, to.level);
        if (change.add && change.event != GP_REC_NONE)
            repeats_block(&to, &change);
    }
    repeats_bounds(&to, UINT64_MAX);
    double counted = steps->count > warm + 1 ? steps->count - warm - 1 : 1;
    struct gp_repeats repeats = {
        .kept = to.kept / counted,
        .freed = to.freed / counted,
        .is_inside = steps->inside,
    };
    bool returns = to.moved <= to.range * GP_REPEATS_DRIFT, many = to.freed >= to.kept * GP_REPEATS_MANY;
    bool loads = to.moved > to.range * GP_REPEATS_LOADS && to.freed < to.kept * GP_REPEATS_FEW;
    repeats.may_load = !many && (!returns || loads);
    bool quick = steps->source == GP_STEPS_TIME ? steps->length_ns * steps->count < GP_REPEATS_PASS_NS
                                                : steps->length_ns < GP_REPEATS_NS;
    repeats.may_be_layers = !many && (quick || repeats_named_layers(steps));
    repeats.are_steps = steps->told || !(repeats.is_inside || repeats.may_load ||
                                         (repeats.may_be_layers && steps->count < GP_REPEATS_LAYERS));
    return repeats;
}

/* ---- the clean-up ------------------------------------------------------------------------------------------------ */

/* An allocation among the frees of the clean-up counts as so many frees less. */
#define GP_CLEAN_UP_ALLOC 16
/* A block that lived for this part of the program's work is not of the last step. */
#define GP_CLEAN_UP_PARTS 20u

uint64_t gp_flow_clean_up(const struct gp_recording *recording, uint64_t young_ns)
{
    size_t count = recording->event_count;
    uint64_t works_ns = count ? recording->events[count - 1].time_ns - recording->events[0].time_ns : 0;
    int64_t score = 0, best = 0;
    uint64_t start_ns = recording->end_ns, freed = 0, best_freed = 0, live = 0;
    if (young_ns > works_ns / GP_CLEAN_UP_PARTS)
        young_ns = works_ns / GP_CLEAN_UP_PARTS;
    for (size_t i = count; i-- > 0;) {
        const struct gp_rec_event *event = &recording->events[i];
        uint32_t peer = recording->peer[i];
        score -= event->type == GP_EVENT_ALLOC ? GP_CLEAN_UP_ALLOC : 0;
        if (event->type != GP_EVENT_FREE || peer >= i || event->time_ns - recording->events[peer].time_ns < young_ns)
            continue;
        score++;
        freed += event->bytes;
        if (score <= best)
            continue;
        best = score;
        best_freed = freed;
        start_ns = event->time_ns;
    }
    /* What is live when it begins: what it frees, and what stays. */
    for (size_t i = 0; i < recording->event_count && recording->events[i].time_ns < start_ns; i++) {
        uint32_t peer = recording->peer[i];
        bool stays = peer >= recording->event_count || recording->events[peer].time_ns >= start_ns;
        live += recording->events[i].type == GP_EVENT_ALLOC && stays ? recording->events[i].bytes : 0;
    }
    return best_freed >= live / 2 ? start_ns : recording->end_ns;
}
