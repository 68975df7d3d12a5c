/* SPDX-License-Identifier: MIT
 * ranksunlike.c: names the ranks of a job that are unlike most, and says why (ranks.h).  Called by ranks.c. */
#include <common/values.h>
#include <show/text/ranks.h>
#include <stdio.h>

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static int unlike_order(const void *one, const void *other)
{
    const int32_t *a = one, *b = other;
    return (*a > *b) - (*a < *b);
}

void gp_rank_numbers(char text[GP_RANKS_NUMBERS + 1], int32_t *numbers, uint32_t count)
{
    char part[GP_RANKS_NUMBERS + 1];
    size_t used = 0;
    text[0] = '\0';
    qsort(numbers, count, sizeof(*numbers), unlike_order);
    for (uint32_t i = 0, n; i < count; i += n) {
        for (n = 1; i + n < count && numbers[i + n] == numbers[i] + (int32_t)n; n++)
            ;
        int length = snprintf(part, sizeof(part), n > 1 ? "%s%d-%d" : "%s%d", i ? "," : "", numbers[i],
                              numbers[i] + (int32_t)n - 1);
        if (used + (size_t)length + (i + n < count ? 8 : 0) > GP_RANKS_NUMBERS) {
            snprintf(text + used, GP_RANKS_NUMBERS + 1 - used, ",.. %u", count);
            break;
        }
        memcpy(text + used, part, (size_t)length + 1);
        used += (size_t)length;
    }
}

void gp_ranks_numbers(char text[GP_RANKS_NUMBERS + 1], const struct gp_ranks *all, uint32_t group)
{
    int32_t *numbers = calloc(all->count + 1ul, sizeof(*numbers));
    uint32_t count = 0;
    text[0] = '\0';
    for (uint32_t i = 0; numbers && i < all->count; i++)
        if (all->ranks[i].group == group)
            numbers[count++] = all->ranks[i].number;
    if (numbers)
        gp_rank_numbers(text, numbers, count);
    free(numbers);
}

uint32_t gp_ranks_usual(const struct gp_ranks *all, uint32_t *count)
{
    uint32_t *counts = calloc(all->group_count + 1ul, sizeof(*counts)), usual = 0;
    for (uint32_t i = 0; counts && i < all->count; i++)
        counts[all->ranks[i].group]++;
    for (uint32_t group = 1; counts && group < all->group_count; group++)
        usual = counts[group] > counts[usual] ? group : usual;
    *count = counts ? counts[usual] : 0;
    free(counts);
    return usual;
}

static const struct gp_job_rank *unlike_first(const struct gp_ranks *all, uint32_t group)
{
    uint32_t i = 0;
    while (i + 1 < all->count && all->ranks[i].group != group)
        i++;
    return &all->ranks[i];
}

static int64_t unlike_bytes(const struct gp_job_rank *rank, const struct gp_rank_row *row)
{
    for (uint32_t i = 0; i < rank->site_count; i++) {
        const struct gp_rank_site *site = &rank->sites[i];
        if (site->kind == row->kind && strcmp(site->name, row->name) == 0 && strcmp(site->owner, row->owner) == 0)
            return site->peak_bytes;
    }
    return 0;
}

void gp_ranks_why(char text[GP_VERDICT_TEXT], const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    if (used)
        used += (size_t)snprintf(text + used, GP_VERDICT_TEXT - used, "; ");
    if (used >= GP_VERDICT_TEXT)
        return;
    va_start(arguments, format);
    vsnprintf(text + used, GP_VERDICT_TEXT - used, format, arguments);
    va_end(arguments);
}

#define GP_UNLIKE_LOOKS 64u

/* Whether the rank holds as much less, or more, at a site alike. */
static bool unlike_is_offset(const struct gp_ranks *all, const struct gp_job_rank *rank, const struct gp_rank_row *site,
                             int64_t bytes)
{
    int64_t more = bytes - site->median_bytes;
    for (uint32_t i = 0; i < all->site_count; i++) {
        int64_t other = unlike_bytes(rank, &all->sites[i]) - all->sites[i].median_bytes;
        if ((more > 0) != (other > 0) && gp_ranks_offset(site, llabs(more), &all->sites[i], llabs(other)))
            return true;
    }
    return false;
}

/* The call site whose bytes are farthest from the median, if that is more than a hundredth of the peak. */
static void unlike_site(const struct gp_ranks *all, const struct gp_job_rank *rank, char text[GP_VERDICT_TEXT])
{
    char here[GP_SIZE_TEXT], there[GP_SIZE_TEXT];
    const struct gp_rank_row *farthest = NULL;
    int64_t most = all->median_bytes / 100, bytes = 0;
    uint32_t looked = 0; /* each look takes all sites */
    for (uint32_t i = 0; i < all->site_count; i++) {
        int64_t held = unlike_bytes(rank, &all->sites[i]), apart = llabs(held - all->sites[i].median_bytes);
        if (apart <= most || (looked++ < GP_UNLIKE_LOOKS && unlike_is_offset(all, rank, &all->sites[i], held)))
            continue;
        most = apart;
        bytes = held;
        farthest = &all->sites[i];
    }
    if (farthest)
        gp_ranks_why(text, "%s holds %s, and %s on the median rank", farthest->name, gp_size_text(here, bytes),
                     gp_size_text(there, farthest->median_bytes));
}

/* What the rank has that the usual one has not; most: the usual ones are more than half of all. */
static const char *unlike_why(const struct gp_ranks *all, const struct gp_job_rank *rank,
                              const struct gp_job_rank *usual, bool most, char text[GP_VERDICT_TEXT])
{
    char here[GP_SIZE_TEXT], there[GP_SIZE_TEXT];
    text[0] = '\0';
    if (rank->ooms && !usual->ooms)
        gp_ranks_why(text, "ran out of memory");
    if (strcmp(rank->device_name, usual->device_name) != 0 || rank->total_bytes != usual->total_bytes)
        gp_ranks_why(text, "its GPU is %s of %s, and that of %s ranks %s of %s", rank->device_name,
                     gp_size_text(here, rank->total_bytes), most ? "most" : "other", usual->device_name,
                     gp_size_text(there, usual->total_bytes));
    if (rank->device_count > 1 && usual->device_count <= 1)
        gp_ranks_why(text, "it holds memory on %u GPUs", rank->device_count);
    unlike_site(all, rank, text);
    if (rank->growth_per_second > 0 && strcmp(rank->grows, usual->grows) != 0)
        gp_ranks_why(text, "%s grows by %s/s", rank->grows, gp_size_text(here, (int64_t)rank->growth_per_second));
    if (!text[0] && llabs(rank->peak_bytes - usual->peak_bytes) * 100 > usual->peak_bytes)
        gp_ranks_why(text, "its peak is %s, and %s on %s ranks", gp_size_text(here, rank->peak_bytes),
                     gp_size_text(there, usual->peak_bytes), most ? "most" : "other");
    if (!text[0])
        gp_ranks_why(text, "sizes or growth differ, and no single call site by more than a hundredth of the peak");
    return text;
}

void gp_ranks_unlike(const struct gp_text_page *page, const struct gp_ranks *all)
{
    char numbers[GP_RANKS_NUMBERS + 1], why[GP_VERDICT_TEXT];
    uint32_t count, usual = gp_ranks_usual(all, &count), shown = 0;
    if (all->group_count < 2)
        return;
    fprintf(page->out, "\n%swhat is unlike: %u of %u ranks are alike, the others are not%s\n",
            page->colour ? "\033[1m" : "", count, all->count, page->colour ? "\033[0m" : "");
    for (uint32_t group = 0; group < all->group_count && shown < GP_RANKS_UNLIKE; group++) {
        if (group == usual)
            continue;
        gp_ranks_numbers(numbers, all, group);
        fprintf(page->out, "  %5s  %s\n", numbers,
                unlike_why(all, unlike_first(all, group), unlike_first(all, usual), count * 2 > all->count, why));
        shown++;
    }
    if (shown + 1 < all->group_count)
        fprintf(page->out, "  %u more rows of ranks are unlike these: see the table\n", all->group_count - 1 - shown);
}

json_t *gp_ranks_unlike_json(const struct gp_ranks *all)
{
    char why[GP_VERDICT_TEXT];
    json_t *list = json_array();
    uint32_t count, usual = gp_ranks_usual(all, &count);
    for (uint32_t group = 0; group < all->group_count && json_array_size(list) < GP_RANKS_UNLIKE; group++) {
        if (group == usual)
            continue;
        unlike_why(all, unlike_first(all, group), unlike_first(all, usual), count * 2 > all->count, why);
        json_t *text = json_string(why);
        json_array_append_new(list, json_pack("{s:i,s:o}", "group", (int)group, "why", text ? text : json_null()));
    }
    return list;
}
