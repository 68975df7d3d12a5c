/* SPDX-License-Identifier: MIT
 * dryruntry.c: the changes that `gpuprof dryrun --try` has run: see dryrunformat.h.
 */
#include <common/values.h>
#include <inttypes.h>
#include <show/text/dryrunformat.h>
#include <show/text/text.h>
#include <show/text/textpage.h>
#include <show/text/write.h>
#include <stdio.h>

/* "+31 %"; of kernels, which are not time. */
static const char *try_cost(char text[24], const struct gp_dryrun_change *change)
{
    if (change->kernels > 0)
        snprintf(text, 24, "%+.0f %%", (change->kernels - 1) * 100 + 0.0);
    else
        snprintf(text, 24, "-");
    return text;
}

/* What it takes instead of saving is negative. */
static const char *try_saved(char text[GP_SIZE_TEXT + 1], int64_t bytes)
{
    char size[GP_SIZE_TEXT];
    snprintf(text, GP_SIZE_TEXT + 1, "%s%s", bytes < 0 ? "-" : "", gp_size_text(size, bytes < 0 ? -bytes : bytes));
    return bytes ? text : "nothing";
}

static void try_row(const struct gp_text_page *page, const struct gp_dryrun_answer *answer,
                    const struct gp_dryrun_change *change)
{
    char needed[GP_SIZE_TEXT], saved[GP_SIZE_TEXT + 1], cost[24];
    int64_t less = answer->gpus[0].needed_bytes - change->needed_bytes;
    if (change->status != GP_CHANGE_RAN) {
        fprintf(page->out, "  %11s %11s %9s  ", "-", change->status == GP_CHANGE_FAILED ? "failed" : "not run", "");
        gp_text_cut(page, change->text, gp_text_room(page, 40));
        fprintf(page->out, "\n  %34s ", "");
        gp_text_phrases(page, change->why, 37);
        fputc('\n', page->out);
        return;
    }
    fprintf(page->out, "  %11s %11s %9s  ", gp_size_text(needed, change->needed_bytes), try_saved(saved, less),
            try_cost(cost, change));
    gp_text_cut(page, change->text, gp_text_room(page, 40));
    if (answer->gpus[0].verdict != GP_DRYRUN_FITS)
        fputs(change->verdict == GP_DRYRUN_FITS ? ": fits" : "", page->out);
    fputc('\n', page->out);
}

void gp_text_changes(const struct gp_text_page *page, const struct gp_dryrun_answer *answer)
{
    char cost[24];
    const struct gp_dryrun_gpu *gpu = &answer->gpus[0];
    const struct gp_dryrun_change *first = answer->changes;
    if (!answer->tries)
        return;
    fprintf(page->out, "\n  What would help: each change was made in a run of CMD\n");
    if (!answer->tries_torch) {
        fputs("  nothing was tried: CMD loads no PyTorch, and the other changes are to programs of PyTorch\n",
              page->out);
        return;
    }
    if (!answer->change_count) {
        fputs("  nothing was tried: CMD does nothing that a change of --try applies to\n", page->out);
        return;
    }
    if (gpu->verdict != GP_DRYRUN_FITS && first->status == GP_CHANGE_RAN && first->verdict == GP_DRYRUN_FITS)
        fprintf(page->out, "  %sfits %s with: %s%s (%s kernels)\n", gp_text_on(page, GP_BOLD), gpu->key, first->text,
                gp_text_on(page, GP_OFF), try_cost(cost, first));
    else if (gpu->verdict != GP_DRYRUN_FITS)
        fprintf(page->out, "  none of them makes it fit %s\n", gpu->key);
    fprintf(page->out, "  %11s %11s %9s  %s\n", "NEEDED", "SAVED", "KERNELS", "CHANGE");
    for (uint32_t i = 0; i < answer->change_count; i++)
        try_row(page, answer, &answer->changes[i]);
}

json_t *gp_changes_json(const struct gp_dryrun_answer *answer)
{
    static const char *const status[] = {
        [GP_CHANGE_RAN] = "ok", [GP_CHANGE_FAILED] = "failed", [GP_CHANGE_NONE] = "not possible"};
    json_t *rows = answer->tries ? json_array() : json_null();
    for (uint32_t i = 0; answer->tries && i < answer->change_count; i++) {
        const struct gp_dryrun_change *change = &answer->changes[i];
        bool ran = change->status == GP_CHANGE_RAN;
        json_t *cost = change->kernels > 0 ? json_real((change->kernels - 1) * 100) : json_null();
        json_array_append_new(
            rows,
            json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:o,s:{s:o},s:s,s:o,s:o}", "change", change->text, "name", change->name,
                      "spec", change->spec, "status", status[change->status], "needed_bytes",
                      gp_json_known(change->needed_bytes), "saved_bytes",
                      ran ? json_integer(answer->gpus[0].needed_bytes - change->needed_bytes) : json_null(),
                      "allocated_peak_bytes", gp_json_known(change->allocated_bytes), "cost", "kernels_percent", cost,
                      "how", "run", "fits", ran ? json_boolean(change->verdict == GP_DRYRUN_FITS) : json_null(), "why",
                      ran ? json_null() : gp_json_text(change->why)));
    }
    return rows;
}
