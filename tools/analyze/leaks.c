/* SPDX-License-Identifier: MIT
 *
 * leaks.c: finds call sites that hold more with every step; see analyze.h.  The first walk finds
 * sites that hold more at the end than after the warm-up.  The second one makes the curve of each:
 * the least that it held during each step.  Leaked memory stays through every later step, so it is
 * in the curve; temporary buffers are not.  docs/analyses.md has the rule that judges a curve, and
 * its reasons.  A site whose curve grows is a suspect if it is known that these are steps, else a
 * candidate.
 */
#include <analyze/analyze.h>
#include <analyze/beats.h>
#include <analyze/flow.h>
#include <analyze/forecast.h>
#include <analyze/tally.h>
#include <base/numbers.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>

#include <stdlib.h>
#include <string.h>

/* With one step of warm-up, four steps give three chances to grow, the fewest that can look
 * regular. */
#define GP_LEAK_STEPS 4u
/* Most points of a curve; of more steps, several share a point. */
#define GP_LEAK_POINTS GP_TREND_MOST
/* Most curves.  The sites that grew most get one; this is far more than a user repairs at once. */
#define GP_LEAK_CURVES 512u
/* The least confidence of a suspect. */
#define GP_LEAK_SURE 0.4
/* Factor of the confidence without steps, because a program that is still loading looks like one
 * that leaks. */
#define GP_LEAK_UNSURE 0.5
/* Rises that a site needs if it began to grow late, and groups of points whose lowest levels must rise
 * if a curve also falls. */
#define GP_LEAK_RISES 5u
/* From this part of the curve on, a flat beginning lowers the slope. */
#define GP_LEAK_LATE   8u
#define GP_LEAK_GROUPS 8u
/* Without steps: parts with equal numbers of allocations, and the fewest allocations of a part. */
#define GP_LEAK_PARTS 20u
#define GP_LEAK_PART  4u
/* Most candidates: a forward pass has hundreds of sites. */
#define GP_LEAK_CANDIDATES 50u
/* Newest points that tell what a step needs. */
#define GP_LEAK_RECENT 8u

struct gp_leak_curve {
    uint64_t key; /* leak_key */
    int64_t live_bytes, live_count;
    int64_t warm_count; /* live_count at the end of the warm-up */
    uint64_t oldest_time_ns;
    uint64_t taken_bytes, freed_bytes;
};

struct gp_leak_search {
    const struct gp_flow *flow;
    const struct gp_steps *steps;
    struct gp_repeats repeats;
    bool parts;        /* the steps are equal parts of the allocations */
    uint64_t young_ns; /* a block that started later and is live at the end does not count */
    uint64_t warm_ns, last_ns;
    uint32_t points, warm;
    struct gp_tally sites;
    struct gp_leak_curve *curves;
    uint32_t curve_count;
    int64_t *kept;  /* [curve][points + 1]: the last one is held at last_ns */
    int64_t *high;  /* [curve][points + 1]: the most that it held */
    int64_t *full;  /* [curve][points + 1]: what the device held then */
    int64_t *most;  /* [device][points + 1]: the most that the device held */
    int64_t *least; /* [device][points + 1]: the least; the last: at last_ns */
    struct gp_level *levels;
    struct gp_flow_polled *polled;
};

/* A site on another device or of another kind has a curve of its own.  Without stacks, every block
 * has site 0, and device and kind alone separate them. */
static uint64_t leak_key(const struct gp_rec_event *item)
{
    return (uint64_t)item->kind << 40 | (uint64_t)item->site << 8 | item->device;
}

static bool leak_counts(const struct gp_leak_search *search, const struct gp_flow_change *change)
{
    if (!(change->what & GP_FLOW_KIND) || gp_kind_is(change->item->kind, GP_TRAIT_ADDRESSES))
        return false;
    return !change->add || change->item->time_ns <= search->young_ns ||
           gp_flow_end(search->flow, change->id) != GP_REC_NONE;
}

/* When the first step of a point starts. */
static uint64_t leak_time(const struct gp_leak_search *search, uint32_t point)
{
    return search->steps->bounds_ns[(uint64_t)point * search->steps->count / search->points];
}

static bool leak_totals(struct gp_leak_search *search)
{
    struct gp_flow_walk walk = gp_flow_begin(search->flow);
    struct gp_flow_change change;
    bool warm = false, ok = true;
    while (ok && gp_flow_next(&walk, &change)) {
        if (!warm && change.event != GP_REC_NONE && change.time_ns >= search->warm_ns) {
            for (size_t i = 0; i < search->sites.count; i++)
                search->sites.rows[i].extra = (uint64_t)search->sites.rows[i].bytes;
            warm = true;
        }
        if (change.event != GP_REC_NONE && change.time_ns >= search->last_ns)
            break;
        if (leak_counts(search, &change))
            ok = gp_tally_move(&search->sites, leak_key(change.item), gp_flow_bytes(&change), change.add);
    }
    return ok;
}

static int64_t leak_growth(const struct gp_tally_row *row)
{
    return (int64_t)((uint64_t)row->bytes - row->extra);
}

static int leak_compare_growth(const void *one, const void *other)
{
    const struct gp_tally_row *a = *(const struct gp_tally_row *const *)one;
    const struct gp_tally_row *b = *(const struct gp_tally_row *const *)other;
    int64_t left = leak_growth(a), right = leak_growth(b);
    if (left != right)
        return GP_ORDER(right, left);
    return GP_ORDER(a->key, b->key);
}

/* Chooses the rows that grew most; their `extra` becomes the index of the curve + 1. */
static bool leak_choose(struct gp_leak_search *search)
{
    struct gp_tally_row **rows = calloc(search->sites.count + 1, sizeof(struct gp_tally_row *));
    size_t count = 0;
    if (!rows)
        return false;
    for (size_t i = 0; i < search->sites.count; i++) {
        if (leak_growth(&search->sites.rows[i]) > 0)
            rows[count++] = &search->sites.rows[i];
    }
    qsort(rows, count, sizeof(*rows), leak_compare_growth);
    search->curve_count = count < GP_LEAK_CURVES ? (uint32_t)count : GP_LEAK_CURVES;
    search->curves = calloc(search->curve_count + 1, sizeof(*search->curves));
    size_t all = (size_t)(search->curve_count + 1) * (search->points + 1);
    search->kept = calloc(all, sizeof(*search->kept));
    search->high = calloc(all, sizeof(*search->high));
    search->full = calloc(all, sizeof(*search->full));
    bool ok = search->curves && search->kept && search->high && search->full;
    for (size_t i = 0; i < search->sites.count; i++)
        search->sites.rows[i].extra = 0;
    for (uint32_t i = 0; ok && i < search->curve_count; i++) {
        rows[i]->extra = i + 1;
        search->curves[i] = (struct gp_leak_curve){.key = rows[i]->key, .oldest_time_ns = UINT64_MAX};
    }
    free(rows);
    return ok;
}

static void leak_curve_move(struct gp_leak_search *search, struct gp_leak_curve *curve,
                            const struct gp_flow_change *change)
{
    const struct gp_recording *recording = search->flow->recording;
    curve->live_bytes =
        (int64_t)((uint64_t)curve->live_bytes + (change->add ? gp_flow_bytes(change) : -gp_flow_bytes(change)));
    curve->live_count += change->add ? 1 : -1;
    if (change->id < recording->event_count)
        *(change->add ? &curve->taken_bytes : &curve->freed_bytes) += change->item->bytes;
    if (!change->add)
        return;
    uint32_t end = gp_flow_end(search->flow, change->id);
    if ((end == GP_REC_NONE || recording->events[end].time_ns >= search->last_ns) &&
        change->item->time_ns < curve->oldest_time_ns)
        curve->oldest_time_ns = change->event == GP_REC_NONE && change->id < recording->event_count
                                    ? recording->begin_ns
                                    : change->item->time_ns;
}

/* A point starts: what is held now is the least and the most so far. */
static void leak_point(struct gp_leak_search *search, uint32_t point)
{
    size_t width = search->points + 1;
    for (uint32_t i = 0; i < search->curve_count; i++) {
        struct gp_leak_curve *curve = &search->curves[i];
        search->kept[i * width + point] = search->high[i * width + point] = curve->live_bytes;
        search->full[i * width + point] = search->levels[(uint8_t)curve->key].allocated;
        if (point == search->warm)
            curve->warm_count = curve->live_count;
    }
    for (uint32_t d = 0; d < search->flow->recording->device_count; d++)
        search->most[d * width + point] = search->least[d * width + point] = search->levels[d].allocated;
}

static void leak_see(struct gp_leak_search *search, const struct gp_flow_change *change, uint32_t point)
{
    size_t width = search->points + 1;
    int64_t level = search->levels[change->item->device].allocated;
    struct gp_tally_row *row = leak_counts(search, change) ? gp_tally_at(&search->sites, leak_key(change->item)) : NULL;
    if (point) {
        GP_RAISE(search->most[change->item->device * width + point - 1], level);
        GP_LOWER(search->least[change->item->device * width + point - 1], level);
    }
    if (!row || !row->extra)
        return;
    struct gp_leak_curve *curve = &search->curves[row->extra - 1];
    leak_curve_move(search, curve, change);
    if (!point)
        return;
    size_t at = (row->extra - 1) * width + point - 1;
    GP_LOWER(search->kept[at], curve->live_bytes);
    if (curve->live_bytes < search->high[at])
        return;
    search->high[at] = curve->live_bytes;
    search->full[at] = level;
}

static void leak_draw(struct gp_leak_search *search)
{
    struct gp_flow_walk walk = gp_flow_begin(search->flow);
    struct gp_flow_change change;
    uint32_t point = 0; /* the next one to start; the current one is point - 1 */
    for (bool more = true; more;) {
        more = gp_flow_next(&walk, &change);
        uint64_t now = !more ? UINT64_MAX : change.event == GP_REC_NONE ? 0 : change.time_ns;
        /* A change at the time of a bound belongs to the step that starts there. */
        for (; point <= search->points && now >= leak_time(search, point); point++)
            leak_point(search, point);
        if (!more || point > search->points)
            break;
        if (change.item->device >= search->flow->recording->device_count)
            continue;
        gp_flow_polled_advance(&search->polled[change.item->device], now, &search->levels[change.item->device]);
        gp_level_apply(&search->levels[change.item->device], &change);
        leak_see(search, &change, point);
    }
}

/* ---- the judgement ----------------------------------------------------------------------------------------------- */

/* A site that began to grow late has a flat curve before, which is no part of the line. */
static bool leak_late(const int64_t *values, uint32_t count, uint32_t least, struct gp_trend *trend)
{
    uint32_t first = 0;
    while (first + 1 < count && values[first + 1] <= values[first])
        first++;
    return first >= least && gp_trend_find(values + first, count - first, trend);
}

/* A site that gives back what it took, but less each time: its lowest levels rise. */
static bool leak_uneven(const int64_t *values, uint32_t count, struct gp_trend *trend)
{
    int64_t lows[GP_LEAK_GROUPS];
    uint32_t each = count / GP_LEAK_GROUPS, from = count - each * GP_LEAK_GROUPS;
    if (each < 2)
        return false;
    for (uint32_t i = 0; i < each * GP_LEAK_GROUPS; i++) {
        int64_t *low = &lows[i / each];
        if (i % each == 0 || values[from + i] < *low)
            *low = values[from + i];
    }
    bool grows = gp_trend_find(lows, GP_LEAK_GROUPS, trend);
    trend->slope /= each;
    return grows && trend->falls == 0;
}

static bool leak_inside(const struct gp_recording *recording, uint32_t site, const char *function)
{
    const struct gp_rec_site *at = &recording->sites[site];
    for (uint32_t k = 0; k < at->frame_count; k++) {
        const char *name = recording->strings + recording->frames[at->first_frame + k].function;
        const char *dot = strrchr(name, '.');
        if (strcmp(dot ? dot + 1 : name, function) == 0)
            return true;
    }
    return false;
}

/* All that the site allocates is asked for in one call of generate(): its thread allocates nothing outside of that from
 * the first to the last block. */
static bool leak_one_generation(const struct gp_recording *recording, uint32_t site)
{
    bool begun = false, left = false;
    uint32_t thread = 0;
    if (!leak_inside(recording, site, "generate"))
        return false;
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->type != GP_EVENT_ALLOC || (begun && event->thread != thread))
            continue;
        if (event->site == site && left)
            return false;
        begun |= event->site == site;
        thread = event->thread;
        left |= begun && event->site != site && !leak_inside(recording, event->site, "generate");
    }
    return true;
}

static enum gp_leak_doubt leak_doubt(const struct gp_leak_search *search, const struct gp_leak_curve *curve)
{
    const struct gp_repeats *repeats = &search->repeats;
    /* A layer and a loader replace nothing, and no pass has so many layers. */
    bool replaced = curve->live_count <= curve->warm_count,
         layers = repeats->may_be_layers && !replaced && curve->live_count < GP_REPEATS_LAYERS;
    if (search->parts)
        return GP_LEAK_NO_STEPS;
    if (leak_one_generation(search->flow->recording, (uint32_t)(curve->key >> 8)))
        return GP_LEAK_GENERATION;
    if (search->steps->told || !(repeats->is_inside || (repeats->may_load && !replaced) || layers))
        return GP_LEAK_KNOWN;
    if (search->steps->source == GP_STEPS_TIME)
        return GP_LEAK_NO_STEPS;
    return repeats->is_inside ? GP_LEAK_INSIDE : repeats->may_load ? GP_LEAK_LOADING : GP_LEAK_LAYERS;
}

/* Fills in from when to when the curve grows, and how fast. */
static void leak_growth_of(const struct gp_leak_search *search, const int64_t *kept, struct gp_leak *leak)
{
    uint32_t first = search->points, last = search->warm;
    for (uint32_t i = search->warm; i < search->points; i++) {
        if (kept[i + 1] <= kept[i])
            continue;
        first = first == search->points ? i : first;
        last = i + 1;
    }
    if (first >= last)
        return;
    leak->grows_ns = leak_time(search, last) - leak_time(search, first);
    leak->bytes_per_second =
        leak->grows_ns ? ((double)kept[last] - (double)kept[first]) / ((double)leak->grows_ns / 1e9) : 0;
}

/* How sure it is that these are steps.  The more a repeat frees for each block that it keeps, the likelier. */
static double leak_sure(const struct gp_repeats *repeats, enum gp_leak_doubt doubt)
{
    switch (doubt) {
    case GP_LEAK_KNOWN:
        return 1;
    case GP_LEAK_INSIDE:
    case GP_LEAK_GENERATION:
        return 0.2;
    case GP_LEAK_LOADING:
    case GP_LEAK_LAYERS:
        return 0.1 + 0.8 * repeats->freed / (repeats->freed + 3 * repeats->kept + 1);
    default:
        return 0.5;
    }
}

static bool leak_judge(const struct gp_leak_search *search, uint32_t index, struct gp_leak *leak)
{
    const struct gp_leak_curve *curve = &search->curves[index];
    const int64_t *kept = &search->kept[(size_t)index * (search->points + 1)], *values = kept + search->warm;
    uint32_t site = (uint32_t)(curve->key >> 8), count = search->points + 1 - search->warm;
    enum gp_leak_doubt doubt = leak_doubt(search, curve);
    struct gp_trend trend, later;
    if (gp_trend_find(values, count, &trend)) {
        if (leak_late(values, count, count / GP_LEAK_LATE, &later))
            trend.slope = later.slope;
    } else {
        bool late = leak_late(values, count, 1, &trend);
        if (!late && !leak_uneven(values, count, &trend))
            return false;
        if (doubt == GP_LEAK_KNOWN && !(late && trend.rises >= GP_LEAK_RISES))
            doubt = late ? GP_LEAK_SHORT : GP_LEAK_UNEVEN;
    }
    /* With no more blocks than before, one block is replaced by a larger one each time (a key-value
     * cache, say).  A buffer of changing size can make such a curve by chance, but then the curve
     * also falls. */
    if (curve->live_count <= curve->warm_count && (trend.falls || doubt == GP_LEAK_UNEVEN))
        return false;
    double confidence = trend.confidence;
    if (search->steps->source == GP_STEPS_TIME && doubt == GP_LEAK_KNOWN)
        confidence *= GP_LEAK_UNSURE;
    if (confidence < GP_LEAK_SURE)
        return false;
    *leak = (struct gp_leak){
        .site = site,
        .device = (uint8_t)curve->key,
        .kind = (uint8_t)(curve->key >> 40),
        .doubt = (uint8_t)doubt,
        .live_bytes = kept[search->points],
        .live_count = curve->live_count,
        .bytes_per_step = trend.slope * search->points / search->steps->count,
        .confidence = confidence * leak_sure(&search->repeats, doubt),
        .seconds_to_oom = -1,
        .oldest_ns = curve->oldest_time_ns < search->last_ns ? search->last_ns - curve->oldest_time_ns : 0,
        .taken_bytes = (int64_t)curve->taken_bytes,
        .freed_bytes = (int64_t)curve->freed_bytes,
        .repeats = search->steps->count,
        .repeat_kept = search->repeats.kept,
        .repeat_freed = search->repeats.freed,
        .points = search->points,
        .kept = kept,
    };
    leak_growth_of(search, kept, leak);
    return true;
}

/* ---- time to out of memory --------------------------------------------------------------------------------------- */

/* What the newest points needed above what stayed after them; `more`: by how much that grows. */
static double leak_need(const struct gp_leak_search *search, uint32_t device, const int64_t *levels, double more)
{
    double need = 0;
    const int64_t *least = &search->least[device * (search->points + 1)];
    uint32_t first = search->points > GP_LEAK_RECENT ? search->points - GP_LEAK_RECENT : 0;
    for (uint32_t i = first < search->warm ? search->warm : first; i < search->points; i++) {
        double by = (double)levels[i] - (double)least[i + 1] + more * (search->points - i);
        need = by > need ? by : need;
    }
    return need;
}

/* What can be allocated above what stays: free memory, what a cache or a pool keeps, and, where a bound lies within a
 * step, what that step frees.  < 0: unknown. */
static double leak_room(const struct gp_leak_search *search, const struct gp_leak *leak, double slope)
{
    const struct gp_level *level = &search->levels[leak->device];
    const int64_t *least = &search->least[leak->device * (search->points + 1)];
    int64_t reserved = gp_flow_polled_reserved(&search->polled[leak->device], level);
    int64_t left = gp_flow_left(search->flow, leak->device, search->last_ns, reserved);
    double stays = (double)least[search->points - 1] + slope, idle = 0;
    if (left < 0)
        return -1;
    if (leak->kind == GP_KIND_POOL)
        idle = (double)reserved - (double)level->reserved - (double)level->pool;
    else if (search->flow->has_segments[leak->device])
        idle = (double)level->reserved - ((double)level->allocated - (double)level->pool);
    bool within = search->steps->source == GP_STEPS_GIVEN || search->steps->source == GP_STEPS_TIME;
    double freed = within ? (double)level->allocated - stays : 0;
    return (double)left + (idle > 0 ? idle : 0) + (freed > 0 ? freed : 0);
}

/* A block that is replaced by a larger one lives beside it for a moment: what the site needs above what stays grows by so
 * much per point. */
static double leak_more(const struct gp_leak_search *search, uint32_t index)
{
    const int64_t *high = &search->high[(size_t)index * (search->points + 1)],
                  *kept = &search->kept[(size_t)index * (search->points + 1)];
    int64_t above[GP_LEAK_POINTS];
    struct gp_trend trend;
    uint32_t count = search->points - search->warm;
    for (uint32_t i = 0; i < count; i++)
        above[i] = (int64_t)((uint64_t)high[search->warm + i] - (uint64_t)kept[search->warm + i + 1]); /* may wrap */
    return gp_trend_find(above, count, &trend) ? trend.slope : 0;
}

/* A request fails when what a step needs is more than what there is.  slope: of all that grows, per point. */
static double leak_seconds(const struct gp_leak_search *search, uint32_t index, const struct gp_leak *leak,
                           double slope)
{
    size_t width = search->points + 1;
    double room = leak_room(search, leak, slope), more = leak_more(search, index);
    double each = (double)(search->last_ns - search->warm_ns) / 1e9 / (search->points - search->warm);
    if (room < 0 || slope <= 0)
        return -1;
    double points = (room - leak_need(search, leak->device, &search->most[leak->device * width], 0)) / slope;
    double replaced = (room - leak_need(search, leak->device, &search->full[index * width], more)) / (slope + more);
    points = replaced < points ? replaced : points;
    return points > 0 ? points * each : 0;
}

static uint32_t leak_curve_of(const struct gp_leak_search *search, const struct gp_leak *leak)
{
    return (uint32_t)((size_t)(leak->kept - search->kept) / (search->points + 1));
}

static void leak_fill_seconds(const struct gp_leak_search *search, struct gp_leak *found, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        double slope = 0;
        for (uint32_t k = 0; k < count; k++) {
            bool adds = k == i || (!found[k].doubt && found[k].device == found[i].device);
            slope += adds ? found[k].bytes_per_step * search->steps->count / search->points : 0;
        }
        found[i].seconds_to_oom = leak_seconds(search, leak_curve_of(search, &found[i]), &found[i], slope);
    }
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static double leak_weight(const struct gp_leak *leak)
{
    return leak->doubt ? leak->confidence * leak->bytes_per_step * leak->repeats : leak->bytes_per_step;
}

static int leak_compare(const void *one, const void *other)
{
    const struct gp_leak *a = one, *b = other;
    if (!a->doubt != !b->doubt)
        return a->doubt ? 1 : -1;
    if (leak_weight(a) != leak_weight(b))
        return GP_ORDER(leak_weight(b), leak_weight(a));
    return GP_ORDER(a->site, b->site);
}

static struct gp_leaks *leak_none(const struct gp_steps *steps, const char *why)
{
    struct gp_leaks *leaks = calloc(1, sizeof(*leaks));
    if (leaks) {
        leaks->steps = steps->count;
        leaks->why = why;
    }
    return leaks;
}

/* What only repeats may be layers of one pass, and stretches of time show no leak of a program that starts: of neither it
 * is said that it has steps. */
static const char *leak_why(const struct gp_leak_search *search, const struct gp_leaks *leaks)
{
    if (leaks->count)
        return "";
    if (leaks->candidates)
        return "it cannot be known whether what grows is a leak";
    if (leaks->enough)
        return "no call site holds more with every step";
    return search->steps->source == GP_STEPS_TIME
               ? "no steps were found, and no call site holds more and more"
               : "what repeats may be parts of one step; no call site holds more with each";
}

static struct gp_leaks *leak_result(const struct gp_leak_search *search)
{
    size_t width = search->points + 1;
    struct gp_leak *found = calloc(search->curve_count + 1, sizeof(*found));
    struct gp_leaks *leaks = NULL;
    uint32_t count = 0, suspects = 0;
    for (uint32_t i = 0; found && i < search->curve_count; i++)
        count += leak_judge(search, i, &found[count]);
    if (found) {
        qsort(found, count, sizeof(*found), leak_compare);
        leak_fill_seconds(search, found, count);
        while (suspects < count && !found[suspects].doubt)
            suspects++;
        if (count > suspects + GP_LEAK_CANDIDATES)
            count = suspects + GP_LEAK_CANDIDATES;
        leaks =
            calloc(1, sizeof(*leaks) + (count + 1) * sizeof(struct gp_leak) + (count + 1) * width * sizeof(int64_t));
    }
    for (uint32_t i = 0; leaks && i < count; i++) {
        int64_t *kept = (int64_t *)&leaks->suspects[count + 1] + i * width;
        memcpy(kept, found[i].kept, width * sizeof(*kept));
        leaks->suspects[i] = found[i];
        leaks->suspects[i].kept = kept;
    }
    if (leaks) {
        leaks->steps = search->steps->count;
        leaks->enough = search->repeats.are_steps && search->steps->source != GP_STEPS_TIME;
        leaks->count = suspects;
        leaks->candidates = count - suspects;
        leaks->why = leak_why(search, leaks);
    }
    free(found);
    return leaks;
}

static bool leak_init(struct gp_leak_search *search)
{
    const struct gp_recording *recording = search->flow->recording;
    /* A key has a device of eight bits. */
    search->levels = calloc(256, sizeof(*search->levels));
    search->polled = calloc(recording->device_count + 1u, sizeof(*search->polled));
    search->most = calloc((recording->device_count + 1ul) * (search->points + 1), sizeof(*search->most));
    search->least = calloc((recording->device_count + 1ul) * (search->points + 1), sizeof(*search->least));
    if (!search->levels || !search->polled || !search->most || !search->least)
        return false;
    for (uint32_t i = 0; i < recording->device_count; i++)
        search->polled[i] = gp_flow_polled_begin(search->flow, i);
    return true;
}

static struct gp_leaks *leak_search(const struct gp_flow *flow, const struct gp_steps *steps, uint64_t older_ns,
                                    bool parts)
{
    uint64_t end = flow->recording->end_ns;
    struct gp_leak_search search = {
        .flow = flow,
        .steps = steps,
        .parts = parts,
        .young_ns = older_ns == 0    ? UINT64_MAX
                    : end > older_ns ? end - older_ns
                                     : 0,
        .points = steps->count < GP_LEAK_POINTS ? steps->count : GP_LEAK_POINTS,
        .last_ns = steps->bounds_ns[steps->count],
    };
    search.warm = search.points >= 10 ? search.points / 10 : 1;
    search.warm_ns = leak_time(&search, search.warm);
    search.repeats = gp_flow_repeats(flow, steps, search.warm);
    struct gp_leaks *leaks = NULL;
    if (leak_init(&search) && leak_totals(&search) && leak_choose(&search)) {
        leak_draw(&search);
        leaks = leak_result(&search);
    }
    gp_tally_fini(&search.sites);
    free(search.curves);
    free(search.kept);
    free(search.high);
    free(search.full);
    free(search.most);
    free(search.least);
    free(search.levels);
    free(search.polled);
    return leaks;
}

/* Equal numbers of allocations, until the clean-up.  *out NULL: too few.  False: out of memory. */
static bool leak_parts(const struct gp_recording *recording, struct gp_steps **out)
{
    uint64_t end_ns = gp_flow_clean_up(recording, UINT64_MAX);
    size_t allocs = 0, seen = 0;
    for (size_t i = 0; i < recording->event_count && recording->events[i].time_ns < end_ns; i++)
        allocs += recording->events[i].type == GP_EVENT_ALLOC;
    *out = NULL;
    if (allocs < (size_t)GP_LEAK_PARTS * GP_LEAK_PART)
        return true;
    struct gp_steps *parts = calloc(1, sizeof(*parts) + (GP_LEAK_PARTS + 1) * sizeof(uint64_t));
    for (size_t i = 0; parts && i < recording->event_count && parts->count < GP_LEAK_PARTS; i++) {
        if (recording->events[i].type != GP_EVENT_ALLOC)
            continue;
        if (seen++ * GP_LEAK_PARTS >= allocs * parts->count)
            parts->bounds_ns[parts->count++] = recording->events[i].time_ns;
    }
    if (parts) {
        parts->bounds_ns[parts->count] = end_ns;
        parts->source = GP_STEPS_PERIOD;
    }
    *out = parts;
    return parts;
}

/* The whole of the recording's work lies in the steps. */
static bool leak_covered(const struct gp_recording *recording, const struct gp_steps *steps)
{
    size_t inside = 0, all = 0;
    for (size_t i = 0; i < recording->event_count; i++) {
        uint64_t time_ns = recording->events[i].time_ns;
        bool counts = recording->events[i].type == GP_EVENT_ALLOC;
        all += counts;
        inside += counts && time_ns >= steps->bounds_ns[0] && time_ns <= steps->bounds_ns[steps->count];
    }
    return inside * 5 >= all * 4;
}

struct gp_leaks *gp_flow_leaks(const struct gp_flow *flow, const struct gp_steps *steps, uint64_t older_ns)
{
    struct gp_steps *parts = NULL;
    bool enough = steps->count >= GP_LEAK_STEPS;
    struct gp_leaks *leaks =
        enough ? leak_search(flow, steps, older_ns, false)
               : leak_none(steps, "fewer than 4 steps: a leak cannot be distinguished from a program that is starting");
    if (!leaks || leaks->count || leaks->candidates ||
        (enough && steps->told && steps->source != GP_STEPS_GIVEN && leak_covered(flow->recording, steps)))
        return leaks;
    struct gp_leaks *found = NULL;
    bool ok = leak_parts(flow->recording, &parts) && (!parts || (found = leak_search(flow, parts, older_ns, true)));
    free(parts);
    if (ok && (!found || !found->candidates)) {
        free(found);
        return leaks;
    }
    if (ok) {
        found->steps = leaks->steps;
        found->why = enough ? found->why : leaks->why;
    }
    free(leaks);
    return found;
}

struct gp_leaks *gp_leaks_find(const struct gp_recording *recording, const struct gp_steps *steps, uint64_t older_ns)
{
    struct gp_flow *flow = gp_flow_new(recording);
    struct gp_leaks *leaks = flow ? gp_flow_leaks(flow, steps, older_ns) : NULL;
    gp_flow_free(flow);
    return leaks;
}
