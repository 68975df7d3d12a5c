/* SPDX-License-Identifier: MIT
 *
 * leaks.c: `gpuprof leaks`: call sites that hold more memory with every step, of one recording or of those of a job's
 * ranks.  Called by commands.c.
 */
#include <analyze/rankleaks.h>
#include <cmd/load.h>
#include <show/text/ranks.h>
#include <show/text/text.h>

static int leaks_one(const struct gp_load_options *o)
{
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

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* A step that no recording has is a mistake of the user's; one that some lack is said of those. */
static bool leaks_no_step(const struct gp_rank_set *set)
{
    uint32_t without = 0;
    for (uint32_t i = 0; i < set->count; i++)
        without += set->ranks[i].growth->no_step;
    return set->count && without == set->count;
}

/* The error about the step, which lists the names that the first recording has. */
static int leaks_names(const struct gp_load_options *options, const struct gp_rank_set *set)
{
    struct gp_load_options o = *options;
    struct gp_loaded loaded;
    o.files[0] = set->ranks[0].file;
    int rc = gp_load(&loaded, &o, 0);
    if (!rc) { /* the file has changed meanwhile */
        gp_load_free(&loaded);
        return gp_usage_error("leaks", "--step=%s: no recording had such a step", o.step);
    }
    gp_error("leaks", "%s is one of %u recordings, and none has such a step", set->ranks[0].file, set->count);
    return rc;
}

static int leaks_show(const struct gp_load_options *o, const struct gp_rank_leaks *leaks)
{
    struct gp_text_page page = gp_load_page();
    if (o->json)
        return gp_load_json("leaks", gp_rank_leaks_json(leaks));
    gp_rank_leaks_text(&page, leaks);
    return GP_EXIT_OK;
}

static int leaks_ranks(const struct gp_load_options *options)
{
    struct gp_load_options o = *options;
    struct gp_rank_set set;
    struct gp_rank_leaks *leaks = NULL;
    o.growth = true;
    int rc = gp_rank_set_read_job(&set, &o);
    if (!rc && leaks_no_step(&set))
        rc = leaks_names(&o, &set);
    if (!rc && !(leaks = gp_rank_leaks_find(set.ranks, set.count)))
        rc = gp_memory_error("leaks");
    if (!rc) {
        leaks->all.left = set.left;
        leaks->all.left_count = set.left_count;
        rc = leaks_show(&o, leaks);
    }
    if (!rc && set.left_count) {
        gp_error("leaks", "%u of %u recordings left out, as said above", set.left_count, set.left_count + set.count);
        rc = GP_EXIT_FAILED;
    }
    if (leaks && rc != GP_EXIT_USAGE && leaks->answers[GP_RANK_SUSPECTS] && o.error_exitcode >= 0)
        rc = (int)o.error_exitcode;
    gp_rank_leaks_free(leaks);
    gp_rank_set_free(&set);
    return rc;
}

static int leaks_run(void *options)
{
    struct gp_load_options o = *(const struct gp_load_options *)options;
    char **files = NULL;
    bool several = o.more && o.more[0];
    int rc = several || o.target.pid_count ? GP_EXIT_OK : gp_rank_files("leaks", o.files[0], &files);
    if (files) {
        o.files[0] = files[0];
        o.more = files + 1;
        o.listed = true;
    }
    if (!rc)
        rc = several || files ? leaks_ranks(&o) : leaks_one(&o);
    gp_rank_files_free(files);
    return rc;
}

static const struct gp_command_option leaks_options[] = {
    GP_LOAD_OPTION_PID,
    GP_LOAD_OPTION_DURATION,
    GP_OPTION(struct gp_load_options, older_seconds, 0, "older", "SECS", GP_ARG_NUMBER,
              "count only blocks that are at least this old at the end", .high = 1000000000),
    GP_LOAD_OPTION_STEP(struct gp_load_options),
    GP_LOAD_OPTION_SYMFS(struct gp_load_options),
    GP_FLAG(struct gp_load_options, json, 0, "json",
            "print JSON, schema gpuprof.leaks/1 (of several files gpuprof.leaks-ranks/1)"),
    GP_OPTION(struct gp_load_options, error_exitcode, 0, "error-exitcode", "N", GP_ARG_NUMBER,
              "exit status if there is a suspect (default 0)", .high = 255),
    {0}};

static const struct gp_command_option leaks_operands[] = {
    GP_OPERAND(struct gp_load_options, files[0], "FILE", GP_ARG_RECORDING, GP_LOAD_READS),
    GP_OPERAND(struct gp_load_options, more, "FILES", GP_ARG_RECORDINGS,
               "the recordings of the other ranks of the job: ranks that are alike are then one row. A folder in place "
               "of FILE stands for the recordings in it (*.gpuprof)"),
    {0}};

const struct gp_command_spec gp_command_leaks = {
    .name = "leaks",
    .summary = "find call sites that hold more memory with every step",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("(FILE [FILES..] | -p PID [--duration=SECS]) [--older=SECS] [--step=NAME|TIME] [--json] "
                     "[--error-exitcode=N] [--symfs=DIR]"),
    .about =
        GP_LIST("Lists the call sites that hold more memory with every step of the program, how fast they grow, "
                "and when the memory will run out. Steps are recurring marks, NVTX ranges, or a period that the "
                "events themselves show. A site that grows where they may be no steps (layers of one pass, say) is a "
                "candidate, with what it would mean. docs/analyses.md has the rules.",
                "With several recordings, it does so for each rank of a job: ranks that are alike are one row, and of "
                "the others it says what is unlike. docs/leaks.md explains the rows and the exit status."),
    .details = GP_LIST("With '-p' a running process is recorded first; ^C ends that early, and the analysis follows at "
                       "once. The same holds for 'peak', 'churn', 'fragmentation' and 'reconcile'."),
    .options = leaks_options,
    .operands = leaks_operands,
    .examples =
        GP_EXAMPLES({"gpuprof leaks train.gpuprof --step iteration", "Measure growth from one mark to the next."},
                    {"gpuprof leaks -p 1234 --duration 60", "Record a process for a minute and list what grows in it."},
                    {"gpuprof leaks test.gpuprof --error-exitcode 1", "Fail a test whose recording shows a leak."},
                    {"gpuprof leaks job/", "Say which ranks of a job leak, from the recordings in a folder."}),
    GP_DEFAULTS(struct gp_load_options, .target = GP_TARGET_INIT("leaks"), .file_count = 1, .live = true, .sites = true,
                .older_seconds = -1, .error_exitcode = -1),
    .check = gp_load_check,
    .run = leaks_run,
};
