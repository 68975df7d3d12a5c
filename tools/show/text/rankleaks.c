/* SPDX-License-Identifier: MIT
 *
 * rankleaks.c: what grows in the ranks of a job, as text and as JSON (ranks.h).  A row is of ranks that are alike; where
 * they differ in a number, the row has both ends.  Called by `gpuprof leaks`.
 */
#include <analyze/rankleaks.h>
#include <common/values.h>
#include <jansson.h>
#include <show/text/ranks.h>
#include <show/text/reportparts.h>
#include <show/text/stats.h>
#include <show/text/text.h>
#include <show/text/textpage.h>
#include <stdio.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GP_RANK_LEAKS_ROWS   5u  /* names of a group in the text */
#define GP_RANK_LEAKS_GROUPS 40u /* groups on a terminal */
#define GP_RANK_LEAKS_RANGE  64u

static const char *const answer_names[GP_RANK_ANSWERS] = {"suspects", "candidates", "unknown", "none"};

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

static const char *range_of(char text[GP_RANK_LEAKS_RANGE], const char *low, const char *high)
{
    if (strcmp(low, high) == 0)
        snprintf(text, GP_RANK_LEAKS_RANGE, "%s", low);
    else
        snprintf(text, GP_RANK_LEAKS_RANGE, "%.24s to %.24s", low, high);
    return text;
}

static const char *range_sizes(char text[GP_RANK_LEAKS_RANGE], struct gp_rank_range range)
{
    char low[GP_SIZE_TEXT], high[GP_SIZE_TEXT];
    return range_of(text, gp_size_text(low, (int64_t)range.low), gp_size_text(high, (int64_t)range.high));
}

static const char *range_numbers(char text[GP_RANK_LEAKS_RANGE], struct gp_rank_range range, double times)
{
    char low[GP_SIZE_TEXT], high[GP_SIZE_TEXT];
    snprintf(low, sizeof(low), "%.0f", range.low * times);
    snprintf(high, sizeof(high), "%.0f", range.high * times);
    return range_of(text, low, high);
}

static const char *range_seconds(char text[GP_RANK_LEAKS_RANGE], struct gp_rank_range range)
{
    char low[GP_SIZE_TEXT], high[GP_SIZE_TEXT];
    return range_of(text, gp_seconds_text(low, range.low), gp_seconds_text(high, range.high));
}

/* ---- what is unlike ---------------------------------------------------------------------------------------------- */

/* A name of the other group that is the same but for the place; NULL: there is none. */
static const struct gp_rank_leak_row *why_same(const struct gp_rank_leak_group *group,
                                               const struct gp_rank_grown *grown)
{
    for (uint32_t i = 0; i < group->row_count; i++) {
        const struct gp_rank_grown *at = group->rows[i].first;
        if (at->leak.kind == grown->leak.kind && strcmp(at->name, grown->name) == 0 &&
            strcmp(at->owner, grown->owner) == 0)
            return &group->rows[i];
    }
    return NULL;
}

static const char *why_place(char text[GP_RANK_LEAKS_RANGE], const struct gp_rank_grown *grown)
{
    if (grown->own)
        snprintf(text, GP_RANK_LEAKS_RANGE, "the rank's fullest GPU");
    else if (grown->device < 0)
        snprintf(text, GP_RANK_LEAKS_RANGE, "the host");
    else
        snprintf(text, GP_RANK_LEAKS_RANGE, "GPU %d", grown->device);
    return text;
}

/* The same name in both: its place and its rate. */
static void why_differs(const struct gp_rank_leak_row *row, const struct gp_rank_leak_row *usual, const char *word,
                        const char *others, char text[GP_VERDICT_TEXT])
{
    char here[GP_RANK_LEAKS_RANGE], there[GP_RANK_LEAKS_RANGE];
    const char *name = row->first->name;
    if (row->first->own != usual->first->own || (!row->first->own && row->first->device != usual->first->device))
        gp_ranks_why(text, "%s grows on %s, and on %s on %s", name, why_place(here, row->first),
                     why_place(there, usual->first), others);
    if (row->rate.low > usual->rate.high / 0.9 || row->rate.high < usual->rate.low * 0.9)
        gp_ranks_why(text, "%s keeps %s per %s, and %s on %s", name, range_sizes(here, row->rate), word,
                     range_sizes(there, usual->rate), others);
}

/* A row of the other group that has the name, with another kind or owner, and is in this one with neither. */
static const struct gp_rank_leak_row *why_twin(const struct gp_rank_leak_group *group,
                                               const struct gp_rank_leak_group *other,
                                               const struct gp_rank_grown *grown)
{
    for (uint32_t i = 0; i < other->row_count; i++)
        if (strcmp(other->rows[i].first->name, grown->name) == 0 && !why_same(group, other->rows[i].first))
            return &other->rows[i];
    return NULL;
}

static void why_rows(const struct gp_rank_leak_group *group, const struct gp_rank_leak_group *usual, const char *others,
                     char text[GP_VERDICT_TEXT])
{
    for (uint32_t i = 0; i < group->row_count; i++) {
        const struct gp_rank_leak_row *row = &group->rows[i], *same = why_same(usual, row->first);
        const struct gp_rank_leak_row *twin = same ? NULL : why_twin(group, usual, row->first);
        if (twin)
            gp_ranks_why(text, "%s is %s memory that %s asked for, and %s memory of %s on %s", row->first->name,
                         gp_kind_name(row->first->leak.kind), row->first->owner, gp_kind_name(twin->first->leak.kind),
                         twin->first->owner, others);
        else if (!same)
            gp_ranks_why(text, "%s grows here, and not on %s", row->first->name, others);
        if (same || twin)
            why_differs(row, same ? same : twin, group->first->growth->step_word, others, text);
    }
    for (uint32_t i = 0; i < usual->row_count; i++)
        if (!why_same(group, usual->rows[i].first) && !why_twin(usual, group, usual->rows[i].first))
            gp_ranks_why(text, "%s, which grows on %s, does not grow here", usual->rows[i].first->name, others);
}

static const char *step_words(char text[GP_SIZE_TEXT], const struct gp_rank_growth *growth, bool one)
{
    bool sibilant = strcmp(growth->step_word, "stretch") == 0;
    snprintf(text, GP_SIZE_TEXT, "%.12s%s", growth->step_word, one ? "" : sibilant ? "es" : "s");
    return text;
}

static void why_steps(const struct gp_rank_growth *growth, const struct gp_rank_growth *usual, const char *others,
                      char text[GP_VERDICT_TEXT])
{
    char here[GP_SIZE_TEXT], there[GP_SIZE_TEXT], word[GP_SIZE_TEXT], other[GP_SIZE_TEXT];
    if (growth->answer == GP_RANK_CANNOT_KNOW || usual->answer == GP_RANK_CANNOT_KNOW)
        return;
    if (strcmp(growth->step_found, usual->step_found) != 0 || strcmp(growth->step_word, usual->step_word) != 0)
        gp_ranks_why(text, "it has %s of %s (%s), and %s of %s (%s) are on %s", step_words(word, growth, false),
                     gp_seconds_text(here, (double)growth->step_ns / 1e9), growth->step_found,
                     step_words(other, usual, false), gp_seconds_text(there, (double)usual->step_ns / 1e9),
                     usual->step_found, others);
}

/* Why the ranks of the group are not among the usual ones. */
static const char *why_unlike(const struct gp_rank_leaks *leaks, uint32_t number, char text[GP_VERDICT_TEXT])
{
    static const char *const usually[GP_RANK_ANSWERS] = {"leaks", "may leak", "cannot be judged", ""};
    char here[GP_SIZE_TEXT], there[GP_SIZE_TEXT];
    const struct gp_rank_leak_group *group = &leaks->groups[number], *usual = &leaks->groups[leaks->usual];
    const struct gp_rank_growth *growth = group->first->growth, *theirs = usual->first->growth;
    const struct gp_job_rank *a = group->first, *b = usual->first;
    const char *others = usual->count * 2 > leaks->all.count ? "most ranks" : "other ranks";
    text[0] = '\0';
    if (growth->answer == GP_RANK_CANNOT_KNOW)
        gp_ranks_why(text, "it cannot be known here whether something leaks: %s", growth->why);
    else if (growth->answer == GP_RANK_NOTHING_GROWS && usual->row_count)
        gp_ranks_why(text, "nothing grows here, and %s %s on %s", usual->rows[0].first->name, usually[theirs->answer],
                     others);
    else if (growth->answer == GP_RANK_NOTHING_GROWS && theirs->answer == GP_RANK_CANNOT_KNOW)
        gp_ranks_why(text, "nothing grows here, and it cannot be known on %s", others);
    else if (theirs->answer > GP_RANK_CANDIDATES && group->row_count)
        gp_ranks_why(text, "%s %s here, and %s on %s", group->rows[0].first->name, usually[growth->answer],
                     theirs->answer == GP_RANK_NOTHING_GROWS ? "nothing grows" : "it cannot be known", others);
    else if (growth->answer != theirs->answer && theirs->answer <= GP_RANK_CANDIDATES)
        gp_ranks_why(text, "%s here, and %s on %s",
                     growth->answer == GP_RANK_SUSPECTS ? "it is known that it leaks"
                                                        : "it is not known whether it leaks",
                     theirs->answer == GP_RANK_SUSPECTS ? "known" : "not known", others);
    if (group->row_count && usual->row_count)
        why_rows(group, usual, others, text);
    why_steps(growth, theirs, others, text);
    if (group->row_count && usual->row_count &&
        (strcmp(a->device_name, b->device_name) != 0 || a->total_bytes != b->total_bytes))
        gp_ranks_why(text, "its GPU is %s of %s, and %s of %s on %s", a->device_name,
                     gp_size_text(here, a->total_bytes), b->device_name, gp_size_text(there, b->total_bytes), others);
    if (!text[0])
        gp_ranks_why(text, "it differs in more than is named here: --json lists what each rank has");
    return text;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The columns that it took. */
static int text_heading(const struct gp_text_page *page, const struct gp_rank_leaks *leaks, uint32_t number)
{
    char numbers[GP_RANKS_NUMBERS + 1];
    const struct gp_rank_leak_group *group = &leaks->groups[number];
    gp_ranks_numbers(numbers, &leaks->all, number);
    fprintf(page->out, "\n%srank%s %s%s: ", gp_text_on(page, GP_BOLD), gp_text_plural(group->count), numbers,
            gp_text_on(page, GP_OFF));
    return (int)(strlen(numbers) + strlen("rank : ")) + (group->count > 1);
}

/* full: NULL where it is not known of all the group's ranks. */
static const char *text_because(const struct gp_rank_leak_group *group, const struct gp_rank_leak_row *row,
                                const char *full, char text[GP_BECAUSE_TEXT])
{
    struct gp_leak leak = row->first->leak;
    leak.seconds_to_oom = -1;
    return gp_report_because(&leak, group->first->growth->step_word, full, text);
}

static void text_row(const struct gp_text_page *page, const struct gp_rank_leak_group *group,
                     const struct gp_rank_leak_row *row, int column)
{
    char rate[GP_RANK_LEAKS_RANGE], bytes[GP_RANK_LEAKS_RANGE], blocks[GP_RANK_LEAKS_RANGE];
    char sure[GP_RANK_LEAKS_RANGE], full[GP_RANK_LEAKS_RANGE], place[GP_RANK_LEAKS_RANGE], because[GP_BECAUSE_TEXT];
    char text[512];
    const struct gp_leak *leak = &row->first->leak;
    bool timed = group->first->growth->timed || leak->doubt == GP_LEAK_NO_STEPS;
    const char *unit = timed ? "second" : leak->doubt ? "repeat" : group->first->growth->step_word;
    int used = snprintf(text, sizeof(text), "%s per %s", range_sizes(rate, row->rate), unit);
    fprintf(page->out, "%s%s%s at ", gp_text_on(page, leak->doubt ? GP_BOLD : GP_RED), text, gp_text_on(page, GP_OFF));
    gp_text_cut(page, row->first->name, gp_text_width(page) - column - used - 4);
    fputc('\n', page->out);
    used = snprintf(text, sizeof(text), "%s in %s block%s (%s)%s", range_sizes(bytes, row->bytes),
                    range_numbers(blocks, row->blocks, 1), row->blocks.high > 1 ? "s" : "", gp_kind_name(leak->kind),
                    group->count > 1 ? " on each" : "");
    if (!row->first->own)
        used += snprintf(text + used, sizeof(text) - (size_t)used, " on %s", why_place(place, row->first));
    if (!timed || leak->doubt)
        used += snprintf(text + used, sizeof(text) - (size_t)used, "; confidence %s %%",
                         range_numbers(sure, row->sure, 100));
    const bool ends = row->seconds_to_oom.low >= 0;
    if (ends)
        range_seconds(full, row->seconds_to_oom);
    if (ends && !leak->doubt)
        snprintf(text + used, sizeof(text) - (size_t)used, "; device full in %s", full);
    fputs("     ", page->out);
    gp_text_phrases(page, text, 5);
    if (leak->doubt) {
        fputs("\n     ", page->out);
        gp_text_phrases(page, text_because(group, row, ends ? full : NULL, because), 5);
    }
    fputc('\n', page->out);
}

static void text_steps(const struct gp_text_page *page, const struct gp_rank_leak_group *group)
{
    char steps[GP_RANK_LEAKS_RANGE], each[GP_SIZE_TEXT], word[GP_SIZE_TEXT];
    char text[GP_RANK_LEAKS_RANGE + GP_RANK_RHYTHM + 64];
    const struct gp_rank_growth *growth = group->first->growth;
    if (growth->answer == GP_RANK_CANNOT_KNOW) /* it says why */
        return;
    snprintf(text, sizeof(text), "%s %s of %s: %s", range_numbers(steps, group->steps, 1),
             step_words(word, growth, group->steps.high == 1), gp_seconds_text(each, (double)growth->step_ns / 1e9),
             growth->rhythm);
    fprintf(page->out, "     %s", gp_text_on(page, GP_DIM));
    gp_text_phrases(page, text, 5);
    fprintf(page->out, "%s\n", gp_text_on(page, GP_OFF));
}

static void text_group(const struct gp_text_page *page, const struct gp_rank_leaks *leaks, uint32_t number)
{
    char why[GP_VERDICT_TEXT], many[GP_RANK_LEAKS_RANGE];
    const struct gp_rank_leak_group *group = &leaks->groups[number];
    const struct gp_rank_growth *growth = group->first->growth;
    uint32_t named = growth->suspects ? growth->suspects : growth->candidates;
    int column = text_heading(page, leaks, number);
    if (growth->answer == GP_RANK_CANNOT_KNOW)
        fprintf(page->out, "it cannot be known: %s\n", growth->why);
    else if (growth->answer == GP_RANK_NOTHING_GROWS)
        fprintf(page->out, "no suspects: %s\n", growth->why);
    else if (growth->answer == GP_RANK_CANDIDATES)
        fprintf(page->out, "candidate%s, of which it is not known whether %s\n     ", gp_text_plural(named),
                named == 1 ? "it leaks" : "they leak");
    for (uint32_t i = 0; i < group->row_count && i < GP_RANK_LEAKS_ROWS; i++) {
        if (i)
            fputs("     ", page->out);
        text_row(page, group, &group->rows[i], i || growth->answer == GP_RANK_CANDIDATES ? 5 : column);
    }
    if (named > GP_RANK_LEAKS_ROWS)
        fprintf(page->out, "     %u more: use --json to list them\n", named - GP_RANK_LEAKS_ROWS);
    if (group->others.high > 0)
        fprintf(page->out, "     %s candidate%s besides: use --json to list them\n",
                range_numbers(many, group->others, 1), group->others.high == 1 ? "" : "s");
    text_steps(page, group);
    if (number == leaks->usual || growth->answer == GP_RANK_CANNOT_KNOW)
        return;
    fputs("     unlike: ", page->out);
    gp_text_phrases(page, why_unlike(leaks, number, why), 13);
    fputc('\n', page->out);
}

/* "13 have suspects, 1 has candidates alone, 2 cannot be known" */
static void text_answers(const struct gp_text_page *page, const struct gp_rank_leaks *leaks)
{
    static const char *const many[GP_RANK_ANSWERS] = {"leak",
                                                      "have candidates alone: it is not known whether they leak",
                                                      "cannot be known", "do not leak: nothing grows with their steps"};
    static const char *const one[GP_RANK_ANSWERS] = {"leaks", "has candidates alone: it is not known whether it leaks",
                                                     "cannot be known", "does not leak: nothing grows with its steps"};
    fprintf(page->out, "%s%u recording%s", gp_text_on(page, GP_BOLD), leaks->all.count,
            gp_text_plural(leaks->all.count));
    fprintf(page->out, " of %u rank%s%s\n", leaks->numbers, gp_text_plural(leaks->numbers), gp_text_on(page, GP_OFF));
    for (uint32_t i = 0; i < GP_RANK_ANSWERS; i++)
        if (leaks->answers[i])
            fprintf(page->out, "  %6u %s\n", leaks->answers[i], leaks->answers[i] == 1 ? one[i] : many[i]);
}

static bool is_early(const struct gp_rank_growth *growth)
{
    return growth->early;
}

static bool is_lossy(const struct gp_rank_growth *growth)
{
    return growth->lossy;
}

/* Names the ranks whose recordings have a flaw. */
static void text_note(const struct gp_text_page *page, const struct gp_rank_leaks *leaks,
                      bool has(const struct gp_rank_growth *growth), uint32_t count, const char *what)
{
    char text[GP_RANKS_NUMBERS + 1];
    int32_t *numbers = count ? calloc(count, sizeof(*numbers)) : NULL;
    uint32_t used = 0;
    for (uint32_t i = 0; numbers && i < leaks->all.count; i++)
        if (has(leaks->all.ranks[i].growth))
            numbers[used++] = leaks->all.ranks[i].number;
    if (used)
        gp_rank_numbers(text, numbers, used);
    if (count)
        fprintf(page->out, "%snote: the recordings of rank%s %s %s%s\n", gp_text_on(page, GP_RED),
                gp_text_plural(count), used ? text : "(out of memory)", what, gp_text_on(page, GP_OFF));
    free(numbers);
}

void gp_rank_leaks_text(const struct gp_text_page *page, const struct gp_rank_leaks *leaks)
{
    const struct gp_ranks *all = &leaks->all;
    char when[GP_SIZE_TEXT];
    uint32_t shown = page->whole || all->group_count <= GP_RANK_LEAKS_GROUPS ? all->group_count : GP_RANK_LEAKS_GROUPS;
    text_answers(page, leaks);
    if (leaks->full)
        fprintf(page->out, "the first device is full in %s: that of rank %d\n",
                gp_seconds_text(when, leaks->full_seconds), leaks->full->number);
    text_note(page, leaks, is_early, leaks->early, "end early, and what came after is not known");
    text_note(page, leaks, is_lossy, leaks->lossy,
              "lack events: blocks may be missing there or appear to live too long");
    if (all->left_count)
        fprintf(page->out, "%snote: %u of %u files are left out, and in no number here%s\n", gp_text_on(page, GP_RED),
                all->left_count, all->left_count + all->count, gp_text_on(page, GP_OFF));
    gp_ranks_text_missing(page, all);
    for (uint32_t group = 0; group < shown; group++)
        text_group(page, leaks, group);
    if (shown < all->group_count)
        fprintf(page->out, "\n%u more rows of ranks: use --json to list them\n", all->group_count - shown);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *json_place(const struct gp_rank_grown *row)
{
    return row->device < 0 ? json_string("host") : json_integer(row->device);
}

/* Suspects, or candidates: as `gpuprof leaks` of one recording has them, but for what is of one site alone. */
static json_t *json_grown(const struct gp_rank_growth *growth, bool suspects)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < growth->count; i++) {
        const struct gp_rank_grown *row = &growth->rows[i];
        const struct gp_leak *leak = &row->leak;
        char because[GP_BECAUSE_TEXT], evidence[GP_EVIDENCE_TEXT];
        if (!leak->doubt != suspects)
            continue;
        json_t *object = json_pack(
            "{s:o,s:s,s:I,s:o,s:b,s:s,s:I,s:I,s:f,s:f,s:f,s:o,s:f,s:f,s:I,s:I,s:s,s:o}", "name",
            gp_json_words(row->name), "owner", row->owner, "sites", (json_int_t)row->sites, "device", json_place(row),
            "fullest", row->own, "kind", gp_kind_name(leak->kind), "live_bytes", (json_int_t)leak->live_bytes,
            "live_count", (json_int_t)leak->live_count, "bytes_per_step", leak->bytes_per_step, "bytes_per_second",
            leak->bytes_per_second, "confidence", leak->confidence, "seconds_to_oom",
            gp_json_known_seconds(leak->seconds_to_oom), "oldest_seconds", (double)leak->oldest_ns / 1e9,
            "grows_seconds", (double)leak->grows_ns / 1e9, "allocated_bytes", (json_int_t)leak->taken_bytes,
            "freed_bytes", (json_int_t)leak->freed_bytes, "evidence", gp_report_evidence(leak, evidence), "because",
            leak->doubt ? json_string(gp_report_because(leak, growth->step_word, NULL, because)) : json_null());
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *json_rank(const struct gp_job_rank *rank)
{
    static const char *const from[] = {"recording", "file name", "order"};
    const struct gp_rank_growth *growth = rank->growth;
    json_t *row = json_pack(
        "{s:i,s:o,s:o,s:s,s:o,s:s,s:I,s:s,s:s,s:b,s:I,s:I,s:I,s:o,s:s,s:o}", "rank", rank->number, "local_rank",
        gp_json_known(rank->local_number), "world_size", gp_json_known(rank->world_size), "rank_from", from[rank->from],
        "file", gp_json_words(rank->file), "host", rank->host, "pid", (json_int_t)rank->pid, "comm", rank->comm,
        "format", gp_rec_format(rank->from_torch, rank->from_rmm, rank->from_pprof), "complete", !growth->early,
        "missing_events", (json_int_t)rank->missing, "damaged_blocks", (json_int_t)growth->damaged_blocks, "events",
        (json_int_t)rank->events, "device", rank->device_count ? json_integer(rank->device) : json_null(),
        "device_name", rank->device_name, "total_bytes", gp_json_known(rank->total_bytes));
    json_t *more =
        json_pack("{s:i,s:s,s:s,s:I,s:s,s:s,s:s,s:s,s:f,s:s,s:I,s:I,s:o,s:o}", "group", (int)rank->group, "answer",
                  answer_names[growth->answer], "why", growth->why, "steps", (json_int_t)growth->steps, "step_source",
                  growth->step_source, "step_found", growth->step_found, "step_word", growth->step_word, "step_name",
                  growth->step_name, "step_seconds", (double)growth->step_ns / 1e9, "step_rhythm", growth->rhythm,
                  "suspect_count", (json_int_t)growth->suspects, "candidate_count", (json_int_t)growth->candidates,
                  "suspects", json_grown(growth, true), "candidates", json_grown(growth, false));
    if (!row || !more || json_object_update(row, more) != 0) {
        json_decref(row);
        row = NULL;
    }
    json_decref(more);
    return row;
}

static json_t *json_range(struct gp_rank_range range)
{
    return json_pack("[f,f]", range.low, range.high);
}

static json_t *json_counts(struct gp_rank_range range)
{
    return json_pack("[I,I]", (json_int_t)range.low, (json_int_t)range.high);
}

/* The numbers of a group's ranks, as spans. */
static json_t *json_spans(const struct gp_ranks *all, uint32_t group)
{
    json_t *list = json_array();
    int32_t first = 0, last = 0;
    bool open = false;
    /* They are sorted by group and number. */
    for (uint32_t i = 0; i < all->count; i++) {
        const struct gp_job_rank *rank = &all->ranks[i];
        if (rank->group != group)
            continue;
        if (open && rank->number <= last + 1) {
            last = rank->number;
            continue;
        }
        if (open)
            json_array_append_new(list, json_pack("[i,i]", first, last));
        first = last = rank->number;
        open = true;
    }
    if (open)
        json_array_append_new(list, json_pack("[i,i]", first, last));
    return list;
}

static json_t *json_group(const struct gp_rank_leaks *leaks, uint32_t number)
{
    const struct gp_rank_leak_group *group = &leaks->groups[number];
    const struct gp_rank_growth *growth = group->first->growth;
    json_t *rows = json_array();
    for (uint32_t i = 0; i < group->row_count; i++) {
        const struct gp_rank_leak_row *row = &group->rows[i];
        const struct gp_rank_grown *grown = row->first;
        bool timed = growth->timed || grown->leak.doubt == GP_LEAK_NO_STEPS;
        json_array_append_new(
            rows, json_pack("{s:o,s:s,s:s,s:b,s:o,s:b,s:s,s:o,s:o,s:o,s:o,s:o}", "name", gp_json_words(grown->name),
                            "owner", grown->owner, "kind", gp_kind_name(grown->leak.kind), "suspect",
                            !grown->leak.doubt, "device", grown->own ? json_null() : json_place(grown), "fullest",
                            grown->own, "per", timed ? "second" : growth->step_word, "growth_bytes",
                            json_range(row->rate), "live_bytes", json_counts(row->bytes), "live_count",
                            json_counts(row->blocks), "confidence", json_range(row->sure), "seconds_to_oom",
                            row->seconds_to_oom.low < 0 ? json_null() : json_range(row->seconds_to_oom)));
    }
    return json_pack("{s:i,s:o,s:I,s:s,s:s,s:o,s:s,s:o}", "group", (int)number, "ranks",
                     json_spans(&leaks->all, number), "recordings", (json_int_t)group->count, "answer",
                     answer_names[growth->answer], "why", growth->why, "steps", json_counts(group->steps),
                     "step_rhythm", growth->rhythm, "grown", rows);
}

static json_t *json_unlike(const struct gp_rank_leaks *leaks)
{
    char why[GP_VERDICT_TEXT];
    json_t *list = json_array();
    for (uint32_t group = 0; group < leaks->all.group_count; group++)
        if (group != leaks->usual)
            json_array_append_new(
                list, json_pack("{s:i,s:o}", "group", (int)group, "why", gp_json_words(why_unlike(leaks, group, why))));
    return list;
}

json_t *gp_rank_leaks_json(const struct gp_rank_leaks *leaks)
{
    const struct gp_ranks *all = &leaks->all;
    json_t *ranks = json_array(), *rows = json_array();
    for (uint32_t i = 0; i < all->count; i++)
        json_array_append_new(ranks, json_rank(&all->ranks[i]));
    for (uint32_t group = 0; group < all->group_count; group++)
        json_array_append_new(rows, json_group(leaks, group));
    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:i,s:o,s:o,s:o}", "schema",
                     "gpuprof.leaks-ranks/1", "recordings", (json_int_t)all->count, "different_ranks",
                     (json_int_t)leaks->numbers, "suspect_recordings", (json_int_t)leaks->answers[GP_RANK_SUSPECTS],
                     "candidate_recordings", (json_int_t)leaks->answers[GP_RANK_CANDIDATES], "unknown_recordings",
                     (json_int_t)leaks->answers[GP_RANK_CANNOT_KNOW], "none_recordings",
                     (json_int_t)leaks->answers[GP_RANK_NOTHING_GROWS], "world_size",
                     all->world_size ? json_integer(all->world_size) : json_null(), "missing_ranks",
                     gp_ranks_missing_json(all), "left_out", gp_ranks_left_json(all), "full_first",
                     leaks->full ? json_integer(leaks->full->number) : json_null(), "full_first_seconds",
                     leaks->full ? json_real(leaks->full_seconds) : json_null(), "groups", (int)all->group_count,
                     "rows", rows, "unlike", json_unlike(leaks), "ranks", ranks);
}
