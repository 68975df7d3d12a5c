/* SPDX-License-Identifier: MIT
 * report.c: `gpuprof report`: the summary of a recording, as text, JSON or an HTML page.  Called
 * by commands.c. */
#include <analyze/report.h>
#include <cmd/cmd.h>
#include <cmd/load.h>
#include <jansson.h>
#include <show/page/html.h>
#include <show/text/text.h>
#include <show/text/write.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int report_text(struct gp_loaded *loaded)
{
    struct gp_text_page page = gp_load_page();
    if (!gp_load_uses(loaded) || gp_report_run(&loaded->report, GP_REPORT_SUMMARY, GP_DETAIL_SUMMARY) != 0)
        return gp_memory_error("report");
    gp_text_summary(&page, &loaded->report);
    return GP_EXIT_OK;
}

/* Gives the page to the desktop's opener, as a double click on it does. */
static int report_open(const char *page)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        char name[PATH_MAX];
        /* Where there is no browser it names each one that it has looked for. */
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null >= 0)
            dup2(null, STDERR_FILENO);
        snprintf(name, sizeof(name), "%s%s", page[0] == '-' ? "./" : "", page);
        execlp("xdg-open", "xdg-open", name, (char *)NULL);
        _exit(GP_EXIT_NOT_FOUND);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return GP_EXIT_OK;
    gp_error("report", "%s: is written, and nothing opened it: %s", page,
             WIFEXITED(status) && WEXITSTATUS(status) == GP_EXIT_NOT_FOUND
                 ? "xdg-open is not installed: open it in a browser"
                 : "xdg-open found no browser: open it in one");
    return GP_EXIT_FAILED;
}

static int report_page(const struct gp_load_options *o, json_t *document)
{
    char why[256] = "";
    int rc = gp_html_report(o->output, document, why, sizeof(why));
    if (rc == 0 && o->open)
        return report_open(o->output);
    if (rc == 0 && strcmp(o->output, "-") != 0)
        fprintf(stderr, "gpuprof: report: %s: written; open it in a browser\n", o->output);
    if (rc == 0)
        return GP_EXIT_OK;
    if (rc == -EPIPE)
        return gp_write_error("report", o->output, EPIPE);
    gp_error("report", "%s", why[0] ? why : strerror(-rc));
    return GP_EXIT_FAILED;
}

static int report_json_write(FILE *out, const void *document)
{
    return gp_json_print(out, json_incref((json_t *)(uintptr_t)document), false);
}

/* Writes the JSON to the file of -o, or prints it. */
static int report_json(const struct gp_load_options *o, json_t *document)
{
    if (!o->output || strcmp(o->output, "-") == 0)
        return gp_load_json("report", document);
    int rc = gp_output_write(o->output, report_json_write, document);
    json_decref(document);
    return rc ? gp_write_error("report", o->output, -rc) : GP_EXIT_OK;
}

/* False: out of memory. */
static bool report_dryrun(const struct gp_load_options *o, json_t *document)
{
    return !o->dryrun || json_object_set(document, "dryrun", o->dryrun) == 0;
}

static int report_made(const struct gp_load_options *o, struct gp_loaded *loaded)
{
    if (!o->output && !o->json)
        return report_text(loaded);
    bool ran = gp_load_uses(loaded) && gp_report_run(&loaded->report, GP_REPORT_DOCUMENT, GP_DETAIL_PLOT) == 0;
    json_t *document = ran ? gp_report_document(&loaded->report) : NULL;
    if (!document || !report_dryrun(o, document)) {
        json_decref(document);
        return gp_memory_error("report");
    }
    if (o->json)
        return report_json(o, document);
    int rc = report_page(o, document);
    json_decref(document);
    return rc;
}

static int report_ranks(const struct gp_load_options *o)
{
    struct gp_rank_set set;
    int rc = gp_rank_set_load(&set, o);
    if (!rc && !o->output && !o->json) {
        struct gp_text_page page = gp_load_page();
        gp_ranks_text(&page, set.all);
    } else if (!rc) {
        json_t *document = gp_ranks_json(set.all);
        if (document && !report_dryrun(o, document)) {
            json_decref(document);
            document = NULL;
        }
        rc = !document ? gp_memory_error("report") : o->json ? report_json(o, document) : report_page(o, document);
        if (!o->json)
            json_decref(document);
    }
    if (!rc && set.left_count) {
        gp_error("report", "%u of %u recordings left out, as said above", set.left_count, set.left_count + set.count);
        rc = GP_EXIT_FAILED;
    }
    gp_rank_set_free(&set);
    return rc;
}

static int report_files(const struct gp_load_options *o)
{
    struct gp_loaded loaded;
    if (o->more && o->more[0])
        return report_ranks(o);
    int rc = gp_load(&loaded, o, 0);
    if (!rc) {
        rc = report_made(o, &loaded);
        gp_load_free(&loaded);
    }
    return rc;
}

int gp_report_write(const struct gp_load_options *o)
{
    struct gp_load_options of = *o;
    char **files = NULL;
    int rc = gp_output_check("report", "-o ", o->output, o->force);
    if (!rc && !(o->more && o->more[0]))
        rc = gp_rank_files("report", o->files[0], &files);
    if (files) {
        of.files[0] = files[0];
        of.more = files + 1;
        of.listed = true;
    }
    if (!rc)
        rc = report_files(&of);
    gp_rank_files_free(files);
    return rc;
}

/* The name of a page that says that it is something else misleads whoever opens it. */
static int report_check(void *options)
{
    static const char *const others[] = {".pdf", ".png", ".svg", ".json", ".txt", ".csv"};
    const struct gp_load_options *o = options;
    size_t length = o->output ? strlen(o->output) : 0;
    for (size_t i = 0; !o->json && i < GP_COUNT(others); i++)
        if (length > strlen(others[i]) && strcmp(o->output + length - strlen(others[i]), others[i]) == 0)
            return gp_usage_error("report", "-o %s: the page is HTML: name it x.html%s", o->output,
                                  i == 3 ? ", or add --json" : "");
    if (o->open && (o->json || !o->output || strcmp(o->output, "-") == 0))
        return gp_usage_error("report", "--open: shows a page: name it with -o");
    return gp_load_check(options);
}

static int report_run(void *options)
{
    return gp_report_write(options);
}

static const struct gp_command_option report_options[] = {
    GP_OPTION(struct gp_load_options, output, 'o', "output", "FILE", GP_ARG_FILE,
              "write one self-contained HTML page, or with --json the JSON; '-' is standard output"),
    GP_FLAG(struct gp_load_options, open, 0, "open", "open the page in a browser, by xdg-open"),
    GP_LOAD_OPTION_STEP(struct gp_load_options),
    GP_LOAD_OPTION_FROM(struct gp_load_options),
    GP_LOAD_OPTION_TO(struct gp_load_options),
    GP_LOAD_OPTION_SYMFS(struct gp_load_options),
    GP_FLAG(struct gp_load_options, json, 0, "json",
            "print everything that the page shows as JSON, schema gpuprof.report/1 (of several files gpuprof.ranks/1)"),
    GP_OPTION_FORCE(struct gp_load_options),
    {0}};

static const struct gp_command_option report_operands[] = {
    GP_OPERAND(struct gp_load_options, files[0], "FILE", GP_ARG_RECORDING, GP_LOAD_READS),
    GP_OPERAND(struct gp_load_options, more, "FILES", GP_ARG_RECORDINGS,
               "the recordings of the other ranks of the job: the report then compares them. A folder in place of FILE "
               "stands for the recordings in it (*.gpuprof)"),
    {0}};

const struct gp_command_spec gp_command_report = {
    .name = "report",
    .summary = "summarise a recording, or write it as an HTML page",
    .group = GP_GROUP_RECORD,
    .usage = GP_LIST("FILE [FILES..] [--json] [-o OUT [--open] [--force]] [--step=NAME|TIME] [--from=WHEN] [--to=WHEN] "
                     "[--symfs=DIR]"),
    .about =
        GP_LIST("Prints how much memory a recorded program held, when it held most, which call sites held it "
                "then, which call sites hold more with every step, and how much of the reserved memory was used.",
                "With several recordings, it compares the ranks of a job: the worst first, how far they lie apart over "
                "time, and what the worst holds that the median does not."),
    .options = report_options,
    .operands = report_operands,
    .examples = GP_EXAMPLES({"gpuprof report train.gpuprof", "Print the summary."},
                            {"gpuprof report train.gpuprof --from 2s --to 2.5s", "Summarise half a second of it."},
                            {"gpuprof report train.gpuprof -o report.html", "Write the page for a browser."},
                            {"gpuprof report run.*.gpuprof -o ranks.html", "Compare the ranks of a job on one page."},
                            {"gpuprof report job/", "Compare the ranks whose recordings are in a folder."}),
    GP_DEFAULTS(struct gp_load_options, .target = GP_TARGET_INIT("report"), .file_count = 1),
    .check = report_check,
    .run = report_run,
};
