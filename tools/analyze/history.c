/* SPDX-License-Identifier: MIT
 * history.c: the blocks of a device and the parts of its memory at many moments; see report.h. */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <analyze/tally.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>

#include <stdlib.h>
#include <string.h>

void gp_history_free(struct gp_past *history)
{
    if (!history)
        return;
    free(history->lives);
    free(history->moments);
    free(history->parts);
    free(history->cells);
    free(history);
}

static bool history_counts(const struct gp_flow_change *change, uint32_t device)
{
    return change->item->device == device && change->what & GP_FLOW_SUMMED;
}

static uint8_t history_use(const struct gp_use_table *uses, const struct gp_flow_change *change)
{
    return uses ? (uint8_t)uses->rows[uses->rule[change->id]].use : GP_USE_UNKNOWN;
}

static uint64_t history_clamp(const struct gp_recording *recording, uint64_t time_ns)
{
    if (time_ns < recording->begin_ns)
        return recording->begin_ns;
    return time_ns > recording->end_ns && recording->end_ns >= recording->begin_ns ? recording->end_ns : time_ns;
}

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

/* What a block held, as bytes times time.  By size alone, many short blocks would hide the ones
 * that fill the memory. */
static double life_weight(const struct gp_life *life)
{
    return (double)life->bytes * ((double)(life->to_ns - life->from_ns) + 1);
}

static int life_earlier(const void *one, const void *other)
{
    const struct gp_life *a = one, *b = other;
    if (a->from_ns != b->from_ns)
        return GP_ORDER(a->from_ns, b->from_ns);
    if (a->to_ns != b->to_ns)
        return GP_ORDER(a->to_ns, b->to_ns);
    if (a->bytes != b->bytes)
        return GP_ORDER(b->bytes, a->bytes);
    return GP_ORDER(a->site, b->site);
}

/* The lives are a heap with the least one first, which the next larger one replaces. */
static void life_sink(struct gp_life *lives, uint32_t count, uint32_t at)
{
    for (;;) {
        uint32_t least = at, child = 2 * at + 1;
        for (uint32_t i = child; i <= child + 1 && i < count; i++)
            least = life_weight(&lives[i]) < life_weight(&lives[least]) ? i : least;
        if (least == at)
            return;
        struct gp_life kept = lives[at];
        lives[at] = lives[least];
        lives[least] = kept;
        at = least;
    }
}

static void life_add(struct gp_past *history, uint32_t room, const struct gp_life *life)
{
    if (history->life_count < room) {
        history->lives[history->life_count++] = *life;
        if (history->life_count == room && !history->complete) {
            for (uint32_t i = room / 2; i-- > 0;)
                life_sink(history->lives, room, i);
        }
    } else if (room && life_weight(life) > life_weight(&history->lives[0])) {
        history->lives[0] = *life;
        life_sink(history->lives, room, 0);
    }
}

static bool history_lives(struct gp_past *history, const struct gp_flow *flow, const struct gp_use_table *uses,
                          uint32_t room)
{
    const struct gp_recording *recording = flow->recording;
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    history->lives = calloc(room + 1ul, sizeof(*history->lives));
    if (!history->lives)
        return false;
    while (gp_flow_next(&walk, &change)) {
        if (!change.add || !history_counts(&change, history->device))
            continue;
        uint32_t end = gp_flow_end(flow, change.id);
        bool live = end >= recording->event_count;
        struct gp_life life = {.from_ns = history_clamp(recording, change.time_ns),
                               .bytes = gp_flow_bytes(&change),
                               .site = change.item->site,
                               .kind = change.item->kind,
                               .use = history_use(uses, &change),
                               .live = live};
        life.to_ns = live ? recording->end_ns : recording->events[end].time_ns;
        life.to_ns = history_clamp(recording, life.to_ns < life.from_ns ? life.from_ns : life.to_ns);
        life_add(history, room, &life);
    }
    qsort(history->lives, history->life_count, sizeof(*history->lives), life_earlier);
    return true;
}

/* ---- moments ---------------------------------------------------------------------------------------------------- */

/* The changes of a stretch that become moments, by their number in the walk; 0: the stretch has
 * none. */
struct gp_history_stretch {
    uint64_t high, last;
    int64_t high_bytes;
};

struct gp_history_maker {
    struct gp_past *history;
    const struct gp_flow *flow;
    const struct gp_use_table *uses;
    struct gp_history_stretch *stretches;
    uint32_t stretch_count, most_parts;
    struct gp_tally tally; /* a row's extra: the moment of its last change; more: its part, from 1 */
    int64_t *most;         /* of each row of the tally, at any of the moments */
    uint32_t *dirty;       /* the rows that changed since the last moment */
    size_t dirty_count, row_room;
    int64_t bytes, count, part_bytes, part_count;
};

static void history_find_moments(struct gp_history_maker *maker)
{
    const struct gp_recording *recording = maker->flow->recording;
    struct gp_flow_walk walk = gp_flow_begin(maker->flow);
    struct gp_flow_change change;
    uint64_t number = 0;
    int64_t level = 0;
    while (gp_flow_next(&walk, &change)) {
        number++;
        if (!history_counts(&change, maker->history->device))
            continue;
        level = (int64_t)((uint64_t)level + (change.add ? gp_flow_bytes(&change) : -gp_flow_bytes(&change)));
        uint64_t at = (history_clamp(recording, change.time_ns) - recording->begin_ns) / maker->history->stretch_ns;
        struct gp_history_stretch *stretch =
            &maker->stretches[at < maker->stretch_count ? at : maker->stretch_count - 1];
        if (!stretch->high || level > stretch->high_bytes) {
            stretch->high = number;
            stretch->high_bytes = level;
        }
        stretch->last = number;
    }
}

static bool history_room(struct gp_history_maker *maker)
{
    if (maker->tally.count <= maker->row_room)
        return true;
    size_t room = maker->row_room ? maker->row_room * 2 : 64;
    int64_t *most = realloc(maker->most, room * sizeof(*most));
    maker->most = most ? most : maker->most;
    uint32_t *dirty = realloc(maker->dirty, room * sizeof(*dirty));
    maker->dirty = dirty ? dirty : maker->dirty;
    if (!most || !dirty)
        return false;
    memset(most + maker->row_room, 0, (room - maker->row_room) * sizeof(*most));
    maker->row_room = room;
    return true;
}

static bool history_apply(struct gp_history_maker *maker, const struct gp_flow_change *change, uint64_t moment)
{
    struct gp_tally_row *row =
        gp_tally_at(&maker->tally, (uint64_t)change->item->site << 16 |
                                       (uint64_t)history_use(maker->uses, change) << 8 | change->item->kind);
    if (!row || !history_room(maker))
        return false;
    uint64_t bytes = change->add ? gp_flow_bytes(change) : -gp_flow_bytes(change);
    int64_t one = change->add ? 1 : -1;
    row->bytes = (int64_t)((uint64_t)row->bytes + bytes);
    row->count += one;
    maker->bytes = (int64_t)((uint64_t)maker->bytes + bytes);
    maker->count += one;
    if (row->more) {
        maker->part_bytes = (int64_t)((uint64_t)maker->part_bytes + bytes);
        maker->part_count += one;
    }
    if (row->extra != moment) {
        row->extra = moment;
        maker->dirty[maker->dirty_count++] = (uint32_t)(row - maker->tally.rows);
    }
    return true;
}

static bool history_cell(struct gp_past *history, const struct gp_tally_row *row)
{
    if (history->cell_count == history->cell_room) {
        size_t room = history->cell_room ? history->cell_room * 2 : 1024;
        struct gp_history_cell *cells = realloc(history->cells, room * sizeof(*cells));
        if (!cells)
            return false;
        history->cells = cells;
        history->cell_room = room;
    }
    history->cells[history->cell_count++] =
        (struct gp_history_cell){.part = (uint32_t)row->more - 1, .bytes = row->bytes, .count = row->count};
    return true;
}

static bool history_moment(struct gp_history_maker *maker, uint64_t time_ns)
{
    struct gp_past *history = maker->history;
    bool ok = true;
    if (history->parts)
        history->moments[history->moment_count++] =
            (struct gp_moment){.time_ns = time_ns,
                               .bytes = maker->bytes,
                               .count = maker->count,
                               .other_bytes = (int64_t)((uint64_t)maker->bytes - (uint64_t)maker->part_bytes),
                               .other_count = maker->count - maker->part_count,
                               .first_cell = history->cell_count};
    for (size_t i = 0; ok && i < maker->dirty_count; i++) {
        struct gp_tally_row *row = &maker->tally.rows[maker->dirty[i]];
        int64_t *most = &maker->most[maker->dirty[i]];
        GP_RAISE(*most, row->bytes);
        if (row->more)
            ok = history_cell(history, row);
    }
    maker->dirty_count = 0;
    return ok;
}

/* Once to find the parts that held the most at a moment, and once to write them down: all of them
 * at all moments would be too much to keep. */
static bool history_walk(struct gp_history_maker *maker)
{
    struct gp_flow_walk walk = gp_flow_begin(maker->flow);
    struct gp_flow_change change;
    uint64_t number = 0, moment = 1;
    uint32_t at = 0;
    bool ok = true;
    for (size_t i = 0; i < maker->tally.count; i++) {
        struct gp_tally_row *row = &maker->tally.rows[i];
        row->bytes = row->count = 0;
        row->extra = 0;
    }
    maker->bytes = maker->count = maker->part_bytes = maker->part_count = 0;
    while (ok && gp_flow_next(&walk, &change)) {
        number++;
        if (!history_counts(&change, maker->history->device))
            continue;
        ok = history_apply(maker, &change, moment);
        while (at < maker->stretch_count && maker->stretches[at].last < number)
            at++;
        if (ok && at < maker->stretch_count &&
            (number == maker->stretches[at].high || number == maker->stretches[at].last)) {
            ok = history_moment(maker, history_clamp(maker->flow->recording, change.time_ns));
            moment++;
        }
    }
    return ok;
}

struct gp_history_rank {
    int64_t most;
    uint32_t row;
};

static int history_more(const void *one, const void *other)
{
    const struct gp_history_rank *a = one, *b = other;
    if (a->most != b->most)
        return GP_ORDER(b->most, a->most);
    return GP_ORDER(a->row, b->row);
}

static bool history_choose(struct gp_history_maker *maker)
{
    struct gp_past *history = maker->history;
    size_t rows = maker->tally.count;
    uint32_t count = rows < maker->most_parts ? (uint32_t)rows : maker->most_parts;
    struct gp_history_rank *ranks = calloc(rows + 1, sizeof(*ranks));
    history->parts = calloc(count + 1ul, sizeof(*history->parts));
    history->moments = calloc(maker->stretch_count * 2ul + 1, sizeof(*history->moments));
    bool ok = ranks && history->parts && history->moments;
    for (uint32_t i = 0; ok && i < rows; i++)
        ranks[i] = (struct gp_history_rank){.most = maker->most[i], .row = i};
    if (ok)
        qsort(ranks, rows, sizeof(*ranks), history_more);
    for (uint32_t i = 0; ok && i < count; i++) {
        struct gp_tally_row *row = &maker->tally.rows[ranks[i].row];
        history->parts[history->part_count++] = (struct gp_history_part){
            .site = (uint32_t)(row->key >> 16), .kind = (uint8_t)row->key, .use = (uint8_t)(row->key >> 8)};
        row->more = history->part_count;
    }
    free(ranks);
    return ok;
}

static bool history_moments(struct gp_past *history, const struct gp_flow *flow, const struct gp_use_table *uses,
                            const struct gp_history_limits *limits)
{
    const struct gp_recording *recording = flow->recording;
    uint64_t span = recording->end_ns > recording->begin_ns ? recording->end_ns - recording->begin_ns : 1;
    struct gp_history_maker maker = {.history = history,
                                     .flow = flow,
                                     .uses = uses,
                                     .stretch_count = limits->stretches ? limits->stretches : 1,
                                     .most_parts = limits->parts};
    history->stretch_ns = span / maker.stretch_count + 1;
    maker.stretches = calloc(maker.stretch_count, sizeof(*maker.stretches));
    bool ok = maker.stretches;
    if (ok)
        history_find_moments(&maker);
    ok = ok && history_walk(&maker) && history_choose(&maker) && history_walk(&maker);
    free(maker.stretches);
    free(maker.most);
    free(maker.dirty);
    gp_tally_fini(&maker.tally);
    return ok;
}

/* ---- both ------------------------------------------------------------------------------------------------------- */

struct gp_past *gp_history_flow(const struct gp_flow *flow, uint32_t device, const struct gp_use_table *uses,
                                const struct gp_history_limits *limits)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct gp_past *history = calloc(1, sizeof(*history));
    if (!history)
        return NULL;
    history->device = device;
    while (gp_flow_next(&walk, &change))
        history->blocks += change.add && history_counts(&change, device);
    history->complete = history->blocks <= limits->all;
    if (history_lives(history, flow, uses, history->complete ? (uint32_t)history->blocks : limits->lives) &&
        (history->complete || history_moments(history, flow, uses, limits)))
        return history;
    gp_history_free(history);
    return NULL;
}
