/* SPDX-License-Identifier: MIT
 * ranks.c: see text.h. */
#include <analyze/analyze.h>
#include <analyze/ranks.h>
#include <common/values.h>
#include <jansson.h>
#include <read/recording/recording.h>
#include <show/text/ranks.h>
#include <show/text/stats.h>
#include <show/text/text.h>
#include <show/text/write.h>
#include <stdio.h>

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GP_RANKS_ROWS    10u  /* of a table of text */
#define GP_RANKS_LISTED  200u /* rows of the document, which counts the others */
#define GP_RANKS_CURVES  32u  /* ranks with a curve of their own in the document */
#define GP_RANKS_COLUMNS 64u  /* of a curve of text */

/* ---- sentences --------------------------------------------------------------------------------------------------- */

/* What the times of the recordings are compared by. */
static const char *ranks_clock(const struct gp_ranks *ranks)
{
    return ranks->clock == GP_CLOCK_MONOTONIC
               ? "times are on the clock that the recordings of one machine share (CLOCK_MONOTONIC)"
               : "times are on the wall clocks of the machines, and as exact as these agree";
}

/* Adds to the text, as far as there is room. */
static void ranks_add(char text[GP_VERDICT_TEXT], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void ranks_add(char text[GP_VERDICT_TEXT], const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, GP_VERDICT_TEXT - used, format, arguments);
    va_end(arguments);
}

/* The most important thing as one sentence, and a second one about ranks on another rank's GPU. */
static const char *ranks_verdict(const struct gp_ranks *all, char text[GP_VERDICT_TEXT])
{
    const struct gp_job_rank *worst = &all->ranks[0];
    char peak[GP_SIZE_TEXT], above[GP_SIZE_TEXT], one[GP_SIZE_TEXT], two[GP_SIZE_TEXT];
    int64_t more = worst->peak_bytes - all->median_bytes;
    uint32_t several = 0;
    for (uint32_t i = 0; i < all->count; i++)
        several += all->ranks[i].device_count > 1;
    snprintf(text, GP_VERDICT_TEXT, "Rank %d %speaks at %s", worst->number, worst->ooms ? "ran out of memory: it " : "",
             gp_size_text(peak, worst->peak_bytes));
    const struct gp_rank_row *row = all->site_count ? &all->sites[0] : NULL;
    uint32_t alike, usual = gp_ranks_usual(all, &alike);
    bool apart = (all->highest_bytes - all->lowest_bytes) * 100 > all->median_bytes && usual < all->group_count;
    /* A hundredth is below what differs between two runs of one rank. */
    if (all->count > 1 && more * 100 <= all->median_bytes && apart)
        ranks_add(text, ", %s from the median; %u of %u ranks are alike, and all lie within %s of each other.",
                  gp_size_text(above, more < 0 ? -more : more), alike, all->count,
                  gp_size_text(one, all->highest_bytes - all->lowest_bytes));
    else if (all->count < 2)
        ranks_add(text, "%s. It is the only rank here.", several ? ", on its fullest GPU" : "");
    else if (more * 100 <= all->median_bytes)
        ranks_add(text, ", and all %u ranks lie within %s of each other%s.", all->count,
                  gp_size_text(above, all->highest_bytes - all->lowest_bytes),
                  several ? ", each on its fullest GPU" : "");
    else if (row && row->worst_bytes > row->median_bytes)
        ranks_add(text, ", %s above the median: %s holds %s there, and %s on the median rank.",
                  gp_size_text(above, more), row->name, gp_size_text(one, row->worst_bytes),
                  gp_size_text(two, row->median_bytes));
    else
        ranks_add(text, ", %s above the median.", gp_size_text(above, more));
    struct gp_rank_share most = {0};
    for (uint32_t number = 1; number <= all->shared_count; number++) {
        struct gp_rank_share share = gp_ranks_share(all, number);
        if (share.strays && (!most.gpu || share.gpu->peak_bytes > most.gpu->peak_bytes))
            most = share;
    }
    if (most.other)
        ranks_add(text, " Rank %d also holds %s on GPU %d, where rank %d holds %s: %s.", most.rank->number,
                  gp_size_text(one, most.gpu->peak_bytes), most.gpu->device, most.other->number,
                  gp_size_text(two, most.other_gpu->peak_bytes), most.gpu->site);
    return text;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *ranks_curve(const struct gp_ranks *all, const struct gp_job_rank *rank)
{
    json_t *curve = json_array();
    for (uint32_t m = 0; m < GP_RANK_POINT; m++)
        json_array_append_new(curve, gp_json_known(gp_ranks_at(all, rank, m)));
    return curve;
}

/* All GPUs of the rank; those of several ranks that are one have the same number in "shared". */
static json_t *ranks_gpus(const struct gp_job_rank *rank)
{
    json_t *list = json_array();
    for (uint32_t g = 0; rank->gpus && g < rank->device_count; g++) {
        const struct gp_rank_gpu *gpu = &rank->gpus[g];
        json_array_append_new(list, json_pack("{s:i,s:s,s:b,s:I,s:I,s:o,s:o,s:I,s:o}", "device", gpu->device, "uuid",
                                              gpu->uuid, "fullest", gpu->own, "allocated_peak_bytes",
                                              (json_int_t)gpu->peak_bytes, "reserved_peak_bytes",
                                              (json_int_t)gpu->reserved_peak_bytes, "total_bytes",
                                              gp_json_known(gpu->total_bytes), "site", gp_json_words(gpu->site),
                                              "site_bytes", (json_int_t)gpu->site_bytes, "shared",
                                              gpu->shared ? json_integer(gpu->shared) : json_null()));
    }
    return list;
}

static json_t *ranks_rank(const struct gp_ranks *all, const struct gp_job_rank *rank, bool curve)
{
    static const char *const from[] = {"recording", "file name", "order"};
    json_t *row =
        json_pack("{s:i,s:o,s:o,s:s,s:o,s:s,s:I,s:s,s:s,s:b,s:I,s:I,s:I}", "rank", rank->number, "local_rank",
                  gp_json_known(rank->local_number), "world_size", gp_json_known(rank->world_size), "rank_from",
                  from[rank->from], "file", gp_json_words(rank->file), "host", rank->host, "pid", (json_int_t)rank->pid,
                  "comm", rank->comm, "format", gp_rec_format(rank->from_torch, rank->from_rmm, rank->from_pprof),
                  "complete", rank->complete, "missing_events", (json_int_t)rank->missing, "events",
                  (json_int_t)rank->events, "ooms", (json_int_t)rank->ooms);
    json_t *memory = json_pack(
        "{s:i,s:i,s:s,s:o,s:I,s:I,s:I,s:I,s:I,s:o,s:f,s:o,s:s,s:s,s:I,s:I,s:o,s:o}", "device", rank->device, "devices",
        (int)rank->device_count, "device_name", rank->device_name, "total_bytes", gp_json_known(rank->total_bytes),
        "allocated_peak_bytes", (json_int_t)rank->peak_bytes, "above_median_bytes",
        (json_int_t)(rank->peak_bytes - all->median_bytes), "peak_ns",
        (json_int_t)(rank->peak_bytes ? rank->peak_ns + rank->shift_ns : 0), "allocated_end_bytes",
        (json_int_t)rank->end_bytes, "reserved_peak_bytes", (json_int_t)rank->reserved_peak_bytes, "headroom_bytes",
        gp_json_known(rank->headroom_bytes), "growth_bytes_per_second", rank->growth_per_second, "seconds_to_oom",
        gp_json_known_seconds(rank->seconds_to_oom), "grows", rank->grows, "may_grow", rank->may_grow, "begin_ns",
        (json_int_t)(rank->begin_ns + rank->shift_ns), "end_ns", (json_int_t)(rank->end_ns + rank->shift_ns), "curve",
        curve ? ranks_curve(all, rank) : json_null(), "gpus", ranks_gpus(rank));
    if (memory)
        json_object_set_new(memory, "group", json_integer(rank->group));
    if (!row || !memory || json_object_update(row, memory) != 0) {
        json_decref(row);
        row = NULL;
    }
    json_decref(memory);
    return row;
}

static json_t *ranks_rows(const struct gp_rank_row *rows, uint32_t count, bool owners)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count && i < GP_RANKS_LISTED; i++) {
        json_t *row =
            json_pack("{s:s,s:I,s:I,s:I,s:i}", owners ? "owner" : "site", rows[i].name, "worst_bytes",
                      (json_int_t)rows[i].worst_bytes, "median_bytes", (json_int_t)rows[i].median_bytes, "excess_bytes",
                      (json_int_t)(rows[i].worst_bytes - rows[i].median_bytes), "holders", (int)rows[i].holders);
        if (row && !owners) {
            json_object_set_new(row, "owner", json_string(rows[i].owner));
            json_object_set_new(row, "kind", json_string(gp_kind_name(rows[i].kind)));
        }
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *ranks_skew(const struct gp_ranks *all)
{
    json_t *skew = json_array();
    for (uint32_t m = 0; m < GP_RANK_POINT; m++) {
        const struct gp_rank_moment *moment = &all->moments[m];
        if (moment->ranks)
            json_array_append_new(skew,
                                  json_pack("[I,I,I,I,i]", (json_int_t)moment->time_ns, (json_int_t)moment->low,
                                            (json_int_t)moment->median, (json_int_t)moment->high, (int)moment->ranks));
    }
    return skew;
}

json_t *gp_ranks_missing_json(const struct gp_ranks *all)
{
    json_t *list = all->world_size ? json_array() : json_null();
    for (uint32_t i = 0; i < all->missing_spans; i++)
        json_array_append_new(list, json_pack("[i,i]", all->missing[i].first, all->missing[i].last));
    return list;
}

json_t *gp_ranks_left_json(const struct gp_ranks *all)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < all->left_count; i++)
        json_array_append_new(list, json_pack("{s:o,s:o}", "file", gp_json_words(all->left[i].file), "why",
                                              gp_json_words(all->left[i].why)));
    return list;
}

json_t *gp_ranks_json(const struct gp_ranks *all)
{
    char verdict[GP_VERDICT_TEXT];
    json_t *ranks = json_array(), *times = json_array();
    for (uint32_t i = 0; i < all->count; i++)
        json_array_append_new(ranks, ranks_rank(all, &all->ranks[i], i < GP_RANKS_CURVES));
    for (uint32_t m = 0; m < GP_RANK_POINT; m++)
        json_array_append_new(times, json_integer((json_int_t)all->moments[m].time_ns));
    uint32_t listed = all->site_count < GP_RANKS_LISTED ? all->site_count : GP_RANKS_LISTED;
    json_t *document = json_pack(
        "{s:s,s:o,s:s,s:s,s:I,s:f,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:i,s:o}", "schema", "gpuprof.ranks/1", "verdict",
        gp_json_words(ranks_verdict(all, verdict)), "clock", all->clock == GP_CLOCK_MONOTONIC ? "monotonic" : "wall",
        "clock_text", ranks_clock(all), "begin_unix_ns", (json_int_t)all->begin_unix_ns, "seconds",
        (double)all->length_ns / 1e9, "lowest_peak_bytes", (json_int_t)all->lowest_bytes, "median_peak_bytes",
        (json_int_t)all->median_bytes, "highest_peak_bytes", (json_int_t)all->highest_bytes, "ranks", ranks, "times_ns",
        times, "skew", ranks_skew(all), "sites", ranks_rows(all->sites, all->site_count, false), "sites_left_out",
        (int)(all->site_count - listed), "owners", ranks_rows(all->owners, all->owner_count, true));
    if (document) {
        json_object_set_new(document, "groups", json_integer(all->group_count));
        json_object_set_new(document, "world_size", all->world_size ? json_integer(all->world_size) : json_null());
        json_object_set_new(document, "missing_ranks", gp_ranks_missing_json(all));
        json_object_set_new(document, "unlike", gp_ranks_unlike_json(all));
        json_object_set_new(document, "left_out", gp_ranks_left_json(all));
    }
    return document;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static const char *ranks_on(const struct gp_text_page *page, const char *code)
{
    return page->colour ? code : "";
}
#define GP_RANKS_BOLD "\033[1m"
#define GP_RANKS_DIM  "\033[2m"
#define GP_RANKS_RED  "\033[31m"
#define GP_RANKS_OFF  "\033[0m"

static const char *ranks_signed(char text[GP_SIZE_TEXT], int64_t bytes)
{
    char size[GP_SIZE_TEXT];
    snprintf(text, GP_SIZE_TEXT, "%c%.20s", bytes < 0 ? '-' : '+', gp_size_text(size, bytes < 0 ? -bytes : bytes));
    return text;
}

/* The GPUs of the rank beside the one that its numbers are of. */
static void ranks_also(const struct gp_text_page *page, const struct gp_job_rank *rank)
{
    char bytes[GP_SIZE_TEXT];
    for (uint32_t g = 0; rank->gpus && g < rank->device_count; g++)
        if (!rank->gpus[g].own)
            fprintf(page->out, "  and %s on GPU %d", gp_size_text(bytes, rank->gpus[g].peak_bytes),
                    rank->gpus[g].device);
}

#define GP_RANKS_CELLS 80u

static const char *ranks_cells(char text[GP_RANKS_CELLS], const struct gp_ranks *all, const struct gp_job_rank *rank)
{
    char peak[GP_SIZE_TEXT], above[GP_SIZE_TEXT], reserved[GP_SIZE_TEXT], head[GP_SIZE_TEXT], end[GP_SIZE_TEXT];
    snprintf(text, GP_RANKS_CELLS, "%10s %11s %10s %10s %10s", gp_size_text(peak, rank->peak_bytes),
             ranks_signed(above, rank->peak_bytes - all->median_bytes),
             gp_size_text(reserved, rank->reserved_peak_bytes), gp_size_text(head, rank->headroom_bytes),
             gp_size_text(end, rank->end_bytes));
    return text;
}

struct ranks_group { /* ranks that are alike */
    const struct gp_job_rank *first;
    uint32_t count;
    int64_t low, high; /* peaks */
    double slow, fast; /* growth per second */
};

static struct ranks_group ranks_group_of(const struct gp_ranks *all, uint32_t number)
{
    struct ranks_group group = {.low = INT64_MAX, .slow = INFINITY};
    for (uint32_t i = 0; i < all->count; i++) {
        const struct gp_job_rank *rank = &all->ranks[i];
        if (rank->group != number)
            continue;
        group.first = group.first ? group.first : rank;
        group.count++;
        group.low = rank->peak_bytes < group.low ? rank->peak_bytes : group.low;
        group.high = rank->peak_bytes > group.high ? rank->peak_bytes : group.high;
        group.slow = fmin(group.slow, rank->growth_per_second);
        group.fast = fmax(group.fast, rank->growth_per_second);
    }
    return group;
}

/* A row of ranks that are alike, with the sizes of the worst of them. */
static void ranks_row(const struct gp_text_page *page, const struct gp_ranks *all, uint32_t number, int columns)
{
    struct ranks_group group = ranks_group_of(all, number);
    const struct gp_job_rank *rank = group.first;
    char numbers[GP_RANKS_NUMBERS + 1], cells[GP_RANKS_CELLS], size[GP_SIZE_TEXT], slow[GP_SIZE_TEXT];
    gp_ranks_numbers(numbers, all, number);
    fprintf(page->out, "  %s%*s %s%s", ranks_on(page, number ? "" : GP_RANKS_BOLD), columns, numbers,
            ranks_cells(cells, all, rank), ranks_on(page, number ? "" : GP_RANKS_OFF));
    gp_size_text(slow, (int64_t)group.slow);
    gp_size_text(size, (int64_t)group.fast);
    if (rank->growth_per_second > 0 && strcmp(slow, size) != 0)
        fprintf(page->out, "  %s to %s/s: %s", slow, size, rank->grows);
    else if (rank->growth_per_second > 0)
        fprintf(page->out, "  %s/s: %s", size, rank->grows);
    else if (rank->may_grow[0])
        fprintf(page->out, "  may be: %s", rank->may_grow);
    if (rank->ooms)
        fprintf(page->out, "  %sout of memory %" PRIu64 " time%s%s", ranks_on(page, GP_RANKS_RED), rank->ooms,
                rank->ooms == 1 ? "" : "s", ranks_on(page, GP_RANKS_OFF));
    ranks_also(page, rank);
    if (group.low != group.high)
        fprintf(page->out, "  (peaks of these within %s)", gp_size_text(size, group.high - group.low));
    fputc('\n', page->out);
}

static void ranks_table(const struct gp_text_page *page, const struct gp_ranks *all)
{
    char numbers[GP_RANKS_NUMBERS + 1];
    uint32_t most = page->whole ? UINT32_MAX : 4 * GP_RANKS_ROWS, left = 0;
    int columns = 5;
    for (uint32_t group = 0; group < all->group_count && group < most; group++) {
        gp_ranks_numbers(numbers, all, group);
        columns = (int)strlen(numbers) > columns ? (int)strlen(numbers) : columns;
    }
    fprintf(page->out, "\n%s  %*s %10s %11s %10s %10s %10s  %s%s\n", ranks_on(page, GP_RANKS_BOLD), columns, "RANK",
            "PEAK", "OFF MEDIAN", "RESERVED", "HEADROOM", "AT THE END", "GROWTH", ranks_on(page, GP_RANKS_OFF));
    for (uint32_t group = 0; group < all->group_count && group < most; group++)
        ranks_row(page, all, group, columns);
    for (uint32_t i = 0; i < all->count; i++)
        left += all->ranks[i].group >= most;
    if (left)
        fprintf(page->out, "  %u more ranks: use --json to list them\n", left);
}

void gp_ranks_text_missing(const struct gp_text_page *page, const struct gp_ranks *all)
{
    uint32_t shown = page->whole || all->missing_spans <= GP_RANKS_ROWS ? all->missing_spans : GP_RANKS_ROWS;
    if (!shown)
        return;
    fprintf(page->out, "%smissing: %u of the job's %d ranks ha%s no recording here:", ranks_on(page, GP_RANKS_RED),
            all->missing_count, all->world_size, all->missing_count == 1 ? "s" : "ve");
    for (uint32_t i = 0; i < shown; i++) {
        const struct gp_rank_span *span = &all->missing[i];
        fprintf(page->out, span->first == span->last ? "%s %d" : "%s %d-%d", i ? "," : "", span->first, span->last);
    }
    fprintf(page->out, "%s%s\n", shown < all->missing_spans ? ", .." : "", ranks_on(page, GP_RANKS_OFF));
}

/* Each GPU that several ranks hold memory on, with the ranks that hold most there. */
static void ranks_shares(const struct gp_text_page *page, const struct gp_ranks *all)
{
    char together[GP_SIZE_TEXT], bytes[GP_SIZE_TEXT];
    uint32_t shown = page->whole || all->shared_count <= GP_RANKS_ROWS ? all->shared_count : GP_RANKS_ROWS;
    if (shown)
        fprintf(page->out, "\n%sGPUs on which several ranks hold memory%s\n", ranks_on(page, GP_RANKS_BOLD),
                ranks_on(page, GP_RANKS_OFF));
    for (uint32_t number = 1; number <= shown; number++) {
        struct gp_rank_share share = gp_ranks_share(all, number);
        uint32_t listed = 0;
        fprintf(page->out, "  GPU %d of %s, %s: %u ranks, together at most %s\n", share.gpu->device, share.rank->host,
                share.gpu->uuid, share.ranks, gp_size_text(together, share.together_bytes));
        for (uint32_t i = 0; i < all->count; i++)
            for (uint32_t g = 0; all->ranks[i].gpus && g < all->ranks[i].device_count; g++) {
                const struct gp_rank_gpu *gpu = &all->ranks[i].gpus[g];
                if (gpu->shared != number || (listed++ >= GP_RANKS_ROWS && !page->whole))
                    continue;
                fprintf(page->out, "  %5d %10s  %s%s\n", all->ranks[i].number, gp_size_text(bytes, gpu->peak_bytes),
                        gpu->site, all->ranks[i].device_count > 1 && !gpu->own ? " (its fullest GPU is another)" : "");
            }
        if (listed > GP_RANKS_ROWS && !page->whole)
            fprintf(page->out, "  %u more ranks there: use --json to list them\n", listed - GP_RANKS_ROWS);
    }
    if (shown < all->shared_count)
        fprintf(page->out, "  %u more such GPUs: use --json to list them\n", all->shared_count - shown);
}

static void ranks_sparkline(const struct gp_text_page *page, const struct gp_ranks *all, const char *name,
                            size_t member)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char ascii[] = "_.-:=+*#";
    char size[GP_SIZE_TEXT];
    int64_t top = 1, most = 0;
    for (uint32_t m = 0; m < GP_RANK_POINT; m++)
        top = all->moments[m].high > top ? all->moments[m].high : top;
    fprintf(page->out, "  %-7s ", name);
    for (uint32_t column = 0; column < GP_RANKS_COLUMNS; column++) {
        int64_t value = 0;
        for (uint32_t m = column * GP_RANK_POINT / GP_RANKS_COLUMNS;
             m < (column + 1) * GP_RANK_POINT / GP_RANKS_COLUMNS; m++) {
            int64_t at;
            memcpy(&at, (const char *)&all->moments[m] + member, sizeof(at));
            value = at > value ? at : value;
        }
        most = value > most ? value : most;
        unsigned level = (unsigned)((double)value / (double)top * 7.999);
        if (page->utf8)
            fputs(bars[level], page->out);
        else
            fputc(ascii[level], page->out);
    }
    fprintf(page->out, " up to %s\n", gp_size_text(size, most));
}

static void ranks_excess(const struct gp_text_page *page, const struct gp_ranks *all)
{
    char more[GP_SIZE_TEXT], worst[GP_SIZE_TEXT], median[GP_SIZE_TEXT];
    uint32_t shown = 0;
    for (; shown < all->site_count && shown < GP_RANKS_ROWS; shown++) {
        const struct gp_rank_row *row = &all->sites[shown];
        if (row->worst_bytes <= row->median_bytes)
            break;
        if (shown == 0)
            fprintf(page->out,
                    "\n%swhat rank %d holds at its peak, and the median rank does not%s\n  %11s %10s %10s  %-12s %s\n",
                    ranks_on(page, GP_RANKS_BOLD), all->ranks[0].number, ranks_on(page, GP_RANKS_OFF), "MORE", "WORST",
                    "MEDIAN", "OWNER", "SITE");
        fprintf(page->out, "  %11s %10s %10s  %-12s %s\n", ranks_signed(more, row->worst_bytes - row->median_bytes),
                gp_size_text(worst, row->worst_bytes), gp_size_text(median, row->median_bytes), row->owner, row->name);
    }
    if (!shown)
        fprintf(page->out, "\nno call site holds more on rank %d than on the median rank\n", all->ranks[0].number);
}

void gp_ranks_text(const struct gp_text_page *page, const struct gp_ranks *all)
{
    char verdict[GP_VERDICT_TEXT], span[GP_SIZE_TEXT];
    uint32_t cut = 0;
    fprintf(page->out, "%s%s%s\n", ranks_on(page, GP_RANKS_BOLD), ranks_verdict(all, verdict),
            ranks_on(page, GP_RANKS_OFF));
    fprintf(page->out, "%s%u rank%s, %s; %s%s\n", ranks_on(page, GP_RANKS_DIM), all->count, all->count == 1 ? "" : "s",
            gp_seconds_text(span, (double)all->length_ns / 1e9), ranks_clock(all), ranks_on(page, GP_RANKS_OFF));
    for (uint32_t i = 0; i < all->count; i++)
        cut += !all->ranks[i].complete || all->ranks[i].missing;
    if (cut)
        fprintf(page->out, "%snote: %u of the recordings %s incomplete or lost events: see each one's report%s\n",
                ranks_on(page, GP_RANKS_RED), cut, cut == 1 ? "is" : "are", ranks_on(page, GP_RANKS_OFF));
    if (all->left_count)
        fprintf(page->out, "%snote: %u of %u files are left out, and in no number here%s\n",
                ranks_on(page, GP_RANKS_RED), all->left_count, all->left_count + all->count,
                ranks_on(page, GP_RANKS_OFF));
    gp_ranks_text_missing(page, all);
    ranks_table(page, all);
    gp_ranks_unlike(page, all);
    ranks_shares(page, all);
    fprintf(page->out, "\n%sallocated over time, of all ranks%s\n", ranks_on(page, GP_RANKS_BOLD),
            ranks_on(page, GP_RANKS_OFF));
    ranks_sparkline(page, all, "highest", offsetof(struct gp_rank_moment, high));
    ranks_sparkline(page, all, "median", offsetof(struct gp_rank_moment, median));
    ranks_sparkline(page, all, "lowest", offsetof(struct gp_rank_moment, low));
    ranks_excess(page, all);
}
