/* SPDX-License-Identifier: MIT
 * diff.c: `gpuprof diff`: two recordings of one program, call site by call site, or those of all ranks
 * of two runs of a job.  Called by commands.c. */
#include <cmd/ranks.h>
#include <write/write.h>

#include <stdlib.h>
#include <string.h>

struct gp_diff_side { /* the sites of one recording */
    struct gp_diff_site *sites;
    char **stacks;
    uint32_t **lines;
    uint32_t *rows;
    uint32_t count;
};

static void diff_side_free(struct gp_diff_side *side)
{
    for (uint32_t i = 0; i < side->count; i++) {
        free(side->stacks ? side->stacks[i] : NULL);
        free(side->lines ? side->lines[i] : NULL);
    }
    free(side->sites);
    free(side->stacks);
    free(side->lines);
    free(side->rows);
}

static bool diff_site(struct gp_diff_side *side, struct gp_symbols *symbols, uint32_t site)
{
    const struct gp_frame_text *frames;
    uint32_t count = gp_symbols_site(symbols, site, &frames);
    size_t size = 0;
    FILE *out = open_memstream(&side->stacks[site], &size);
    side->lines[site] = calloc(count + 1ul, sizeof(uint32_t));
    for (uint32_t i = 0; out && side->lines[site] && i < count; i++) {
        fprintf(out, "%s\t%s\t%s\n", frames[i].function, frames[i].file, frames[i].module);
        side->lines[site][i] = frames[i].line;
    }
    if (!out || fclose(out) != 0 || !side->lines[site])
        return false;
    side->sites[site] = (struct gp_diff_site){side->stacks[site], side->lines[site], count};
    return true;
}

static bool diff_side_new(struct gp_diff_side *side, const struct gp_loaded *loaded)
{
    side->count = loaded->recording->site_count;
    side->sites = calloc(side->count + 1ul, sizeof(*side->sites));
    side->stacks = calloc(side->count + 1ul, sizeof(*side->stacks));
    side->lines = calloc(side->count + 1ul, sizeof(*side->lines));
    side->rows = calloc(side->count + 1ul, sizeof(*side->rows));
    bool ok = side->sites && side->stacks && side->lines && side->rows;
    for (uint32_t i = 0; ok && i < side->count; i++)
        ok = diff_site(side, loaded->symbols, i);
    return ok;
}

static struct gp_diff *diff_made(const struct gp_loaded loaded[2])
{
    struct gp_diff_side sides[2] = {{0}, {0}};
    struct gp_diff *diff = NULL;
    uint32_t row_count;
    if (diff_side_new(&sides[0], &loaded[0]) && diff_side_new(&sides[1], &loaded[1])) {
        const struct gp_recording *recordings[2] = {loaded[0].recording, loaded[1].recording};
        const struct gp_diff_site *sites[2] = {sides[0].sites, sides[1].sites};
        const uint32_t counts[2] = {sides[0].count, sides[1].count};
        uint32_t *rows[2] = {sides[0].rows, sides[1].rows};
        if (gp_diff_match(sites, counts, rows, &row_count))
            diff = gp_diff_find(recordings, (const uint32_t *const *)rows, row_count);
    }
    diff_side_free(&sides[0]);
    diff_side_free(&sides[1]);
    return diff;
}

/* extra: what the JSON also has, which this takes over; NULL: nothing. */
static int diff_print(const struct gp_loaded loaded[2], const struct gp_load_options *o, json_t *extra)
{
    const struct gp_report *reports[2] = {&loaded[0].report, &loaded[1].report};
    struct gp_diff *diff = diff_made(loaded);
    struct gp_text_page page = gp_load_page();
    int rc = GP_EXIT_OK;
    if (!diff) {
        json_decref(extra);
        return gp_load_memory("diff");
    }
    if (o->json) {
        json_t *document = gp_diff_json(diff, reports);
        if (document && extra)
            json_object_update(document, extra);
        rc = gp_load_json("diff", document);
    } else {
        page.named = true;
        gp_page_warnings(&page, reports[0]);
        gp_page_warnings(&page, reports[1]);
        gp_page_diff(&page, diff, reports, o->callers);
    }
    json_decref(extra);
    free(diff);
    return rc;
}

static int diff_two(const struct gp_load_options *o, json_t *extra)
{
    struct gp_loaded loaded[2];
    int rc = gp_load(&loaded[0], o, 0);
    if (rc) {
        json_decref(extra);
        return rc;
    }
    rc = gp_load(&loaded[1], o, 1);
    if (!rc) {
        rc = diff_print(loaded, o, extra);
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

static void diff_ranks_print(const struct gp_rank_set *set, int32_t shown)
{
    char one[GP_SIZE_TEXT], two[GP_SIZE_TEXT], change[GP_SIZE_TEXT], end[GP_SIZE_TEXT];
    printf("  %5s %11s %11s %11s %12s\n", "RANK", "PEAK BEFORE", "PEAK AFTER", "CHANGE", "END, CHANGE");
    for (uint32_t i = 0; i < set->count; i++) {
        const struct gp_job_rank *before = &set->ranks[i], *after = diff_after(set, i);
        if (after)
            printf("  %5d %11s %11s %11s %12s\n", before->number, gp_size_text(one, before->peak_bytes),
                   gp_size_text(two, after->peak_bytes), diff_change(change, after->peak_bytes - before->peak_bytes),
                   diff_change(end, after->end_bytes - before->end_bytes));
    }
    printf("\nrank %d, whose peak changed most:\n", shown);
}

static int diff_ranks(const struct gp_load_options *o)
{
    struct gp_load_options all = *o, two = *o;
    struct gp_rank_set set = {0};
    size_t more = 0;
    while (o->more[more])
        more++;
    char **files = calloc(more + 2, sizeof(*files));
    if (!files)
        return gp_load_memory("diff");
    files[0] = (char *)(uintptr_t)o->files[1];
    memcpy(files + 1, o->more, more * sizeof(*files));
    all.more = files;
    int rc = gp_rank_set_read(&set, &all);
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
        two.files[0] = before->file;
        two.files[1] = after->file;
    }
    if (!rc && !o->json)
        diff_ranks_print(&set, shown);
    if (!rc)
        rc = diff_two(&two, o->json ? diff_ranks_json(&set, shown) : NULL);
    gp_rank_set_free(&set);
    free(files);
    return rc;
}

static int diff_run(void *options)
{
    const struct gp_load_options *o = options;
    return o->more && o->more[0] ? diff_ranks(o) : diff_two(o, NULL);
}

static const struct gp_command_option diff_options[] = {
    GP_FLAG(struct gp_load_options, callers, 0, "callers", "print the callers of each site below it"),
    GP_OPTION_JSON(struct gp_load_options, "gpuprof.diff/1"),
    {0}};

static const struct gp_command_option diff_operands[] = {
    GP_OPERAND(struct gp_load_options, files[0], "BEFORE", GP_ARG_RECORDING,
               "the file to compare with: " GP_LOAD_READS),
    GP_OPERAND(struct gp_load_options, files[1], "AFTER", GP_ARG_RECORDING, "the file of the changed program"),
    GP_OPERAND(struct gp_load_options, more, "FILES", GP_ARG_RECORDINGS,
               "with the two above: the recordings of all ranks before, and those of all ranks after"),
    {0}};

const struct gp_command_spec gp_command_diff = {
    .name = "diff",
    .summary = "compare two recordings of a program, call site by call site",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("BEFORE AFTER [FILES..] [--callers] [--json]"),
    .about = GP_LIST(
        "Prints which call sites hold more or less memory in the second recording than in the first, at "
        "the peak and at the end, one row for each line of code. Sites are the same if the functions and "
        "files of their frames are, and lines that moved are matched in their order.",
        "With the recordings of all ranks of two runs, it prints the change of each rank, and the call sites of "
        "the rank that changed most. The files of the run before come first."),
    .options = diff_options,
    .operands = diff_operands,
    .examples =
        GP_EXAMPLES({"gpuprof diff old.gpuprof new.gpuprof", "Show the effect of a change on the memory of a program."},
                    {"gpuprof diff old.rank*.gpuprof new.rank*.gpuprof", "Show it for each rank of a job."}),
    GP_DEFAULTS(struct gp_load_options, .target = GP_TARGET_INIT("diff"), .file_count = 2),
    .check = gp_load_check,
    .run = diff_run,
};
