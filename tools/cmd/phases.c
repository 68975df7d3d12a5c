/* SPDX-License-Identifier: MIT
 *
 * phases.c: `gpuprof phases`: what each phase of a program added, its peak, and what it left
 * behind.  Called by commands.c.
 */
#include <cmd/load.h>
#include <show/text/text.h>

static int phases_print(const struct gp_load_options *o, struct gp_report *report)
{
    struct gp_report_uses uses = {0};
    struct gp_text_page page = gp_load_page();
    int rc = GP_EXIT_OK;
    if (!gp_report_uses_find(report, &uses))
        rc = gp_memory_error("phases");
    else if (o->json)
        rc = gp_load_json("phases", gp_phases_json(report, uses.phases, uses.uses));
    else
        gp_text_phases(&page, report, uses.phases, uses.uses);
    gp_report_uses_free(&uses);
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
                                                          GP_LOAD_OPTION_SYMFS(struct gp_load_options),
                                                          GP_OPTION_JSON(struct gp_load_options, "gpuprof.phases/1"),
                                                          {0}};

const struct gp_command_spec gp_command_phases = {
    .name = "phases",
    .summary = "show what each phase of a program added and left behind",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST(
        "(FILE | -p PID [--duration=SECS]) [--from=WHEN] [--to=WHEN] [--step=NAME|TIME] [--symfs=DIR] [--json]"),
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
