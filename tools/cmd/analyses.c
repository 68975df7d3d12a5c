/* SPDX-License-Identifier: MIT
 *
 * analyses.c: `gpuprof peak`, `churn`, `fragmentation`, `leaks`, `phases` and `reconcile`: the
 * analyses that take a recording or a running process and print a table or JSON.  Called by
 * commands.c; the analyses are in tools/analyze.  Its parts: peak, churn and fragmentation, leaks,
 * phases, reconcile. */
#include <analyze/report.h>
#include <cmd/load.h>
#include <jansson.h>
#include <read/collect/collect.h>
#include <show/gate/gate.h>
#include <show/text/text.h>
#include <show/text/write.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- peak, churn and fragmentation ------------------------------------------------------------------------------- */

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
    return gp_load_run(options, GP_REPORT_PEAK, gp_report_peak_json, gp_text_peak);
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

/* ---- leaks ------------------------------------------------------------------------------------------------------- */
/* `gpuprof leaks`: call sites that hold more memory with every step.  Called by commands.c. */

static int leaks_run(void *options)
{
    const struct gp_load_options *o = options;
    struct gp_loaded loaded;
    int rc = gp_load(&loaded, o, 0);
    if (rc)
        return rc;
    struct gp_report *report = &loaded.report;
    struct gp_text_page page = gp_load_page();
    report->older_ns = o->older_seconds > 0 ? (uint64_t)o->older_seconds * 1000000000ull : 0;
    if (gp_report_run(report, GP_REPORT_LEAKS, GP_DETAIL_TABLE) != 0)
        rc = gp_memory_error("leaks");
    else if (o->json)
        rc = gp_load_json("leaks", gp_report_leaks_json(report));
    else
        gp_text_leaks(&page, report);
    if (!rc && report->leaks->count && o->error_exitcode >= 0)
        rc = (int)o->error_exitcode;
    gp_load_free(&loaded);
    return rc;
}

static const struct gp_command_option leaks_options[] = {
    GP_LOAD_OPTION_PID,
    GP_LOAD_OPTION_DURATION,
    GP_OPTION(struct gp_load_options, older_seconds, 0, "older", "SECS", GP_ARG_NUMBER,
              "count only blocks that are at least this old at the end", .high = 1000000000),
    GP_LOAD_OPTION_STEP(struct gp_load_options),
    GP_LOAD_OPTION_SYMFS(struct gp_load_options),
    GP_OPTION_JSON(struct gp_load_options, "gpuprof.leaks/1"),
    GP_OPTION(struct gp_load_options, error_exitcode, 0, "error-exitcode", "N", GP_ARG_NUMBER,
              "exit status if there is a suspect (default 0)", .high = 255),
    {0}};

const struct gp_command_spec gp_command_leaks = {
    .name = "leaks",
    .summary = "find call sites that hold more memory with every step",
    .group = GP_GROUP_ANALYSE,
    .usage =
        GP_LIST("(FILE | -p PID [--duration=SECS]) [--older=SECS] [--step=NAME|TIME] [--json] [--error-exitcode=N] "
                "[--symfs=DIR]"),
    .about =
        GP_LIST("Lists the call sites that hold more memory with every step of the program, how fast they grow, "
                "and when the memory will run out. Steps are recurring marks, NVTX ranges, or a period that the "
                "events themselves show. A site that grows where they may be no steps (layers of one pass, say) is a "
                "candidate, with what it would mean. docs/analyses.md has the rules."),
    .details = GP_LIST("With '-p' a running process is recorded first; ^C ends that early, and the analysis follows at "
                       "once. The same holds for 'peak', 'churn', 'fragmentation' and 'reconcile'."),
    .options = leaks_options,
    .examples =
        GP_EXAMPLES({"gpuprof leaks train.gpuprof --step iteration", "Measure growth from one mark to the next."},
                    {"gpuprof leaks -p 1234 --duration 60", "Record a process for a minute and list what grows in it."},
                    {"gpuprof leaks test.gpuprof --error-exitcode 1", "Fail a test whose recording shows a leak."}),
    GP_LOAD_SPEC("leaks", leaks_run, true),
};

/* ---- phases ------------------------------------------------------------------------------------------------------ */
/* `gpuprof phases`: what each phase of a program added, its peak, and what it left behind. Called by
 * commands.c. */

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

/* ---- reconcile --------------------------------------------------------------------------------------------------- */
/* `gpuprof reconcile`: what a process holds, compared with what NVML reports. A recording has the
 * kinds of memory; a running process is also asked for its owners. Called by commands.c. */

/* The process as it is after the recording. NULL: it has ended, or does not answer. */
static struct gp_system *reconcile_live(const struct gp_load_options *o)
{
    struct gp_system *system = NULL;
    struct gp_collect_options collect = {.pids = o->target.pids, .pid_count = 1, .exact = true, .with_nvml = true};
    if (o->target.pid_count == 0 || gp_collect(&collect, &system) != 0)
        return NULL;
    bool usable = system->process_count == 1 && system->processes[0].state == GP_PROCESS_LIVE;
    if (!usable)
        gp_system_free(system);
    return usable ? system : NULL;
}

static const struct gp_device_view *reconcile_device(const struct gp_system *system, int index)
{
    const struct gp_process *process = system ? &system->processes[0] : NULL;
    for (int i = 0; process && i < process->device_count; i++) {
        if (process->devices[i].index == index)
            return &process->devices[i];
    }
    return NULL;
}

static int reconcile_json(const struct gp_loaded *loaded, const struct gp_system *system)
{
    json_t *object = gp_report_reconcile_json(&loaded->report), *devices = json_object_get(object, "devices");
    for (uint32_t d = 0; object && d < loaded->recording->device_count; d++) {
        const struct gp_device_view *device = reconcile_device(system, (int)loaded->recording->devices[d].index);
        json_t *now = device ? gp_owner_bill_json(&system->processes[0], device) : json_null();
        if (json_object_set_new(json_array_get(devices, d), "now", now) == 0)
            continue;
        json_decref(object);
        object = NULL;
    }
    return gp_load_json(loaded->command, object);
}

static int reconcile_run(void *options)
{
    struct gp_load_options *o = options;
    struct gp_loaded loaded;
    o->nameless = true;
    int rc = gp_load(&loaded, o, 0);
    if (rc)
        return rc;
    struct gp_system *system = reconcile_live(o);
    struct gp_text_page page = gp_load_page();
    if (gp_report_run(&loaded.report, GP_REPORT_BILL | (o->json ? GP_REPORT_HELD : 0),
                      o->json ? GP_DETAIL_PLOT : GP_DETAIL_TABLE) != 0) {
        rc = gp_memory_error(loaded.command);
    } else if (o->json) {
        rc = reconcile_json(&loaded, system);
    } else {
        gp_text_reconcile(&page, &loaded.report);
        for (int i = 0; system && i < system->processes[0].device_count; i++)
            gp_owner_bill_print(stdout, &system->processes[0], &system->processes[0].devices[i]);
    }
    gp_system_free(system);
    gp_load_free(&loaded);
    return rc;
}

const struct gp_command_spec gp_command_reconcile = {
    .name = "reconcile",
    .summary = "compare the counted memory with what NVML reports",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LOAD_USAGE_LIVE,
    .about = GP_LIST("Prints everything that the process is known to hold on each device, and how much more NVML "
                     "reports for it. docs/analyses.md explains the numbers.",
                     "For a running process a second table says which library holds what: the blocks and the cache of "
                     "PyTorch, NCCL, cuBLAS, the program itself, and the rest of what nvidia-smi shows."),
    .options = (const struct gp_command_option[]){GP_LOAD_OPTION_PID,
                                                  GP_LOAD_OPTION_DURATION,
                                                  GP_OPTION_JSON(struct gp_load_options, "gpuprof.reconcile/1"),
                                                  {0}},
    .examples = GP_EXAMPLES(
        {"gpuprof reconcile -p 1234", "Record a process for 10 seconds and explain its memory in nvidia-smi."}),
    GP_LOAD_SPEC("reconcile", reconcile_run, false),
};
