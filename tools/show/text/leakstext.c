/* SPDX-License-Identifier: MIT
 * leakstext.c: what grows, as text for a terminal, and the stacks of call sites; see textpage.h. */
#include <analyze/analyze.h>
#include <analyze/report.h>
#include <read/common/hash.h>
#include <show/text/reportparts.h>
#include <show/text/stats.h>
#include <show/text/text.h>
#include <show/text/textpage.h>
#include <show/text/write.h>
#include <stdio.h>
#include <symbol/symbol.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GP_PAGE_CANDIDATES 3u

void gp_text_step_line(const struct gp_text_page *page, const struct gp_report *report)
{
    const struct gp_steps *steps = report->steps;
    char each[GP_SIZE_TEXT], rhythm[GP_RHYTHM_TEXT], text[GP_SIZE_TEXT + GP_RHYTHM_TEXT + 32];
    gp_seconds_text(each, (double)steps->length_ns / 1e9);
    snprintf(text, sizeof(text), "%u %s of %s: %s", steps->count, gp_steps_words(steps, steps->count), each,
             gp_report_rhythm(report, rhythm));
    fputs(gp_text_on(page, GP_DIM), page->out);
    gp_text_phrases(page, text, 2);
    fprintf(page->out, "%s\n", gp_text_on(page, GP_OFF));
}

/* What a run of frames that a reader does not need is called. */
static const char *page_run_name(const struct gp_frame_text *frame)
{
    return frame->role == GP_ROLE_INTERPRETER ? "python" : frame->role == GP_ROLE_START ? "libc" : "libraries";
}

static bool page_is_users(const struct gp_frame_text *frame)
{
    return frame->role == GP_ROLE_USER || frame->role == GP_ROLE_WRAPPER;
}

void gp_text_stack(const struct gp_text_page *page, const struct gp_report *report, uint32_t site, uint32_t rows)
{
    const struct gp_frame_text *frames, *name = gp_symbols_name(report->symbols, site);
    uint32_t count = gp_symbols_site(report->symbols, site, &frames), place = (uint32_t)(name - frames);
    for (uint32_t i = 0, lines = 0, end; i < count; i = end) {
        char label[256];
        const char *what = page_run_name(&frames[i]);
        bool users = page_is_users(&frames[i]) || i == place;
        for (end = i + 1; !users && end < count && end != place && !page_is_users(&frames[end]) &&
                          page_run_name(&frames[end]) == what;)
            end++;
        if (lines++ == rows && i > place) {
            fprintf(page->out, "       %s... %u more frames%s\n", gp_text_on(page, GP_DIM), count - i,
                    gp_text_on(page, GP_OFF));
            return;
        }
        lines -= i <= place;
        if (end - i > 1)
            snprintf(label, sizeof(label), "... %u frames of %s", end - i, what);
        else
            gp_frame_label(&frames[i], label, sizeof(label));
        fprintf(page->out, "       %s", gp_text_on(page, i == place ? GP_BOLD : users ? "" : GP_DIM));
        gp_text_cut(page, label, gp_text_width(page) - 8);
        fprintf(page->out, "%s\n", gp_text_on(page, GP_OFF));
    }
}

/* A name must be distinct among all sites of the recording, not only among those that grow: the reader
 * looks for it in the program. */
struct page_names {
    const struct gp_frame_text **callers, **callees; /* of each site; NULL: out of memory */
};

static struct page_names page_name_sites(const struct gp_report *report)
{
    uint32_t count = report->recording->site_count;
    uint32_t *sites = calloc(count + 1ul, sizeof(*sites));
    struct page_names names = {.callers = sites ? calloc(2 * (count + 1ul), sizeof(*names.callers)) : NULL};
    names.callees = names.callers ? names.callers + count : NULL;
    for (uint32_t i = 0; names.callers && i < count; i++)
        sites[i] = i;
    if (names.callers) {
        gp_symbols_callers(report->symbols, sites, count, names.callers);
        gp_symbols_callees(report->symbols, sites, count, names.callees);
    }
    free(sites);
    return names;
}

static void page_names_free(struct page_names *names)
{
    free(names->callers);
}

static void page_leak(const struct gp_text_page *page, const struct gp_report *report, const struct page_names *names,
                      const struct gp_leak *leak, uint32_t i, uint32_t frames)
{
    char slope[GP_SIZE_TEXT], live[GP_SIZE_TEXT], oom[GP_SIZE_TEXT], age[GP_SIZE_TEXT];
    char evidence[GP_EVIDENCE_TEXT], because[GP_BECAUSE_TEXT], text[512];
    const uint32_t points = leak->points + 1;
    /* A stretch of time is no step, and no measure of certainty. */
    bool timed = report->steps->source == GP_STEPS_TIME || leak->doubt == GP_LEAK_NO_STEPS;
    fprintf(page->out, "%3u  %s%s per %s%s  ", i + 1, gp_text_on(page, leak->doubt ? GP_BOLD : GP_RED),
            gp_size_text(slope, (int64_t)(timed ? leak->bytes_per_second : leak->bytes_per_step)),
            timed         ? "second"
            : leak->doubt ? "repeat"
                          : gp_steps_word(report->steps),
            gp_text_on(page, GP_OFF));
    gp_text_site(page, report, leak->site, names->callers[leak->site], names->callees[leak->site], 28);
    fprintf(page->out, "\n     ");
    gp_text_spark(page, leak->kept, points, 24);
    fputs("  ", page->out);
    int used = snprintf(text, sizeof(text), "%s in %" PRId64 " block%s (%s), the oldest %s old%s",
                        gp_size_text(live, leak->live_bytes), leak->live_count,
                        gp_text_plural((uint64_t)leak->live_count), gp_kind_name(leak->kind),
                        gp_seconds_text(age, (double)leak->oldest_ns / 1e9), page->whole ? "\n     " : "; ");
    if (!timed || leak->doubt)
        used += snprintf(text + used, sizeof(text) - (size_t)used, "confidence %.0f %%; ", leak->confidence * 100);
    used += snprintf(text + used, sizeof(text) - (size_t)used, "%s", gp_report_evidence(leak, evidence));
    if (leak->seconds_to_oom >= 0 && !leak->doubt)
        snprintf(text + used, sizeof(text) - (size_t)used, "; device full in %s",
                 gp_seconds_text(oom, leak->seconds_to_oom));
    gp_text_phrases(page, text, 7 + (int)(points < 24 ? points : 24));
    if (leak->doubt) {
        fputs("\n     ", page->out);
        gp_text_phrases(page, gp_report_because(leak, gp_steps_word(report->steps), NULL, because), 5);
    }
    fputc('\n', page->out);
    if (frames)
        gp_text_stack(page, report, leak->site, frames);
}

static void page_leaks(const struct gp_text_page *page, const struct gp_report *report, const struct page_names *names,
                       uint32_t first, uint32_t count, uint32_t frames)
{
    for (uint32_t i = 0; i < count; i++) {
        if (frames)
            fputc('\n', page->out);
        page_leak(page, report, names, &report->leaks->suspects[first + i], i, frames);
    }
}

void gp_text_growth(const struct gp_text_page *page, const struct gp_report *report, uint32_t most, uint32_t frames)
{
    const struct gp_leaks *leaks = report->leaks;
    if (report->recording->from_pprof) {
        fprintf(page->out, "it is not known what grows: a heap profile is one moment; 'gpuprof diff' compares two\n");
        return;
    }
    uint32_t candidates = leaks->candidates < GP_PAGE_CANDIDATES ? leaks->candidates : GP_PAGE_CANDIDATES;
    gp_text_step_line(page, report);
    if (leaks->count == 0)
        fprintf(page->out, "no suspects: %s\n", leaks->why);
    if (!leaks->count && !candidates)
        return;
    struct page_names names = page_name_sites(report);
    if (names.callers)
        page_leaks(page, report, &names, 0, leaks->count < most ? leaks->count : most, frames);
    if (names.callers && candidates) {
        fprintf(page->out, "%scandidates, of which it is not known whether they leak:\n", frames ? "\n" : "");
        page_leaks(page, report, &names, leaks->count, candidates, frames);
    }
    page_names_free(&names);
    if (leaks->candidates > candidates)
        fprintf(page->out, "%s%u more candidate%s: use 'gpuprof leaks --json' to list them\n", frames ? "\n" : "",
                leaks->candidates - candidates, gp_text_plural(leaks->candidates - candidates));
}
