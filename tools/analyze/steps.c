/* SPDX-License-Identifier: MIT
 *
 * steps.c: finds where the steps of a program start; see analyze.h and docs/analyses.md.  A beat is
 * something that repeats: the name of a mark, a call site, or two call sites in a row.  beats.c
 * chooses among those that repeat evenly.  Intervals are counted in events, because a first step
 * that compiles takes a hundred times as long as the others but has as many events.
 */
#include <analyze/analyze.h>
#include <analyze/beats.h>
#include <analyze/flow.h>
#include <analyze/steptree.h>
#include <analyze/tally.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/common/parse.h>
#include <read/recording/recording.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A beat of call sites is searched in the last allocations only, as many as have this number of
 * occurrences.  Their positions take 48 MiB, and they hold hundreds of steps of most programs. */
#define GP_BEAT_WINDOW (4u << 20)
/* The least evenness (gp_beats_even).  A layer that runs 24 times in a row and then pauses for the
 * backward pass has 0.5, as a step has with a long validation after every fifth; beats.c tells them
 * apart. */
#define GP_BEAT_EVEN 0.5
/* Where the memory does not tell, some call sites are even by chance.  A program sets marks to be
 * beats, so less is enough for them. */
#define GP_BEAT_EVEN_MARKS 0.5
#define GP_BEAT_EVEN_SITES 0.8
/* Beats with at least this part of the best evenness are candidates where the memory does not
 * tell. */
#define GP_BEAT_ABOUT 0.9
/* Beats of one allocation: its site, and the site before it together with it; without stacks also
 * its exact size. */
#define GP_BEAT_KEYS 4u
/* Steps of equal time for a recording without a beat. */
#define GP_BEAT_STRETCHES 20u
/* Most steps of a length that a user gives. */
#define GP_STEPS_MOST 1000000u

/* The evenness of each row that is a candidate, 0 for the others; NULL: out of memory.  sites: a
 * site whose blocks are not freed is not a repeated step: a loop that loads weights is like that.
 * A beat must cover at least half of `span` events. */
static double *beats_evens(struct gp_beats *beats, bool sites, uint64_t span)
{
    double *evens = calloc(beats->kinds.count + 1, sizeof(*evens));
    gp_beats_group(beats);
    for (size_t i = 0; evens && i < beats->kinds.count; i++) {
        const struct gp_tally_row *row = &beats->kinds.rows[i];
        const uint32_t *positions = beats->grouped + row->extra;
        size_t count = (size_t)row->count;
        if (count < GP_BEAT_MIN || (sites && row->bytes * 4 < row->count * 3) ||
            (uint64_t)(positions[count - 1] - positions[0]) * 2 < span)
            continue;
        double even = gp_beats_even(positions, count);
        if (even < 0) {
            free(evens);
            return NULL;
        }
        evens[i] = even >= GP_BEAT_EVEN ? even : 0;
    }
    return evens;
}

/* The most frequent of the evenest, for programs whose memory does not tell. */
static const struct gp_tally_row *beats_frequent(const struct gp_beats *beats, const double *evens, double least)
{
    const struct gp_tally_row *best = NULL;
    double most = 0;
    for (size_t i = 0; i < beats->kinds.count; i++)
        GP_RAISE(most, evens[i]);
    for (size_t i = 0; most >= least && i < beats->kinds.count; i++) {
        if (evens[i] >= most * GP_BEAT_ABOUT && (!best || beats->kinds.rows[i].count > best->count))
            best = &beats->kinds.rows[i];
    }
    return best;
}

/* *row: the beat that is the step, or NULL.  least: GP_BEAT_EVEN_*.  False: out of memory. */
static bool beats_best(const struct gp_beats *beats, const double *evens, double least,
                       const struct gp_recording *recording, size_t begin, const struct gp_tally_row **row)
{
    struct gp_beat_curve curve;
    bool ok = gp_beat_curve_init(&curve, recording, begin);
    *row = ok ? gp_beats_step(beats, evens, &curve, &ok) : NULL;
    if (ok && !*row)
        *row = beats_frequent(beats, evens, least);
    gp_beat_curve_fini(&curve);
    return ok;
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

/* The length of a name without its number. */
static size_t steps_length(const char *name)
{
    size_t n = strlen(name);
    while (n && strchr("0123456789 #:_-", name[n - 1]))
        n--;
    return n;
}

static void steps_name(struct gp_steps *steps, const char *name)
{
    size_t n = steps_length(name);
    if (n >= sizeof(steps->name)) {
        n = sizeof(steps->name) - 1;
        while (n && ((unsigned char)name[n] & 0xc0) == 0x80) /* cut between two characters */
            n--;
    }
    memcpy(steps->name, name, n);
    steps->name[n] = '\0';
}

/* Names that programs give to their steps.  "batch_norm" is none. */
static bool steps_telling(const char *name)
{
    size_t length = steps_length(name);
    return strcasestr(name, "step") || strcasestr(name, "iter") ||
           (length >= 5 && strncasecmp(name + length - 5, "batch", 5) == 0);
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
        steps->told |= steps_telling(name);
        if (bounds == 0)
            steps_name(steps, nvtx ? name + 5 : name);
        steps_bound(steps, &bounds, recording->events[i].time_ns);
    }
    return steps;
}

/* Leaves only beats whose names tell that they are steps, if there are any. */
static void steps_prefer(const struct gp_recording *recording, const struct gp_beats *beats, double *evens)
{
    bool any = false;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < beats->kinds.count; i++) {
            bool telling =
                evens[i] > 0 && steps_telling(steps_mark(recording, beats->grouped[beats->kinds.rows[i].extra]));
            any |= telling;
            if (pass == 1 && any && !telling)
                evens[i] = 0;
        }
    }
}

/* The most frequent name that occurs twice. */
static const struct gp_tally_row *steps_twice(const struct gp_beats *beats)
{
    const struct gp_tally_row *best = NULL;
    for (size_t i = 0; i < beats->kinds.count; i++) {
        const struct gp_tally_row *row = &beats->kinds.rows[i];
        if (row->count > 1 && (!best || row->count > best->count))
            best = row;
    }
    return best;
}

static bool steps_collect(const struct gp_recording *recording, bool nvtx, struct gp_beats *beats)
{
    size_t marks = 0;
    for (size_t i = 0; i < recording->event_count; i++)
        marks += steps_begins(steps_mark(recording, i), nvtx);
    bool ok = gp_beats_init(beats, marks);
    for (size_t i = 0; ok && marks && i < recording->event_count; i++) {
        const char *name = steps_mark(recording, i);
        if (steps_begins(name, nvtx))
            ok = gp_beats_put(beats, steps_key(name), (uint32_t)i, true);
    }
    return ok;
}

/* few: a name that occurs twice is enough.  *out stays NULL if there is no beat.  False: out of
 * memory. */
static bool steps_marks(const struct gp_recording *recording, bool nvtx, bool few, struct gp_steps **out)
{
    struct gp_beats beats;
    const struct gp_tally_row *best = NULL;
    bool ok = steps_collect(recording, nvtx, &beats);
    double *evens = ok && beats.count ? beats_evens(&beats, false, 0) : NULL;
    if (ok && beats.count) {
        ok = evens;
        if (ok) {
            steps_prefer(recording, &beats, evens);
            ok = beats_best(&beats, evens, GP_BEAT_EVEN_MARKS, recording, 0, &best);
        }
        if (ok && few && !best)
            best = steps_twice(&beats);
        if (ok && best)
            ok = (*out = steps_of_mark(recording, best->key, (size_t)best->count, nvtx)) != NULL;
    }
    free(evens);
    gp_beats_fini(&beats);
    return ok;
}

/* ---- the program's own period ------------------------------------------------------------------------------------ */

/* The first event of the window in which the period is searched. */
static size_t steps_window(const struct gp_recording *recording)
{
    size_t begin = recording->event_count, occurrences = 0;
    while (begin > 0 && occurrences + GP_BEAT_KEYS <= GP_BEAT_WINDOW) {
        const struct gp_rec_event *event = &recording->events[--begin];
        occurrences += event->type != GP_EVENT_ALLOC ? 0 : event->site ? 2 : GP_BEAT_KEYS;
    }
    return begin;
}

struct gp_beat_keys {
    const struct gp_recording *recording;
    uint64_t (*before)[2]; /* of each thread: the symbols of its last allocation */
};

static bool keys_init(struct gp_beat_keys *keys, const struct gp_recording *recording)
{
    *keys = (struct gp_beat_keys){.recording = recording};
    keys->before = calloc(recording->thread_count + 1ul, sizeof(*keys->before));
    return keys->before;
}

static uint64_t keys_pair(uint64_t before, uint64_t symbol)
{
    return gp_hash_of_number(gp_hash_of_number(before) + symbol);
}

/* Fills out[] with the keys of an allocation.  Call it for each in turn.  A step whose sites all run
 * several times, as layers do, still has one place at which one site follows another. */
static unsigned keys_of(struct gp_beat_keys *keys, const struct gp_rec_event *event, uint64_t out[GP_BEAT_KEYS])
{
    uint32_t thread = event->thread < keys->recording->thread_count ? event->thread : keys->recording->thread_count;
    uint64_t *before = keys->before[thread];
    uint64_t symbols[] = {gp_beat_symbol(event), 1ull << 62 | event->bytes << 4 | event->kind};
    unsigned count = 0;
    for (unsigned i = 0; i < (event->site ? 1 : 2); i++) {
        out[count++] = gp_hash_of_number(symbols[i]);
        if (before[i] && before[i] != symbols[i])
            out[count++] = keys_pair(before[i], symbols[i]);
        before[i] = symbols[i];
    }
    return count;
}

/* Beats that take less than this part of the time come in bursts; a pause is so many times the usual interval. */
#define GP_BEAT_PART  0.1
#define GP_BEAT_PAUSE 10u

/* The median, because a first step that compiles takes long.  UINT64_MAX: out of memory. */
static uint64_t steps_median(const struct gp_steps *steps)
{
    uint64_t *lengths = calloc(steps->count + 1ul, sizeof(*lengths)), median = UINT64_MAX;
    if (!lengths)
        return median;
    for (uint32_t i = 0; i < steps->count; i++)
        lengths[i] = steps->bounds_ns[i + 1] - steps->bounds_ns[i];
    qsort(lengths, steps->count, sizeof(*lengths), gp_order_u64);
    median = lengths[steps->count / 2];
    free(lengths);
    return median;
}

/* A line that makes several blocks at once in each step is even in events, but nearly all the time lies between the
 * bursts: a burst is the step then, if there are enough of about one size.  False: out of memory. */
static bool steps_join_bursts(struct gp_steps *steps)
{
    uint64_t median = steps_median(steps),
             all = steps->count ? steps->bounds_ns[steps->count] - steps->bounds_ns[0] : 0;
    if (median == UINT64_MAX)
        return false;
    if (steps->count < 2 * GP_BEAT_MIN || (double)median * steps->count >= (double)all * GP_BEAT_PART)
        return true;
    uint32_t *starts = calloc(steps->count + 1ul, sizeof(*starts)), count = 0;
    for (uint32_t i = 0; starts && i <= steps->count; i++)
        if (i == 0 || (steps->bounds_ns[i] - steps->bounds_ns[i - 1]) / GP_BEAT_PAUSE > median)
            starts[count++] = i;
    bool is_enough = starts && count >= GP_BEAT_MIN && count <= (steps->count + 1) / 2;
    double even = is_enough ? gp_beats_even(starts, count) : 0;
    if (even >= GP_BEAT_EVEN_SITES) {
        for (uint32_t i = 0; i < count; i++)
            steps->bounds_ns[i] = steps->bounds_ns[starts[i]];
        steps->count = count - 1;
        steps->sure = even;
    }
    free(starts);
    return starts && even >= 0;
}

/* even: of the beat. */
static struct gp_steps *steps_of_key(const struct gp_recording *recording, uint64_t key, double even)
{
    struct gp_beat_keys keys;
    struct gp_steps *steps = NULL;
    uint64_t found[GP_BEAT_KEYS];
    uint32_t bounds = 0, site = 0;
    for (int pass = 0; pass < 2; pass++) { /* counts, then fills */
        size_t count = 0;
        if (!keys_init(&keys, recording)) {
            free(steps);
            return NULL;
        }
        for (size_t i = 0; i < recording->event_count; i++) {
            const struct gp_rec_event *event = &recording->events[i];
            bool here = false;
            for (unsigned n = event->type == GP_EVENT_ALLOC ? keys_of(&keys, event, found) : 0; n > 0; n--)
                here |= found[n - 1] == key;
            count += here;
            if (!here || !steps)
                continue;
            steps_bound(steps, &bounds, event->time_ns);
            site = event->site;
        }
        free(keys.before);
        if (!steps && !(steps = steps_new(count)))
            return NULL;
    }
    steps->source = GP_STEPS_PERIOD;
    steps->sure = even;
    struct gp_net_call *calls = gp_steps_calls(recording);
    if (!calls) {
        free(steps);
        return NULL;
    }
    /* If the user called the net several times, the stacks would have told that. Its backward pass runs
     * on a thread without Python. */
    steps->inside = calls[site].net;
    for (uint32_t i = 0; !calls[site].key && i < recording->site_count; i++)
        steps->inside |= calls[i].net;
    free(calls);
    if (site && site < recording->site_count && recording->sites[site].frame_count) {
        const struct gp_rec_frame *frame = &recording->frames[recording->sites[site].first_frame];
        steps_name(steps, recording->strings + frame->function);
    }
    return steps;
}

static bool steps_occurrences(const struct gp_recording *recording, size_t begin, struct gp_beats *beats)
{
    struct gp_beat_keys keys;
    uint64_t found[GP_BEAT_KEYS];
    size_t room = 0;
    for (size_t i = begin; i < recording->event_count; i++)
        room += recording->events[i].type == GP_EVENT_ALLOC ? GP_BEAT_KEYS : 0;
    bool ok = gp_beats_init(beats, room);
    if (!ok || !keys_init(&keys, recording))
        return false;
    for (size_t i = begin; ok && i < recording->event_count; i++) {
        if (recording->events[i].type != GP_EVENT_ALLOC)
            continue;
        for (unsigned n = 0, count = keys_of(&keys, &recording->events[i], found); ok && n < count; n++)
            ok = gp_beats_put(beats, found[n], (uint32_t)i, recording->peer[i] != GP_REC_NONE);
    }
    free(keys.before);
    return ok;
}

static bool steps_period(const struct gp_recording *recording, struct gp_steps **out)
{
    struct gp_beats beats;
    const struct gp_tally_row *best = NULL;
    size_t begin = steps_window(recording);
    bool ok = steps_occurrences(recording, begin, &beats);
    double *evens = ok ? beats_evens(&beats, true, recording->event_count - begin) : NULL;
    ok = evens && beats_best(&beats, evens, GP_BEAT_EVEN_SITES, recording, begin, &best);
    if (ok && best)
        ok = (*out = steps_of_key(recording, best->key, evens[best - beats.kinds.rows])) != NULL;
    if (*out && !steps_join_bursts(*out)) {
        free(*out);
        *out = NULL;
        ok = false;
    }
    free(evens);
    gp_beats_fini(&beats);
    return ok;
}

/* An idle end of more than a tenth of the recording is no part of its steps.  A program that is idle for more than half of the
 * time may wait for work in between. */
#define GP_STEPS_IDLE 10u

/* The part of the recording that steps of this length are cut from.  What a program only frees when it ends is no work of
 * a step, and neither is a long time after its last event. */
static uint64_t steps_span(const struct gp_recording *recording, uint64_t length_ns)
{
    uint64_t end_ns = gp_flow_clean_up(recording, length_ns), begin_ns = recording->begin_ns;
    if (recording->event_count && end_ns > begin_ns) {
        uint64_t last_ns = recording->events[recording->event_count - 1].time_ns + 1, all = end_ns - begin_ns;
        if (last_ns > begin_ns && last_ns - begin_ns > all / 2 && end_ns > last_ns && end_ns - last_ns > length_ns &&
            end_ns - last_ns > all / GP_STEPS_IDLE)
            end_ns = last_ns;
    }
    return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

static struct gp_steps *steps_time(const struct gp_recording *recording)
{
    uint64_t all = recording->end_ns > recording->begin_ns ? recording->end_ns - recording->begin_ns : 1;
    uint64_t span = steps_span(recording, all / GP_BEAT_STRETCHES);
    span = span ? span : 1;
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

bool gp_steps_are_steps(const struct gp_steps *steps)
{
    switch (steps->source) {
    case GP_STEPS_MARKS:
    case GP_STEPS_GIVEN:
    case GP_STEPS_STACKS:
        return true;
    case GP_STEPS_NVTX: /* libraries have ranges around their own functions */
        return steps->told;
    case GP_STEPS_PERIOD:
    case GP_STEPS_TIME:
        break;
    }
    return false;
}

const char *gp_steps_word(const struct gp_steps *steps)
{
    return gp_steps_are_steps(steps) ? "step" : steps->source == GP_STEPS_TIME ? "stretch" : "repeat";
}

const char *gp_steps_words(const struct gp_steps *steps, uint32_t count)
{
    if (count == 1)
        return gp_steps_word(steps);
    return gp_steps_are_steps(steps) ? "steps" : steps->source == GP_STEPS_TIME ? "stretches" : "repeats";
}

static struct gp_steps *steps_done(struct gp_steps *steps)
{
    if (steps && steps->source != GP_STEPS_STACKS && gp_steps_are_steps(steps)) {
        steps->ended = steps->count; /* the next mark has ended the last one */
        steps->sure = 1;
    }
    if (steps && (steps->length_ns = steps_median(steps)) == UINT64_MAX) {
        free(steps);
        return NULL;
    }
    return steps;
}

/* ---- steps that a user names ------------------------------------------------------------------------------------- */

/* How often the mark or range `name` occurs; as it is written, or (exact false) without its number. */
static size_t steps_named(const struct gp_recording *recording, const char *name, bool nvtx, bool exact,
                          struct gp_steps *steps)
{
    size_t count = 0;
    uint32_t bounds = 0;
    for (size_t i = 0; i < recording->event_count; i++) {
        const char *mark = steps_mark(recording, i);
        if (!steps_begins(mark, nvtx))
            continue;
        mark += nvtx ? 5 : 0;
        if (strcmp(mark, name) != 0 &&
            (exact || steps_length(mark) != steps_length(name) || strncmp(mark, name, steps_length(name)) != 0))
            continue;
        count++;
        if (steps)
            steps_bound(steps, &bounds, recording->events[i].time_ns);
    }
    return count;
}

/* Equal stretches from the start of the recording; what is left at the end, as the clean-up, is no step. */
static struct gp_steps *steps_long(const struct gp_recording *recording, uint64_t length_ns)
{
    uint32_t count = (uint32_t)(steps_span(recording, length_ns) / length_ns);
    struct gp_steps *steps = steps_new(count);
    if (!steps)
        return NULL;
    steps->source = GP_STEPS_GIVEN;
    steps->told = true;
    steps->count = count;
    for (uint32_t i = 0; i <= count; i++)
        steps->bounds_ns[i] = recording->begin_ns + length_ns * i;
    return steps;
}

bool gp_steps_name(const struct gp_recording *recording, uint32_t i, struct gp_step_name *name)
{
    uint32_t found = 0;
    for (int nvtx = 0; nvtx < 2; nvtx++) {
        struct gp_beats beats;
        bool ok = steps_collect(recording, nvtx, &beats), here = false;
        for (size_t k = 0; ok && !here && k < beats.kinds.count; k++) {
            here = beats.kinds.rows[k].count > 1 && found++ == i;
            if (!here)
                continue;
            uint32_t event = 0;
            while (beats.kind[event] != k)
                event++;
            const char *mark = steps_mark(recording, beats.position[event]) + (nvtx ? 5 : 0);
            *name = (struct gp_step_name){.nvtx = nvtx, .count = (uint32_t)beats.kinds.rows[k].count};
            snprintf(name->name, sizeof(name->name), "%.*s", (int)steps_length(mark), mark);
        }
        gp_beats_fini(&beats);
        if (here)
            return true;
    }
    return false;
}

int gp_steps_choose(const struct gp_recording *recording, const char *text, struct gp_steps **out)
{
    uint64_t length_ns;
    struct gp_steps *steps = NULL;
    for (int way = 0; way < 4 && !steps; way++) {
        bool nvtx = way % 2, exact = way < 2;
        size_t count = steps_named(recording, text, nvtx, exact, NULL);
        if (count < 2)
            continue;
        if (!(steps = steps_new(count)))
            return -ENOMEM;
        steps->source = nvtx ? GP_STEPS_NVTX : GP_STEPS_MARKS;
        steps->told = true;
        steps_name(steps, text);
        steps_named(recording, text, nvtx, exact, steps);
    }
    if (!steps && gp_parse_duration(text, &length_ns) == 0) {
        if (length_ns == 0 || (recording->end_ns - recording->begin_ns) / length_ns > GP_STEPS_MOST)
            return -ERANGE;
        if (!(steps = steps_long(recording, length_ns)))
            return -ENOMEM;
    }
    if (!steps)
        return -ENOENT;
    *out = steps_done(steps);
    return *out ? 0 : -ENOMEM;
}

/* Libraries have ranges around their own functions (DeepSpeed): those whose names tell nothing give way to calls of an
 * optimizer. */
static bool steps_calls_first(const struct gp_recording *recording, struct gp_steps **steps)
{
    struct gp_steps *calls = NULL;
    bool ok = gp_steps_of_stacks(recording, &calls);
    if (calls) {
        free(*steps);
        *steps = calls;
    }
    return ok;
}

struct gp_steps *gp_steps_find(const struct gp_recording *recording)
{
    struct gp_steps *steps = NULL;
    bool ok = steps_marks(recording, false, false, &steps);
    if (ok && !steps)
        ok = steps_marks(recording, true, false, &steps);
    if (ok && (!steps || (steps->source == GP_STEPS_NVTX && !steps->told)))
        ok = steps_calls_first(recording, &steps);
    if (ok && !steps)
        ok = steps_period(recording, &steps);
    if (ok && !steps)
        ok = steps_marks(recording, false, true, &steps);
    if (ok && !steps)
        steps = steps_time(recording);
    return steps_done(steps);
}

const char *gp_steps_found(const struct gp_steps *steps)
{
    static const char *const calls[] = {"", "optimizer", "backward", "calls"};
    static const char *const found[] = {"marks", "ranges", "repeats", "time", "given"};
    return steps->source == GP_STEPS_STACKS ? calls[steps->call] : found[steps->source];
}
