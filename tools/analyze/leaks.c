/* SPDX-License-Identifier: MIT
 *
 * leaks.c: finds call sites that hold more with every step; see analyze.h.  The first walk finds
 * sites that hold more at the end than after the warm-up.  The second one makes the curve of each:
 * the least that it held during each step.  Leaked memory stays through every later step, so it is
 * in the curve; temporary buffers are not.  docs/analyses.md has the rule that judges a curve, and
 * its reasons.
 */
#include <analyze/flow.h>
#include <analyze/forecast.h>
#include <analyze/internal.h>
#include <read/common/hash.h>

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
    uint64_t young_ns; /* a block that started later and is live at the end does not count */
    uint64_t warm_ns, last_ns;
    uint32_t points, warm;
    struct gp_tally sites;
    struct gp_leak_curve *curves;
    uint32_t curve_count;
    int64_t *kept; /* [curve][points + 1]: the last one is held at last_ns */
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
    if (!(change->what & GP_FLOW_KIND) || change->item->kind == GP_KIND_VIRTUAL || change->item->kind == GP_KIND_GRAPH)
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
    search->kept = calloc((size_t)(search->curve_count + 1) * (search->points + 1), sizeof(*search->kept));
    bool ok = search->curves && search->kept;
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

static bool leak_draw(struct gp_leak_search *search)
{
    struct gp_flow_walk walk = gp_flow_begin(search->flow);
    struct gp_flow_change change;
    uint32_t point = 0; /* the next one to start; the current one is point - 1 */
    size_t width = search->points + 1;
    bool more = true;
    while (more) {
        more = gp_flow_next(&walk, &change);
        uint64_t now = !more ? UINT64_MAX : change.event == GP_REC_NONE ? 0 : change.time_ns;
        /* A change at the time of a bound belongs to the step that starts there. */
        for (; point <= search->points && now >= leak_time(search, point); point++) {
            for (uint32_t i = 0; i < search->curve_count; i++) {
                search->kept[i * width + point] = search->curves[i].live_bytes;
                if (point == search->warm)
                    search->curves[i].warm_count = search->curves[i].live_count;
            }
        }
        if (!more || point > search->points)
            break;
        if (change.item->device < search->flow->recording->device_count) {
            gp_flow_polled_advance(&search->polled[change.item->device], now, &search->levels[change.item->device]);
            gp_level_apply(&search->levels[change.item->device], &change);
        }
        struct gp_tally_row *row =
            leak_counts(search, &change) ? gp_tally_at(&search->sites, leak_key(change.item)) : NULL;
        if (!row || !row->extra)
            continue;
        struct gp_leak_curve *curve = &search->curves[row->extra - 1];
        leak_curve_move(search, curve, &change);
        int64_t *kept = point ? &search->kept[(row->extra - 1) * width + point - 1] : NULL;
        if (kept && curve->live_bytes < *kept)
            *kept = curve->live_bytes;
    }
    return true;
}

/* ---- suspects --------------------------------------------------------------------------------------------------- */

static double leak_seconds(const struct gp_leak_search *search, uint32_t device, double bytes_per_step)
{
    double span = (double)(search->last_ns - search->steps->bounds_ns[0]) / 1e9;
    int64_t reserved = gp_flow_polled_reserved(&search->polled[device], &search->levels[device]),
            left = gp_flow_left(search->flow, device, search->last_ns, reserved);
    return left < 0 ? -1 : (double)left / (bytes_per_step * search->steps->count / span);
}

static int leak_compare(const void *one, const void *other)
{
    const struct gp_leak *a = one, *b = other;
    if (a->bytes_per_step != b->bytes_per_step)
        return GP_ORDER(b->bytes_per_step, a->bytes_per_step);
    return GP_ORDER(a->site, b->site);
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

static bool leak_judge(const struct gp_leak_search *search, uint32_t index, struct gp_leak *leak)
{
    const struct gp_leak_curve *curve = &search->curves[index];
    const int64_t *kept = &search->kept[(size_t)index * (search->points + 1)];
    struct gp_trend trend;
    if (!gp_trend_find(kept + search->warm, search->points + 1 - search->warm, &trend))
        return false;
    /* With no more blocks than before, one block is replaced by a larger one each time (a key-value
     * cache, say).  A buffer of changing size can make such a curve by chance, but then the curve
     * also falls. */
    if (curve->live_count <= curve->warm_count && trend.falls)
        return false;
    double confidence = trend.confidence * (search->steps->source == GP_STEPS_TIME ? GP_LEAK_UNSURE : 1);
    if (confidence < GP_LEAK_SURE)
        return false;
    *leak = (struct gp_leak){
        .site = (uint32_t)(curve->key >> 8),
        .device = (uint8_t)curve->key,
        .kind = (uint8_t)(curve->key >> 40),
        .live_bytes = kept[search->points],
        .live_count = curve->live_count,
        .bytes_per_step = trend.slope * search->points / search->steps->count,
        .confidence = confidence,
        .oldest_ns = curve->oldest_time_ns < search->last_ns ? search->last_ns - curve->oldest_time_ns : 0,
        .taken_bytes = (int64_t)curve->taken_bytes,
        .freed_bytes = (int64_t)curve->freed_bytes,
    };
    leak_growth_of(search, kept, leak);
    leak->seconds_to_oom = leak_seconds(search, leak->device, leak->bytes_per_step);
    return true;
}

static struct gp_leaks *leak_result(const struct gp_leak_search *search)
{
    size_t width = search->points + 1;
    struct gp_leaks *leaks = calloc(1, sizeof(*leaks) + (search->curve_count + 1) * sizeof(struct gp_leak) +
                                           (search->curve_count + 1) * width * sizeof(int64_t));
    if (!leaks)
        return NULL;
    leaks->steps = search->steps->count;
    leaks->points = search->points;
    leaks->kept = (int64_t *)&leaks->suspects[search->curve_count + 1];
    for (uint32_t i = 0; i < search->curve_count; i++) {
        struct gp_leak *leak = &leaks->suspects[leaks->count];
        if (!leak_judge(search, i, leak))
            continue;
        leaks->count++;
    }
    qsort(leaks->suspects, leaks->count, sizeof(leaks->suspects[0]), leak_compare);
    for (uint32_t i = 0; i < leaks->count; i++) {
        const struct gp_leak *leak = &leaks->suspects[i];
        uint64_t key = (uint64_t)leak->kind << 40 | (uint64_t)leak->site << 8 | leak->device;
        for (uint32_t k = 0; k < search->curve_count; k++) {
            if (search->curves[k].key == key)
                memcpy(&leaks->kept[i * width], &search->kept[k * width], width * sizeof(int64_t));
        }
    }
    leaks->why = leaks->count ? "" : "no call site holds more with every step";
    return leaks;
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

static bool leak_init(struct gp_leak_search *search)
{
    const struct gp_recording *recording = search->flow->recording;
    search->levels = calloc(recording->device_count + 1u, sizeof(*search->levels));
    search->polled = calloc(recording->device_count + 1u, sizeof(*search->polled));
    if (!search->levels || !search->polled)
        return false;
    for (uint32_t i = 0; i < recording->device_count; i++)
        search->polled[i] = gp_flow_polled_begin(search->flow, i);
    return true;
}

struct gp_leaks *gp_flow_leaks(const struct gp_flow *flow, const struct gp_steps *steps, uint64_t older_ns)
{
    uint64_t end = flow->recording->end_ns;
    if (steps->count < GP_LEAK_STEPS)
        return leak_none(steps, "fewer than 4 steps: a leak cannot be distinguished from a program that is starting");
    struct gp_leak_search search = {
        .flow = flow,
        .steps = steps,
        .young_ns = older_ns == 0    ? UINT64_MAX
                    : end > older_ns ? end - older_ns
                                     : 0,
        .points = steps->count < GP_LEAK_POINTS ? steps->count : GP_LEAK_POINTS,
        .last_ns = steps->bounds_ns[steps->count],
    };
    search.warm = search.points >= 10 ? search.points / 10 : 1;
    search.warm_ns = leak_time(&search, search.warm);
    if (!steps->told && !gp_flow_returns(flow, steps, search.warm))
        return leak_none(steps,
                         "it cannot be known: what repeats keeps most of its memory, as the layers of one forward "
                         "pass or the loading of weights do. Name the steps (--step, marks or NVTX ranges)");
    struct gp_leaks *leaks = NULL;
    if (leak_init(&search) && leak_totals(&search) && leak_choose(&search) && leak_draw(&search))
        leaks = leak_result(&search);
    gp_tally_fini(&search.sites);
    free(search.curves);
    free(search.kept);
    free(search.levels);
    free(search.polled);
    return leaks;
}

struct gp_leaks *gp_leaks_find(const struct gp_recording *recording, const struct gp_steps *steps, uint64_t older_ns)
{
    struct gp_flow *flow = gp_flow_new(recording);
    struct gp_leaks *leaks = flow ? gp_flow_leaks(flow, steps, older_ns) : NULL;
    gp_flow_free(flow);
    return leaks;
}
