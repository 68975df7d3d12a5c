/* SPDX-License-Identifier: MIT
 * need.c: what the recording of a dry run needs of a device: see dryrun.h.  The names of the
 * places are copied, so that of many ranks one recording is in memory at a time. */
#include <analyze/analyze.h>
#include <analyze/fit.h>
#include <analyze/flow.h>
#include <analyze/ranges.h>
#include <analyze/report.h>
#include <base/numbers.h>
#include <common/loaded.h>
#include <common/messages.h>
#include <dryrun/dryrun.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <symbol/symbol.h>

#include <cache/policy.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GP_NEED_POINTS   2000u
#define GP_NEED_GROWABLE "expandable_segments:True"

static void need_place(struct gp_need_place *place, const struct gp_loaded *loaded, uint32_t site)
{
    const struct gp_frame_text *frame = gp_symbols_name(loaded->symbols, site);
    const struct gp_operation *operation = gp_symbols_operation(loaded->symbols, site);
    gp_symbols_line(loaded->symbols, site, NULL, NULL, place->text, sizeof(place->text));
    snprintf(place->function, sizeof(place->function), "%s", frame->function);
    snprintf(place->file, sizeof(place->file), "%s", frame->file);
    snprintf(place->operation, sizeof(place->operation), "%s", operation->text ? operation->text : "");
    place->line = frame->line;
}

/* The number of the step at that time, from 1; 0: outside of the steps, or there are none. */
static uint32_t need_step(const struct gp_steps *steps, uint64_t time_ns)
{
    if (!steps || !gp_steps_are_steps(steps))
        return 0;
    for (uint32_t i = 0; i < steps->count; i++)
        if (time_ns >= steps->bounds_ns[i] && time_ns < steps->bounds_ns[i + 1])
            return i + 1;
    return 0;
}

static void need_moment(struct gp_need_moment *moment, const struct gp_loaded *loaded, uint64_t time_ns, uint32_t site)
{
    uint64_t begin_ns = loaded->recording->begin_ns;
    moment->since_ns = time_ns > begin_ns ? time_ns - begin_ns : 0;
    moment->step = need_step(loaded->report.steps, time_ns);
    need_place(&moment->place, loaded, site);
}

/* ---- what was live at the peak ----------------------------------------------------------------------------------- */

struct need_lines {
    struct gp_need *need;
    struct gp_hash known;
    uint32_t *sites; /* of each line */
    double *lives;   /* of each line: bytes x ns */
    uint32_t room;
    bool failed;
};

static struct gp_need_line *lines_at(struct need_lines *l, uint32_t row, enum gp_use use)
{
    bool added = true;
    struct gp_need *need = l->need;
    const uint32_t *at = gp_hash_add(&l->known, gp_hash_of_number((uint64_t)row << 8 | (uint64_t)use), NULL, NULL,
                                     need->line_count, &added);
    if (at && !added)
        return &need->lines[*at];
    if (need->line_count == l->room) {
        uint32_t room = l->room ? l->room * 2 : 64;
        struct gp_need_line *lines = realloc(need->lines, room * sizeof(*lines));
        need->lines = lines ? lines : need->lines;
        uint32_t *sites = realloc(l->sites, room * sizeof(*sites));
        l->sites = sites ? sites : l->sites;
        double *lives = realloc(l->lives, room * sizeof(*lives));
        l->lives = lives ? lives : l->lives;
        l->room = lines && sites && lives ? room : l->room;
    }
    l->failed |= !at || need->line_count == l->room;
    if (l->failed)
        return NULL;
    l->sites[need->line_count] = row;
    l->lives[need->line_count] = 0;
    need->lines[need->line_count] = (struct gp_need_line){.use = use};
    return &need->lines[need->line_count++];
}

static int lines_compare(const void *one, const void *other)
{
    const struct gp_need_line *a = one, *b = other;
    return a->bytes != b->bytes ? GP_ORDER(b->bytes, a->bytes) : strcmp(a->place.text, b->place.text);
}

/* Adds a block that is live at the peak. */
static void lines_add(struct need_lines *l, const struct gp_loaded *loaded, const struct gp_flow_change *change,
                      uint32_t end, enum gp_use use, bool spared)
{
    const struct gp_recording *r = loaded->recording;
    struct gp_need_line *line = lines_at(l, gp_symbols_row(loaded->symbols, change->item->site), use);
    uint64_t until_ns = end == GP_REC_NONE ? r->end_ns : r->events[end].time_ns;
    int64_t bytes = (int64_t)(gp_flow_bytes(change) & INT64_MAX);
    if (!line)
        return;
    line->bytes = (int64_t)(((uint64_t)line->bytes + (uint64_t)bytes) & INT64_MAX);
    line->count++;
    if (spared && use == GP_USE_ACTIVATIONS && !gp_symbols_is_loss(loaded->symbols, change->item->site))
        line->spared_bytes = (int64_t)(((uint64_t)line->spared_bytes + (uint64_t)bytes) & INT64_MAX);
    if (until_ns > change->time_ns)
        l->lives[line - l->need->lines] += (double)bytes * (double)(until_ns - change->time_ns);
}

/* By site: whether one of the libraries asked for the memory that the simulated GPU stands in for; NULL: out of
 * memory. */
static bool *need_assumed(const struct gp_recording *r)
{
    bool *assumed = calloc(r->site_count + 1ul, sizeof(*assumed));
    for (uint32_t site = 1; assumed && site < r->site_count; site++) {
        char owner[GP_SITE_OWNER];
        gp_bill_site_owner(r, site, owner);
        assumed[site] = gp_use_hint_of_owner(owner) != GP_HINT_NONE;
    }
    return assumed;
}

static bool need_lines(struct gp_need *need, const struct gp_loaded *loaded, const struct gp_use_table *uses,
                       const struct gp_peak *peak, const bool *assumed)
{
    const struct gp_flow *flow = loaded->report.flow;
    struct need_lines l = {.need = need};
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    double sure[GP_USES] = {0};
    uint32_t spared = gp_uses_spared(uses, flow, peak->event_index);
    while (!l.failed && gp_flow_next(&walk, &change)) {
        uint32_t end;
        if (change.event != GP_REC_NONE && (peak->event_index == GP_REC_NONE || change.event > peak->event_index))
            break;
        if (!change.add || change.item->device != uses->device || !(change.what & GP_FLOW_SUMMED) ||
            ((end = gp_flow_end(flow, change.id)) != GP_REC_NONE && peak->event_index != GP_REC_NONE &&
             end <= peak->event_index))
            continue;
        const struct gp_use_row *row = &uses->rows[uses->rule[change.id]];
        lines_add(&l, loaded, &change, end, row->use, change.event < spared);
        need->uses[row->use] += (int64_t)(gp_flow_bytes(&change) & INT64_MAX);
        if (assumed[change.item->site])
            need->assumed_bytes += (int64_t)(gp_flow_bytes(&change) & INT64_MAX);
        sure[row->use] += row->confidence * (double)(gp_flow_bytes(&change) & INT64_MAX);
    }
    for (uint32_t i = 0; !l.failed && i < need->line_count; i++) {
        need_place(&need->lines[i].place, loaded, l.sites[i]);
        if (need->lines[i].bytes > 0)
            need->lines[i].life_ns = (uint64_t)(l.lives[i] / (double)need->lines[i].bytes);
    }
    for (unsigned use = 0; use < GP_USES; use++)
        need->sure[use] = need->uses[use] > 0 ? sure[use] / (double)need->uses[use] : 0;
    if (!l.failed && need->line_count)
        qsort(need->lines, need->line_count, sizeof(*need->lines), lines_compare);
    gp_hash_free(&l.known);
    free(l.sites);
    free(l.lives);
    return !l.failed;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* The most code that was loaded at a time, in whole pages as the fit counts it. */
static int64_t need_code(const struct gp_flow *flow, uint32_t d)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    uint64_t code = 0, most = 0;
    while (gp_flow_next(&walk, &change)) {
        if (change.item->device != d || !gp_kind_is(change.item->kind, GP_TRAIT_CODE) || !(change.what & GP_FLOW_KIND))
            continue;
        uint64_t pages = change.item->bytes / GP_FIT_PAGE + (change.item->bytes % GP_FIT_PAGE != 0);
        code += change.add ? pages : -pages;
        if (code <= UINT32_MAX)
            GP_RAISE(most, code);
    }
    return (int64_t)(most * GP_FIT_PAGE);
}

static int64_t need_pages(int64_t bytes)
{
    const int64_t page = (int64_t)GP_FIT_PAGE;
    return bytes > INT64_MAX - page ? bytes : (bytes + page - 1) / page * page;
}

/* The context, of which code is a part, is what the replay leaves for it. */
static void need_code_shares(struct gp_need *need, int64_t left)
{
    int64_t context = need->context_bytes - need->code_bytes;
    need->context_bytes = left > context ? left : context;
    need->code_bytes = need->context_bytes - context;
}

/* From the memory and the context: that of the GPU, and on the smallest size that of a GPU of this size. */
static void need_whole(struct gp_need *need, int64_t context, int64_t threads)
{
    const uint64_t bare = gp_fit_context_of((uint64_t)threads);
    if (need->least_bytes > need->memory_bytes)
        need->least_bytes = need->memory_bytes;
    need->needed_bytes = need->memory_bytes + context;
    need->smallest_bytes =
        (int64_t)gp_fit_context_device((uint64_t)need->least_bytes, bare, !need->stack, need->stack != 0, need->stack);
}

static int need_sizes(struct gp_need *need, const struct gp_loaded *loaded, uint32_t d, const struct gp_dryrun_run *run)
{
    const struct gp_flow *flow = loaded->report.flow;
    int64_t total = loaded->recording->devices[d].total_bytes;
    struct gp_fit_question question = {.gpu_bytes = total > 0 ? (uint64_t)total : UINT64_C(1) << 40,
                                       .tenants = 1,
                                       .context_bytes = -1,
                                       .threads = (uint64_t)run->threads,
                                       .stack = run->stack};
    struct gp_fit_result result, growable;
    int64_t replayed = 0, context = 0;
    int rc = gp_fit_judge(flow, d, &question, &result);
    if (!rc) {
        context = (int64_t)result.context_bytes;
        replayed = (int64_t)result.rows[0].peak_bytes;
        need->stack = !result.kernels ? 0 : run->stack ? run->stack : GP_FIT_THREAD_STACK;
        need->memory_bytes = replayed - context;
        need->least_bytes = (int64_t)result.least_bytes;
        need->code_bytes = result.context == GP_FIT_ESTIMATED ? need_code(flow, d) : 0;
        need->context_bytes = context + need->code_bytes;
        /* An allocator has asked for segments, of which the recording has the sum; a replay is near to it.  The
         * requests of other programs share pages, which only the replay knows. */
        int64_t reserved = need_pages(need->reserved_peak_bytes);
        if (result.requests != GP_FIT_OF_DRIVER)
            need->memory_bytes = reserved + need->code_bytes;
        else if (need->context_bytes > replayed - reserved) /* the code shares pages too */
            need_code_shares(need, replayed - reserved);
        need_whole(need, context, run->threads);
    }
    need->growable_bytes = -1;
    if (!rc && result.requests == GP_FIT_OF_FRAMEWORK && !result.rows[0].conf[0]) {
        question.allocator = result.rows[0].allocator;
        question.conf = GP_NEED_GROWABLE;
        rc = gp_fit_judge(flow, d, &question, &growable);
        if (!rc) {
            need->growable_bytes = need->needed_bytes + (int64_t)growable.rows[0].peak_bytes - replayed;
            /* What a setting of the allocator can spare is not needed at least. */
            GP_LOWER(need->least_bytes, (int64_t)growable.least_bytes);
            GP_LOWER(need->least_bytes, need->growable_bytes - context);
            need_whole(need, context, run->threads);
        }
        gp_fit_result_fini(&growable);
    }
    gp_fit_result_fini(&result);
    return rc;
}

/* ---- over time --------------------------------------------------------------------------------------------------- */

#define GP_NEED_LEVELS (1u << 16)

struct need_levels {
    struct gp_need *need;
    const struct gp_recording *recording;
    uint64_t time_ns; /* of the last event */
    uint32_t room;
    bool failed;
};

/* Joins each two levels to the higher one. */
static void levels_halve(struct gp_need *need)
{
    for (uint32_t i = 0; i < need->level_count; i += 2) {
        struct gp_need_level level = need->levels[i];
        if (i + 1 < need->level_count) {
            GP_RAISE(level.bytes, need->levels[i + 1].bytes);
            GP_RAISE(level.least_bytes, need->levels[i + 1].least_bytes);
        }
        need->levels[i / 2] = level;
    }
    need->level_count = (need->level_count + 1) / 2;
}

static void levels_add(void *arg, uint32_t event, uint64_t held, uint64_t idle)
{
    struct need_levels *l = arg;
    struct gp_need *need = l->need;
    if (event != GP_REC_NONE)
        GP_RAISE(l->time_ns, l->recording->events[event].time_ns);
    const struct gp_need_level level = {
        .time_ns = l->time_ns, .bytes = (int64_t)held, .least_bytes = (int64_t)(held - idle)};
    const struct gp_need_level *last = need->level_count ? &need->levels[need->level_count - 1] : NULL;
    if (last && last->bytes == level.bytes && last->least_bytes == level.least_bytes)
        return;
    if (need->level_count == GP_NEED_LEVELS)
        levels_halve(need);
    if (need->level_count == l->room) {
        uint32_t room = l->room ? l->room * 2 : 256;
        struct gp_need_level *grown = realloc(need->levels, room * sizeof(*grown));
        l->failed |= !grown;
        if (!grown)
            return;
        need->levels = grown;
        l->room = room;
    }
    need->levels[need->level_count++] = level;
}

static int need_levels(struct gp_need *need, const struct gp_loaded *loaded, uint32_t d)
{
    const struct gp_recording *r = loaded->recording;
    struct need_levels l = {.need = need, .recording = r, .time_ns = r->begin_ns};
    int rc = gp_fit_judge_levels(loaded->report.flow, d, levels_add, &l);
    int64_t after = 0;
    for (uint32_t i = need->level_count; i-- > 0;) {
        GP_RAISE(after, need->levels[i].bytes);
        need->levels[i].after_bytes = after;
    }
    return rc ? rc : l.failed ? -ENOMEM : 0;
}

/* Pools take half of a device (RMM), three quarters (XLA), or nearly all of it (TensorFlow). */
#define GP_NEED_AHEAD_PART 3

/* The first segment that is a large part of the device, and whose first piece is a small part of it: that was taken
 * ahead, and what was in use of it tells more. */
static struct gp_wire_polled need_taken(const struct gp_flow *flow, uint32_t d)
{
    const int64_t total = flow->recording->devices[d].total_bytes;
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    const struct gp_rec_event *segment = NULL;
    int64_t inside = 0, peak = 0;
    while (total > 0 && gp_flow_next(&walk, &change)) {
        const struct gp_rec_event *item = change.item;
        if (item->device != d)
            continue;
        if (segment && gp_ranges_takes(item) && !change.add && item->address == segment->address)
            break; /* it is given back, and others may get the address */
        if (gp_ranges_takes(item) && change.add && !segment && item->type == GP_EVENT_SEGMENT_ALLOC &&
            item->bytes >= (uint64_t)total / GP_NEED_AHEAD_PART && item->bytes <= (uint64_t)total)
            segment = item;
        if (!segment || !(change.what & GP_FLOW_CACHED) || item->address - segment->address >= segment->bytes)
            continue;
        if (!peak && item->bytes >= segment->bytes / 2) { /* it was made for this piece */
            segment = NULL;
            continue;
        }
        /* Unsigned: that of a damaged file may wrap. */
        inside = (int64_t)((uint64_t)inside + (change.add ? item->bytes : -item->bytes));
        peak = inside > peak ? inside : peak;
    }
    if (!peak || (uint64_t)peak > segment->bytes)
        return (struct gp_wire_polled){0};
    return (struct gp_wire_polled){
        .pool_bytes = (int64_t)segment->bytes, .limit_bytes = (int64_t)segment->bytes, .peak_bytes = peak};
}

/* Of a pool that was taken ahead, as a part of the device, counts what it had in use. */
static void need_ahead(struct gp_need *need, const struct gp_flow *flow, uint32_t d, bool plenty, int64_t threads)
{
    need->ahead = gp_rec_polled(&flow->recording->devices[d]);
    need->ahead_told = need->ahead.pool_bytes > 0 && need->ahead.pool_bytes <= need->reserved_peak_bytes;
    if (!need->ahead_told)
        need->ahead = need_taken(flow, d);
    if (!need->ahead.pool_bytes)
        return;
    int64_t idle = need_pages(need->ahead.pool_bytes) - need_pages(need->ahead.peak_bytes);
    const int64_t context = need->needed_bytes - need->memory_bytes;
    if (need->memory_bytes - idle < need->least_bytes)
        need->least_bytes = need->memory_bytes - idle;
    if (plenty) /* a part of a device of another size says nothing */
        need->memory_bytes = need->least_bytes;
    need_whole(need, context, threads);
}

/* What libraries held that are stood in for, at the first event with which the device held most. */
static void need_assumed_reserved(struct gp_need *need, const struct gp_flow *flow, uint32_t d, const bool *assumed)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_polled polled = gp_flow_polled_begin(flow, d);
    struct gp_flow_change change;
    struct gp_level level = {0};
    int64_t held = 0, most = -1;
    while (gp_flow_next(&walk, &change)) {
        if (change.item->device != d)
            continue;
        gp_flow_polled_advance(&polled, change.time_ns, &level);
        gp_level_apply(&level, &change);
        int64_t bytes = (int64_t)(gp_flow_bytes(&change) & INT64_MAX),
                reserved = gp_flow_polled_reserved(&polled, &level);
        if (assumed[change.item->site] && (change.what & GP_FLOW_RESERVED))
            held = (int64_t)((uint64_t)held + (change.add ? (uint64_t)bytes : -(uint64_t)bytes));
        if (reserved <= most)
            continue;
        most = reserved;
        need->assumed_reserved_bytes = held > 0 ? held : 0;
    }
}

/* The first event with which the device holds more than the budget.  A page model may hold a little more than the
 * sum of the requests: then it is the event of their peak. */
static void need_budget(struct gp_need *need, const struct gp_loaded *loaded, uint32_t d, int64_t budget_bytes)
{
    const struct gp_flow *flow = loaded->report.flow;
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_polled polled = gp_flow_polled_begin(flow, d);
    struct gp_flow_change change, found = {0};
    struct gp_level level = {0};
    int64_t peak = -1;
    bool over = false;
    while (!over && gp_flow_next(&walk, &change)) {
        if (change.item->device != d)
            continue;
        gp_flow_polled_advance(&polled, change.time_ns, &level);
        gp_level_apply(&level, &change);
        int64_t held = gp_flow_polled_reserved(&polled, &level);
        if (!change.add || held <= peak)
            continue;
        peak = held;
        found = change;
        over = held > budget_bytes - need->context_bytes;
    }
    need->over = true;
    if (!found.item)
        return;
    need_moment(&need->broke, loaded, found.time_ns, found.item->site);
    need->broke.bytes = (int64_t)(gp_rec_requested(found.item) & INT64_MAX);
    need->broke.free_bytes = -1;
}

/* ---- what was refused -------------------------------------------------------------------------------------------- */

static int refused_compare(const void *one, const void *other)
{
    const struct gp_need_refused *a = one, *b = other;
    return a->bytes != b->bytes ? GP_ORDER(b->bytes, a->bytes) : strcmp(a->place.text, b->place.text);
}

/* A request of which no device is known is a context: it counts for the process, not for a device. */
static int need_refused(struct gp_need *need, const struct gp_loaded *loaded, uint32_t d,
                        const struct gp_refused *refused)
{
    const struct gp_recording *r = loaded->recording;
    struct gp_hash known = {0};
    bool failed = false;
    need->refused = calloc(refused->count + 1, sizeof(*need->refused));
    for (size_t i = 0; need->refused && !failed && i < refused->count; i++) {
        const struct gp_rec_event *event = &r->events[refused->events[i]];
        if (event->device != d)
            continue;
        const uint32_t row = gp_symbols_row(loaded->symbols, event->site);
        bool added = false;
        const uint32_t *at = gp_hash_add(&known, gp_hash_of_number(event->bytes) ^ gp_hash_of_number(~(uint64_t)row),
                                         NULL, NULL, need->refused_count, &added);
        failed = !at;
        if (added) {
            struct gp_need_refused *new = &need->refused[need->refused_count++];
            new->bytes = (int64_t)(event->bytes & INT64_MAX);
            need_place(&new->place, loaded, row);
        }
        if (at)
            need->refused[*at].count++;
    }
    gp_hash_free(&known);
    if (!need->refused || failed)
        return -ENOMEM;
    qsort(need->refused, need->refused_count, sizeof(*need->refused), refused_compare);
    return 0;
}

static void need_failure(struct gp_need *need, const struct gp_loaded *loaded)
{
    const struct gp_wire_oom *oom = &loaded->recording->oom;
    uint32_t site = oom->site < loaded->recording->site_count ? oom->site : 0;
    need->oom = true;
    need_moment(&need->failed, loaded, oom->time_ns, site);
    need->failed.bytes = (int64_t)(oom->asked_bytes & INT64_MAX);
    need->failed.free_bytes = oom->free_bytes;
}

/* ---- a recording ------------------------------------------------------------------------------------------------- */

static void need_identity(struct gp_need *need, const struct gp_loaded *loaded, uint32_t d)
{
    const struct gp_recording *r = loaded->recording;
    const struct gp_steps *steps = loaded->report.steps;
    const struct gp_peak *peak = loaded->report.devices[d].peak;
    need->pid = r->pid;
    need->rank = r->has_rank ? r->rank : -1;
    snprintf(need->comm, sizeof(need->comm), "%s", r->comm);
    memcpy(need->uuid, r->devices[d].uuid, sizeof(need->uuid));
    need->device = r->devices[d].ordinal;
    need->start_ns = need->begin_ns = r->begin_ns;
    need->end_ns = r->event_count ? r->events[r->event_count - 1].time_ns : r->begin_ns;
    need->exits = r->event_count && r->events[r->event_count - 1].type == GP_EVENT_PROCESS_EXIT;
    if (need->exits)
        GP_RAISE(need->end_ns, r->end_ns);
    need->complete = r->complete;
    need->missing = gp_rec_missing(r);
    need->allocated_peak_bytes = peak->bytes;
    need->peak_ns = peak->time_ns > r->begin_ns ? peak->time_ns - r->begin_ns : 0;
    need->peak_step = need_step(steps, peak->time_ns);
    need->steps_found = "";
    if (steps && steps->source != GP_STEPS_TIME) {
        bool are = gp_steps_are_steps(steps);
        *(are ? &need->steps : &need->repeats) = steps->count;
        need->repeats_sure = are ? 0 : steps->sure;
        need->steps_found = gp_steps_found(steps);
        need->step_ns = steps->length_ns;
    }
    const struct gp_series *reserved = loaded->report.devices[d].reserved;
    for (uint32_t i = 0; reserved && i < reserved->count; i++)
        GP_RAISE(need->reserved_peak_bytes, reserved->points[i].high);
}

static int need_device(struct gp_need *need, const struct gp_loaded *loaded, const uint8_t *hints, const bool *assumed,
                       uint32_t d, int64_t budget_bytes, const struct gp_refused *refused,
                       const struct gp_dryrun_run *run)
{
    const struct gp_report *report = &loaded->report;
    const struct gp_recording *r = loaded->recording;
    need_identity(need, loaded, d);
    if (run->ended && need->steps && report->steps->ended) /* the last one was cut */
        need->steps = report->steps->ended;
    struct gp_use_table *uses = gp_uses_find(report->flow, report->steps, report->leaks, hints, d);
    for (uint32_t site = 0; uses && !uses->trains && site < r->site_count; site++)
        need->infers |= hints[site] == GP_HINT_FORWARD;
    int rc = uses && need_lines(need, loaded, uses, report->devices[d].peak, assumed) ? 0 : -ENOMEM;
    gp_uses_free(uses);
    if (!rc)
        need_assumed_reserved(need, report->flow, d, assumed);
    if (!rc)
        rc = need_sizes(need, loaded, d, run);
    if (!rc)
        need_ahead(need, report->flow, d, run->plenty, run->threads);
    if (!rc)
        rc = need_levels(need, loaded, d);
    if (!rc)
        rc = need_refused(need, loaded, d, refused);
    /* The last request that failed: if others were served, it was not. */
    bool here = r->has_oom && (r->oom.device < 0 || r->oom.device == r->devices[d].index);
    if (!rc && here && (need->refused_count || need->missing))
        need_failure(need, loaded);
    if (!rc && budget_bytes && need->needed_bytes > budget_bytes)
        need_budget(need, loaded, d, budget_bytes);
    return rc;
}

/* A process that has a context, and no memory beside it, has its place on the device too. */
static bool need_is_used(const struct gp_loaded *loaded, uint32_t d)
{
    const struct gp_rec_device *device = &loaded->recording->devices[d];
    return device->index != GP_WIRE_HOST && (loaded->report.devices[d].used || device->has_last);
}

static int need_devices(struct gp_dryrun_run *run, struct gp_loaded *loaded, int64_t budget_bytes)
{
    const uint32_t device_count = loaded->recording->device_count;
    int rc = gp_report_run(&loaded->report, GP_REPORT_LEAKS | GP_REPORT_PEAK | GP_REPORT_SERIES, GP_DETAIL_PLOT);
    struct gp_need *needs = realloc(run->needs, (run->need_count + device_count + 1ul) * sizeof(*needs));
    if (needs)
        run->needs = needs;
    uint8_t *hints = gp_report_hints(&loaded->report);
    bool *assumed = need_assumed(loaded->recording);
    struct gp_refused *refused = gp_refused_find(loaded->recording);
    if (!needs || !hints || !assumed || !refused)
        rc = -ENOMEM;
    for (uint32_t d = 0; !rc && d < device_count; d++) {
        if (!need_is_used(loaded, d))
            continue;
        struct gp_need *need = &run->needs[run->need_count++];
        memset(need, 0, sizeof(*need));
        rc = need_device(need, loaded, hints, assumed, d, budget_bytes, refused, run);
    }
    bool contextless = false;
    for (size_t i = 0; refused && i < refused->count; i++)
        contextless |= loaded->recording->events[refused->events[i]].device == GP_REC_NO_DEVICE;
    run->contextless += contextless;
    free(refused);
    free(assumed);
    free(hints);
    return rc;
}

/* Adds what the recording, which is read, needs of each device; and frees it. */
static int need_loaded(struct gp_dryrun_run *run, struct gp_loaded *loaded, const char *file, int64_t budget_bytes,
                       bool first)
{
    const uint32_t before = run->need_count;
    const struct gp_recording *r = loaded->recording;
    if (r->has_rank && r->local_rank >= 0)
        GP_RAISE(run->places, (uint32_t)r->local_rank + 1);
    run->cut += !r->complete;
    int rc = need_devices(run, loaded, budget_bytes);
    if (r->has_rank && run->need_count > before) {
        bool known = false;
        for (uint32_t i = 0; i < before; i++)
            known |= run->needs[i].rank == r->rank;
        run->ranks += !known;
        GP_RAISE(run->world, (uint32_t)(r->world_size > 0 ? r->world_size : 0));
    }
    if (rc == -ERANGE)
        gp_error("dryrun", "%s: no size was found at which the requests fit: is the recording damaged?", file);
    else if (rc)
        gp_memory_error("dryrun");
    run->processes += run->need_count > before;
    gp_load_unload(loaded, first);
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}

int gp_dryrun_read(struct gp_dryrun_run *run, const char *file, int64_t budget_bytes, bool first)
{
    struct gp_loaded loaded;
    int rc = gp_load_file(&loaded, "dryrun", file, &(struct gp_load_view){0});
    return rc ? rc : need_loaded(run, &loaded, file, budget_bytes, first);
}

int gp_dryrun_read_opened(struct gp_dryrun_run *run, struct gp_recording *recording, const char *file,
                          int64_t budget_bytes, bool first)
{
    struct gp_loaded loaded = {.command = "dryrun"};
    int rc = gp_load_recording(&loaded, recording, file, &(struct gp_load_view){0});
    return rc ? rc : need_loaded(run, &loaded, file, budget_bytes, first);
}
