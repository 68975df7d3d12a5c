/* SPDX-License-Identifier: MIT
 * dryruntry.c: what would help a program that ran dry: the changes that `gpuprof dryrun --try` has run, or, without
 * it, what the run tells; see dryrunformat.h.
 */
#include <common/values.h>
#include <inttypes.h>
#include <show/text/dryrunformat.h>
#include <show/text/text.h>
#include <show/text/textpage.h>
#include <show/text/write.h>
#include <stdio.h>
#include <string.h>

#define GP_TRY_FEW  3u /* candidates */
#define GP_TRY_PART 50 /* a line with less than this part of the peak is not worth it */

/* ---- what the run tells ------------------------------------------------------------------------------------------- */

/* Lines whose activations are most bytes for the longest time, as far as checkpointing could spare them. Without a
 * backward pass nothing is kept for one. */
static uint32_t try_candidates(const struct gp_need *need, const struct gp_need_line *found[GP_TRY_FEW])
{
    uint32_t count = 0;
    for (uint32_t i = 0; !need->infers && i < need->line_count; i++) {
        const struct gp_need_line *line = &need->lines[i];
        if (need->sure[GP_USE_ACTIVATIONS] < GP_USE_PLAIN || !line->spared_bytes ||
            line->spared_bytes < need->allocated_peak_bytes / GP_TRY_PART)
            continue;
        uint32_t at = count;
        double weight = (double)line->spared_bytes * (double)line->life_ns;
        while (at > 0 && (double)found[at - 1]->spared_bytes * (double)found[at - 1]->life_ns < weight)
            at--;
        if (at == GP_TRY_FEW)
            continue;
        count += count < GP_TRY_FEW;
        memmove(&found[at + 1], &found[at], (count - at - 1) * sizeof(found[0]));
        found[at] = line;
    }
    return count;
}

/* Sentences, of the process that needs most. */
static json_t *try_advice(const struct gp_dryrun_answer *answer)
{
    const struct gp_need *need = gp_dryrun_worst(&answer->runs[answer->shown]);
    const struct gp_need_line *found[GP_TRY_FEW];
    char from[GP_SIZE_TEXT], to[GP_SIZE_TEXT];
    json_t *list = json_array();
    uint32_t count = need ? try_candidates(need, found) : 0;
    if (need && need->growable_bytes >= 0 && need->growable_bytes < need->needed_bytes)
        json_array_append_new(
            list, json_sprintf("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: %s instead of %s, by a replay of the "
                               "requests",
                               gp_size_text(to, need->growable_bytes), gp_size_text(from, need->needed_bytes)));
    else if (need && need->growable_bytes >= 0)
        json_array_append_new(list, json_sprintf("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: no help: %s by a "
                                                 "replay of the requests",
                                                 gp_size_text(to, need->growable_bytes)));
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list,
                              json_sprintf("checkpointing, a candidate: %s of activations live %s from %s",
                                           gp_size_text(from, found[i]->spared_bytes),
                                           gp_seconds_text(to, (double)found[i]->life_ns / 1e9), found[i]->place.text));
    return list;
}

static void try_text_advice(const struct gp_text_page *page, const struct gp_dryrun_answer *answer)
{
    json_t *advice = try_advice(answer);
    const json_t *line;
    size_t i;
    if (json_array_size(advice))
        fprintf(page->out, "\n  What would help\n");
    json_array_foreach(advice, i, line)
    {
        fputs("  - ", page->out);
        gp_text_cut(page, json_string_value(line), gp_text_room(page, 4));
        fputc('\n', page->out);
    }
    if (json_array_size(advice))
        fputs("  gpuprof dryrun --try -- CMD makes such changes, each in a run of its own, and says what it saves\n",
              page->out);
    json_decref(advice);
}

/* ---- what was tried ----------------------------------------------------------------------------------------------- */

/* Why there is no row; NULL: there are rows. */
static const char *try_nothing(const struct gp_dryrun_answer *answer)
{
    if (!answer->tries_torch)
        return "nothing was tried: CMD loads no PyTorch, and the other changes are to programs of PyTorch";
    return answer->change_count ? NULL : "nothing was tried: CMD does nothing that a change of --try applies to";
}

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
    if (change->note[0]) {
        fprintf(page->out, "  %34s ", "");
        gp_text_phrases(page, change->note, 37);
        fputc('\n', page->out);
    }
}

static void try_text_rows(const struct gp_text_page *page, const struct gp_dryrun_answer *answer)
{
    char cost[24];
    const struct gp_dryrun_gpu *gpu = &answer->gpus[0];
    const struct gp_dryrun_change *first = answer->changes;
    fprintf(page->out, "\n  What would help: each change was made in a run of CMD\n");
    if (try_nothing(answer)) {
        fprintf(page->out, "  %s\n", try_nothing(answer));
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

void gp_text_helps(const struct gp_text_page *page, const struct gp_dryrun_answer *answer)
{
    if (answer->tries)
        try_text_rows(page, answer);
    else
        try_text_advice(page, answer);
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
            json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:o,s:{s:o},s:s,s:o,s:o,s:o}", "change", change->text, "name",
                      change->name, "spec", change->spec, "status", status[change->status], "needed_bytes",
                      gp_json_known(change->needed_bytes), "saved_bytes",
                      ran ? json_integer(answer->gpus[0].needed_bytes - change->needed_bytes) : json_null(),
                      "allocated_peak_bytes", gp_json_known(change->allocated_bytes), "cost", "kernels_percent", cost,
                      "how", "run", "fits", ran ? json_boolean(change->verdict == GP_DRYRUN_FITS) : json_null(), "why",
                      ran ? json_null() : gp_json_text(change->why), "note",
                      change->note[0] ? gp_json_text(change->note) : json_null()));
    }
    return rows;
}

json_t *gp_helps_json(const struct gp_dryrun_answer *answer)
{
    const struct gp_dryrun_gpu *gpu = &answer->gpus[0];
    bool known = gpu->verdict != GP_DRYRUN_FAILED && gpu->needed_bytes >= 0;
    return json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:o}", "gpu", gpu->key, "name", gpu->name, "needed_bytes",
                     gp_json_known(gpu->needed_bytes), "fits",
                     known ? json_boolean(gpu->verdict == GP_DRYRUN_FITS) : json_null(), "tried",
                     gp_changes_json(answer), "why",
                     answer->tries && try_nothing(answer) ? json_string(try_nothing(answer)) : json_null(), "helps",
                     answer->tries ? json_array() : try_advice(answer));
}
