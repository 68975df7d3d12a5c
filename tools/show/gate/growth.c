/* SPDX-License-Identifier: MIT
 * growth.c: what a program's memory grew by from one recording to another, and whether that is allowed;
 * see growth.h. */
#include <read/common/hash.h>
#include <read/common/parse.h>
#include <show/gate/growth.h>
#include <symbol/symbol.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int gp_gate_growth_parse(const char *text, struct gp_gate_growth *growth)
{
    size_t length = strlen(text);
    char *end;
    *growth = (struct gp_gate_growth){.given = true, .bytes = -1};
    if (!length || text[length - 1] != '%')
        return gp_text_size_parse(text, &growth->bytes);
    if (strspn(text, "0123456789.") != length - 1 || length < 2)
        return -EINVAL;
    growth->percent = strtod(text, &end);
    return end != text + length - 1 ? -EINVAL : growth->percent > 1e6 ? -ERANGE : 0;
}

static int64_t growth_allowed(const struct gp_gate_growth *growth, int64_t before)
{
    return growth->bytes >= 0 ? growth->bytes : (int64_t)((double)before * growth->percent / 100);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool change_fill(struct gp_gate_change *change, const struct gp_report *report, uint32_t site,
                        enum gp_gate_by by)
{
    const struct gp_frame_text *name = gp_symbols_name(report->symbols, site);
    const struct gp_operation *operation = gp_symbols_operation(report->symbols, site);
    bool users = name->role == GP_ROLE_USER || name->role == GP_ROLE_WRAPPER;
    struct gp_findings copies = {0};
    char label[512];
    gp_gate_place(&copies, &change->place, report, site, gp_gate_minus(change->own_bytes[1], change->own_bytes[0]));
    if (by == GP_GATE_LINE && users)
        gp_caller_text(name, NULL, NULL, label, sizeof(label));
    else if (by == GP_GATE_OPERATION)
        snprintf(label, sizeof(label), "%s", operation->text ? operation->text : name->function);
    else
        snprintf(label, sizeof(label), "%s", change->place.label ? change->place.label : "");
    change->label = gp_gate_text(&copies, "%s", label);
    /* Several operations of one line are one row. */
    if (operation->text && by != GP_GATE_LINE)
        change->operation = gp_gate_text(&copies, "%s", operation->text);
    if (by != GP_GATE_SITE && change->label) {
        free(change->place.label);
        change->place.label = gp_gate_text(&copies, "%s", label);
    }
    return !copies.failed;
}

static bool compare_sites(const struct gp_report *const reports[2], struct gp_gate_changes *changes)
{
    const struct gp_recording *const recordings[2] = {reports[0]->recording, reports[1]->recording};
    struct gp_gate_rows rows;
    struct gp_diff *diff = NULL;
    bool ok = gp_gate_match(reports, changes->by, &rows);
    if (ok) {
        const uint32_t *const of[2] = {rows.of[0], rows.of[1]};
        diff = gp_diff_find(recordings, of, rows.count);
        changes->why = rows.why;
    }
    changes->rows = diff ? calloc(diff->count + 1ul, sizeof(*changes->rows)) : NULL;
    ok = changes->rows;
    for (uint32_t i = 0; ok && i < diff->count; i++) {
        const struct gp_diff_row *row = &diff->rows[i];
        struct gp_gate_change *to = &changes->rows[changes->count++];
        int newer = row->site[1] != GP_REC_NONE;
        memcpy(to->peak_bytes, row->peak_bytes, sizeof(to->peak_bytes));
        memcpy(to->live_bytes, row->live_bytes, sizeof(to->live_bytes));
        memcpy(to->own_bytes, row->own_bytes, sizeof(to->own_bytes));
        ok = change_fill(to, reports[newer], row->site[newer], changes->by);
    }
    gp_gate_rows_free(&rows);
    changes->diff = diff;
    return ok;
}

/* ---- uses -------------------------------------------------------------------------------------------------------- */

static void compare_use(const struct gp_flow *flow, const struct gp_use_table *table, int side,
                        struct gp_gate_change rows[GP_USES])
{
    int64_t held[GP_USES] = {0}, most[GP_USES] = {0};
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    while (gp_flow_next(&walk, &change)) {
        if (change.item->device != table->device || !(change.what & GP_FLOW_SUMMED))
            continue;
        uint32_t rule = table->rule[change.id];
        enum gp_use use = rule < GP_USE_RULES ? table->rows[rule].use : GP_USE_UNKNOWN;
        uint64_t bytes = change.add ? gp_flow_bytes(&change) : -gp_flow_bytes(&change);
        held[use] = (int64_t)((uint64_t)held[use] + bytes);
        most[use] = held[use] > most[use] ? held[use] : most[use];
    }
    for (uint32_t i = 0; i < GP_USE_RULES; i++) {
        const struct gp_use_row *row = &table->rows[i];
        if (!row->count || row->use >= GP_USES)
            continue;
        rows[row->use].peak_bytes[side] += row->at_peak_bytes;
        rows[row->use].live_bytes[side] += row->end_bytes;
    }
    for (int use = 0; use < GP_USES; use++)
        rows[use].own_bytes[side] += most[use];
}

/* "KV cache", "probably activations": with the confidence of the newer recording, if it has the use. */
static char *compare_words(const struct gp_report_uses *const uses[2], enum gp_use use, struct gp_findings *copies)
{
    char words[GP_USE_WORDS];
    double sure = 0;
    for (int side = 1; side >= 0 && sure <= 0; side--)
        for (uint32_t d = 0; d < uses[side]->count && sure <= 0; d++)
            sure = uses[side]->uses[d] ? gp_use_sure(uses[side]->uses[d], use) : 0;
    return gp_gate_text(copies, "%s", gp_use_words(words, use, sure));
}

static bool compare_uses(const struct gp_report *const reports[2], const struct gp_report_uses *const uses[2],
                         struct gp_gate_changes *changes)
{
    struct gp_findings copies = {0};
    changes->rows = calloc(GP_USES, sizeof(*changes->rows));
    for (int side = 0; changes->rows && side < 2; side++)
        for (uint32_t d = 0; d < uses[side]->count; d++)
            if (uses[side]->uses[d])
                compare_use(reports[side]->flow, uses[side]->uses[d], side, changes->rows);
    for (int use = 0; changes->rows && use < GP_USES; use++) {
        struct gp_gate_change row = changes->rows[use];
        if (!row.own_bytes[0] && !row.own_bytes[1])
            continue;
        row.label = gp_gate_text(&copies, "%s", gp_use_name((enum gp_use)use));
        row.words = compare_words(uses, (enum gp_use)use, &copies);
        row.place.label = gp_gate_text(&copies, "%s", gp_use_name((enum gp_use)use));
        row.place.bytes = gp_gate_minus(row.own_bytes[1], row.own_bytes[0]);
        changes->rows[changes->count++] = row;
    }
    return changes->rows && !copies.failed;
}

static int change_compare(const void *one, const void *other)
{
    const struct gp_gate_change *a = one, *b = other;
    int64_t x = gp_gate_minus(a->own_bytes[1], a->own_bytes[0]), y = gp_gate_minus(b->own_bytes[1], b->own_bytes[0]);
    if (x != y)
        return GP_ORDER(y, x);
    return GP_ORDER(gp_gate_minus(b->peak_bytes[1], b->peak_bytes[0]),
                    gp_gate_minus(a->peak_bytes[1], a->peak_bytes[0]));
}

bool gp_gate_compare(const struct gp_report *const reports[2], enum gp_gate_by by,
                     const struct gp_report_uses *const uses[2], struct gp_gate_changes *changes)
{
    *changes = (struct gp_gate_changes){.by = by, .why = ""};
    bool ok = by == GP_GATE_USE ? compare_uses(reports, uses, changes) : compare_sites(reports, changes);
    for (uint32_t i = 0; ok && i < changes->count; i++)
        for (int side = 0; side < 2; side++)
            changes->peak_bytes[side] =
                gp_gate_minus(changes->peak_bytes[side], gp_gate_minus(0, changes->rows[i].peak_bytes[side]));
    if (ok && by != GP_GATE_SITE && changes->count)
        qsort(changes->rows, changes->count, sizeof(*changes->rows), change_compare);
    return ok;
}

void gp_gate_changes_free(struct gp_gate_changes *changes)
{
    for (uint32_t i = 0; i < changes->count; i++) {
        struct gp_gate_change *row = &changes->rows[i];
        free(row->label);
        free(row->words);
        free(row->operation);
        free(row->place.function);
        free(row->place.file);
        free(row->place.label);
    }
    free(changes->rows);
    free(changes->diff);
    *changes = (struct gp_gate_changes){0};
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static void place_copy(struct gp_findings *gate, struct gp_gate_place *to, const struct gp_gate_place *from,
                       int64_t bytes)
{
    *to = (struct gp_gate_place){.line = from->line, .bytes = bytes};
    to->function = from->function ? gp_gate_text(gate, "%s", from->function) : NULL;
    to->file = from->file ? gp_gate_text(gate, "%s", from->file) : NULL;
    to->label = from->label ? gp_gate_text(gate, "%s", from->label) : NULL;
}

/* What grew most at the peak. */
static void growth_culprit(struct gp_findings *gate, struct gp_gate_place *culprit,
                           const struct gp_gate_changes *changes)
{
    const struct gp_gate_change *most = NULL;
    int64_t by = 0;
    for (uint32_t i = 0; i < changes->count; i++) {
        const struct gp_gate_change *row = &changes->rows[i];
        if (gp_gate_minus(row->peak_bytes[1], row->peak_bytes[0]) > by) {
            most = row;
            by = gp_gate_minus(row->peak_bytes[1], row->peak_bytes[0]);
        }
    }
    if (most)
        place_copy(gate, culprit, &most->place, by);
}

static int64_t device_peak(const struct gp_report *report, uint8_t index, bool *failed)
{
    const struct gp_recording *recording = report->recording;
    for (uint32_t d = 0; d < recording->device_count; d++) {
        if (recording->devices[d].index != index)
            continue;
        struct gp_peak *peak = gp_flow_peak(report->flow, d, 0);
        int64_t bytes = peak ? peak->bytes : 0;
        *failed |= !peak;
        free(peak);
        return bytes;
    }
    return 0;
}

static void judge_device(struct gp_findings *gate, const struct gp_report *const reports[2],
                         const struct gp_gate_changes *changes, const struct gp_gate_growth *growth,
                         const struct gp_rec_device *device)
{
    int64_t before = device_peak(reports[0], device->index, &gate->failed);
    int64_t after = device_peak(reports[1], device->index, &gate->failed);
    if (!before && !after)
        return;
    struct gp_gate_finding *finding = gp_finding_add(gate, "peak", reports[1]->file);
    if (!finding)
        return;
    bool host = device->index == GP_WIRE_HOST;
    finding->device = host ? (int32_t)GP_WIRE_HOST : device->ordinal >= 0 ? device->ordinal : device->index;
    finding->what = host ? gp_gate_text(gate, "the peak of pinned host memory")
                         : gp_gate_text(gate, "the peak of device %d", finding->device);
    finding->growth = true;
    finding->before_bytes = before;
    finding->bytes = gp_gate_minus(after, before);
    finding->limit_bytes = growth_allowed(growth, before);
    finding->ok = finding->bytes <= finding->limit_bytes;
    if (!finding->ok)
        growth_culprit(gate, &finding->culprit, changes);
}

/* Each row that grew by more than allowed, at any moment; what is moved from one line to another is not
 * in the peak of the device. */
static void judge_rows(struct gp_findings *gate, const struct gp_report *report, const struct gp_gate_changes *changes,
                       const struct gp_gate_growth *growth)
{
    int64_t allowed = growth_allowed(growth, changes->peak_bytes[0]);
    for (uint32_t i = 0; i < changes->count; i++) {
        const struct gp_gate_change *row = &changes->rows[i];
        int64_t by = gp_gate_minus(row->own_bytes[1], row->own_bytes[0]);
        if (by <= allowed)
            continue;
        struct gp_gate_finding *finding = gp_finding_add(gate, gp_gate_by_name(changes->by), report->file);
        if (!finding)
            return;
        finding->what = gp_gate_text(gate, "%s %s", gp_gate_by_name(changes->by), row->words ? row->words : row->label);
        finding->growth = true;
        finding->before_bytes = row->own_bytes[0];
        finding->bytes = by;
        finding->limit_bytes = allowed;
        finding->ok = false;
        place_copy(gate, &finding->culprit, &row->place, by);
    }
}

void gp_gate_judge_growth(struct gp_findings *gate, const struct gp_report *const reports[2],
                          const struct gp_gate_changes *changes, const struct gp_gate_growth *growth)
{
    const struct gp_recording *recording = reports[1]->recording;
    for (uint32_t d = 0; d < recording->device_count; d++)
        judge_device(gate, reports, changes, growth, &recording->devices[d]);
    if (changes->by != GP_GATE_SITE)
        judge_rows(gate, reports[1], changes, growth);
}
