/* SPDX-License-Identifier: MIT
 * diff.c: `gpuprof diff`: two recordings of one program, call site by call site.  Called by
 * commands.c. */
#include <cmd/load.h>
#include <write/write.h>

#include <stdlib.h>

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

static int diff_print(const struct gp_loaded loaded[2], const struct gp_load_options *o)
{
    const struct gp_report *reports[2] = {&loaded[0].report, &loaded[1].report};
    struct gp_diff *diff = diff_made(loaded);
    struct gp_text_page page = gp_load_page();
    int rc = GP_EXIT_OK;
    if (!diff)
        return gp_load_memory("diff");
    if (o->json) {
        rc = gp_load_json("diff", gp_diff_json(diff, reports));
    } else {
        page.named = true;
        gp_page_warnings(&page, reports[0]);
        gp_page_warnings(&page, reports[1]);
        gp_page_diff(&page, diff, reports, o->callers);
    }
    free(diff);
    return rc;
}

static int diff_run(void *options)
{
    const struct gp_load_options *o = options;
    struct gp_loaded loaded[2];
    int rc = gp_load(&loaded[0], o, 0);
    if (rc)
        return rc;
    rc = gp_load(&loaded[1], o, 1);
    if (!rc) {
        rc = diff_print(loaded, o);
        gp_load_free(&loaded[1]);
    }
    gp_load_free(&loaded[0]);
    return rc;
}

static const struct gp_command_option diff_options[] = {
    GP_FLAG(struct gp_load_options, callers, 0, "callers", "print the callers of each site below it"),
    GP_OPTION_JSON(struct gp_load_options, "gpuprof.diff/1"),
    {0}};

static const struct gp_command_option diff_operands[] = {
    GP_OPERAND(struct gp_load_options, files[0], "BEFORE", GP_ARG_RECORDING, "the recording to compare with"),
    GP_OPERAND(struct gp_load_options, files[1], "AFTER", GP_ARG_RECORDING, "the recording of the changed program"),
    {0}};

const struct gp_command_spec gp_command_diff = {
    .name = "diff",
    .summary = "compare two recordings of a program, call site by call site",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("BEFORE AFTER [--callers] [--json]"),
    .about = GP_LIST("Prints which call sites hold more or less memory in the second recording than in the first, at "
                     "the peak and at the end, one row for each line of code. Sites are the same if the functions and "
                     "files of their frames are, and lines that moved are matched in their order."),
    .options = diff_options,
    .operands = diff_operands,
    .examples = GP_EXAMPLES(
        {"gpuprof diff old.gpuprof new.gpuprof", "Show the effect of a change on the memory of a program."}),
    GP_DEFAULTS(struct gp_load_options, .target = GP_TARGET_INIT("diff"), .file_count = 2),
    .check = gp_load_check,
    .run = diff_run,
};
