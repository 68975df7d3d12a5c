/* SPDX-License-Identifier: MIT
 * check.c: `gpuprof check`: whether a recorded program is within its budgets.  `run` asks the same.  Called
 * by commands.c. */
#include <cmd/load.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct gp_check_options {
    struct gp_load_options load; /* first: gp_load_check takes it */
    struct gp_budget_options budget;
};

int gp_budget_options_read(const char *command, const struct gp_budget_options *o, struct gp_budgets *budgets)
{
    char why[256] = "";
    *budgets = (struct gp_budgets){0};
    const struct gp_budget peak = {
        .kind = GP_BUDGET_PEAK, .name = (char *)"", .bytes = o->most.bytes, .percent = o->most.percent};
    if (o->most.given && !gp_budgets_add(budgets, &peak))
        return gp_memory_error(command);
    int rc = o->file ? gp_budgets_read(budgets, o->file, why, sizeof(why)) : 0;
    if (rc == -EPROTO)
        return gp_usage_error(command, "--budgets=%s: %s", o->file, why);
    if (rc)
        gp_error(command, "--budgets=%s: cannot be read: %s", o->file, strerror(-rc));
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}

static int check_loaded(const char *command, struct gp_loaded *loaded, struct gp_budgets *budgets,
                        struct gp_findings *gate)
{
    gp_load_warn(command, loaded->report.file, loaded->recording);
    uint32_t first = gate->count;
    if (!gp_budgets_judge(gate, &loaded->report, budgets))
        return gp_memory_error(command);
    /* A recording without memory of a GPU has nothing to be over. */
    if (gate->count == first && budgets->count)
        gp_error(command, "%s: nothing in it has a budget", loaded->report.file);
    return GP_EXIT_OK;
}

static int check_file(const struct gp_load_options *o, const char *path, struct gp_budgets *budgets,
                      struct gp_findings *gate)
{
    struct gp_load_options one = *o;
    struct gp_loaded loaded;
    one.files[0] = path;
    int rc = gp_load(&loaded, &one, 0);
    if (rc)
        return rc;
    rc = check_loaded(o->target.command, &loaded, budgets, gate);
    gp_load_free(&loaded);
    return rc;
}

int gp_check_file(const char *command, const char *path, struct gp_budgets *budgets, struct gp_findings *gate)
{
    const struct gp_load_options o = {
        .target = GP_TARGET_INIT(command), .file_count = 1, .sites = true, .older_seconds = -1, .error_exitcode = -1};
    return check_file(&o, path, budgets, gate);
}

static int check_check(void *options)
{
    const struct gp_check_options *o = options;
    int rc = gp_load_check(options);
    if (!rc && !o->budget.most.given && !o->budget.file)
        rc = gp_usage_error("check", "a budget is needed: --budget=SIZE, or a file of them with --budgets=FILE");
    return rc;
}

static int check_run(void *options)
{
    const struct gp_check_options *o = options;
    struct gp_budgets budgets;
    struct gp_findings gate = {0};
    int rc = gp_budget_options_read("check", &o->budget, &budgets);
    if (!rc)
        rc = gp_output_check("check", "--junit=", o->budget.junit, o->load.force);
    if (!rc)
        rc = check_file(&o->load, o->load.files[0], &budgets, &gate);
    for (size_t i = 0; !rc && o->load.more && o->load.more[i]; i++)
        rc = check_file(&o->load, o->load.more[i], &budgets, &gate);
    gp_budgets_unmatched(&gate, &budgets);
    if (!rc && o->load.json)
        rc = gp_load_json("check", gp_gate_json(&gate, "gpuprof.check/1"));
    if (!rc)
        rc = gp_gate_end("check", &gate, o->load.json ? NULL : stdout, o->budget.junit, (int)o->load.error_exitcode);
    gp_gate_free(&gate);
    gp_budgets_free(&budgets);
    return rc;
}

static const struct gp_command_option check_options[] = {
    GP_OPTION_BUDGET(struct gp_check_options, budget),
    GP_OPTION_BUDGETS(struct gp_check_options, budget),
    GP_OPTION(struct gp_check_options, load.step, 0, "step", "NAME|TIME", GP_ARG_TEXT,
              "what a step is: the name of a mark or of an NVTX range, or a duration such as 350ms"),
    GP_OPTION_JUNIT(struct gp_check_options, budget),
    GP_OPTION(struct gp_check_options, load.force, 0, "force", NULL, GP_ARG_FLAG, GP_OUTPUT_FORCE),
    GP_OPTION(struct gp_check_options, load.error_exitcode, 0, "error-exitcode", "N", GP_ARG_NUMBER,
              "exit status if a budget is broken (default 3)", .high = 255),
    GP_OPTION(struct gp_check_options, load.json, 0, "json", NULL, GP_ARG_FLAG, "print JSON, schema gpuprof.check/1"),
    {0}};

static const struct gp_command_option check_operands[] = {
    GP_OPERAND(struct gp_check_options, load.files[0], "FILE", GP_ARG_RECORDING, GP_LOAD_READS),
    GP_OPERAND(struct gp_check_options, load.more, "FILES", GP_ARG_RECORDINGS, "the recordings of other ranks"),
    {0}};

const struct gp_command_spec gp_command_check = {
    .name = "check",
    .summary = "fail if a recorded program needs more memory than its budget",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("FILE.. (--budget=SIZE | --budgets=FILE) [--step=NAME|TIME] [--junit=FILE [--force]] "
                     "[--error-exitcode=N] [--json]"),
    .about = GP_LIST("Says in one sentence for each budget whether the recording is within it, and otherwise by how "
                     "much it is over, which line held the most and which one went over the budget first. The exit "
                     "status is 3 if a budget is broken, or if its line, operation, phase or rank is in none of the "
                     "recordings.",
                     "A file of budgets has one on each line: 'peak 20GiB', 'reserved 22GiB', 'end 8GiB', 'host "
                     "2GiB', 'leak 0B' (per step), 'rank 3 20GiB', 'use activations 6GiB', 'line model.py:32 2GiB', "
                     "'operation cross_entropy* 1GiB', 'phase forward 9GiB'. '#' begins a comment."),
    .details = GP_LIST("Where GITHUB_ACTIONS is 'true', each broken budget is also printed as an annotation of its "
                       "line. docs/gate.md describes the budgets and the outputs. 'gpuprof run --budget' asks the same "
                       "when the program has ended."),
    .options = check_options,
    .operands = check_operands,
    .examples =
        GP_EXAMPLES({"gpuprof check train.gpuprof --budget=20GiB", "Fail if the program needs more than 20 GiB."},
                    {"gpuprof check train.rank*.gpuprof --budgets=memory.budgets --junit=memory.xml",
                     "Hold all ranks, with a report for the test server."}),
    GP_DEFAULTS(struct gp_check_options, .load = {.target = GP_TARGET_INIT("check"),
                                                  .file_count = 1,
                                                  .sites = true,
                                                  .older_seconds = -1,
                                                  .error_exitcode = -1}),
    .check = check_check,
    .run = check_run,
};
