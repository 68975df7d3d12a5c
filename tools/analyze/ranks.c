/* SPDX-License-Identifier: MIT
 * ranks.c: compares the ranks of a job (analyze.h). */
#include <analyze/ranks.h>
#include <read/common/hash.h>

#include <stdlib.h>
#include <string.h>

/* Clocks of one machine whose distance from the wall clock differs by more were of different boots. */
#define GP_RANKS_BOOT_NS 60000000000ll

static int ranks_order(const void *one, const void *other)
{
    const struct gp_job_rank *a = one, *b = other;
    if ((a->ooms > 0) != (b->ooms > 0))
        return a->ooms > 0 ? -1 : 1;
    if (a->by_headroom && a->headroom_bytes != b->headroom_bytes)
        return GP_ORDER(a->headroom_bytes, b->headroom_bytes);
    if (a->peak_bytes != b->peak_bytes)
        return GP_ORDER(b->peak_bytes, a->peak_bytes);
    return GP_ORDER(a->number, b->number);
}

static int ranks_number_order(const void *one, const void *other)
{
    const int64_t *a = one, *b = other;
    return GP_ORDER(*a, *b);
}

/* Of an even number the lower one of the two in the middle: a value that a rank really has.  Sorts. */
static int64_t ranks_median(int64_t *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), ranks_number_order);
    return count ? values[(count - 1) / 2] : 0;
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static bool ranks_one_machine(const struct gp_job_rank *ranks, uint32_t count)
{
    int64_t first = (int64_t)(ranks[0].begin_unix_ns - ranks[0].begin_ns);
    for (uint32_t i = 0; i < count; i++) {
        int64_t apart = (int64_t)(ranks[i].begin_unix_ns - ranks[i].begin_ns) - first;
        if (ranks[i].from_torch || !ranks[i].host[0] || strcmp(ranks[i].host, ranks[0].host) != 0 ||
            apart > GP_RANKS_BOOT_NS || apart < -GP_RANKS_BOOT_NS)
            return false;
    }
    return true;
}

static void ranks_align(struct gp_ranks *all)
{
    uint64_t begin = UINT64_MAX, end = 0;
    all->clock = ranks_one_machine(all->ranks, all->count) ? GP_CLOCK_MONOTONIC : GP_CLOCK_WALL;
    for (uint32_t i = 0; i < all->count; i++) {
        struct gp_job_rank *rank = &all->ranks[i];
        rank->shift_ns = all->clock == GP_CLOCK_WALL ? rank->begin_unix_ns - rank->begin_ns : 0;
        GP_LOWER(begin, rank->begin_ns + rank->shift_ns);
    }
    all->begin_unix_ns = UINT64_MAX;
    for (uint32_t i = 0; i < all->count; i++) {
        struct gp_job_rank *rank = &all->ranks[i];
        rank->shift_ns -= begin;
        GP_RAISE(end, rank->end_ns + rank->shift_ns);
        GP_LOWER(all->begin_unix_ns, rank->begin_unix_ns);
    }
    all->length_ns = end;
}

static uint64_t ranks_time(const struct gp_ranks *all, uint32_t moment)
{
    return (uint64_t)((double)all->length_ns / GP_RANK_POINT * moment);
}

int64_t gp_ranks_at(const struct gp_ranks *all, const struct gp_job_rank *rank, uint32_t moment)
{
    const struct gp_series *series = rank->allocated;
    uint64_t from = ranks_time(all, moment), until = ranks_time(all, moment + 1);
    uint64_t begin = rank->begin_ns + rank->shift_ns, end = rank->end_ns + rank->shift_ns;
    if (!series || !series->count || until <= begin || from > end)
        return -1;
    /* The last point before the moment holds until the next one. */
    uint32_t low = 0, high = series->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (series->points[middle].time_ns + rank->shift_ns <= from || middle == 0)
            low = middle + 1;
        else
            high = middle;
    }
    int64_t most = low ? series->points[low - 1].last : 0;
    for (; low < series->count && series->points[low].time_ns + rank->shift_ns < until; low++)
        GP_RAISE(most, series->points[low].high);
    return most;
}

static void ranks_moments(struct gp_ranks *all, int64_t *values)
{
    for (uint32_t m = 0; m < GP_RANK_POINT; m++) {
        struct gp_rank_moment *moment = &all->moments[m];
        moment->time_ns = ranks_time(all, m);
        for (uint32_t i = 0; i < all->count; i++) {
            int64_t bytes = gp_ranks_at(all, &all->ranks[i], m);
            if (bytes >= 0)
                values[moment->ranks++] = bytes;
        }
        if (!moment->ranks)
            continue;
        moment->median = ranks_median(values, moment->ranks);
        moment->low = values[0];
        moment->high = values[moment->ranks - 1];
    }
}

/* ---- sites and owners -------------------------------------------------------------------------------------------- */

static int ranks_site_order(const void *one, const void *other)
{
    const struct gp_rank_site *a = one, *b = other;
    int names = strcmp(a->name, b->name), owners = names ? 0 : strcmp(a->owner, b->owner);
    return names ? names : owners ? owners : (int)a->kind - (int)b->kind;
}

static int ranks_owner_order(const void *one, const void *other)
{
    const struct gp_rank_site *a = one, *b = other;
    return strcmp(a->owner, b->owner);
}

/* Sorts, and makes one site of those that are equal. */
static uint32_t ranks_join(struct gp_rank_site *sites, uint32_t count, int order(const void *, const void *))
{
    uint32_t kept = 0;
    if (count)
        qsort(sites, count, sizeof(*sites), order);
    for (uint32_t i = 0; i < count; i++) {
        if (kept && order(&sites[kept - 1], &sites[i]) == 0)
            sites[kept - 1].peak_bytes += sites[i].peak_bytes;
        else
            sites[kept++] = sites[i];
    }
    return kept;
}

/* Where a row of the worst's excess comes: what explains the higher peak, what another site offsets, the rest. */
static int ranks_row_place(const struct gp_rank_row *row)
{
    return row->is_offset ? 1 : row->worst_bytes > row->median_bytes ? 0 : 2;
}

static int ranks_row_order(const void *one, const void *other)
{
    const struct gp_rank_row *a = one, *b = other;
    int64_t left = a->worst_bytes - a->median_bytes, right = b->worst_bytes - b->median_bytes;
    if (ranks_row_place(a) != ranks_row_place(b))
        return ranks_row_place(a) - ranks_row_place(b);
    return left != right ? GP_ORDER(right, left) : strcmp(a->name, b->name);
}

bool gp_ranks_offset(const struct gp_rank_row *site, int64_t more, const struct gp_rank_row *other, int64_t less)
{
    return site->kind == other->kind && strcmp(site->owner, other->owner) == 0 && llabs(more - less) <= more / 100;
}

#define GP_RANKS_OFFSETS 64u  /* rows that are looked at, with the largest excess */
#define GP_RANKS_OTHERS  256u /* ... and for each those of which the median has most more */

/* Ranks reach their peaks at different times, and DDP makes its buckets again at another line after the first
 * step: what one rank holds at one line, the other holds at another.  That is no reason for a higher peak.
 * The rows are in order. */
static void ranks_mark_offsets(struct gp_rank_row *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count && i < GP_RANKS_OFFSETS; i++) {
        int64_t more = rows[i].worst_bytes - rows[i].median_bytes;
        uint32_t looked = 0;
        if (more <= 0)
            break;
        for (uint32_t k = count; k-- > i + 1 && looked++ < GP_RANKS_OTHERS && !rows[i].is_offset;)
            rows[i].is_offset = gp_ranks_offset(&rows[i], more, &rows[k], rows[k].median_bytes - rows[k].worst_bytes);
    }
}

struct gp_ranks_cursor { /* the sites of one rank that are not in a row yet */
    const struct gp_rank_site *at, *end;
};

/* One row for each site that any rank holds, by a merge of the ranks' sorted sites.  The worst rank is
 * the first. */
static uint32_t ranks_merge(struct gp_rank_row *rows, struct gp_ranks_cursor *cursors, uint32_t count, int64_t *values,
                            int order(const void *, const void *), bool owners)
{
    uint32_t made = 0;
    for (;;) {
        const struct gp_rank_site *next = NULL;
        for (uint32_t i = 0; i < count; i++)
            if (cursors[i].at < cursors[i].end && (!next || order(cursors[i].at, next) < 0))
                next = cursors[i].at;
        if (!next)
            break;
        struct gp_rank_row *row = &rows[made++];
        *row =
            (struct gp_rank_row){.name = owners ? next->owner : next->name, .owner = next->owner, .kind = next->kind};
        for (uint32_t i = 0; i < count; i++) {
            bool same = cursors[i].at < cursors[i].end && order(cursors[i].at, next) == 0;
            values[i] = same ? cursors[i].at->peak_bytes : 0;
            row->holders += values[i] > 0;
            cursors[i].at += same;
        }
        row->worst_bytes = values[0];
        row->median_bytes = ranks_median(values, count);
    }
    if (made)
        qsort(rows, made, sizeof(*rows), ranks_row_order);
    if (made && !owners) {
        ranks_mark_offsets(rows, made);
        qsort(rows, made, sizeof(*rows), ranks_row_order);
    }
    return made;
}

static bool ranks_rows(struct gp_ranks *all, int64_t *values, bool owners, struct gp_rank_row **rows, uint32_t *count)
{
    int (*order)(const void *, const void *) = owners ? ranks_owner_order : ranks_site_order;
    struct gp_ranks_cursor *cursors = calloc(all->count, sizeof(*cursors));
    size_t most = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        struct gp_job_rank *rank = &all->ranks[i];
        rank->site_count = ranks_join(rank->sites, rank->site_count, order);
        if (cursors)
            cursors[i] = (struct gp_ranks_cursor){rank->sites, rank->sites + rank->site_count};
        most += rank->site_count;
    }
    *rows = calloc(most + 1, sizeof(**rows));
    if (cursors && *rows)
        *count = ranks_merge(*rows, cursors, all->count, values, order, owners);
    free(cursors);
    return cursors && *rows;
}

/* The rows of sites refer to the names in the ranks, so the owners are made of a copy. */
static bool ranks_owners(struct gp_ranks *all, int64_t *values)
{
    struct gp_ranks copy = *all;
    bool ok = true;
    copy.ranks = calloc(all->count, sizeof(*copy.ranks));
    for (uint32_t i = 0; copy.ranks && i < all->count; i++) {
        size_t bytes = (all->ranks[i].site_count + 1ul) * sizeof(struct gp_rank_site);
        copy.ranks[i].sites = malloc(bytes);
        copy.ranks[i].site_count = all->ranks[i].site_count;
        ok &= copy.ranks[i].sites != NULL;
        if (copy.ranks[i].sites && all->ranks[i].site_count)
            memcpy(copy.ranks[i].sites, all->ranks[i].sites, bytes - sizeof(struct gp_rank_site));
    }
    ok = ok && copy.ranks && ranks_rows(&copy, values, true, &all->owners, &all->owner_count);
    /* Names of owners are looked up in the ranks themselves, which stay. */
    for (uint32_t k = 0; ok && k < all->owner_count; k++) {
        const char *name = NULL;
        for (uint32_t i = 0; !name && i < all->count; i++)
            for (uint32_t s = 0; !name && s < all->ranks[i].site_count; s++)
                name = strcmp(all->ranks[i].sites[s].owner, all->owners[k].name) == 0 ? all->ranks[i].sites[s].owner
                                                                                      : NULL;
        all->owners[k].name = all->owners[k].owner = name ? name : "unknown";
    }
    for (uint32_t i = 0; copy.ranks && i < all->count; i++)
        free(copy.ranks[i].sites);
    free(copy.ranks);
    return ok;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

struct gp_ranks *gp_ranks_find(struct gp_job_rank *ranks, uint32_t count)
{
    struct gp_ranks *all = calloc(1, sizeof(*all));
    int64_t *values = calloc(count + 1ul, sizeof(*values));
    bool ok = all && values;
    if (ok) {
        all->ranks = ranks;
        all->count = count;
        bool known = true;
        ranks_align(all);
        ok = gp_ranks_shared(all);
        for (uint32_t i = 0; i < count; i++)
            known &= ranks[i].headroom_bytes >= 0;
        for (uint32_t i = 0; i < count; i++) /* an order that mixes both would be none */
            ranks[i].by_headroom = known;
        qsort(ranks, count, sizeof(*ranks), ranks_order);
        for (uint32_t i = 0; i < count; i++)
            values[i] = ranks[i].peak_bytes;
        all->median_bytes = ranks_median(values, count);
        all->lowest_bytes = values[0];
        all->highest_bytes = values[count ? count - 1 : 0];
        ranks_moments(all, values);
        ok = ok && ranks_rows(all, values, false, &all->sites, &all->site_count) && ranks_owners(all, values) &&
             gp_ranks_group(all);
    }
    free(values);
    if (ok)
        return all;
    gp_ranks_free(all);
    return NULL;
}

void gp_ranks_free(struct gp_ranks *all)
{
    if (!all)
        return;
    free(all->sites);
    free(all->owners);
    free(all->missing);
    free(all);
}
