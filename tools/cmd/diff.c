/* SPDX-License-Identifier: MIT
 * diff.c: `gpuprof diff`: two recordings of one program, call site by call site.  Called by
 * commands.c. */
#include <cmd/load.h>
#include <write/write.h>

#include <stdlib.h>
#include <string.h>

struct gp_diff_names {
    char **keys, **labels;
    uint32_t count;
};

static void diff_names_free(struct gp_diff_names *names)
{
    for (uint32_t i = 0; i < names->count; i++) {
        free(names->keys ? names->keys[i] : NULL);
        free(names->labels ? names->labels[i] : NULL);
    }
    free(names->keys);
    free(names->labels);
}

/* The functions and files of a site without line numbers, which move when the program changes
 * above a call. */
static char *diff_key(struct gp_symbols *symbols, uint32_t site)
{
    const struct gp_frame_text *frames;
    uint32_t count = gp_symbols_site(symbols, site, &frames);
    char *key = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&key, &size);
    for (uint32_t i = 0; out && i < count; i++)
        fprintf(out, "%s\t%s\t%s\n", frames[i].function, frames[i].file, frames[i].module);
    if (!out || fclose(out) != 0)
        return NULL;
    return key;
}

static bool diff_name(struct gp_diff_names *names, const struct gp_loaded *loaded)
{
    names->count = loaded->recording->site_count;
    names->keys = calloc(names->count + 1u, sizeof(char *));
    names->labels = calloc(names->count + 1u, sizeof(char *));
    uint32_t *all = calloc(names->count + 1u, sizeof(*all));
    const struct gp_frame_text **callers = calloc(names->count + 1u, sizeof(*callers));
    bool ok = names->keys && names->labels && all && callers;
    for (uint32_t i = 0; ok && i < names->count; i++)
        all[i] = i;
    if (ok)
        gp_symbols_callers(loaded->symbols, all, names->count, callers);
    for (uint32_t i = 0; ok && i < names->count; i++) {
        char label[256];
        gp_site_label(gp_symbols_name(loaded->symbols, i), callers[i], label, sizeof(label));
        names->keys[i] = diff_key(loaded->symbols, i);
        names->labels[i] = strdup(label);
        ok = names->keys[i] && names->labels[i];
    }
    free(all);
    free(callers);
    return ok;
}

static int diff_print(const struct gp_loaded loaded[2], bool json)
{
    struct gp_diff_names names[2] = {{0}, {0}};
    struct gp_diff *diff = NULL;
    int rc = GP_EXIT_OK;
    bool ok = diff_name(&names[0], &loaded[0]) && diff_name(&names[1], &loaded[1]);
    if (ok) {
        const struct gp_recording *recordings[2] = {loaded[0].recording, loaded[1].recording};
        const char *const *keys[2] = {(const char *const *)names[0].keys, (const char *const *)names[1].keys};
        const char *const *labels[2] = {(const char *const *)names[0].labels, (const char *const *)names[1].labels};
        struct gp_text_page page = gp_load_page();
        diff = gp_diff_find(recordings, keys);
        ok = diff;
        if (diff && json) {
            rc = gp_load_json("diff", gp_diff_json(diff, recordings, labels));
        } else if (diff) {
            page.named = true;
            gp_page_warnings(&page, &loaded[0].report);
            gp_page_warnings(&page, &loaded[1].report);
            gp_page_diff(&page, diff, labels);
        }
    }
    free(diff);
    diff_names_free(&names[0]);
    diff_names_free(&names[1]);
    return ok ? rc : gp_load_memory("diff");
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
        rc = diff_print(loaded, o->json);
        gp_load_free(&loaded[1]);
    }
    gp_load_free(&loaded[0]);
    return rc;
}

static const struct gp_command_option diff_options[] = {GP_OPTION_JSON(struct gp_load_options, "gpuprof.diff/1"), {0}};

static const struct gp_command_option diff_operands[] = {
    GP_OPERAND(struct gp_load_options, files[0], "BEFORE", GP_ARG_RECORDING, "the recording to compare with"),
    GP_OPERAND(struct gp_load_options, files[1], "AFTER", GP_ARG_RECORDING, "the recording of the changed program"),
    {0}};

const struct gp_command_spec gp_command_diff = {
    .name = "diff",
    .summary = "compare two recordings of a program, call site by call site",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("BEFORE AFTER [--json]"),
    .about = GP_LIST("Prints which call sites hold more or less memory in the second recording than in the first, at "
                     "the peak and at the end. Two sites are the same if the functions and files of their frames are; "
                     "line numbers may differ."),
    .options = diff_options,
    .operands = diff_operands,
    .examples = GP_EXAMPLES(
        {"gpuprof diff old.gpuprof new.gpuprof", "Show the effect of a change on the memory of a program."}),
    GP_DEFAULTS(struct gp_load_options, .target = GP_TARGET_INIT("diff"), .file_count = 2),
    .check = gp_load_check,
    .run = diff_run,
};
