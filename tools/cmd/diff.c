/* SPDX-License-Identifier: MIT
 * diff.c: `gpuprof diff`: two recordings of one program, call site by call site, or those of all ranks
 * of two runs of a job.  Called by commands.c. */
#include <analyze/ranks.h>
#include <cmd/load.h>
#include <show/gate/growth.h>
#include <show/text/ranks.h>
#include <show/text/write.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The first member is what gp_load_check and gp_load take. */
struct gp_diff_options {
    struct gp_load_options load;
    int by; /* enum gp_gate_by */
    struct gp_gate_growth growth;
    const char *junit;
};

static bool diff_is_asked(const struct gp_diff_options *o)
{
    return o->growth.given || o->load.error_exitcode >= 0;
}

/* Without --max-growth nothing may grow. */
static void diff_judge(const struct gp_diff_options *o, const struct gp_report *const reports[2],
                       const struct gp_gate_changes *changes, struct gp_findings *gate)
{
    static const struct gp_gate_growth none = {.given = true};
    gp_gate_judge_growth(gate, reports, changes, o->growth.given ? &o->growth : &none);
}

static json_t *diff_json(const struct gp_gate_changes *changes, const struct gp_report *const reports[2])
{
    json_t *object = changes->diff && changes->by == GP_GATE_SITE
                         ? gp_diff_json(changes->diff, reports)
                         : json_pack("{s:s,s:o}", "schema", "gpuprof.diff/1", "rows", gp_gate_changes_json(changes));
    if (object) {
        json_object_set_new(object, "by", json_string(gp_gate_by_name(changes->by)));
        json_object_set_new(object, "note", gp_json_text(changes->why));
    }
    return object;
}

static void diff_text(const struct gp_diff_options *o, const struct gp_gate_changes *changes,
                      const struct gp_report *const reports[2])
{
    struct gp_text_page page = gp_load_page();
    page.named = true;
    gp_text_warnings(&page, reports[0]);
    gp_text_warnings(&page, reports[1]);
    if (changes->by == GP_GATE_SITE)
        gp_text_diff(&page, changes->diff, reports, o->load.callers);
    else
        gp_gate_changes_print(page.out, changes);
    if (changes->why[0])
        printf("note: %s\n", changes->why);
}

/* extra: what the JSON also has, which this takes over; NULL: nothing.  gate: takes the findings, NULL
 * without a question.  shown: prints the comparison, with the findings if this is all of it. */
static int diff_pair(struct gp_loaded loaded[2], const struct gp_diff_options *o, json_t *extra,
                     struct gp_findings *gate, bool shown)
{
    const struct gp_report *const reports[2] = {&loaded[0].report, &loaded[1].report};
    struct gp_gate_changes changes = {.why = ""};
    struct gp_report_uses uses[2] = {{0}, {0}};
    const struct gp_report_uses *const both[2] = {&uses[0], &uses[1]};
    bool ok = o->by != GP_GATE_USE ||
              (gp_report_uses_find(&loaded[0].report, &uses[0]) && gp_report_uses_find(&loaded[1].report, &uses[1]));
    ok = ok && gp_gate_compare(reports, (enum gp_gate_by)o->by, both, &changes);
    if (ok && gate)
        diff_judge(o, reports, &changes, gate);
    int rc = ok && (!gate || !gate->failed) ? GP_EXIT_OK : gp_memory_error("diff");
    if (!rc && shown && o->load.json) {
        json_t *document = diff_json(&changes, reports);
        if (document && extra)
            json_object_update(document, extra);
        if (document && gate)
            json_object_set_new(document, "verdict", gp_gate_json(gate, "gpuprof.check/1"));
        rc = gp_load_json("diff", document);
    } else if (!rc && shown) {
        diff_text(o, &changes, reports);
    }
    json_decref(extra);
    gp_gate_changes_free(&changes);
    gp_report_uses_free(&uses[0]);
    gp_report_uses_free(&uses[1]);
    return rc;
}

static int diff_two(const struct gp_diff_options *o, json_t *extra, struct gp_findings *gate, bool shown)
{
    struct gp_loaded loaded[2];
    int rc = gp_load(&loaded[0], &o->load, 0);
    if (rc) {
        json_decref(extra);
        return rc;
    }
    rc = gp_load(&loaded[1], &o->load, 1);
    if (!rc) {
        rc = diff_pair(loaded, o, extra, gate, shown);
        gp_load_free(&loaded[1]);
    } else {
        json_decref(extra);
    }
    gp_load_free(&loaded[0]);
    return rc;
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* The recording of the same rank behind the i-th: the run after.  NULL: there is none, or i is that one. */
static const struct gp_job_rank *diff_after(const struct gp_rank_set *set, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (set->ranks[k].number == set->ranks[i].number)
            return NULL;
    for (uint32_t k = i + 1; k < set->count; k++)
        if (set->ranks[k].number == set->ranks[i].number)
            return &set->ranks[k];
    return NULL;
}

static int diff_ranks_check(const struct gp_rank_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t same = 0;
        for (uint32_t k = 0; k < set->count; k++)
            same += set->ranks[k].number == set->ranks[i].number;
        if (same != 2)
            return gp_usage_error(
                "diff",
                "%s: rank %d has %u recording%s: of more than two files, each rank needs one of the "
                "run before and one of the run after ('gpuprof report' compares the ranks of one run)",
                set->ranks[i].file, set->ranks[i].number, same, same == 1 ? "" : "s");
    }
    return GP_EXIT_OK;
}

static json_t *diff_ranks_json(const struct gp_rank_set *set, int32_t shown)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < set->count; i++) {
        const struct gp_job_rank *before = &set->ranks[i], *after = diff_after(set, i);
        if (after)
            json_array_append_new(rows, json_pack("{s:i,s:I,s:I,s:I,s:I}", "rank", before->number, "peak_bytes_before",
                                                  (json_int_t)before->peak_bytes, "peak_bytes_after",
                                                  (json_int_t)after->peak_bytes, "end_bytes_before",
                                                  (json_int_t)before->end_bytes, "end_bytes_after",
                                                  (json_int_t)after->end_bytes));
    }
    return json_pack("{s:i,s:o}", "rank", shown, "ranks", rows);
}

static const char *diff_change(char text[GP_SIZE_TEXT], int64_t bytes)
{
    char size[GP_SIZE_TEXT];
    snprintf(text, GP_SIZE_TEXT, "%c%.20s", bytes < 0 ? '-' : '+', gp_size_text(size, bytes < 0 ? -bytes : bytes));
    return text;
}

#define DIFF_CELLS 128u

static void diff_ranks_cells(char cells[DIFF_CELLS], const struct gp_job_rank *before, const struct gp_job_rank *after)
{
    char one[GP_SIZE_TEXT], two[GP_SIZE_TEXT], change[GP_SIZE_TEXT], end[GP_SIZE_TEXT];
    snprintf(cells, DIFF_CELLS, "%11s %11s %11s %12s", gp_size_text(one, before->peak_bytes),
             gp_size_text(two, after->peak_bytes), diff_change(change, after->peak_bytes - before->peak_bytes),
             diff_change(end, after->end_bytes - before->end_bytes));
}

/* Prints the i-th rank with all later ones of the same printed sizes, which it marks as done. */
static void diff_ranks_row(const struct gp_rank_set *set, uint32_t i, bool *done, int32_t *numbers)
{
    char cells[DIFF_CELLS], other[DIFF_CELLS], text[GP_RANKS_NUMBERS + 1];
    uint32_t count = 0;
    diff_ranks_cells(cells, &set->ranks[i], diff_after(set, i));
    for (uint32_t k = i; k < set->count; k++) {
        const struct gp_job_rank *after = done[k] ? NULL : diff_after(set, k);
        if (!after)
            continue;
        diff_ranks_cells(other, &set->ranks[k], after);
        if (strcmp(cells, other) != 0)
            continue;
        numbers[count++] = set->ranks[k].number;
        done[k] = true;
    }
    gp_rank_numbers(text, numbers, count);
    printf("  %*s %s\n", (int)GP_RANKS_NUMBERS, text, cells);
}

/* False: out of memory. */
static bool diff_ranks_print(const struct gp_rank_set *set, int32_t shown)
{
    bool *done = calloc(set->count + 1ul, sizeof(*done));
    int32_t *numbers = calloc(set->count + 1ul, sizeof(*numbers));
    bool ok = done && numbers;
    printf("  %*s %11s %11s %11s %12s\n", (int)GP_RANKS_NUMBERS, "RANK", "PEAK BEFORE", "PEAK AFTER", "CHANGE",
           "END, CHANGE");
    for (uint32_t i = 0; ok && i < set->count; i++)
        if (!done[i] && diff_after(set, i))
            diff_ranks_row(set, i, done, numbers);
    printf("\nrank %d, whose peak changed most:\n", shown);
    free(done);
    free(numbers);
    return ok;
}

/* The findings of all ranks but the one that is shown: that one comes last, with its comparison. */
static int diff_ranks_judge(const struct gp_rank_set *set, const struct gp_diff_options *o, int32_t shown,
                            struct gp_findings *gate)
{
    int rc = GP_EXIT_OK;
    for (uint32_t i = 0; !rc && gate && i < set->count; i++) {
        const struct gp_job_rank *before = &set->ranks[i], *after = diff_after(set, i);
        struct gp_diff_options two = *o;
        if (!after || before->number == shown)
            continue;
        two.load.files[0] = before->file;
        two.load.files[1] = after->file;
        uint32_t first = gate->count;
        rc = diff_two(&two, NULL, gate, false);
        for (; first < gate->count; first++)
            gate->findings[first].rank = before->number;
    }
    return rc;
}

static int diff_ranks(const struct gp_diff_options *options, struct gp_findings *gate)
{
    const struct gp_load_options *o = &options->load;
    struct gp_load_options all = *o;
    struct gp_diff_options two = *options;
    struct gp_rank_set set = {0};
    size_t more = 0;
    while (o->more[more])
        more++;
    char **files = calloc(more + 2, sizeof(*files));
    if (!files)
        return gp_memory_error("diff");
    files[0] = (char *)(uintptr_t)o->files[1];
    memcpy(files + 1, o->more, more * sizeof(*files));
    all.more = files;
    int rc = gp_rank_set_read(&set, &all);
    if (!rc && set.left_count) /* each has been named */
        rc = GP_EXIT_FAILED;
    if (!rc)
        rc = diff_ranks_check(&set);
    int64_t most = -1;
    int32_t shown = 0;
    for (uint32_t i = 0; !rc && i < set.count; i++) {
        const struct gp_job_rank *before = &set.ranks[i], *after = diff_after(&set, i);
        if (!after || llabs(after->peak_bytes - before->peak_bytes) <= most)
            continue;
        most = llabs(after->peak_bytes - before->peak_bytes);
        shown = before->number;
        two.load.files[0] = before->file;
        two.load.files[1] = after->file;
    }
    if (!rc && !o->json && !diff_ranks_print(&set, shown))
        rc = gp_memory_error("diff");
    if (!rc)
        rc = diff_ranks_judge(&set, options, shown, gate);
    if (!rc)
        rc = diff_two(&two, o->json ? diff_ranks_json(&set, shown) : NULL, gate, true);
    gp_rank_set_free(&set);
    free(files);
    return rc;
}

/* The files of two folders as those of two runs; free with gp_rank_files_free.  NULL: they are no folders. */
static int diff_folders(struct gp_diff_options *o, char ***all)
{
    char **parts[2] = {NULL, NULL};
    size_t count[2] = {0, 0};
    int rc = o->load.more && o->load.more[0] ? GP_EXIT_OK : gp_rank_files("diff", o->load.files[0], &parts[0]);
    if (!rc && parts[0])
        rc = gp_rank_files("diff", o->load.files[1], &parts[1]);
    if (!rc && parts[0] && !parts[1])
        rc = gp_usage_error("diff", "%s is a folder and %s is not: name two folders, or two recordings",
                            o->load.files[0], o->load.files[1]);
    for (int side = 0; side < 2; side++)
        while (parts[side] && parts[side][count[side]])
            count[side]++;
    *all = !rc && parts[0] ? realloc(parts[0], (count[0] + count[1] + 1) * sizeof(**all)) : NULL;
    if (*all) {
        memcpy(*all + count[0], parts[1], (count[1] + 1) * sizeof(**all));
        o->load.files[0] = (*all)[0];
        o->load.files[1] = (*all)[1];
        o->load.more = *all + 2;
        o->load.listed = true;
        free(parts[1]);
        return GP_EXIT_OK;
    }
    if (!rc && parts[0])
        rc = gp_memory_error("diff");
    gp_rank_files_free(parts[0]);
    gp_rank_files_free(parts[1]);
    return rc;
}

static int diff_compare(const struct gp_diff_options *given, struct gp_findings *asked)
{
    struct gp_diff_options o = *given;
    char **files = NULL;
    int rc = diff_folders(&o, &files);
    if (!rc)
        rc = o.load.more && o.load.more[0] ? diff_ranks(&o, asked) : diff_two(&o, NULL, asked, true);
    gp_rank_files_free(files);
    return rc;
}

static int diff_run(void *options)
{
    const struct gp_diff_options *o = options;
    struct gp_findings gate = {0}, *asked = diff_is_asked(o) ? &gate : NULL;
    if (gp_output_check("diff", "--junit=", o->junit, o->load.force))
        return GP_EXIT_FAILED;
    int rc = diff_compare(o, asked);
    if (!rc && asked)
        rc = gp_gate_end("diff", &gate, o->load.json ? NULL : stdout, o->junit, (int)o->load.error_exitcode);
    gp_gate_free(&gate);
    return rc;
}

static int diff_parse_growth(void *options, const struct gp_command_option *option, const char *text)
{
    struct gp_diff_options *o = options;
    char why[GP_TEXT_WHY];
    int rc = gp_gate_growth_parse(text, &o->growth);
    if (!rc)
        return GP_EXIT_OK;
    if (rc == -EDOM)
        return gp_usage_error("diff", "--%s=%s: %s", option->name, text, gp_text_size_why(why, text));
    return gp_usage_error("diff", "--%s=%s: %s", option->name, text,
                          rc == -ERANGE ? "too large" : "neither a size such as 10MiB nor a percentage such as 5%");
}

static const struct gp_command_option diff_options[] = {
    GP_FLAG(struct gp_diff_options, load.callers, 0, "callers", "print the callers of each site below it"),
    GP_OPTION(struct gp_diff_options, by, 0, "by", "WHAT", GP_ARG_INDEX,
              "what a row is: a call site with its callers, a line of code, an operation of a framework, or what the "
              "memory is used for (default site)",
              .choice = gp_gate_by_name),
    GP_OPTION(struct gp_diff_options, growth, 0, "max-growth", "SIZE|PERCENT", GP_ARG_TEXT,
              "fail if the peak of a device grew by more: 10MiB, or 5% of the peak before. With --by=line, operation "
              "or use, also if one row did",
              .parse = diff_parse_growth),
    GP_OPTION(struct gp_diff_options, load.error_exitcode, 0, "error-exitcode", "N", GP_ARG_NUMBER,
              "exit status then (default 3); without --max-growth, if anything grew", .high = 255),
    GP_OPTION(struct gp_diff_options, junit, 0, "junit", "FILE", GP_ARG_FILE, "write the verdict to FILE as JUnit XML"),
    GP_OPTION(struct gp_diff_options, load.force, 0, "force", NULL, GP_ARG_FLAG, GP_OUTPUT_FORCE),
    GP_OPTION(struct gp_diff_options, load.json, 0, "json", NULL, GP_ARG_FLAG, "print JSON, schema gpuprof.diff/1"),
    {0}};

static const struct gp_command_option diff_operands[] = {
    GP_OPERAND(struct gp_diff_options, load.files[0], "BEFORE", GP_ARG_RECORDING,
               "the file to compare with: " GP_LOAD_READS),
    GP_OPERAND(struct gp_diff_options, load.files[1], "AFTER", GP_ARG_RECORDING, "the file of the changed program"),
    GP_OPERAND(
        struct gp_diff_options, load.more, "FILES", GP_ARG_RECORDINGS,
        "with the two above: the recordings of all ranks before, and those of all ranks after. Two folders stand "
        "for the recordings in them (*.gpuprof)"),
    {0}};

const struct gp_command_spec gp_command_diff = {
    .name = "diff",
    .summary = "compare two recordings of a program, and fail if its memory grew",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("BEFORE AFTER [FILES..] [--by=WHAT] [--callers] [--json]",
                     "BEFORE AFTER [FILES..] --max-growth=SIZE|PERCENT [--by=WHAT] [--error-exitcode=N] "
                     "[--junit=FILE [--force]]"),
    .about = GP_LIST(
        "Prints which call sites hold more or less memory in the second recording than in the first, at "
        "the peak and at the end. Sites are the same if the functions of the user's own code, their files below "
        "the program's folder and the operation of the framework are; lines that moved are matched in their order. "
        "So the folder, Python and the libraries may be others.",
        "With '--max-growth' or '--error-exitcode' it is a test: it says in one sentence for each device whether its "
        "peak grew by more than allowed, and which line did, and the exit status is 3 if one did.",
        "With the recordings of all ranks of two runs, it prints the change of each rank, and the call sites of "
        "the rank that changed most. The files of the run before come first."),
    .details = GP_LIST("A line that allocates more for a moment when the device is not at its peak grows with "
                       "'--by=line' alone. Where GITHUB_ACTIONS is 'true', each failure is also printed as an "
                       "annotation of that line. docs/gate.md describes the numbers and the outputs."),
    .options = diff_options,
    .operands = diff_operands,
    .examples =
        GP_EXAMPLES({"gpuprof diff old.gpuprof new.gpuprof", "Show the effect of a change on the memory of a program."},
                    {"gpuprof diff old.gpuprof new.gpuprof --by=line --max-growth=1MiB",
                     "Fail if the program or one of its lines needs more memory, by more than 1 MiB."},
                    {"gpuprof diff old.rank*.gpuprof new.rank*.gpuprof", "Show it for each rank of a job."}),
    GP_DEFAULTS(struct gp_diff_options,
                .load = {.target = GP_TARGET_INIT("diff"), .file_count = 2, .sites = true, .error_exitcode = -1}),
    .check = gp_load_check,
    .run = diff_run,
};
