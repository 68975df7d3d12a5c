/* SPDX-License-Identifier: MIT
 * reportuses.c: what the memory of a recording is for, and its phases: the names on the stacks come from
 * the symbols, the rest from the analyses; see report.h.  Also called by `gpuprof phases`. */
#include <analyze/report.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <symbol/symbol.h>

#include <stdlib.h>
#include <string.h>

/* Whether a stack has a framework on it that computes with weights and activations. */
static bool hints_framework(const char *owner, const struct gp_frame_text *frames, uint32_t count)
{
    static const char *const owners[] = {"pytorch",     "xla",  "tensorflow", "paddle",
                                         "onnxruntime", "ggml", "tensorrt",   "vllm"},
                             *const files[] = {"/torch/",  "/jax/",      "/flax/",  "/tensorflow/", "/keras/",
                                               "/paddle/", "/tinygrad/", "/mxnet/", "/mindspore/"};
    for (size_t k = 0; k < sizeof(owners) / sizeof(owners[0]); k++)
        if (strcmp(owner, owners[k]) == 0)
            return true;
    for (uint32_t i = 0; i < count; i++) {
        if (strncmp(frames[i].function, "at::", 4) == 0 || strncmp(frames[i].function, "ggml_", 5) == 0)
            return true;
        for (size_t k = 0; k < sizeof(files) / sizeof(files[0]) && frames[i].python; k++)
            if (strstr(frames[i].file, files[k]))
                return true;
    }
    return false;
}

uint8_t *gp_report_hints(const struct gp_report *report)
{
    static const uint8_t parts[GP_PARTS] = {
        [GP_PART_FORWARD] = GP_HINT_FORWARD,     [GP_PART_BACKWARD] = GP_HINT_BACKWARD,
        [GP_PART_OPTIMIZER] = GP_HINT_OPTIMIZER, [GP_PART_WEIGHTS] = GP_HINT_WEIGHTS,
        [GP_PART_WORKSPACE] = GP_HINT_WORKSPACE, [GP_PART_COMMUNICATION] = GP_HINT_COMMUNICATION,
        [GP_PART_GRAPHS] = GP_HINT_GRAPHS,       [GP_PART_KV_CACHE] = GP_HINT_KV_CACHE};
    const struct gp_recording *recording = report->recording;
    uint8_t *hints = calloc(recording->site_count + 1ul, 1);
    bool pool = false; /* without one, XLA asks the driver for each buffer */
    if (hints)
        hints[0] = GP_HINT_NO_FRAMEWORK;
    for (uint32_t d = 0; d < recording->device_count; d++)
        pool |= gp_rec_polled(&recording->devices[d]).pool_bytes > 0;
    for (uint32_t site = 1; hints && site < recording->site_count; site++) {
        char owner[GP_SITE_OWNER];
        const struct gp_frame_text *frames;
        uint32_t count = gp_symbols_site(report->symbols, site, &frames);
        gp_bill_site_owner(recording, site, owner);
        if (hints[0] && (gp_symbols_operation(report->symbols, site)->text || hints_framework(owner, frames, count)))
            hints[0] = GP_HINT_NONE;
        hints[site] = pool && strcmp(owner, "xla") == 0 ? GP_HINT_POOL : (uint8_t)gp_use_hint_of_owner(owner);
        if (!hints[site])
            hints[site] = parts[gp_symbols_operation(report->symbols, site)->part];
        for (uint32_t i = 0; !hints[site] && i < count; i++)
            hints[site] = (uint8_t)gp_use_hint_of_name(frames[i].function, frames[i].file);
    }
    return hints;
}

bool gp_report_uses_find(struct gp_report *report, struct gp_report_uses *uses)
{
    const struct gp_recording *recording = report->recording;
    bool ok = report->leaks || gp_report_run(report, GP_REPORT_LEAKS, GP_DETAIL_SUMMARY) == 0;
    uses->count = recording->device_count;
    uses->phases = calloc(uses->count + 1ul, sizeof(*uses->phases));
    uses->uses = calloc(uses->count + 1ul, sizeof(*uses->uses));
    uint8_t *hints = gp_report_hints(report);
    ok = ok && uses->phases && uses->uses && hints;
    for (uint32_t d = 0; ok && d < uses->count; d++) {
        if (!report->devices[d].used)
            continue;
        if (recording->devices[d].index != GP_WIRE_HOST)
            ok = (uses->uses[d] = gp_uses_find(report->flow, report->steps, report->leaks, hints, d)) != NULL;
        if (ok)
            ok = (uses->phases[d] = gp_phases_find(report->flow, report->steps, uses->uses[d], d)) != NULL;
    }
    free(hints);
    return ok;
}

void gp_report_uses_free(struct gp_report_uses *uses)
{
    for (uint32_t d = 0; d < uses->count; d++) {
        gp_phases_free(uses->phases ? uses->phases[d] : NULL);
        gp_uses_free(uses->uses ? uses->uses[d] : NULL);
    }
    free(uses->phases);
    free(uses->uses);
    *uses = (struct gp_report_uses){0};
}
