/* SPDX-License-Identifier: MIT
 *
 * steps.c: finds where the steps of a program start; see analyze.h and docs/analyses.md.  A beat is
 * something that repeats: the name of a mark, or a call site.  A beat makes steps if it repeats
 * evenly.  Intervals are counted in events, because a first step that compiles takes a hundred
 * times as long as the others but has as many events.
 */
#include <analyze/analyze.h>
#include <analyze/tally.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Occurrences of a beat: four steps have five bounds; leaks.c says why four. */
#define GP_BEAT_MIN 5u
/* A beat of call sites is searched in the last allocations only.  Their positions take 16 MiB, and
 * they hold hundreds of steps of most programs. */
#define GP_BEAT_WINDOW (4u << 20)
/* The least evenness: the part of the distance from the first to the last occurrence that consists
 * of intervals within a factor of two of the median.  A layer that runs 24 times in a row and then
 * pauses for the backward pass has 0.5; a step with an occasional validation has 0.9.  A program
 * sets marks to be beats, so less is enough for them; some call sites are even by chance. */
#define GP_BEAT_EVEN_MARKS 0.5
#define GP_BEAT_EVEN_SITES 0.8
/* Beats with at least this part of the best evenness are candidates. */
#define GP_BEAT_ABOUT 0.9
/* The outermost loop is the step if it gives at least so many steps. */
#define GP_BEAT_PLENTY 20u
/* Steps of equal time for a recording without a beat. */
#define GP_BEAT_STRETCHES 20u

struct gp_beats {              /* occurrences of all candidates */
    struct gp_tally kinds;     /* a row per candidate: a mark's name or a call site */
    uint32_t *kind, *position; /* of each occurrence, in the order of time */
    uint32_t *grouped;         /* the positions, grouped by kind */
    size_t count, room;
};

static void beats_fini(struct gp_beats *beats)
{
    gp_tally_fini(&beats->kinds);
    free(beats->kind);
    free(beats->position);
    free(beats->grouped);
}

static bool beats_init(struct gp_beats *beats, size_t room)
{
    *beats = (struct gp_beats){.room = room};
    beats->kind = calloc(room + 1, sizeof(uint32_t));
    beats->position = calloc(room + 1, sizeof(uint32_t));
    beats->grouped = calloc(room + 1, sizeof(uint32_t));
    return beats->kind && beats->position && beats->grouped;
}

/* Adds an occurrence.  freed: its block is freed within the recording. */
static bool beats_put(struct gp_beats *beats, uint64_t key, uint32_t position, bool freed)
{
    struct gp_tally_row *row = gp_tally_at(&beats->kinds, key);
    if (!row || beats->count == beats->room)
        return false;
    row->count++;
    row->bytes += freed;
    beats->kind[beats->count] = (uint32_t)(row - beats->kinds.rows);
    beats->position[beats->count++] = position;
    return true;
}

/* Fills grouped[]: the positions of a kind are grouped[extra .. extra + count). */
static void beats_group(struct gp_beats *beats)
{
    uint64_t at = 0;
    for (size_t i = 0; i < beats->kinds.count; i++) {
        beats->kinds.rows[i].extra = at;
        at += (uint64_t)beats->kinds.rows[i].count;
    }
    for (size_t i = 0; i < beats->count; i++)
        beats->grouped[beats->kinds.rows[beats->kind[i]].extra++] = beats->position[i];
    for (size_t i = 0; i < beats->kinds.count; i++)
        beats->kinds.rows[i].extra -= (uint64_t)beats->kinds.rows[i].count;
}

static int beats_compare(const void *one, const void *other)
{
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return a < b ? -1 : a > b;
}

/* The evenness, 0..1 (see GP_BEAT_EVEN_MARKS); < 0: out of memory. */
static double beats_even(const uint32_t *positions, size_t count)
{
    size_t n = count - 1;
    uint32_t *intervals = malloc(n * sizeof(*intervals));
    uint64_t even = 0, all = 0;
    if (!intervals)
        return -1;
    for (size_t i = 0; i < n; i++)
        intervals[i] = positions[i + 1] - positions[i];
    qsort(intervals, n, sizeof(*intervals), beats_compare);
    uint64_t median = intervals[n / 2];
    for (size_t i = 0; i < n; i++) {
        all += intervals[i];
        even += intervals[i] >= (median + 1) / 2 && intervals[i] <= median * 2 ? intervals[i] : 0;
    }
    free(intervals);
    return all ? (double)even / (double)all : 0;
}

struct gp_beat {
    double even;
    size_t count;
    const struct gp_tally_row *row;
};

/* True: `one` is the better beat; both are even enough. */
static bool beat_better(const struct gp_beat *one, const struct gp_beat *other, bool outermost)
{
    if (!outermost || one->count < GP_BEAT_PLENTY || other->count < GP_BEAT_PLENTY)
        return one->count > other->count;
    return one->count < other->count;
}

/* The best beat; row is NULL if there is none.  A beat must cover at least half of `span`
 * events. */
static struct gp_beat beats_best(struct gp_beats *beats, double even, bool sites, uint64_t span)
{
    struct gp_beat best = {0};
    double most = 0;
    double *evens = calloc(beats->kinds.count + 1, sizeof(*evens));
    beats_group(beats);
    for (size_t i = 0; evens && i < beats->kinds.count; i++) {
        const struct gp_tally_row *row = &beats->kinds.rows[i];
        const uint32_t *positions = beats->grouped + row->extra;
        size_t count = (size_t)row->count;
        /* A site whose blocks are not freed is not a repeated step: a loop that loads weights is
         * like that. */
        if (count < GP_BEAT_MIN || (sites && row->bytes * 4 < row->count * 3) ||
            (uint64_t)(positions[count - 1] - positions[0]) * 2 < span)
            continue;
        evens[i] = beats_even(positions, count);
        most = evens[i] > most ? evens[i] : most;
    }
    for (size_t i = 0; evens && i < beats->kinds.count; i++) {
        struct gp_beat beat = {evens[i], (size_t)beats->kinds.rows[i].count, &beats->kinds.rows[i]};
        if (beat.even >= even && beat.even >= most * GP_BEAT_ABOUT && (!best.row || beat_better(&beat, &best, sites)))
            best = beat;
    }
    free(evens);
    return best;
}

/* ---- marks ------------------------------------------------------------------------------------------------------ */

static bool steps_nvtx(const char *name)
{
    return strncmp(name, "nvtx:", 5) == 0 || strncmp(name, "nvtx.", 5) == 0; /* ranges, points */
}

/* Leaves out digits, so that "step 12" and "step 13" are one name. */
static uint64_t steps_key(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
    for (; *name; name++) {
        if (*name < '0' || *name > '9')
            hash = (hash ^ (unsigned char)*name) * 0x100000001b3ull;
    }
    return hash;
}

static const char *steps_mark(const struct gp_recording *recording, size_t i)
{
    const struct gp_rec_event *event = &recording->events[i];
    return event->type == GP_EVENT_MARK && event->bytes < recording->string_bytes ? recording->strings + event->bytes
                                                                                  : NULL;
}

/* The mark can start a step; "/nvtx:..." is the end of a range. */
static bool steps_begins(const char *name, bool nvtx)
{
    return name && *name && *name != '/' && steps_nvtx(name) == nvtx;
}

static struct gp_steps *steps_new(size_t bounds)
{
    return calloc(1, sizeof(struct gp_steps) + (bounds + 2) * sizeof(uint64_t));
}

static void steps_bound(struct gp_steps *steps, uint32_t *bounds, uint64_t time_ns)
{
    if (*bounds == 0 || time_ns > steps->bounds_ns[*bounds - 1])
        steps->bounds_ns[(*bounds)++] = time_ns;
    steps->count = *bounds ? *bounds - 1 : 0;
}

static void steps_name(struct gp_steps *steps, const char *name)
{
    size_t n = strlen(name);
    while (n && strchr("0123456789 #:_-", name[n - 1]))
        n--;
    if (n >= sizeof(steps->name)) {
        n = sizeof(steps->name) - 1;
        while (n && ((unsigned char)name[n] & 0xc0) == 0x80) /* cut between two characters */
            n--;
    }
    memcpy(steps->name, name, n);
    steps->name[n] = '\0';
}

static struct gp_steps *steps_of_mark(const struct gp_recording *recording, uint64_t key, size_t count, bool nvtx)
{
    struct gp_steps *steps = steps_new(count);
    uint32_t bounds = 0;
    if (!steps)
        return NULL;
    steps->source = nvtx ? GP_STEPS_NVTX : GP_STEPS_MARKS;
    for (size_t i = 0; i < recording->event_count; i++) {
        const char *name = steps_mark(recording, i);
        if (!steps_begins(name, nvtx) || steps_key(name) != key)
            continue;
        if (bounds == 0)
            steps_name(steps, nvtx ? name + 5 : name);
        steps_bound(steps, &bounds, recording->events[i].time_ns);
    }
    return steps;
}

/* few: a name that occurs twice is enough.  *out stays NULL if there is no beat.  False: out of
 * memory. */
static bool steps_marks(const struct gp_recording *recording, bool nvtx, bool few, struct gp_steps **out)
{
    struct gp_beats beats;
    size_t marks = 0;
    for (size_t i = 0; i < recording->event_count; i++)
        marks += steps_begins(steps_mark(recording, i), nvtx);
    bool ok = beats_init(&beats, marks);
    for (size_t i = 0; ok && marks && i < recording->event_count; i++) {
        const char *name = steps_mark(recording, i);
        if (steps_begins(name, nvtx))
            ok = beats_put(&beats, steps_key(name), (uint32_t)i, true);
    }
    if (ok && marks) {
        struct gp_beat best = beats_best(&beats, GP_BEAT_EVEN_MARKS, false, 0);
        for (size_t i = 0; few && !best.row && i < beats.kinds.count; i++) {
            if (beats.kinds.rows[i].count > (int64_t)best.count && beats.kinds.rows[i].count > 1)
                best = (struct gp_beat){0, (size_t)beats.kinds.rows[i].count, &beats.kinds.rows[i]};
        }
        if (best.row) {
            *out = steps_of_mark(recording, best.row->key, best.count, nvtx);
            ok = *out;
        }
    }
    beats_fini(&beats);
    return ok;
}

/* ---- the program's own period ------------------------------------------------------------------------------------ */

/* Identifies a call site; without stacks, the size and kind of a block identify it. */
static uint64_t steps_symbol(const struct gp_rec_event *event)
{
    return event->site ? event->site : (event->bytes << 8 | event->kind) ^ 1ull << 63;
}

static struct gp_steps *steps_of_symbol(const struct gp_recording *recording, uint64_t key)
{
    struct gp_steps *steps;
    size_t count = 0;
    uint32_t bounds = 0, site = 0;
    for (size_t i = 0; i < recording->event_count; i++)
        count += recording->events[i].type == GP_EVENT_ALLOC && steps_symbol(&recording->events[i]) == key;
    steps = steps_new(count);
    if (!steps)
        return NULL;
    steps->source = GP_STEPS_PERIOD;
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->type != GP_EVENT_ALLOC || steps_symbol(event) != key)
            continue;
        steps_bound(steps, &bounds, event->time_ns);
        site = event->site;
    }
    if (site && site < recording->site_count && recording->sites[site].frame_count) {
        const struct gp_rec_frame *frame = &recording->frames[recording->sites[site].first_frame];
        steps_name(steps, recording->strings + frame->function);
    }
    return steps;
}

static bool steps_period(const struct gp_recording *recording, struct gp_steps **out)
{
    struct gp_beats beats;
    size_t allocs = 0, begin = recording->event_count;
    while (begin > 0 && allocs < GP_BEAT_WINDOW)
        allocs += recording->events[--begin].type == GP_EVENT_ALLOC;
    bool ok = beats_init(&beats, allocs);
    for (size_t i = begin; ok && i < recording->event_count; i++) {
        if (recording->events[i].type == GP_EVENT_ALLOC)
            ok = beats_put(&beats, steps_symbol(&recording->events[i]), (uint32_t)i, recording->peer[i] != GP_REC_NONE);
    }
    if (ok) {
        struct gp_beat best = beats_best(&beats, GP_BEAT_EVEN_SITES, true, recording->event_count - begin);
        if (best.row) {
            *out = steps_of_symbol(recording, best.row->key);
            ok = *out;
        }
    }
    beats_fini(&beats);
    return ok;
}

static struct gp_steps *steps_time(const struct gp_recording *recording)
{
    uint64_t span = recording->end_ns > recording->begin_ns ? recording->end_ns - recording->begin_ns : 1;
    uint32_t count = span < GP_BEAT_STRETCHES ? 1 : GP_BEAT_STRETCHES;
    struct gp_steps *steps = steps_new(count);
    if (!steps)
        return NULL;
    steps->source = GP_STEPS_TIME;
    steps->count = count;
    for (uint32_t i = 0; i <= count; i++)
        steps->bounds_ns[i] = recording->begin_ns + (uint64_t)((__uint128_t)span * i / count);
    return steps;
}

struct gp_steps *gp_steps_find(const struct gp_recording *recording)
{
    struct gp_steps *steps = NULL;
    bool ok = steps_marks(recording, false, false, &steps);
    if (ok && !steps)
        ok = steps_marks(recording, true, false, &steps);
    if (ok && !steps)
        ok = steps_period(recording, &steps);
    if (ok && !steps)
        ok = steps_marks(recording, false, true, &steps);
    if (ok && !steps)
        steps = steps_time(recording);
    return steps;
}
