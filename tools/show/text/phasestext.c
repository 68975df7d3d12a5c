/* SPDX-License-Identifier: MIT
 * phasestext.c: the phases of a program as text and as JSON; see text.h. */
#include <analyze/analyze.h>
#include <analyze/report.h>
#include <gpuprof/wire.h>
#include <jansson.h>
#include <read/recording/recording.h>
#include <show/text/reportparts.h>
#include <show/text/stats.h>
#include <show/text/text.h>
#include <show/text/write.h>
#include <stdio.h>
#include <symbol/symbol.h>

#include <inttypes.h>
#include <string.h>

#define GP_PHASES_PARTS 3u /* call sites of a phase in the text */
#define GP_PHASES_NAME  28
#define GP_PHASES_WIDE  132 /* columns that a line with a reason needs */

static const char *const phase_sources[] = {
    [GP_PHASES_NVTX] = "nvtx", [GP_PHASES_MARKS] = "marks", [GP_PHASES_STEPS] = "steps", [GP_PHASES_WHOLE] = "whole"};

#define GP_PHASES_ADVICE                                                                                               \
    "name the phases with NVTX ranges (torch.cuda.nvtx.range), gpuprof_mark() or 'gpuprof mark -p PID NAME'"

static const char *signed_text(char text[GP_SIZE_TEXT + 2], int64_t bytes)
{
    char size[GP_SIZE_TEXT];
    gp_size_text(size, bytes < 0 ? -bytes : bytes);
    snprintf(text, GP_SIZE_TEXT + 2, "%s%s", bytes < 0 ? "-" : bytes > 0 ? "+" : "", size);
    return text;
}

static const struct gp_phases *phases_any(const struct gp_report *report, struct gp_phases *const *phases)
{
    for (uint32_t d = 0; d < report->recording->device_count; d++) {
        if (phases[d])
            return phases[d];
    }
    return NULL;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The first parts, with the others of their rows added up. Returns how many. */
static uint32_t text_rows(const struct gp_report *report, const struct gp_phase *phase,
                          struct gp_phase_part rows[GP_PHASES_PARTS])
{
    uint32_t count = 0, k;
    for (uint32_t i = 0; i < phase->part_count; i++) {
        const struct gp_phase_part *part = &phase->parts[i];
        for (k = 0; k < count; k++)
            if (rows[k].kind == part->kind &&
                gp_symbols_row(report->symbols, rows[k].site) == gp_symbols_row(report->symbols, part->site))
                break;
        if (k == GP_PHASES_PARTS)
            continue;
        if (k == count)
            rows[count++] = (struct gp_phase_part){.site = part->site, .kind = part->kind};
        rows[k].added_bytes += part->added_bytes;
        rows[k].left_bytes += part->left_bytes;
    }
    return count;
}

static void text_parts(const struct gp_text_page *page, const struct gp_report *report, const struct gp_phase *phase)
{
    char added[GP_SIZE_TEXT + 2], left[GP_SIZE_TEXT + 2], owner[GP_SITE_OWNER], label[256];
    struct gp_phase_part rows[GP_PHASES_PARTS];
    uint32_t count = text_rows(report, phase, rows);
    for (uint32_t i = 0; i < count; i++) {
        const struct gp_phase_part *part = &rows[i];
        size_t room = page->whole ? sizeof(label) : page->width > 90 ? (size_t)page->width - 66 : 24;
        gp_bill_site_owner(report->recording, part->site, owner);
        gp_symbols_line(report->symbols, part->site, NULL, NULL, label, room < sizeof(label) ? room : sizeof(label));
        fprintf(page->out, "    %-37s %11s %11s  %s, %s\n", label, signed_text(added, part->added_bytes),
                signed_text(left, part->left_bytes), owner, gp_kind_name(part->kind));
    }
}

/* What the memory at the peak is: the lines have the columns of the phase and add up to them. */
static void text_phase_uses(const struct gp_text_page *page, const struct gp_phase *phase,
                            const struct gp_use_table *uses)
{
    char words[GP_USE_WORDS], peak[GP_SIZE_TEXT], added[GP_SIZE_TEXT + 2], left[GP_SIZE_TEXT + 2];
    for (unsigned use = 0; use < GP_USES; use++) {
        const struct gp_phase_use *row = &phase->uses[use];
        if (!row->at_peak_bytes && !row->added_bytes && !row->left_bytes)
            continue;
        fprintf(page->out, "    %-*s %11s %11s %11s\n", GP_PHASES_NAME - 2,
                gp_use_words(words, (enum gp_use)use, uses ? gp_use_sure(uses, (enum gp_use)use) : 0),
                gp_size_text(peak, row->at_peak_bytes), signed_text(added, row->added_bytes),
                signed_text(left, row->left_bytes));
    }
}

static void text_uses(const struct gp_text_page *page, const struct gp_use_table *uses)
{
    char peak[GP_SIZE_TEXT], most[GP_SIZE_TEXT], words[GP_USE_WORDS];
    bool narrow = !page->whole && page->width < GP_PHASES_WIDE;
    fprintf(page->out, "\n  %-24s %11s %11s %5s%s\n", "used for", "at the peak", "at most", "sure",
            narrow ? "" : "  reason");
    for (unsigned use = 0; use < GP_USES; use++) {
        for (uint32_t i = 0; i < GP_USE_RULES; i++) {
            const struct gp_use_row *row = &uses->rows[i];
            char sure[8] = "";
            if (!row->count || row->use != use || !row->peak_bytes)
                continue;
            if (row->confidence > 0)
                snprintf(sure, sizeof(sure), "%.2f", row->confidence);
            fprintf(page->out, "  %-24s %11s %11s %5s%s%s\n", gp_use_words(words, row->use, row->confidence),
                    gp_size_text(peak, row->at_peak_bytes), gp_size_text(most, row->peak_bytes), sure,
                    narrow ? "\n    " : "  ", row->reason);
        }
    }
}

static void text_phase(const struct gp_text_page *page, const struct gp_report *report, const struct gp_phase *phase,
                       const struct gp_use_table *uses)
{
    char name[64], peak[GP_SIZE_TEXT], added[GP_SIZE_TEXT + 2], left[GP_SIZE_TEXT + 2], time[GP_SIZE_TEXT];
    int indent = phase->depth < 6 ? (int)phase->depth * 2 : 12;
    snprintf(name, sizeof(name), "%*s%s", indent, "", phase->name);
    fprintf(page->out, "  %-*.*s %11s %11s %11s %9s %6" PRIu32 "\n", GP_PHASES_NAME, GP_PHASES_NAME, name,
            gp_size_text(peak, phase->peak_bytes), signed_text(added, phase->peak_bytes - phase->begin_bytes),
            signed_text(left, phase->left_bytes), gp_seconds_text(time, (double)phase->duration_ns / 1e9),
            phase->count);
    text_phase_uses(page, phase, uses);
    text_parts(page, report, phase);
}

static void text_device(const struct gp_text_page *page, const struct gp_report *report, const struct gp_phases *phases,
                        const struct gp_use_table *uses)
{
    const struct gp_rec_device *device = &report->recording->devices[phases->device];
    if (device->index == GP_WIRE_HOST)
        fprintf(page->out, "host (pinned and registered memory)\n");
    else
        fprintf(page->out, "device %d\n", device->ordinal >= 0 ? device->ordinal : device->index);
    fprintf(page->out, "  %-*s %11s %11s %11s %9s %6s\n", GP_PHASES_NAME, "phase", "peak", "added", "left", "time",
            "count");
    for (uint32_t i = 0; i < phases->count; i++)
        text_phase(page, report, &phases->phases[i], uses);
    if (phases->left_out)
        fprintf(page->out, "  %" PRIu32 " more phases are left out\n", phases->left_out);
    if (uses)
        text_uses(page, uses);
}

void gp_text_phases(const struct gp_text_page *page, const struct gp_report *report, struct gp_phases *const *phases,
                    struct gp_use_table *const *uses)
{
    const struct gp_phases *any = phases_any(report, phases);
    gp_text_warnings(page, report);
    if (!any) {
        fprintf(page->out, "no memory was held or allocated in the recorded time\n");
        return;
    }
    if (any->source == GP_PHASES_STEPS || any->source == GP_PHASES_WHOLE)
        fprintf(page->out, "note: the recording has no marks and no NVTX ranges%s%s%s: " GP_PHASES_ADVICE "\n",
                any->source == GP_PHASES_STEPS ? ", so its phases are the " : "",
                any->source == GP_PHASES_STEPS ? gp_steps_words(report->steps, 2) : "",
                any->source == GP_PHASES_STEPS ? " that were found" : "");
    for (uint32_t d = 0, shown = 0; d < report->recording->device_count; d++) {
        if (phases[d] && shown++)
            fputc('\n', page->out);
        if (phases[d])
            text_device(page, report, phases[d], uses[d]);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *json_parts(const struct gp_report *report, const struct gp_phase *phase)
{
    json_t *parts = json_array();
    for (uint32_t i = 0; i < phase->part_count; i++) {
        const struct gp_phase_part *part = &phase->parts[i];
        json_t *row =
            json_pack("{s:I,s:s,s:I,s:I}", "site", (json_int_t)part->site, "kind", gp_kind_name(part->kind),
                      "added_bytes", (json_int_t)part->added_bytes, "left_bytes", (json_int_t)part->left_bytes);
        if (row)
            gp_report_add_place(report, row, part->site);
        json_array_append_new(parts, row);
    }
    return parts;
}

static json_t *json_phase_uses(const struct gp_phase *phase)
{
    json_t *uses = json_object();
    for (unsigned use = 0; use < GP_USES; use++) {
        const struct gp_phase_use *row = &phase->uses[use];
        if (row->at_peak_bytes || row->added_bytes || row->left_bytes)
            json_object_set_new(uses, gp_use_name((enum gp_use)use),
                                json_pack("{s:I,s:I,s:I}", "at_peak_bytes", (json_int_t)row->at_peak_bytes,
                                          "added_bytes", (json_int_t)row->added_bytes, "left_bytes",
                                          (json_int_t)row->left_bytes));
    }
    return uses;
}

/* By use, as the text has them. */
static json_t *json_uses(const struct gp_use_table *uses)
{
    json_t *rows = json_array();
    for (unsigned at = 0; at < GP_USES * GP_USE_RULES; at++) {
        const struct gp_use_row *row = &uses->rows[at % GP_USE_RULES];
        if (row->count && row->use == at / GP_USE_RULES)
            json_array_append_new(rows,
                                  json_pack("{s:s,s:f,s:s,s:I,s:I,s:I,s:I}", "use", gp_use_name(row->use), "confidence",
                                            row->confidence, "reason", row->reason, "blocks", (json_int_t)row->count,
                                            "at_peak_bytes", (json_int_t)row->at_peak_bytes, "peak_bytes",
                                            (json_int_t)row->peak_bytes, "end_bytes", (json_int_t)row->end_bytes));
    }
    return rows;
}

static json_t *json_phase(const struct gp_report *report, const struct gp_phase *phase)
{
    return json_pack(
        "{s:s,s:I,s:I,s:I,s:f,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o}", "name", phase->name, "depth", (json_int_t)phase->depth,
        "count", (json_int_t)phase->count, "begin_ns", gp_report_since(report, phase->begin_ns), "seconds",
        (double)phase->duration_ns / 1e9, "begin_bytes", (json_int_t)phase->begin_bytes, "peak_bytes",
        (json_int_t)phase->peak_bytes, "peak_ns", gp_report_since(report, phase->peak_ns), "added_bytes",
        (json_int_t)(phase->peak_bytes - phase->begin_bytes), "end_bytes", (json_int_t)phase->end_bytes, "left_bytes",
        (json_int_t)phase->left_bytes, "parts", json_parts(report, phase), "uses", json_phase_uses(phase));
}

json_t *gp_phases_json(const struct gp_report *report, struct gp_phases *const *phases,
                       struct gp_use_table *const *uses)
{
    const struct gp_phases *any = phases_any(report, phases);
    json_t *devices = json_array();
    for (uint32_t d = 0; d < report->recording->device_count; d++) {
        json_t *rows = phases[d] ? json_array() : NULL;
        for (uint32_t i = 0; rows && i < phases[d]->count; i++)
            json_array_append_new(rows, json_phase(report, &phases[d]->phases[i]));
        if (rows)
            json_array_append_new(devices, json_pack("{s:o,s:o,s:I,s:o}", "device", gp_report_device_name(report, d),
                                                     "phases", rows, "left_out", (json_int_t)phases[d]->left_out,
                                                     "uses", uses[d] ? json_uses(uses[d]) : json_array()));
    }
    return json_pack("{s:s,s:o,s:o}", "schema", "gpuprof.phases/1", "source",
                     gp_json_text(any ? phase_sources[any->source] : NULL), "devices", devices);
}
