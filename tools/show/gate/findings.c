/* SPDX-License-Identifier: MIT
 *
 * findings.c: the list of what was asked and answered; see findings.h.
 */
#include <show/gate/findings.h>
#include <stdarg.h>
#include <stdlib.h>
#include <symbol/symbol.h>

struct gp_gate_finding *gp_finding_add(struct gp_findings *gate, const char *name, const char *source)
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

const struct gp_gate_finding *gp_gate_worst(const struct gp_findings *gate)
{
    const struct gp_gate_finding *worst = NULL;
    for (uint32_t i = 0; i < gate->count; i++)
        if (!worst || (worst->ok && !gate->findings[i].ok))
            worst = &gate->findings[i];
    return worst;
}

bool gp_gate_ok(const struct gp_findings *gate)
{
    const struct gp_gate_finding *worst = gp_gate_worst(gate);
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
