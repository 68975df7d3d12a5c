/* SPDX-License-Identifier: MIT
 * beats.c: finds the rhythm that is the program's step (beats.h). */
#include <analyze/beats.h>
#include <analyze/tally.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* Beats whose numbers of occurrences differ by less are one rhythm; one that has fewer than ALL is
 * sometimes missing. */
#define GP_BEAT_SAME 0.95
#define GP_BEAT_ALL  0.995
/* Stretches of a rhythm that are looked at, from its middle, and the events in which at least
 * GP_BEAT_FEW of them must be found. */
#define GP_BEAT_STRETCHED 256u
#define GP_BEAT_FEW       8u
#define GP_BEAT_EVENTS    (1u << 20)
/* Rhythms that are looked at; the most frequent ones first. */
#define GP_BEAT_RHYTHMS 256u
/* Most drift of the level from one occurrence to the next, as a part of the range between them.  A
 * layer of a forward pass adds its activations: its drift is about its range. */
#define GP_BEAT_DRIFT 0.25
/* Least swing and least number of call sites, as a part of those of the best rhythm that returns.  A
 * step has nearly all of both; an inner loop has its own workspaces only. */
#define GP_BEAT_SWING 0.4
#define GP_BEAT_SITES 0.4
/* A rhythm that has fewer sites than this part must reach the lowest level, to this part of its
 * range: between two layers the inputs of the step are held. */
#define GP_BEAT_MOST 0.75
#define GP_BEAT_LOW  0.05

void gp_beats_fini(struct gp_beats *beats)
{
    gp_tally_fini(&beats->kinds);
    free(beats->kind);
    free(beats->position);
    free(beats->grouped);
}

bool gp_beats_init(struct gp_beats *beats, size_t room)
{
    *beats = (struct gp_beats){.room = room};
    beats->kind = calloc(room + 1, sizeof(uint32_t));
    beats->position = calloc(room + 1, sizeof(uint32_t));
    beats->grouped = calloc(room + 1, sizeof(uint32_t));
    return beats->kind && beats->position && beats->grouped;
}

bool gp_beats_put(struct gp_beats *beats, uint64_t key, uint32_t position, bool freed)
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

void gp_beats_group(struct gp_beats *beats)
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
    return GP_ORDER(a, b);
}

double gp_beats_even(const uint32_t *positions, size_t count)
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

/* ---- the curve --------------------------------------------------------------------------------------------------- */

uint64_t gp_beat_symbol(const struct gp_rec_event *event)
{
    if (event->site)
        return event->site;
    unsigned power = event->bytes ? 63 - (unsigned)__builtin_clzll(event->bytes) : 0;
    return 1ull << 63 | (uint64_t)event->kind << 8 | power;
}

void gp_beat_curve_fini(struct gp_beat_curve *curve)
{
    free(curve->level);
    free(curve->symbol);
    free(curve->stamp);
}

/* The event that ends the block of the event i, if it counts: parameters that are freed at the end
 * of the program are no part of a step. */
static bool curve_counts(const struct gp_beat_curve *curve, size_t start, size_t end)
{
    const struct gp_recording *recording = curve->recording;
    return start >= curve->begin && end < recording->event_count && start < end &&
           recording->events[start].type == GP_EVENT_ALLOC && recording->events[end].type == GP_EVENT_FREE &&
           recording->peer[start] == end && recording->peer[end] == start &&
           (end - start) * 2 < recording->event_count - curve->begin;
}

bool gp_beat_curve_init(struct gp_beat_curve *curve, const struct gp_recording *recording, size_t begin)
{
    size_t count = recording->event_count - begin;
    struct gp_tally symbols = {0};
    uint64_t level = 0; /* unsigned: sizes of a damaged file may wrap */
    *curve = (struct gp_beat_curve){.recording = recording, .begin = begin};
    curve->level = calloc(count + 1, sizeof(*curve->level));
    curve->symbol = calloc(count + 1, sizeof(*curve->symbol));
    bool ok = curve->level && curve->symbol;
    for (size_t i = begin; ok && i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        uint32_t peer = recording->peer[i];
        curve->level[i - begin] = (int64_t)level;
        if (event->type == GP_EVENT_ALLOC) {
            struct gp_tally_row *row = gp_tally_at(&symbols, gp_beat_symbol(event));
            ok = row;
            curve->symbol[i - begin] = ok ? (uint32_t)(row - symbols.rows) + 1 : 0;
            level += curve_counts(curve, i, peer) ? event->bytes : 0;
        } else if (curve_counts(curve, peer, i)) {
            level -= recording->events[peer].bytes;
        }
    }
    if (ok)
        curve->level[count] = (int64_t)level;
    curve->symbols = (uint32_t)symbols.count;
    curve->stamp = calloc(symbols.count + 2, sizeof(*curve->stamp));
    gp_tally_fini(&symbols);
    return ok && curve->stamp;
}

/* ---- rhythms ----------------------------------------------------------------------------------------------------- */

struct gp_rhythm {
    const struct gp_tally_row *row;
    double even, level;  /* level: its mean at the occurrences */
    double swing, sites; /* means: level above the lowest of its stretch, and how many call sites a stretch has */
    double low, range;   /* means of a stretch: lowest level, highest - lowest level */
    double drift;        /* of the level from one occurrence to the next, as a part of `range` */
};

static int rhythm_compare(const void *one, const void *other)
{
    const struct gp_rhythm *a = one, *b = other;
    if (a->row->count != b->row->count)
        return GP_ORDER(b->row->count, a->row->count);
    return GP_ORDER(a->row->extra, b->row->extra);
}

/* Measures the stretches between the occurrences in the middle. */
static void rhythm_measure(struct gp_rhythm *rhythm, const uint32_t *positions, struct gp_beat_curve *curve)
{
    size_t count = (size_t)rhythm->row->count - 1, first = 0, events = 0;
    double moved = 0, stretches = 0, above = 0;
    if (count > GP_BEAT_STRETCHED)
        first = (count - GP_BEAT_STRETCHED) / 2;
    for (size_t k = first; k < count && k - first < GP_BEAT_STRETCHED; k++) {
        if (positions[k] < curve->begin)
            continue;
        size_t from = positions[k] - curve->begin, to = positions[k + 1] - curve->begin;
        int64_t low = curve->level[from], high = low;
        uint32_t sites = 0;
        double sum = 0;
        curve->stamps++;
        for (size_t i = from; i < to; i++) {
            GP_LOWER(low, curve->level[i]);
            GP_RAISE(high, curve->level[i]);
            sum += (double)curve->level[i];
            sites += curve->symbol[i] && curve->stamp[curve->symbol[i]] != curve->stamps;
            curve->stamp[curve->symbol[i]] = curve->stamps;
        }
        moved += curve->level[to] > curve->level[from] ? (double)curve->level[to] - (double)curve->level[from]
                                                       : (double)curve->level[from] - (double)curve->level[to];
        rhythm->range += (double)high - (double)low;
        rhythm->low += (double)low;
        above += sum - (double)low * (double)(to - from);
        rhythm->sites += sites;
        stretches++;
        events += to - from;
        if (events > GP_BEAT_EVENTS && stretches >= GP_BEAT_FEW)
            break;
    }
    rhythm->drift = rhythm->range > 0 ? moved / rhythm->range : 0;
    stretches = stretches > 0 ? stretches : 1;
    rhythm->swing = events ? above / (double)events : 0;
    rhythm->range /= stretches;
    rhythm->low /= stretches;
    rhythm->sites /= stretches;
}

static double rhythm_level(const struct gp_tally_row *row, const uint32_t *positions, const struct gp_beat_curve *curve)
{
    double sum = 0, count = 0;
    for (int64_t i = 0; i < row->count; i++) {
        if (positions[i] < curve->begin)
            continue;
        sum += (double)curve->level[positions[i] - curve->begin];
        count++;
    }
    return count > 0 ? sum / count : 0;
}

/* A step starts where the least memory is held; of equal beats, the first one in the program.  Beats
 * that are sometimes missing, or less even, come after the others. */
static const struct gp_rhythm *rhythm_first(const struct gp_rhythm *list, size_t count, const uint32_t *grouped)
{
    const struct gp_rhythm *best = NULL;
    double even = 0, most = 0;
    for (size_t i = 0; i < count; i++)
        GP_RAISE(even, list[i].even);
    for (size_t i = 0; i < count; i++) {
        if (list[i].even >= even * GP_BEAT_SAME && (double)list[i].row->count > most)
            most = (double)list[i].row->count;
    }
    for (size_t i = 0; i < count; i++) {
        const struct gp_rhythm *at = &list[i];
        if (at->even < even * GP_BEAT_SAME || (double)at->row->count < most * GP_BEAT_ALL - 1)
            continue;
        if (!best || at->level < best->level ||
            (!(at->level > best->level) && grouped[at->row->extra] < grouped[best->row->extra]))
            best = at;
    }
    return best;
}

/* Keeps one beat of each rhythm.  Returns their number. */
static size_t rhythms_join(struct gp_rhythm *list, size_t count, const uint32_t *grouped)
{
    size_t joined = 0;
    for (size_t i = 0, next; i < count && joined < GP_BEAT_RHYTHMS; i = next) {
        for (next = i; next < count && (double)list[next].row->count >= (double)list[i].row->count * GP_BEAT_SAME - 1;)
            next++;
        struct gp_rhythm best = *rhythm_first(&list[i], next - i, grouped);
        list[joined++] = best;
    }
    return joined;
}

/* The most frequent rhythm that returns to its level and has most of the swing and of the sites. */
static const struct gp_tally_row *rhythms_choose(const struct gp_rhythm *list, size_t count)
{
    double swing = 0, sites = 0, low = DBL_MAX;
    for (size_t i = 0; i < count; i++) {
        if (list[i].drift > GP_BEAT_DRIFT)
            continue;
        GP_RAISE(swing, list[i].swing);
        GP_RAISE(sites, list[i].sites);
        low = list[i].low < low ? list[i].low : low;
    }
    for (size_t i = 0; i < count; i++) {
        const struct gp_rhythm *at = &list[i];
        if (at->drift > GP_BEAT_DRIFT || at->swing < swing * GP_BEAT_SWING || at->sites < sites * GP_BEAT_SITES)
            continue;
        if (at->sites >= sites * GP_BEAT_MOST || at->low - low <= at->range * GP_BEAT_LOW)
            return at->row;
    }
    return NULL;
}

const struct gp_tally_row *gp_beats_step(const struct gp_beats *beats, const double *even, struct gp_beat_curve *curve,
                                         bool *ok)
{
    struct gp_rhythm *list = calloc(beats->kinds.count + 1, sizeof(*list));
    size_t count = 0;
    *ok = list;
    for (size_t i = 0; list && i < beats->kinds.count; i++) {
        const struct gp_tally_row *row = &beats->kinds.rows[i];
        if (even[i] > 0)
            list[count++] = (struct gp_rhythm){
                .row = row, .even = even[i], .level = rhythm_level(row, beats->grouped + row->extra, curve)};
    }
    if (count)
        qsort(list, count, sizeof(*list), rhythm_compare);
    count = rhythms_join(list, count, beats->grouped);
    for (size_t i = 0; i < count; i++)
        rhythm_measure(&list[i], beats->grouped + list[i].row->extra, curve);
    const struct gp_tally_row *row = count ? rhythms_choose(list, count) : NULL;
    free(list);
    return row;
}
