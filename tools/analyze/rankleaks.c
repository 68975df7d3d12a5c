/* SPDX-License-Identifier: MIT
 *
 * rankleaks.c: groups the ranks of a job whose memory grows alike (rankleaks.h).  What a row says of several ranks must
 * hold for each of them, so ranks are alike only if all that is named is the same, and rates differ by little.  Called
 * by `gpuprof leaks`.
 */
#include <analyze/rankleaks.h>
#include <read/common/hash.h>

#include <stdlib.h>
#include <string.h>

/* Of two rates, the lower one is at least this part of the higher one. */
#define GP_RANK_LEAKS_NEAR 0.9

/* ---- one rank ---------------------------------------------------------------------------------------------------- */

static bool grown_same_name(const struct gp_rank_grown *a, const struct gp_rank_grown *b)
{
    return a->leak.kind == b->leak.kind && a->leak.doubt == b->leak.doubt && strcmp(a->name, b->name) == 0 &&
           strcmp(a->owner, b->owner) == 0;
}

/* All but the size. */
static bool grown_same(const struct gp_rank_grown *a, const struct gp_rank_grown *b)
{
    return grown_same_name(a, b) && a->own == b->own && (a->own || a->device == b->device);
}

/* Of a step; of a second if steps are stretches of time. */
static double grown_rate(const struct gp_rank_growth *growth, const struct gp_rank_grown *row)
{
    return growth->timed || row->leak.doubt == GP_LEAK_NO_STEPS ? row->leak.bytes_per_second : row->leak.bytes_per_step;
}

/* Both sites grow to the end of the memory together. */
static void grown_join(struct gp_leak *to, const struct gp_leak *more)
{
    to->live_bytes += more->live_bytes;
    to->live_count += more->live_count;
    to->bytes_per_step += more->bytes_per_step;
    to->bytes_per_second += more->bytes_per_second;
    to->taken_bytes += more->taken_bytes;
    to->freed_bytes += more->freed_bytes;
    GP_LOWER(to->confidence, more->confidence);
    GP_RAISE(to->oldest_ns, more->oldest_ns);
    GP_RAISE(to->grows_ns, more->grows_ns);
    if (to->seconds_to_oom < 0 || (more->seconds_to_oom >= 0 && more->seconds_to_oom < to->seconds_to_oom))
        to->seconds_to_oom = more->seconds_to_oom;
}

void gp_rank_growth_add(struct gp_rank_growth *growth, const struct gp_rank_grown *row)
{
    for (uint32_t i = 0; i < growth->count; i++) {
        struct gp_rank_grown *there = &growth->rows[i];
        if (grown_same_name(there, row) && there->own == row->own && there->device == row->device) {
            there->sites += row->sites;
            grown_join(&there->leak, &row->leak);
            return;
        }
    }
    *(row->leak.doubt ? &growth->candidates : &growth->suspects) += 1;
    if (growth->count < GP_RANK_GROWN)
        growth->rows[growth->count++] = *row;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* How many of the rank's rows decide about its group.  Of more than are kept, the last ones may differ between equal
 * ranks by chance. */
static uint32_t leaks_named(const struct gp_rank_growth *growth)
{
    uint32_t all = growth->suspects ? growth->suspects : growth->candidates;
    return all <= growth->count ? all : growth->count / 2;
}

static bool leaks_near(double a, double b)
{
    return (a < b ? a : b) >= (a < b ? b : a) * GP_RANK_LEAKS_NEAR;
}

static const struct gp_rank_grown *leaks_row(const struct gp_rank_growth *growth, const struct gp_rank_grown *like)
{
    for (uint32_t i = 0; i < growth->count; i++)
        if (grown_same(&growth->rows[i], like))
            return &growth->rows[i];
    return NULL;
}

static bool leaks_alike(const struct gp_job_rank *leader, const struct gp_job_rank *rank)
{
    const struct gp_rank_growth *a = leader->growth, *b = rank->growth;
    if (a->answer != b->answer || strcmp(a->why, b->why) != 0)
        return false;
    if (a->answer == GP_RANK_CANNOT_KNOW)
        return true;
    if (strcmp(a->step_word, b->step_word) != 0 || strcmp(a->step_found, b->step_found) != 0)
        return false;
    if (a->answer == GP_RANK_NOTHING_GROWS)
        return true;
    if (strcmp(leader->device_name, rank->device_name) != 0 || leader->total_bytes != rank->total_bytes ||
        (a->suspects ? a->suspects != b->suspects : a->candidates != b->candidates))
        return false;
    for (uint32_t i = 0; i < leaks_named(a); i++) {
        const struct gp_rank_grown *other = leaks_row(b, &a->rows[i]);
        if (!other || !leaks_near(grown_rate(a, &a->rows[i]), grown_rate(b, other)))
            return false;
    }
    return true;
}

static double leaks_speed(const struct gp_rank_growth *growth)
{
    double speed = 0;
    for (uint32_t i = 0; i < growth->count && i < growth->suspects; i++)
        speed += growth->rows[i].leak.bytes_per_second;
    return speed;
}

static int leaks_order(const void *one, const void *other)
{
    const struct gp_job_rank *a = one, *b = other;
    double fast = leaks_speed(a->growth), slow = leaks_speed(b->growth);
    if (a->growth->answer != b->growth->answer)
        return GP_ORDER(a->growth->answer, b->growth->answer);
    if (fast != slow)
        return GP_ORDER(slow, fast);
    return a->number != b->number ? GP_ORDER(a->number, b->number) : strcmp(a->file, b->file);
}

static int leaks_group_order(const void *one, const void *other)
{
    const struct gp_job_rank *a = one, *b = other;
    if (a->group != b->group)
        return GP_ORDER(a->group, b->group);
    return a->number != b->number ? GP_ORDER(a->number, b->number) : strcmp(a->file, b->file);
}

static void leaks_widen(struct gp_rank_range *range, double value, bool first)
{
    range->low = first || value < range->low ? value : range->low;
    range->high = first || value > range->high ? value : range->high;
}

/* The group takes in a rank; first: it is the one that the others were compared with. */
static void leaks_take(struct gp_rank_leak_group *group, const struct gp_job_rank *rank, bool first)
{
    const struct gp_rank_growth *growth = rank->growth;
    group->count++;
    leaks_widen(&group->steps, growth->steps, first);
    leaks_widen(&group->others, growth->suspects ? growth->candidates : 0, first);
    group->row_count = first ? leaks_named(growth) : group->row_count;
    for (uint32_t i = 0; i < group->row_count; i++) {
        struct gp_rank_leak_row *row = &group->rows[i];
        const struct gp_rank_grown *grown = first ? &growth->rows[i] : leaks_row(growth, row->first);
        row->first = first ? grown : row->first;
        double full = grown->leak.seconds_to_oom;
        leaks_widen(&row->rate, grown_rate(growth, grown), first);
        leaks_widen(&row->bytes, (double)grown->leak.live_bytes, first);
        leaks_widen(&row->blocks, (double)grown->leak.live_count, first);
        leaks_widen(&row->sure, grown->leak.confidence, first);
        leaks_widen(&row->seconds_to_oom, full < 0 ? -1 : full, first);
    }
}

static bool leaks_group(struct gp_rank_leaks *leaks)
{
    struct gp_ranks *all = &leaks->all;
    uint32_t *leaders = calloc(all->count + 1ul, sizeof(*leaders));
    leaks->groups = calloc(all->count + 1ul, sizeof(*leaks->groups));
    bool ok = leaders && leaks->groups;
    for (uint32_t i = 0; ok && i < all->count; i++) {
        uint32_t group = 0;
        while (group < all->group_count && !leaks_alike(&all->ranks[leaders[group]], &all->ranks[i]))
            group++;
        all->ranks[i].group = group;
        if (group == all->group_count)
            leaders[all->group_count++] = i;
        leaks_take(&leaks->groups[group], &all->ranks[i], leaders[group] == i);
    }
    for (uint32_t group = 1; ok && group < all->group_count; group++)
        leaks->usual = leaks->groups[group].count > leaks->groups[leaks->usual].count ? group : leaks->usual;
    free(leaders);
    return ok;
}

static void leaks_count(struct gp_rank_leaks *leaks)
{
    const struct gp_ranks *all = &leaks->all;
    for (uint32_t i = 0; i < all->count; i++) {
        const struct gp_job_rank *rank = &all->ranks[i];
        const struct gp_rank_growth *growth = rank->growth;
        leaks->answers[growth->answer]++;
        leaks->early += growth->early;
        leaks->lossy += growth->lossy;
        bool again = false;
        for (uint32_t k = 0; k < i && !again; k++)
            again = all->ranks[k].number == rank->number;
        leaks->numbers += !again;
        for (uint32_t k = 0; k < growth->count && k < growth->suspects; k++) {
            double seconds = growth->rows[k].leak.seconds_to_oom;
            if (seconds < 0 || (leaks->full && seconds >= leaks->full_seconds))
                continue;
            leaks->full = rank;
            leaks->full_seconds = seconds;
        }
    }
}

struct gp_rank_leaks *gp_rank_leaks_find(struct gp_job_rank *ranks, uint32_t count)
{
    struct gp_rank_leaks *leaks = calloc(1, sizeof(*leaks));
    if (!leaks)
        return NULL;
    leaks->all.ranks = ranks;
    leaks->all.count = count;
    if (count)
        qsort(ranks, count, sizeof(*ranks), leaks_order);
    if (!leaks_group(leaks) || !gp_ranks_missing(&leaks->all)) {
        gp_rank_leaks_free(leaks);
        return NULL;
    }
    /* The groups point to growth, which stays where it is, and to their first ranks, which move. */
    if (count)
        qsort(ranks, count, sizeof(*ranks), leaks_group_order);
    for (uint32_t i = count; i-- > 0;)
        leaks->groups[ranks[i].group].first = &ranks[i];
    leaks_count(leaks);
    return leaks;
}

void gp_rank_leaks_free(struct gp_rank_leaks *leaks)
{
    if (!leaks)
        return;
    free(leaks->all.missing);
    free(leaks->groups);
    free(leaks);
}
