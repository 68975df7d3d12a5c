/* SPDX-License-Identifier: MIT
 *
 * analyses.c: `gpuprof peak`, `churn` and `fragmentation`: the commands that load a recording, run one
 * analysis and print its table or JSON.  Called by commands.c; the analyses are in tools/analyze.
 */
#include <cmd/load.h>
#include <show/text/text.h>

#define GP_ANALYSIS_OPTIONS(_schema)                                                                                   \
    ((const struct gp_command_option[]){                                                                               \
        GP_LOAD_OPTION_PID, GP_LOAD_OPTION_DURATION, GP_OPTION_JSON(struct gp_load_options, _schema), {0}})

static const struct gp_command_option churn_options[] = {GP_LOAD_OPTION_PID,
                                                         GP_LOAD_OPTION_DURATION,
                                                         GP_LOAD_OPTION_STEP(struct gp_load_options),
                                                         GP_LOAD_OPTION_SYMFS(struct gp_load_options),
                                                         GP_OPTION_JSON(struct gp_load_options, "gpuprof.churn/1"),
                                                         {0}};

static const struct gp_command_option peak_options[] = {GP_LOAD_OPTION_PID,
                                                        GP_LOAD_OPTION_DURATION,
                                                        GP_LOAD_OPTION_FROM(struct gp_load_options),
                                                        GP_LOAD_OPTION_TO(struct gp_load_options),
                                                        GP_LOAD_OPTION_SYMFS(struct gp_load_options),
                                                        GP_OPTION_JSON(struct gp_load_options, "gpuprof.peak/1"),
                                                        {0}};

static int peak_run(void *options)
{
    /* The growth decides what is "grows", as in the report. */
    return gp_load_run(options, GP_REPORT_PEAK | GP_REPORT_LEAKS, gp_report_peak_json, gp_text_peak);
}

static int churn_run(void *options)
{
    return gp_load_run(options, GP_REPORT_CHURN, gp_report_churn_json, gp_text_churn);
}

static int fragmentation_run(void *options)
{
    struct gp_load_options *o = options;
    unsigned parts = GP_REPORT_FRAGMENTATION | GP_REPORT_SERIES | (o->json ? GP_REPORT_HOLDERS : 0);
    o->nameless = !o->json;
    return gp_load_run(o, parts, gp_report_fragmentation_json, gp_text_fragmentation);
}

const struct gp_command_spec gp_command_peak = {
    .name = "peak",
    .summary = "show which call sites held the memory at its peak",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("(FILE | -p PID [--duration=SECS]) [--from=WHEN] [--to=WHEN] [--symfs=DIR] [--json]"),
    .about = GP_LIST("Prints, for each device, the moment at which most memory was allocated, and the call sites that "
                     "held it at that moment. docs/analyses.md explains the numbers."),
    .options = peak_options,
    .examples = GP_EXAMPLES(
        {"gpuprof peak train.gpuprof", "Show which code held the memory of a recorded program at its peak."}),
    GP_LOAD_SPEC("peak", peak_run, true),
};

const struct gp_command_spec gp_command_churn = {
    .name = "churn",
    .summary = "show what every step allocates and frees again",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("(FILE | -p PID [--duration=SECS]) [--step=NAME|TIME] [--symfs=DIR] [--json]"),
    .about = GP_LIST("Prints the call sites whose memory is freed within the step that allocated it. A cache would "
                     "save these allocations. docs/analyses.md explains the numbers."),
    .options = churn_options,
    .examples =
        GP_EXAMPLES({"gpuprof churn -p 1234 --duration 60", "Record a process for a minute, then show its churn."}),
    GP_LOAD_SPEC("churn", churn_run, true),
};

const struct gp_command_spec gp_command_fragmentation = {
    .name = "fragmentation",
    .summary = "show how much of the reserved memory is used",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LOAD_USAGE_LIVE,
    .about = GP_LIST("Prints over time which part of the reserved memory was in use, how the free memory is divided, "
                     "and what rounding costs. docs/analyses.md explains the numbers."),
    .options = GP_ANALYSIS_OPTIONS("gpuprof.fragmentation/1"),
    .examples = GP_EXAMPLES({"gpuprof fragmentation train.gpuprof --json", "Print the same numbers for a script."}),
    GP_LOAD_SPEC("fragmentation", fragmentation_run, false),
};
