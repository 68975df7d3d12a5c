/* SPDX-License-Identifier: MIT
 *
 * leaks.c: `gpuprof leaks`: call sites that hold more memory with every step.  Called by
 * commands.c.
 */
#include <cmd/load.h>
#include <show/text/text.h>

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
