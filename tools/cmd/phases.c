/* SPDX-License-Identifier: MIT
 * phases.c: `gpuprof phases`: what each phase of a program added, its peak, and what it left behind.
 * Called by commands.c. */
#include <cmd/load.h>
#include <write/phasesformat.h>

#include <stdlib.h>

static bool phases_is_used(const struct gp_flow *flow, uint32_t device)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    while (gp_flow_next(&walk, &change)) {
        if (change.item->device == device && change.what & GP_FLOW_SUMMED)
            return true;
    }
    return false;
}

struct phases_result { /* by device; NULL: not used, or the host for uses */
    struct gp_phases **phases;
    struct gp_use_table **uses;
    uint8_t *hints;
};

static bool phases_find(struct gp_report *report, struct phases_result *result)
{
    const struct gp_recording *recording = report->recording;
    bool ok = gp_report_run(report, GP_REPORT_LEAKS, GP_DETAIL_SUMMARY) == 0;
    result->phases = calloc(recording->device_count + 1ul, sizeof(*result->phases));
    result->uses = calloc(recording->device_count + 1ul, sizeof(*result->uses));
    result->hints = gp_load_hints(report);
    ok = ok && result->phases && result->uses && result->hints;
    for (uint32_t d = 0; ok && d < recording->device_count; d++) {
        if (!phases_is_used(report->flow, d))
            continue;
        if (recording->devices[d].index != GP_WIRE_HOST)
            ok = (result->uses[d] = gp_uses_find(report->flow, report->steps, report->leaks, result->hints, d)) != NULL;
        if (ok)
            ok = (result->phases[d] = gp_phases_find(report->flow, report->steps, result->uses[d], d)) != NULL;
    }
    return ok;
}

static int phases_print(const struct gp_load_options *o, struct gp_report *report)
{
    struct phases_result result = {0};
    struct gp_text_page page = gp_load_page();
    int rc = GP_EXIT_OK;
    if (!phases_find(report, &result))
        rc = gp_load_memory("phases");
    else if (o->json)
        rc = gp_load_json("phases", gp_phases_json(report, result.phases, result.uses));
    else
        gp_page_phases(&page, report, result.phases, result.uses);
    for (uint32_t d = 0; d < report->recording->device_count; d++) {
        gp_phases_free(result.phases ? result.phases[d] : NULL);
        gp_uses_free(result.uses ? result.uses[d] : NULL);
    }
    free(result.phases);
    free(result.uses);
    free(result.hints);
    return rc;
}

static int phases_run(void *options)
{
    const struct gp_load_options *o = options;
    struct gp_loaded loaded;
    int rc = gp_load(&loaded, o, 0);
    if (rc)
        return rc;
    rc = phases_print(o, &loaded.report);
    gp_load_free(&loaded);
    return rc;
}

static const struct gp_command_option phases_options[] = {GP_LOAD_OPTION_PID,
                                                          GP_LOAD_OPTION_DURATION,
                                                          GP_LOAD_OPTION_FROM(struct gp_load_options),
                                                          GP_LOAD_OPTION_TO(struct gp_load_options),
                                                          GP_LOAD_OPTION_STEP(struct gp_load_options),
                                                          GP_OPTION_JSON(struct gp_load_options, "gpuprof.phases/1"),
                                                          {0}};

const struct gp_command_spec gp_command_phases = {
    .name = "phases",
    .summary = "show what each phase of a program added and left behind",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("(FILE | -p PID [--duration=SECS]) [--from=WHEN] [--to=WHEN] [--step=NAME|TIME] [--json]"),
    .about = GP_LIST("Prints, for each NVTX range and for the time from one mark to the next, the highest number of "
                     "bytes that were allocated, how many the phase added, and how many it left behind, with the call "
                     "sites that did. A recording without marks is divided into the time before, in and after its "
                     "steps.",
                     "Also says what the memory is used for: weights, gradients, optimizer state, activations, KV "
                     "cache, graph memory, workspace, communication. This is concluded from lifetimes, sizes and "
                     "names, so each use has a reason and a number from 0 to 1 that says how sure it is; what nothing "
                     "tells is 'unknown'. docs/phases.md explains the numbers and the rules."),
    .options = phases_options,
    .examples = GP_EXAMPLES({"gpuprof phases serve.gpuprof", "Show where the memory of an engine's start went."},
                            {"gpuprof phases -p 1234 --duration 60", "Watch a running process for a minute."}),
    GP_LOAD_SPEC("phases", phases_run, true),
};
