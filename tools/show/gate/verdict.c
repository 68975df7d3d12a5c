/* SPDX-License-Identifier: MIT
 * verdict.c: findings as sentences and JSON; see gate.h.  Its parts: findings, how they are printed. */
#include <analyze/report.h>
#include <gpuprof/wire.h>
#include <jansson.h>
#include <limits.h>
#include <show/gate/gate.h>
#include <show/text/write.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>

/* ---- findings ---------------------------------------------------------------------------------------------------- */
/* The list of what was asked and answered; see gate.h. */

struct gp_gate_finding *gp_gate_add(struct gp_findings *gate, const char *name, const char *source)
{
    if (gate->count == gate->room) {
        uint32_t room = gate->room ? gate->room * 2 : 8;
        struct gp_gate_finding *findings = realloc(gate->findings, room * sizeof(*findings));
        if (!findings) {
            gate->failed = true;
            return NULL;
        }
        gate->findings = findings;
        gate->room = room;
    }
    struct gp_gate_finding *finding = &gate->findings[gate->count++];
    *finding = (struct gp_gate_finding){.rank = -1, .device = -1, .ok = true, .at_ns = -1, .before_bytes = -1};
    finding->name = gp_gate_text(gate, "%s", name);
    finding->source = source ? gp_gate_text(gate, "%s", source) : NULL;
    return finding;
}

char *gp_gate_text(struct gp_findings *gate, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) {
        text = NULL;
        gate->failed = true;
    }
    va_end(arguments);
    return text;
}

static void place_free(struct gp_gate_place *place)
{
    free(place->function);
    free(place->file);
    free(place->label);
    free(place->operation);
}

void gp_gate_free(struct gp_findings *gate)
{
    for (uint32_t i = 0; i < gate->count; i++) {
        struct gp_gate_finding *finding = &gate->findings[i];
        free(finding->what);
        free(finding->name);
        free(finding->source);
        place_free(&finding->culprit);
        place_free(&finding->crossed);
    }
    free(gate->findings);
    *gate = (struct gp_findings){0};
}

/* The broken finding that matters most, else the first; NULL: nothing was asked. */
static const struct gp_gate_finding *gate_worst(const struct gp_findings *gate)
{
    const struct gp_gate_finding *worst = NULL;
    for (uint32_t i = 0; i < gate->count; i++)
        if (!worst || (worst->ok && !gate->findings[i].ok))
            worst = &gate->findings[i];
    return worst;
}

bool gp_gate_ok(const struct gp_findings *gate)
{
    const struct gp_gate_finding *worst = gate_worst(gate);
    return !worst || worst->ok;
}

void gp_gate_place(struct gp_findings *gate, struct gp_gate_place *place, const struct gp_report *report, uint32_t site,
                   int64_t bytes)
{
    const struct gp_frame_text *name = gp_symbols_name(report->symbols, site);
    char label[512];
    gp_symbols_line(report->symbols, site, NULL, NULL, label, sizeof(label));
    place_free(place);
    *place = (struct gp_gate_place){.line = name->line, .bytes = bytes};
    place->function = gp_gate_text(gate, "%s", name->function);
    place->file = name->file[0] ? gp_gate_text(gate, "%s", name->file) : NULL;
    place->label = gp_gate_text(gate, "%s", label);
}

/* ---- how they are printed ---------------------------------------------------------------------------------------- */

static void sentence_growth(FILE *out, const struct gp_gate_finding *finding)
{
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
    int64_t by = finding->bytes;
    if (by <= 0)
        fprintf(out, "%s %s%s", finding->what, by ? "shrank by " : "is the same",
                by ? gp_size_text(a, gp_gate_minus(0, by)) : "");
    else
        fprintf(out, "%s grew by %s", finding->what, gp_size_text(a, by));
    if (!finding->ok)
        fprintf(out, ", %s more than allowed", gp_size_text(a, gp_gate_minus(by, finding->limit_bytes)));
    if (by)
        fprintf(out, " (%s, then %s)", gp_size_text(a, finding->before_bytes),
                gp_size_text(b, gp_gate_minus(finding->before_bytes, gp_gate_minus(0, by))));
}

static void sentence_budget(FILE *out, const struct gp_gate_finding *finding)
{
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
    const char *name = finding->name ? finding->name : "";
    if (finding->unknown) {
        fprintf(out, "%s is not ", finding->what);
        if (!finding->ok)
            fputs("in what was recorded, so its budget holds nothing: is the name right?", out);
        else if (strcmp(name, "leak") == 0)
            fputs("known: the recording has no steps that are known ('gpuprof leaks')", out);
        else
            fputs(strcmp(name, "asleep") == 0 ? "known: nothing was asleep" : "in the recording", out);
        return;
    }
    fprintf(out, "%s is %s, ", finding->what, gp_size_text(a, finding->bytes));
    if (finding->ok)
        fprintf(out, "within its budget of %s", gp_size_text(a, finding->limit_bytes));
    else
        fprintf(out, "%s over its budget of %s", gp_size_text(a, gp_gate_minus(finding->bytes, finding->limit_bytes)),
                gp_size_text(b, finding->limit_bytes));
    if (finding->at_ns >= 0 && !finding->ok)
        fprintf(out, " after %s", gp_seconds_text(a, (double)finding->at_ns / 1e9));
}

/* One sentence without a period; free() it.  NULL: out of memory. */
static char *gate_sentence(const struct gp_gate_finding *finding)
{
    char *text = NULL, size[GP_SIZE_TEXT];
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    (finding->growth ? sentence_growth : sentence_budget)(out, finding);
    if (!finding->ok && finding->crossed.label)
        fprintf(out, "; %s went over it first", finding->crossed.label);
    if (!finding->ok && finding->culprit.label && strcmp(finding->name ? finding->name : "", "peak") == 0)
        fprintf(out, finding->growth ? "; most at %s: +%s" : "; most is held by %s: %s", finding->culprit.label,
                gp_size_text(size, finding->culprit.bytes));
    if (!finding->ok && !finding->growth && finding->culprit.operation)
        fprintf(out, "%s%s %s", strcmp(finding->name ? finding->name : "", "peak") == 0 ? ", of which " : "; most is ",
                finding->culprit.operation, gp_size_text(size, finding->culprit.operation_bytes));
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

void gp_gate_print(FILE *out, const struct gp_findings *gate)
{
    for (uint32_t i = 0; i < gate->count; i++) {
        char *sentence = gate_sentence(&gate->findings[i]);
        bool ok = gate->findings[i].ok, unknown = gate->findings[i].unknown;
        fprintf(out, "%s%-5s%s %s\n", gp_tone(out, ok ? GP_GREEN : GP_RED),
                ok        ? "ok"
                : unknown ? "NONE"
                          : "OVER",
                gp_tone(out, GP_OFF), sentence ? sentence : "(out of memory)");
        free(sentence);
    }
}

static json_t *place_json(const struct gp_gate_place *place)
{
    if (!place->label)
        return json_null();
    return json_pack("{s:o,s:o,s:o,s:o,s:I,s:o,s:o}", "name", gp_json_text(place->label), "function",
                     gp_json_text(place->function), "file", gp_json_text(place->file), "line",
                     place->line ? json_integer(place->line) : json_null(), "bytes", (json_int_t)place->bytes,
                     "operation", gp_json_text(place->operation), "operation_bytes",
                     place->operation ? json_integer(place->operation_bytes) : json_null());
}

/* {"ok", "limit_bytes" .., "culprit"} of a finding. */
static json_t *gate_finding_json(const struct gp_gate_finding *finding)
{
    char *sentence = gate_sentence(finding);
    json_t *device = finding->device < 0               ? json_null()
                     : finding->device == GP_WIRE_HOST ? json_string("host")
                                                       : json_integer(finding->device);
    json_t *object = json_pack("{s:b,s:s,s:s,s:o,s:o,s:o,s:o,s:I,s:o,s:o,s:o,s:o,s:o}", "ok", finding->ok, "what",
                               finding->what ? finding->what : "", "kind", finding->name ? finding->name : "",
                               "sentence", gp_json_text(sentence), "source", gp_json_text(finding->source), "rank",
                               finding->rank < 0 ? json_null() : json_integer(finding->rank), "device", device,
                               "limit_bytes", (json_int_t)finding->limit_bytes, "bytes",
                               finding->unknown ? json_null() : json_integer(finding->bytes), "before_bytes",
                               gp_json_known(finding->before_bytes), "at_ns", gp_json_known(finding->at_ns), "culprit",
                               place_json(&finding->culprit), "crossed_by", place_json(&finding->crossed));
    free(sentence);
    return object;
}

static json_t *gate_findings_json(const struct gp_findings *gate)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < gate->count; i++)
        json_array_append_new(list, gate_finding_json(&gate->findings[i]));
    return list;
}

json_t *gp_gate_json(const struct gp_findings *gate, const char *schema)
{
    const struct gp_gate_finding *worst = gate_worst(gate);
    json_t *object =
        json_pack("{s:s,s:b,s:o}", "schema", schema, "ok", gp_gate_ok(gate), "checks", gate_findings_json(gate));
    if (!object || !worst)
        return object;
    /* The answer in short: budget, peak and culprit of what matters most. */
    char *sentence = gate_sentence(worst);
    json_object_set_new(object, "sentence", gp_json_text(sentence));
    json_object_set_new(object, "budget_bytes",
                        json_integer(worst->limit_bytes + (worst->growth ? worst->before_bytes : 0)));
    json_object_set_new(object, "peak_bytes",
                        worst->unknown ? json_null()
                                       : json_integer(worst->bytes + (worst->growth ? worst->before_bytes : 0)));
    json_object_set_new(object, "at_ns", gp_json_known(worst->at_ns));
    json_object_set_new(object, "culprit", place_json(&worst->culprit));
    free(sentence);
    return object;
}

/* ---- JUnit ------------------------------------------------------------------------------------------------------- */

static void xml_text(FILE *out, const char *text)
{
    for (; text && *text; text++) {
        static const char *const names[UCHAR_MAX + 1] = {
            ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;"};
        const char *named = names[(unsigned char)*text];
        if (named)
            fputs(named, out);
        else
            fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
    }
}

/* The attributes are those that the Jenkins xUnit plugin's junit-10.xsd allows, as pytest's xunit2
 * keeps to it: a case has no file and no line, so the failure's text has them. */
void gp_gate_junit(FILE *out, const struct gp_findings *gate)
{
    uint32_t broken = 0;
    for (uint32_t i = 0; i < gate->count; i++)
        broken += !gate->findings[i].ok;
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<testsuites tests=\"%u\" failures=\"%u\">\n"
            "  <testsuite name=\"gpuprof\" tests=\"%u\" failures=\"%u\" errors=\"0\" skipped=\"0\">\n",
            gate->count, broken, gate->count, broken);
    for (uint32_t i = 0; i < gate->count; i++) {
        const struct gp_gate_finding *finding = &gate->findings[i];
        char *sentence = gate_sentence(finding);
        fputs("    <testcase classname=\"gpuprof.", out);
        xml_text(out, finding->name);
        fputs("\" name=\"", out);
        xml_text(out, finding->what);
        if (finding->rank >= 0)
            fprintf(out, " of rank %d", finding->rank);
        if (finding->ok) {
            fputs("\"/>\n", out);
        } else {
            fputs("\">\n      <failure type=\"memory\" message=\"", out);
            xml_text(out, sentence);
            fputs("\">", out);
            if (finding->culprit.file) {
                xml_text(out, finding->culprit.file);
                fprintf(out, ":%u", finding->culprit.line);
            }
            fputs("</failure>\n    </testcase>\n", out);
        }
        free(sentence);
    }
    fputs("  </testsuite>\n</testsuites>\n", out);
}

/* ---- GitHub ------------------------------------------------------------------------------------------------------ */

/* A workflow's command ends with its line; commas and colons end a property. */
static void github_text(FILE *out, const char *text, bool property)
{
    for (; text && *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '%' || byte == '\r' || byte == '\n' || (property && (byte == ',' || byte == ':')))
            fprintf(out, "%%%02X", byte);
        else
            fputc(byte, out);
    }
}

void gp_gate_annotate(FILE *out, const struct gp_findings *gate, const char *folder)
{
    size_t length = folder ? strlen(folder) : 0;
    for (uint32_t i = 0; i < gate->count; i++) {
        const struct gp_gate_finding *finding = &gate->findings[i];
        const char *file = finding->culprit.file;
        if (finding->ok)
            continue;
        char *sentence = gate_sentence(finding);
        if (file && length && strncmp(file, folder, length) == 0 && file[length] == '/')
            file += length + 1;
        fputs("::error ", out);
        if (file) {
            fputs("file=", out);
            github_text(out, file, true);
            fprintf(out, ",line=%u,", finding->culprit.line ? finding->culprit.line : 1);
        }
        fputs("title=GPU memory::", out);
        github_text(out, sentence, false);
        fputc('\n', out);
        free(sentence);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Most rows that grew, and that shrank, in a table. */
#define GP_GATE_ROWS 40u

static const char *change_text(char text[GP_SIZE_TEXT + 1], int64_t by)
{
    char size[GP_SIZE_TEXT];
    if (!by)
        return "same";
    snprintf(text, GP_SIZE_TEXT + 1, "%c%s", by > 0 ? '+' : '-', gp_size_text(size, by < 0 ? -by : by));
    return text;
}

static bool change_differs(const struct gp_gate_change *row)
{
    return row->own_bytes[0] != row->own_bytes[1] || row->peak_bytes[0] != row->peak_bytes[1] ||
           row->live_bytes[0] != row->live_bytes[1];
}

void gp_gate_changes_print(FILE *out, const struct gp_gate_changes *changes)
{
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], by[GP_SIZE_TEXT + 1], peak[GP_SIZE_TEXT + 1], end[GP_SIZE_TEXT + 1];
    uint32_t differ = 0, shown = 0;
    for (uint32_t i = 0; i < changes->count; i++)
        differ += change_differs(&changes->rows[i]);
    fprintf(out, "at the peak: %s, then %s (%s); %u of %u %ss differ%s\n", gp_size_text(a, changes->peak_bytes[0]),
            gp_size_text(b, changes->peak_bytes[1]),
            change_text(by, gp_gate_minus(changes->peak_bytes[1], changes->peak_bytes[0])), differ, changes->count,
            gp_gate_by_name(changes->by), differ ? "\n" : "");
    if (differ)
        fprintf(out, "  %11s %10s %10s %11s %11s  %s\n", "MOST", "BEFORE", "AFTER", "AT PEAK", "AT THE END", "WHERE");
    for (uint32_t i = 0; i < changes->count; i++) {
        const struct gp_gate_change *row = &changes->rows[i];
        if (!change_differs(row) || (shown >= GP_GATE_ROWS && i + GP_GATE_ROWS < changes->count))
            continue;
        shown++;
        fprintf(out, "  %11s %10s %10s %11s %11s  %s\n",
                change_text(by, gp_gate_minus(row->own_bytes[1], row->own_bytes[0])),
                gp_size_text(a, row->own_bytes[0]), gp_size_text(b, row->own_bytes[1]),
                change_text(peak, gp_gate_minus(row->peak_bytes[1], row->peak_bytes[0])),
                change_text(end, gp_gate_minus(row->live_bytes[1], row->live_bytes[0])), row->label);
    }
    if (shown < differ)
        fprintf(out, "  %u more: use --json to list them\n", differ - shown);
}

json_t *gp_gate_changes_json(const struct gp_gate_changes *changes)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < changes->count; i++) {
        const struct gp_gate_change *row = &changes->rows[i];
        json_array_append_new(
            rows, json_pack("{s:s,s:o,s:o,s:o,s:o,s:[I,I],s:[I,I],s:[I,I]}", "name", row->label ? row->label : "",
                            "function", gp_json_text(row->place.function), "file", gp_json_text(row->place.file),
                            "line", row->place.line ? json_integer(row->place.line) : json_null(), "operation",
                            gp_json_text(row->operation), "most_bytes", (json_int_t)row->own_bytes[0],
                            (json_int_t)row->own_bytes[1], "at_peak_bytes", (json_int_t)row->peak_bytes[0],
                            (json_int_t)row->peak_bytes[1], "live_bytes", (json_int_t)row->live_bytes[0],
                            (json_int_t)row->live_bytes[1]));
    }
    return rows;
}
