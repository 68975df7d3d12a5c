/* SPDX-License-Identifier: MIT
 * verdict.c: findings as sentences and JSON; see findings.h.
 */
#include <show/gate/findings.h>
#include <show/text/write.h>
#include <stdlib.h>
#include <string.h>

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
    if (finding->unknown && finding->limit_bytes < 0) {
        fprintf(out, "%s is not known: the recording does not say how much it has: give the budget as a size",
                finding->what);
        return;
    }
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

char *gp_gate_sentence(const struct gp_gate_finding *finding)
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
        char *sentence = gp_gate_sentence(&gate->findings[i]);
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
    char *sentence = gp_gate_sentence(finding);
    json_t *device = finding->device < 0               ? json_null()
                     : finding->device == GP_WIRE_HOST ? json_string("host")
                                                       : json_integer(finding->device);
    json_t *object = json_pack("{s:b,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "ok", finding->ok, "what",
                               finding->what ? finding->what : "", "kind", finding->name ? finding->name : "",
                               "sentence", gp_json_text(sentence), "source", gp_json_text(finding->source), "rank",
                               finding->rank < 0 ? json_null() : json_integer(finding->rank), "device", device,
                               "limit_bytes", gp_json_known(finding->limit_bytes), "bytes",
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
    const struct gp_gate_finding *worst = gp_gate_worst(gate);
    json_t *object =
        json_pack("{s:s,s:b,s:o}", "schema", schema, "ok", gp_gate_ok(gate), "checks", gate_findings_json(gate));
    if (!object || !worst)
        return object;
    /* The answer in short: budget, peak and culprit of what matters most. */
    char *sentence = gp_gate_sentence(worst);
    json_object_set_new(object, "sentence", gp_json_text(sentence));
    json_object_set_new(object, "budget_bytes",
                        gp_json_known(worst->limit_bytes + (worst->growth ? worst->before_bytes : 0)));
    json_object_set_new(object, "peak_bytes",
                        worst->unknown ? json_null()
                                       : json_integer(worst->bytes + (worst->growth ? worst->before_bytes : 0)));
    json_object_set_new(object, "at_ns", gp_json_known(worst->at_ns));
    json_object_set_new(object, "culprit", place_json(&worst->culprit));
    free(sentence);
    return object;
}
