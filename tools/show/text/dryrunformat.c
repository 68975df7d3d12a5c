/* SPDX-License-Identifier: MIT
 * dryrunformat.c: see dryrunformat.h.
 */
#include <analyze/fit.h>
#include <analyze/report.h>
#include <jansson.h>
#include <read/recording/recording.h>
#include <show/text/dryrunformat.h>
#include <show/text/text.h>
#include <show/text/textpage.h>
#include <stdio.h>

#include <inttypes.h>
#include <read/common/hash.h>
#include <show/text/stats.h>
#include <show/text/write.h>
#include <string.h>

/* ---- text -------------------------------------------------------------------------------------------------------- */
/* The answer of `gpuprof dryrun` as text. */

#define GP_DRYRUN_LINES 12u          /* places */
#define GP_DRYRUN_READS 5u           /* lines that read results */
#define GP_DRYRUN_FILES (64ll << 20) /* bytes that are more than a log */

/* The largest request that got no memory; NULL: none with a size. */
static const struct gp_need_refused *refused_largest(const struct gp_dryrun_run *run)
{
    const struct gp_need_refused *largest = NULL;
    for (uint32_t i = 0; i < run->need_count; i++)
        if (run->needs[i].refused_count && (!largest || run->needs[i].refused[0].bytes > largest->bytes))
            largest = &run->needs[i].refused[0];
    return largest;
}

/* ---- the GPUs ---------------------------------------------------------------------------------------------------- */

/* Why it fits in less than is needed. */
static const char *text_fits_because(const struct gp_need *worst, int64_t total_bytes)
{
    if (worst && worst->needed_bytes <= total_bytes)
        return "its processes need the most at different times";
    if (worst && worst->reserved_peak_bytes <= worst->allocated_peak_bytes)
        return "a context on so small a GPU takes less";
    return "the allocator gives idle memory back";
}

static void text_verdict(const struct gp_text_page *page, const struct gp_dryrun_answer *answer,
                         const struct gp_dryrun_gpu *gpu)
{
    char size[GP_SIZE_TEXT];
    int64_t left = gpu->total_bytes - gpu->needed_bytes;
    const struct gp_need *worst = gp_dryrun_worst(&answer->runs[gpu->run]);
    const struct gp_dryrun_run *failed = gpu->failed == GP_REC_NONE ? NULL : &answer->runs[gpu->failed];
    bool red = gpu->verdict != GP_DRYRUN_FITS;
    fputs(gp_text_on(page, red ? GP_RED : ""), page->out);
    if (gpu->verdict == GP_DRYRUN_FAILED)
        fprintf(page->out, "not known: CMD failed");
    else if (gpu->verdict == GP_DRYRUN_FITS && left >= 0)
        fprintf(page->out, "fits, %s left", gp_size_text(size, left));
    else if (gpu->verdict == GP_DRYRUN_FITS)
        fprintf(page->out, "fits in %s: %s", gp_size_text(size, gpu->total_bytes),
                text_fits_because(worst, gpu->total_bytes));
    else if (left < 0)
        fprintf(page->out, "does not fit: %s too much", gp_size_text(size, -left));
    else if (failed && !gp_dryrun_failed(failed))
        fprintf(page->out, "fits only what it fell back to");
    else
        fprintf(page->out, "does not fit");
    fputs(gp_text_on(page, red ? GP_OFF : ""), page->out);
    if (!gpu->own)
        fprintf(page->out, "  (computed from the run on %s)", answer->runs[gpu->run].gpu);
    fputc('\n', page->out);
}

/* How people call a process: by its rank, if it has one. */
static const char *text_who(char out[24], const struct gp_need *need)
{
    if (need->rank >= 0)
        snprintf(out, 24, "rank %" PRId32, need->rank);
    else
        snprintf(out, 24, "pid %" PRIu32, need->pid);
    return out;
}

/* `need`: the process, NULL where there is one only; `same`: so many others like it. */
static void text_moment(const struct gp_text_page *page, const struct gp_need_moment *moment,
                        const struct gp_need *need, uint32_t same)
{
    char when[GP_SIZE_TEXT], size[GP_SIZE_TEXT], who[24];
    fputs("    ", page->out);
    if (need)
        fputs(text_who(who, need), page->out);
    if (same)
        fprintf(page->out, " and %" PRIu32 " more", same);
    fprintf(page->out, "%sat %s", need ? ", " : "", gp_seconds_text(when, (double)moment->since_ns / 1e9));
    if (moment->step)
        fprintf(page->out, ", in step %" PRIu32, moment->step);
    if (moment->bytes)
        fprintf(page->out, ", %s asked", gp_size_text(size, moment->bytes));
    if (moment->free_bytes >= 0)
        fprintf(page->out, ", %s free", gp_size_text(size, moment->free_bytes));
    fprintf(page->out, ": ");
    gp_text_cut(page, moment->place.text, gp_text_room(page, 50));
    fputc('\n', page->out);
}

/* The moments of all processes to which it happened: each is named, and the ranks that ask for the same at the same
 * line, as most jobs' do, share a line. */
static void text_moments(const struct gp_text_page *page, const struct gp_dryrun_run *run, bool budget)
{
    for (uint32_t i = 0; i < run->need_count; i++) {
        const struct gp_need *need = &run->needs[i];
        const struct gp_need_moment *moment = budget ? &need->broke : &need->failed;
        uint32_t same = 0;
        bool said = budget ? !need->over : !need->oom;
        for (uint32_t k = 0; !said && k < run->need_count; k++) {
            const struct gp_need *other = &run->needs[k];
            const struct gp_need_moment *its = budget ? &other->broke : &other->failed;
            if (k == i || !(budget ? other->over : other->oom) || its->bytes != moment->bytes ||
                strcmp(its->place.text, moment->place.text) != 0)
                continue;
            said = k < i;
            same++;
        }
        if (!said)
            text_moment(page, moment, run->need_count > 1 ? need : NULL, same);
    }
}

/* What a run got no memory for, in all. */
static void text_refused(const struct gp_text_page *page, const struct gp_dryrun_run *run)
{
    char size[GP_SIZE_TEXT];
    const struct gp_need_refused *largest = refused_largest(run);
    int64_t count = gp_dryrun_refused(run) - run->contextless;
    if (largest && largest->bytes && count > 1) { /* of one the moment says it all */
        fprintf(page->out, "    %" PRId64 " requests were refused, the largest of %s at ", count,
                gp_size_text(size, largest->bytes));
        gp_text_cut(page, largest->place.text, gp_text_room(page, 60));
        fputc('\n', page->out);
    }
    if (run->contextless || (largest && !largest->bytes))
        fprintf(page->out, "    %" PRIu32 " process%s got no memory for a context or for code\n",
                run->contextless ? run->contextless : 1, run->contextless > 1 ? "es" : "");
}

/* The request that broke each GPU on which the program ran out of memory, and the one that broke the budget. */
static void text_broken(const struct gp_text_page *page, const struct gp_dryrun_answer *answer)
{
    char size[GP_SIZE_TEXT];
    for (uint32_t i = 0; i < answer->gpu_count; i++) {
        const struct gp_dryrun_gpu *gpu = &answer->gpus[i];
        if (!gpu->own || gpu->failed == GP_REC_NONE)
            continue;
        const struct gp_dryrun_run *run = &answer->runs[gpu->failed];
        const bool asked = gp_dryrun_refused(run); /* the driver; else a pool that was taken ahead */
        fprintf(page->out, "\n  %sCMD %s on %s%s", gp_text_on(page, GP_RED), asked ? "ran out of memory" : "failed",
                gpu->key, gp_text_on(page, GP_OFF));
        if (asked && !gp_dryrun_failed(run))
            fputs(" though its status was 0", page->out);
        if (gpu->run != gpu->failed)
            fprintf(page->out, ", and ran once more on a device of 1 TiB%s", asked ? ":" : ", where it did not fail");
        fputc('\n', page->out);
        text_moments(page, run, false);
        if (asked)
            text_refused(page, run);
        if (gpu->run != gpu->failed && gp_dryrun_refused(&answer->runs[gpu->run]))
            fprintf(page->out, "    it was refused memory there too: it asks until none is left\n");
    }
    for (uint32_t i = 0; answer->over && i < answer->gpu_count; i++) {
        const struct gp_dryrun_gpu *gpu = &answer->gpus[i];
        if (!gpu->own || gpu->needed_bytes <= answer->budget_bytes)
            continue;
        fprintf(page->out, "\n  %sover the budget of %s%s on %s:\n", gp_text_on(page, GP_RED),
                gp_size_text(size, answer->budget_bytes), gp_text_on(page, GP_OFF), gpu->key);
        text_moments(page, &answer->runs[gpu->run], true);
    }
}

static void text_gpus(const struct gp_text_page *page, const struct gp_dryrun_answer *answer)
{
    char total[GP_SIZE_TEXT], needed[GP_SIZE_TEXT], smallest[GP_SIZE_TEXT];
    fprintf(page->out, "  %-15s %11s %11s %11s\n", "GPU", "HAS", "NEEDED", "AT LEAST");
    for (uint32_t i = 0; i < answer->gpu_count; i++) {
        const struct gp_dryrun_gpu *gpu = &answer->gpus[i];
        fprintf(page->out, "  %-15s %11s %11s %11s  ", gpu->key, gp_size_text(total, gpu->total_bytes),
                gp_size_text(needed, gpu->needed_bytes), gp_size_text(smallest, gpu->smallest_bytes));
        text_verdict(page, answer, gpu);
    }
    if (answer->enough && (answer->gpu_count > 1 || answer->enough_by_size))
        fprintf(page->out, "  the smallest GPU that is enough%s: %s (%s)\n",
                answer->enough_by_size ? ", by its size alone" : "", answer->enough->key,
                gp_size_text(total, answer->enough->total_bytes));
    text_broken(page, answer);
}

/* What servers have room for, by their own logs, on each GPU that the program ran on. */
static void text_caches(const struct gp_text_page *page, const struct gp_dryrun_answer *answer)
{
    for (uint32_t i = 0; i < answer->gpu_count; i++) {
        const struct gp_dryrun_run *run = &answer->runs[answer->gpus[i].run];
        for (uint32_t k = 0; answer->gpus[i].own && k < run->cache_count; k++) {
            const struct gp_dryrun_cache *cache = &run->caches[k];
            fprintf(page->out, "%s  KV cache%s%s%s: %" PRId64 " tokens, %.2f requests of %" PRId64 " tokens",
                    k ? "" : "\n", answer->gpu_count > 1 ? " on " : "",
                    answer->gpu_count > 1 ? answer->gpus[i].key : "", run->plenty ? " on a device of 1 TiB" : "",
                    cache->tokens, (double)cache->hundredths / 100, cache->request_tokens);
            if (cache->count > 1)
                fprintf(page->out, ", in each of %" PRId64 " processes", cache->count);
            fprintf(page->out, ", by the log of %s\n", cache->server);
        }
    }
}

/* A process that is killed, or that becomes another program, takes along what was not yet written. */
static void text_cut(const struct gp_text_page *page, const struct gp_dryrun_run *run, const struct gp_need *need)
{
    if (run->cut > (need && !need->complete)) /* of the process that is shown, text_sure says it */
        fprintf(page->out,
                "\n  %s%" PRIu32
                " recording%s before the process did, by a kill or exec: what came later is missing%s\n",
                gp_text_on(page, GP_RED), run->cut, run->cut == 1 ? " ends" : "s end", gp_text_on(page, GP_OFF));
}

/* ---- the peak ---------------------------------------------------------------------------------------------------- */

static void text_row(const struct gp_text_page *page, int64_t bytes, int64_t of, const char *what, const char *note)
{
    char size[GP_SIZE_TEXT];
    double share = of > 0 ? (double)bytes / (double)of : 0;
    fprintf(page->out, "  %10s %5.1f %%  ", gp_size_text(size, bytes), share * 100);
    gp_text_bar(page, share);
    fprintf(page->out, "  %-*s%s%s%s\n", note[0] ? 24 : 0, what, gp_text_on(page, GP_DIM), note,
            gp_text_on(page, GP_OFF));
}

/* The part of the context that is stacks beyond the ordinary ones. */
static int64_t text_stacks(const struct gp_dryrun_run *run, const struct gp_need *need)
{
    const uint64_t bare = gp_fit_context_of((uint64_t)run->threads);
    const int64_t ordinary = (int64_t)gp_fit_context_with(bare, GP_FIT_THREAD_STACK);
    return need->stack ? (int64_t)gp_fit_context_with(bare, need->stack) - ordinary : 0;
}

static void text_uses(const struct gp_text_page *page, const struct gp_dryrun_run *run, const struct gp_need *need)
{
    int64_t of = need->needed_bytes, rounding, cache = gp_need_idle(need, &rounding);
    char words[GP_USE_WORDS];
    for (unsigned use = 0; use < GP_USES; use++)
        if (need->uses[use])
            text_row(page, need->uses[use], of, gp_use_words(words, (enum gp_use)use, need->sure[use]), "");
    if (cache > 0)
        text_row(page, cache, of, "cache", "  held from the driver and not in use then");
    if (rounding > 0)
        text_row(page, rounding, of, "rounding", "  the driver gives whole pages of 2 MiB");
    const int64_t stacks = text_stacks(run, need);
    if (stacks > 0)
        text_row(page, stacks, of, "stacks", "  of kernels, for each thread that the GPU can hold; estimated");
    text_row(page, need->context_bytes - stacks, of, "context", "  estimated");
}

static void text_ahead(const struct gp_text_page *page, const struct gp_need *need)
{
    char pool[GP_SIZE_TEXT], peak[GP_SIZE_TEXT];
    if (need->ahead.pool_bytes)
        fprintf(page->out, "  %s of %s counts as a whole; at most %s of it were in use%s\n",
                need->ahead_told ? "XLA's pool" : "a pool", gp_size_text(pool, need->ahead.pool_bytes),
                gp_size_text(peak, need->ahead.peak_bytes), need->ahead_told ? ", by XLA's own count" : "");
}

static void text_lines(const struct gp_text_page *page, const struct gp_need *need)
{
    uint32_t shown = need->line_count <= GP_DRYRUN_LINES + 1 ? need->line_count : GP_DRYRUN_LINES;
    int64_t rest = need->allocated_peak_bytes;
    char size[GP_SIZE_TEXT], words[GP_USE_WORDS];
    int what = 15; /* columns */
    for (uint32_t i = 0; i < shown; i++)
        GP_RAISE(what, (int)strlen(gp_use_words(words, need->lines[i].use, need->sure[need->lines[i].use])));
    for (uint32_t i = 0; i < shown; i++) {
        const struct gp_need_line *line = &need->lines[i];
        fprintf(page->out, "  %10s %7" PRId64 " x %-*s ", gp_size_text(size, line->bytes), line->count, what,
                gp_use_words(words, line->use, need->sure[line->use]));
        gp_text_cut(page, line->place.text, gp_text_room(page, 24 + what));
        fputc('\n', page->out);
        rest -= line->bytes;
    }
    if (shown < need->line_count)
        fprintf(page->out, "  %10s %s%" PRIu32 " more lines: --json lists them%s\n", gp_size_text(size, rest),
                gp_text_on(page, GP_DIM), need->line_count - shown, gp_text_on(page, GP_OFF));
}

/* "3", "0, 8 to 15", at most so many parts. */
static void text_rank_list(char *out, size_t bytes, const int32_t *ranks, uint32_t count, unsigned most)
{
    size_t at = 0;
    unsigned parts = 0;
    for (uint32_t i = 0; i < count && at + 40 < bytes; parts++) {
        uint32_t last = i;
        while (last + 1 < count && ranks[last + 1] == ranks[last] + 1)
            last++;
        if (parts == most) {
            snprintf(out + at, bytes - at, " and %" PRIu32 " more", count - i);
            return;
        }
        at += (size_t)snprintf(out + at, bytes - at, last > i ? "%s%" PRId32 "-%" PRId32 : "%s%" PRId32,
                               parts ? "," : "", ranks[i], ranks[last]);
        i = last + 1;
    }
}

/* A row for ranks that are alike. */
static void text_kinds(const struct gp_text_page *page, const struct gp_dryrun_run *run)
{
    char needed[GP_SIZE_TEXT], reserved[GP_SIZE_TEXT], allocated[GP_SIZE_TEXT], smallest[GP_SIZE_TEXT], list[128];
    fprintf(page->out, "\n  %-10s %11s %11s %11s %11s  %s\n", "RANK", "NEEDED", "AT LEAST", "RESERVED", "ALLOCATED",
            "STANDS FOR");
    for (uint32_t i = 0; i < run->need_count; i++) {
        const struct gp_need *need = &run->needs[i];
        if (!need->stands_count && need->rank >= 0)
            continue;
        text_rank_list(list, sizeof(list), need->stands_for, need->stands_count, 4);
        fprintf(page->out, "  %-10" PRId32 " %11s %11s %11s %11s  %s\n", need->rank,
                gp_size_text(needed, need->needed_bytes), gp_size_text(smallest, need->smallest_bytes),
                gp_size_text(reserved, need->reserved_peak_bytes), gp_size_text(allocated, need->allocated_peak_bytes),
                need->stands_count ? list : "");
    }
    if (run->unanswered)
        fprintf(page->out, "  %s%" PRIu32 " of the %" PRIu32 " ranks did not run, and no row stands for them%s\n",
                gp_text_on(page, GP_DIM), run->unanswered, run->job_ranks, gp_text_on(page, GP_OFF));
    if (run->left_count)
        fprintf(page->out, "  %s%" PRIu32 " file%s left out, with what they say of ranks: %s%s%s\n",
                gp_text_on(page, GP_RED), run->left_count, run->left_count == 1 ? " was" : "s were", run->left[0].file,
                run->left_count > 1 ? " and others" : "", gp_text_on(page, GP_OFF));
}

static void text_ranks(const struct gp_text_page *page, const struct gp_dryrun_run *run)
{
    char needed[GP_SIZE_TEXT], reserved[GP_SIZE_TEXT], allocated[GP_SIZE_TEXT], name[24];
    if (run->job_ranks) {
        text_kinds(page, run);
        return;
    }
    if (run->need_count < 2)
        return;
    fprintf(page->out, "\n  %-12s %6s %11s %11s %11s\n", "PROCESS", "DEVICE", "NEEDED", "RESERVED", "ALLOCATED");
    for (uint32_t i = 0; i < run->need_count; i++) {
        const struct gp_need *need = &run->needs[i];
        fprintf(page->out, "  %-12s %6" PRId32 " %11s %11s %11s\n", text_who(name, need), need->device,
                gp_size_text(needed, need->needed_bytes), gp_size_text(reserved, need->reserved_peak_bytes),
                gp_size_text(allocated, need->allocated_peak_bytes));
    }
}

static void text_heading(const struct gp_text_page *page, const struct gp_dryrun_run *run, const struct gp_need *need)
{
    char line[256], size[GP_SIZE_TEXT], when[GP_SIZE_TEXT], where[96] = "", who[24];
    if (need->peak_step)
        snprintf(where, sizeof(where), ", in step %" PRIu32 " of %" PRIu32, need->peak_step, need->steps);
    else if (need->steps)
        snprintf(where, sizeof(where), ", outside of the %" PRIu32 " step%s", need->steps, need->steps == 1 ? "" : "s");
    const bool several = run->need_count > 1;
    snprintf(line, sizeof(line), "%s%s%s%s: peak of %s at %s%s", run->gpu, run->plenty ? " with 1 TiB" : "",
             several ? ", " : "", several ? text_who(who, need) : "", gp_size_text(size, need->needed_bytes),
             gp_seconds_text(when, (double)need->peak_ns / 1e9), where);
    gp_text_heading(page, line, true);
}

/* ---- how sure ---------------------------------------------------------------------------------------------------- */

static void text_notes(const struct gp_text_page *page, const struct gp_dryrun_run *run, const char *kind,
                       const char *label)
{
    char text[512];
    for (uint32_t i = 0; i < run->note_count; i++) {
        if (strcmp(run->notes[i].kind, kind) != 0)
            continue;
        fprintf(page->out, "  %-10s ", label);
        snprintf(text, sizeof(text), "%s: %s", run->notes[i].library, run->notes[i].text);
        gp_text_phrases(page, text, 13);
        fputc('\n', page->out);
    }
}

static void text_context(const struct gp_text_page *page, const struct gp_dryrun_run *run, const struct gp_need *need)
{
    char text[256], size[GP_SIZE_TEXT];
    const int64_t stacks = text_stacks(run, need);
    int used = snprintf(text, sizeof(text), "%s: the context, 2 KiB for each thread that the GPU can hold",
                        gp_size_text(size, need->context_bytes));
    if (stacks > 0)
        used += snprintf(text + used, sizeof(text) - (size_t)used, ", %s more for stacks of %" PRIu32 " bytes",
                         gp_size_text(size, stacks), need->stack);
    if (need->code_bytes)
        snprintf(text + used, sizeof(text) - (size_t)used, ", and %s for the code of kernels",
                 gp_size_text(size, need->code_bytes));
    fprintf(page->out, "  %-10s ", "estimated");
    gp_text_phrases(page, text, 13);
    fputc('\n', page->out);
}

static void text_sure(const struct gp_text_page *page, const struct gp_dryrun_run *run, const struct gp_need *need)
{
    char size[GP_SIZE_TEXT];
    int64_t exact = need->needed_bytes - need->context_bytes - need->assumed_reserved_bytes;
    fprintf(page->out, "\n  How sure\n");
    fprintf(page->out, "  %-10s %s: CMD's own requests and allocator, on a GPU with the properties of %s\n", "exact",
            gp_size_text(size, exact > 0 ? exact : 0), run->gpu);
    if (need->assumed_reserved_bytes)
        fprintf(page->out, "  %-10s %s: what libraries took that are stood in for\n", "assumed",
                gp_size_text(size, need->assumed_reserved_bytes));
    text_context(page, run, need);
    text_notes(page, run, "assumed", "assumed");
    text_notes(page, run, "unsupported", "missing");
    if (need->missing)
        fprintf(page->out, "  %s%-10s %" PRIu64 " events are missing from the recording: sizes are estimates%s\n",
                gp_text_on(page, GP_RED), "lost", need->missing, gp_text_on(page, GP_OFF));
    if (!need->complete)
        fprintf(page->out, "  %s%-10s the recording is incomplete: it ends where CMD was killed%s\n",
                gp_text_on(page, GP_RED), "cut", gp_text_on(page, GP_OFF));
}

static void text_reads(const struct gp_text_page *page, const struct gp_dryrun_run *run, bool random)
{
    char size[GP_SIZE_TEXT];
    int64_t count = 0;
    uint32_t shown = run->read_count <= GP_DRYRUN_READS + 1 ? run->read_count : GP_DRYRUN_READS;
    for (uint32_t i = 0; i < run->read_count; i++)
        count += run->reads[i].count;
    if (!count)
        return;
    fprintf(page->out,
            "\n  Results read back %" PRId64 " times: kernels computed nothing, so they are %s. If CMD decides by\n"
            "  one of them, it may do something else on a GPU.\n",
            count, random ? "random" : "zeros");
    if (gp_dryrun_failed(run) && !random)
        fprintf(page->out, "  If CMD failed because of a zero, try --fill=random.\n");
    for (uint32_t i = 0; i < shown; i++) {
        const struct gp_dryrun_read *read = &run->reads[i];
        fprintf(page->out, "  %10s %7" PRId64 " x ", gp_size_text(size, read->bytes), read->count);
        gp_text_cut(page, read->place.text[0] ? read->place.text : "not from Python", gp_text_room(page, 23));
        fputc('\n', page->out);
    }
    if (shown < run->read_count)
        fprintf(page->out, "  %10s %s%" PRIu32 " more lines: --json lists them%s\n", "", gp_text_on(page, GP_DIM),
                run->read_count - shown, gp_text_on(page, GP_OFF));
}

static void text_written(const struct gp_text_page *page, const struct gp_dryrun_run *run)
{
    char size[GP_SIZE_TEXT];
    if (run->written_bytes >= GP_DRYRUN_FILES)
        fprintf(page->out, "\n  CMD wrote %s to files. A checkpoint of a dry run holds zeros: remove it.\n",
                gp_size_text(size, run->written_bytes));
}

static void text_status(const struct gp_text_page *page, const struct gp_dryrun_answer *answer)
{
    for (uint32_t i = 0; i < answer->gpu_count; i++) {
        const struct gp_dryrun_gpu *gpu = &answer->gpus[i];
        const struct gp_dryrun_run *run = &answer->runs[gpu->run];
        if (gpu->verdict != GP_DRYRUN_FAILED && !gp_dryrun_failed(run))
            continue;
        if (run->status > 128)
            fprintf(page->out, "%sCMD was ended by signal %d%s", gp_text_on(page, GP_RED), run->status - 128,
                    gp_text_on(page, GP_OFF));
        else
            fprintf(page->out, "%sCMD failed with status %d%s", gp_text_on(page, GP_RED), run->status,
                    gp_text_on(page, GP_OFF));
        fprintf(page->out, "%s: what follows is what it had used until then\n",
                gpu->verdict == GP_DRYRUN_FAILED ? ", and not for lack of memory" : "");
        return;
    }
}

/* The whole recording may not tell the steps that its beginning showed, and the process that has them may not be the one
 * that needs most. */
static void text_ended_early(const struct gp_text_page *page, const struct gp_dryrun_run *run)
{
    uint32_t steps = 0;
    for (uint32_t i = 0; i < run->need_count; i++)
        GP_RAISE(steps, run->needs[i].steps);
    if (steps)
        fprintf(page->out, "CMD was ended after %" PRIu32 " step%s, when the peak repeated\n", steps,
                steps == 1 ? "" : "s");
    else
        fputs("CMD was ended by --steps, when the peak of what seemed to be steps repeated. The whole recording tells "
              "no steps, so a later peak may be missing: run it without --steps\n",
              page->out);
}

static void text_ended(const struct gp_text_page *page, const struct gp_dryrun_run *run, const struct gp_need *need)
{
    if (run->ended) {
        text_ended_early(page, run);
    } else if (run->unended && need && !need->steps) {
        fputs("CMD was not ended by --steps: neither its stacks nor marks nor ranges tell its steps", page->out);
        if (need->repeats)
            fprintf(page->out, ", and the %" PRIu32 " repeats (%.0f %% even) may be parts of one", need->repeats,
                    need->repeats_sure * 100);
        fputs(". Mark each step with gpuprof_mark(\"step\") or an NVTX range\n", page->out);
    }
}

static void text_batches(const struct gp_text_page *page, const struct gp_dryrun_answer *answer)
{
    char size[GP_SIZE_TEXT];
    const struct gp_dryrun_batch *largest = gp_dryrun_batch_largest(answer), *next = NULL;
    double more = gp_dryrun_batch_more(answer);
    if (!answer->batch_count)
        return;
    fprintf(page->out, "\n  %-15s %11s\n", "BATCH", "NEEDED");
    for (uint32_t i = 0; i < answer->batch_count; i++) {
        const struct gp_dryrun_batch *batch = &answer->batches[i];
        fprintf(page->out, "  %-15" PRId64 " %11s  %s\n", batch->size, gp_size_text(size, batch->needed_bytes),
                batch->verdict == GP_DRYRUN_FITS        ? "fits"
                : batch->verdict == GP_DRYRUN_TOO_LARGE ? "does not fit"
                                                        : "CMD failed, and not for lack of memory");
        if (!next && batch->verdict != GP_DRYRUN_FITS)
            next = batch;
    }
    if (more > 0)
        fprintf(page->out, "  each more costs %s, between %" PRId64 " and %" PRId64 "\n",
                gp_size_text(size, (int64_t)more), answer->batch_sizes[0], answer->batch_sizes[1]);
    if (largest && next)
        fprintf(page->out, "  the largest that fits: %" PRId64 " (tried, as was %" PRId64 ", which %s)\n",
                largest->size, next->size, next->verdict == GP_DRYRUN_TOO_LARGE ? "does not" : "fails");
    else if (largest)
        fprintf(page->out, "  the largest that was tried: %" PRId64 "\n", largest->size);
}

void gp_text_dryrun(const struct gp_text_page *page, const struct gp_dryrun_answer *answer)
{
    const struct gp_dryrun_run *run = &answer->runs[answer->shown];
    const struct gp_need *need = gp_dryrun_worst(run);
    text_status(page, answer);
    text_ended(page, run, need);
    text_gpus(page, answer);
    text_caches(page, answer);
    text_batches(page, answer);
    text_cut(page, run, need);
    if (!need)
        return;
    text_heading(page, run, need);
    text_uses(page, run, need);
    text_ahead(page, need);
    fputc('\n', page->out);
    text_lines(page, need);
    text_ranks(page, run);
    gp_text_helps(page, answer);
    text_sure(page, run, need);
    text_reads(page, run, answer->random);
    text_written(page, run);
}
