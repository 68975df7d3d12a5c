/* SPDX-License-Identifier: MIT
 * phases.c: the phases of a program on one device; see report.h.  Two walks over the flow: the first
 * finds the peak of each occurrence, the second what each call site held at three moments of the
 * occurrences that are shown. */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <read/common/hash.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ranges that are open at once.  Those beyond are left out: 64 threads with ranges 64 deep. */
#define GP_PHASES_OPEN 4096u

struct gp_phase_run { /* one occurrence, from before one event until before another */
    uint32_t row, depth, thread;
    uint32_t begin, end; /* indexes of events; end: GP_REC_NONE while it is open */
    uint32_t peak;       /* the event after which the level was highest; GP_REC_NONE: at its start */
    int64_t begin_bytes, peak_bytes, end_bytes;
};

enum { GP_MOMENT_BEGIN, GP_MOMENT_PEAK, GP_MOMENT_END, GP_MOMENTS };

struct gp_phase_moment {
    uint32_t event; /* the moment is before this event */
    uint32_t row, which;
};

struct gp_phases_work {
    const struct gp_flow *flow;
    const struct gp_use_table *uses; /* or NULL */
    struct gp_phases *phases;
    struct gp_phase_run *runs;
    size_t run_count, run_room;
    uint32_t open[GP_PHASES_OPEN]; /* indexes of runs */
    uint32_t open_count;
    uint32_t *best;  /* of each row: the run that is shown */
    int64_t *held;   /* by call site; behind these, of the unknown site by kind; behind these, by use */
    int64_t *states; /* [row][GP_MOMENTS][held] */
    size_t columns;
    bool failed;
};

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* The name without numbers, so that "step 1" and "step 2" are one phase. */
static void phase_name(const char *text, char name[40])
{
    size_t used = 0;
    for (; *text && used < 39; text++) {
        if (*text >= '0' && *text <= '9')
            continue;
        name[used++] = *text;
    }
    while (used && strchr(" _-:#", name[used - 1]))
        used--;
    name[used] = '\0';
    if (!used)
        snprintf(name, 40, "?");
}

static uint32_t phase_row(struct gp_phases_work *w, const char *text, uint32_t depth)
{
    struct gp_phases *phases = w->phases;
    char name[40];
    phase_name(text, name);
    for (uint32_t i = 0; i < phases->count; i++) {
        if (phases->phases[i].depth == depth && strcmp(phases->phases[i].name, name) == 0)
            return i;
    }
    if (phases->count == GP_PHASES_MOST) {
        phases->left_out++;
        return GP_REC_NONE;
    }
    struct gp_phase *phase = &phases->phases[phases->count];
    memcpy(phase->name, name, sizeof(name));
    phase->depth = depth;
    w->best[phases->count] = GP_REC_NONE;
    return phases->count++;
}

/* ---- occurrences ------------------------------------------------------------------------------------------------- */

static void run_begin(struct gp_phases_work *w, const char *name, uint32_t depth, uint32_t thread, uint32_t event)
{
    if (w->open_count == GP_PHASES_OPEN)
        return;
    if (w->run_count == w->run_room) {
        size_t room = w->run_room ? w->run_room * 2 : 64;
        struct gp_phase_run *grown = realloc(w->runs, room * sizeof(*grown));
        w->failed |= !grown;
        if (!grown)
            return;
        w->runs = grown;
        w->run_room = room;
    }
    w->open[w->open_count++] = (uint32_t)w->run_count;
    w->runs[w->run_count++] = (struct gp_phase_run){.row = phase_row(w, name, depth),
                                                    .depth = depth,
                                                    .thread = thread,
                                                    .begin = event,
                                                    .end = GP_REC_NONE,
                                                    .peak = GP_REC_NONE};
}

static void run_end(struct gp_phases_work *w, uint32_t at, uint32_t event)
{
    w->runs[w->open[at]].end = event;
    memmove(&w->open[at], &w->open[at + 1], (--w->open_count - at) * sizeof(w->open[0]));
}

#define GP_PHASE_MARK UINT32_MAX /* the thread of a phase between marks */

static uint32_t open_depth(const struct gp_phases_work *w, uint32_t thread)
{
    uint32_t depth = 0;
    for (uint32_t i = 0; i < w->open_count; i++)
        depth += w->runs[w->open[i]].thread == thread || w->runs[w->open[i]].thread == GP_PHASE_MARK;
    return depth;
}

/* Push and pop nest on a thread; start and end of a range may be on two.  So the innermost open
 * range of the name is preferred, on this thread, then on any. */
static void range_end(struct gp_phases_work *w, const char *text, uint32_t thread, uint32_t event)
{
    char name[40];
    phase_name(text, name);
    for (unsigned any = 0; any < 2; any++) {
        for (uint32_t i = w->open_count; i-- > 0;) {
            const struct gp_phase_run *run = &w->runs[w->open[i]];
            bool same = run->row == GP_REC_NONE || !*text || strcmp(w->phases->phases[run->row].name, name) == 0;
            if (run->thread != GP_PHASE_MARK && same && (any || run->thread == thread)) {
                run_end(w, i, event);
                return;
            }
        }
    }
}

static void mark_begin(struct gp_phases_work *w, const char *name, uint32_t event)
{
    for (uint32_t i = 0; i < w->open_count; i++) {
        if (w->runs[w->open[i]].thread == GP_PHASE_MARK) {
            run_end(w, i, event);
            break;
        }
    }
    run_begin(w, name, 0, GP_PHASE_MARK, event);
}

static void runs_of_marks(struct gp_phases_work *w)
{
    const struct gp_recording *recording = w->flow->recording;
    bool ranges = false;
    for (size_t i = 0; i < recording->event_count && !w->failed; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->type != GP_EVENT_MARK || event->bytes >= recording->string_bytes)
            continue;
        const char *name = recording->strings + event->bytes;
        if (strncmp(name, "nvtx:", 5) == 0) {
            run_begin(w, name + 5, open_depth(w, event->thread), event->thread, (uint32_t)i);
            ranges = true;
        } else if (strncmp(name, "/nvtx:", 6) == 0) {
            range_end(w, name + 6, event->thread, (uint32_t)i);
        } else {
            mark_begin(w, strncmp(name, "nvtx.", 5) == 0 ? name + 5 : name, (uint32_t)i);
        }
    }
    w->phases->source = ranges ? GP_PHASES_NVTX : GP_PHASES_MARKS;
}

/* The first event at this time or later. */
static uint32_t event_at(const struct gp_recording *recording, uint64_t time_ns)
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

static void runs_of_steps(struct gp_phases_work *w, const struct gp_steps *steps)
{
    const struct gp_recording *recording = w->flow->recording;
    uint32_t end = (uint32_t)recording->event_count;
    bool found = steps && steps->count && steps->source != GP_STEPS_TIME;
    w->phases->source = found ? GP_PHASES_STEPS : GP_PHASES_WHOLE;
    if (!found) {
        mark_begin(w, "whole recording", 0);
        return;
    }
    bool are = gp_steps_are_steps(steps);
    mark_begin(w, are ? "before the steps" : "before the repeats", 0);
    for (uint32_t i = 0; i < steps->count && !w->failed; i++)
        mark_begin(w, gp_steps_word(steps), event_at(recording, steps->bounds_ns[i]));
    uint32_t last = event_at(recording, steps->bounds_ns[steps->count]);
    mark_begin(w, are ? "after the steps" : "after the repeats", last < end ? last : end);
}

/* ---- the first walk: levels -------------------------------------------------------------------------------------- */

static void run_peak(struct gp_phase_run *run, int64_t level, uint32_t event)
{
    if (level > run->peak_bytes) {
        run->peak_bytes = level;
        run->peak = event;
    }
}

/* The runs that are open, as the walk goes on. */
struct gp_phases_levels {
    size_t next; /* the next run to open: they are in the order of their starts */
    int64_t level;
};

static void levels_until(struct gp_phases_work *w, struct gp_phases_levels *levels, uint32_t event)
{
    for (uint32_t i = w->open_count; i-- > 0;) {
        struct gp_phase_run *run = &w->runs[w->open[i]];
        if (run->end <= event) {
            run->end_bytes = levels->level;
            run_end(w, i, run->end);
        }
    }
    while (levels->next < w->run_count && w->runs[levels->next].begin <= event) {
        struct gp_phase_run *run = &w->runs[levels->next];
        run->begin_bytes = run->peak_bytes = run->end_bytes = levels->level;
        if (run->end > event && w->open_count < GP_PHASES_OPEN)
            w->open[w->open_count++] = (uint32_t)levels->next;
        levels->next++;
    }
}

static void walk_levels(struct gp_phases_work *w)
{
    const struct gp_recording *recording = w->flow->recording;
    struct gp_flow_walk walk = gp_flow_begin(w->flow);
    struct gp_flow_change change;
    struct gp_phases_levels levels = {0};
    uint32_t last = (uint32_t)recording->event_count;
    for (uint32_t i = 0; i < w->open_count; i++)
        w->runs[w->open[i]].end = last;
    w->open_count = 0;
    while (gp_flow_next(&walk, &change)) {
        if (change.event != GP_REC_NONE)
            levels_until(w, &levels, change.event);
        if (change.item->device != w->phases->device || !(change.what & GP_FLOW_SUMMED))
            continue;
        uint64_t bytes = change.add ? gp_flow_bytes(&change) : -gp_flow_bytes(&change);
        levels.level = (int64_t)((uint64_t)levels.level + bytes);
        for (uint32_t i = 0; change.add && i < w->open_count; i++)
            run_peak(&w->runs[w->open[i]], levels.level, change.event);
    }
    levels_until(w, &levels, last);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static uint64_t event_time(const struct gp_recording *recording, uint32_t event)
{
    return event < recording->event_count ? recording->events[event].time_ns : recording->end_ns;
}

static void sum_runs(struct gp_phases_work *w)
{
    const struct gp_recording *recording = w->flow->recording;
    for (size_t i = 0; i < w->run_count; i++) {
        const struct gp_phase_run *run = &w->runs[i];
        if (run->row == GP_REC_NONE)
            continue;
        struct gp_phase *phase = &w->phases->phases[run->row];
        uint64_t begin = event_time(recording, run->begin), end = event_time(recording, run->end);
        bool marked = w->phases->source == GP_PHASES_NVTX || w->phases->source == GP_PHASES_MARKS;
        begin = run->begin == 0 && !marked ? recording->begin_ns : begin;
        phase->begin_ns = phase->count++ ? phase->begin_ns : begin;
        phase->duration_ns += end - begin;
        phase->left_bytes += run->end_bytes - run->begin_bytes;
        if (w->best[run->row] != GP_REC_NONE && w->runs[w->best[run->row]].peak_bytes >= run->peak_bytes)
            continue;
        w->best[run->row] = (uint32_t)i;
        phase->begin_bytes = run->begin_bytes;
        phase->peak_bytes = run->peak_bytes;
        phase->end_bytes = run->end_bytes;
        phase->peak_ns = run->peak == GP_REC_NONE ? begin : event_time(recording, run->peak);
    }
}

/* ---- the second walk: call sites --------------------------------------------------------------------------------- */

static int moment_order(const void *one, const void *other)
{
    const struct gp_phase_moment *a = one, *b = other;
    return GP_ORDER(a->event, b->event);
}

static void walk_sites(struct gp_phases_work *w, const struct gp_phase_moment *moments, size_t count)
{
    const struct gp_recording *recording = w->flow->recording;
    struct gp_flow_walk walk = gp_flow_begin(w->flow);
    struct gp_flow_change change;
    size_t at = 0;
    bool more = true;
    while (more) {
        more = gp_flow_next(&walk, &change);
        uint32_t event = !more ? GP_REC_NONE : change.event == GP_REC_NONE ? 0 : change.event;
        /* What was there at the start comes before event 0, which the first moment may be. */
        for (; at < count && (!more || (change.event != GP_REC_NONE && moments[at].event <= event)); at++)
            memcpy(w->states + (moments[at].row * (size_t)GP_MOMENTS + moments[at].which) * w->columns, w->held,
                   w->columns * sizeof(*w->held));
        if (!more || change.item->device != w->phases->device || !(change.what & GP_FLOW_SUMMED))
            continue;
        size_t column = change.item->site ? change.item->site : recording->site_count + change.item->kind;
        uint64_t bytes = change.add ? gp_flow_bytes(&change) : -gp_flow_bytes(&change);
        w->held[column] = (int64_t)((uint64_t)w->held[column] + bytes);
        if (w->uses) {
            column = w->columns - GP_USES + w->uses->rows[w->uses->rule[change.id]].use;
            w->held[column] = (int64_t)((uint64_t)w->held[column] + bytes);
        }
    }
}

static int part_order(const void *one, const void *other)
{
    const struct gp_phase_part *a = one, *b = other;
    if (a->added_bytes != b->added_bytes)
        return GP_ORDER(b->added_bytes, a->added_bytes);
    if (a->left_bytes != b->left_bytes)
        return GP_ORDER(b->left_bytes, a->left_bytes);
    return GP_ORDER(a->site, b->site);
}

static bool row_parts(struct gp_phases_work *w, uint32_t row)
{
    const struct gp_recording *recording = w->flow->recording;
    const int64_t *begin = w->states + row * (size_t)GP_MOMENTS * w->columns;
    const int64_t *peak = begin + w->columns, *end = peak + w->columns;
    struct gp_phase *phase = &w->phases->phases[row];
    size_t count = 0, columns = w->columns - GP_USES;
    for (size_t i = 0; i < columns; i++)
        count += peak[i] != begin[i] || end[i] != begin[i];
    phase->parts = calloc(count + 1, sizeof(*phase->parts));
    for (size_t i = 0; phase->parts && i < columns; i++) {
        if (peak[i] == begin[i] && end[i] == begin[i])
            continue;
        bool known = i < recording->site_count;
        phase->parts[phase->part_count++] =
            (struct gp_phase_part){.site = known ? (uint32_t)i : 0,
                                   .kind = known ? recording->sites[i].kind : (uint8_t)(i - recording->site_count),
                                   .added_bytes = peak[i] - begin[i],
                                   .left_bytes = end[i] - begin[i]};
    }
    for (unsigned use = 0; use < GP_USES; use++)
        phase->uses[use] = (struct gp_phase_use){.at_peak_bytes = peak[columns + use],
                                                 .added_bytes = peak[columns + use] - begin[columns + use],
                                                 .left_bytes = end[columns + use] - begin[columns + use]};
    if (phase->parts)
        qsort(phase->parts, phase->part_count, sizeof(*phase->parts), part_order);
    return phase->parts;
}

static bool find_parts(struct gp_phases_work *w)
{
    uint32_t rows = w->phases->count;
    struct gp_phase_moment moments[GP_PHASES_MOST * GP_MOMENTS];
    size_t count = 0;
    bool ok = true;
    w->columns = w->flow->recording->site_count + (size_t)GP_KINDS + GP_USES;
    w->held = calloc(w->columns, sizeof(*w->held));
    w->states = calloc(rows * (size_t)GP_MOMENTS * w->columns + 1, sizeof(*w->states));
    if (!w->held || !w->states)
        return false;
    for (uint32_t row = 0; row < rows; row++) {
        const struct gp_phase_run *run = &w->runs[w->best[row]];
        uint32_t peak = run->peak == GP_REC_NONE ? run->begin : run->peak + 1;
        moments[count++] = (struct gp_phase_moment){run->begin, row, GP_MOMENT_BEGIN};
        moments[count++] = (struct gp_phase_moment){peak, row, GP_MOMENT_PEAK};
        moments[count++] = (struct gp_phase_moment){run->end, row, GP_MOMENT_END};
    }
    qsort(moments, count, sizeof(moments[0]), moment_order);
    walk_sites(w, moments, count);
    for (uint32_t row = 0; ok && row < rows; row++)
        ok = row_parts(w, row);
    return ok;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

struct gp_phases *gp_phases_find(const struct gp_flow *flow, const struct gp_steps *steps,
                                 const struct gp_use_table *uses, uint32_t device)
{
    struct gp_phases_work *w = calloc(1, sizeof(*w));
    struct gp_phases *phases = calloc(1, sizeof(*phases));
    uint32_t best[GP_PHASES_MOST];
    bool ok = w && phases && (phases->phases = calloc(GP_PHASES_MOST, sizeof(*phases->phases)));
    if (ok) {
        phases->device = device;
        *w = (struct gp_phases_work){.flow = flow, .uses = uses, .phases = phases, .best = best};
        runs_of_marks(w);
        if (!w->run_count && !w->failed)
            runs_of_steps(w, steps);
        walk_levels(w);
        sum_runs(w);
        ok = !w->failed && find_parts(w);
    }
    if (w) {
        free(w->runs);
        free(w->held);
        free(w->states);
    }
    free(w);
    if (ok)
        return phases;
    gp_phases_free(phases);
    return NULL;
}

void gp_phases_free(struct gp_phases *phases)
{
    for (uint32_t i = 0; phases && phases->phases && i < phases->count; i++)
        free(phases->phases[i].parts);
    if (phases)
        free(phases->phases);
    free(phases);
}
