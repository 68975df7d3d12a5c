/* SPDX-License-Identifier: MIT
 * ranks.c: loads the recordings of a job's ranks (load.h).  Called by report.c, leaks.c and diff.c. */
#include <analyze/ranks.h>
#include <cmd/load.h>
#include <cmd/rankread.h>

#include <stdlib.h>

/* A page of more ranks would no longer be one that a person reads. */
#define GP_RANKS_MOST 4096u

/* Keeps the ranks that were read, and the files that were not.  failed: the set will only be freed. */
static void ranks_keep(struct gp_rank_set *set, const char *command, struct gp_rank_read *reads, uint32_t count,
                       bool failed)
{
    for (uint32_t i = 0; i < count; i++) {
        if (reads[i].refused && !failed)
            gp_rank_set_leave(set, command, reads[i].rank.file, reads[i].why);
        else
            set->ranks[set->count++] = reads[i].rank;
    }
}

int gp_rank_set_read(struct gp_rank_set *set, const struct gp_load_options *options)
{
    const char *command = options->target.command;
    uint32_t count = 1;
    *set = (struct gp_rank_set){0};
    for (char *const *more = options->more; more && *more; more++)
        count++;
    if (count > GP_RANKS_MOST)
        return gp_usage_error(command, "%u recordings: at most %u", count, GP_RANKS_MOST);
    struct gp_rank_read *reads = calloc(count, sizeof(*reads));
    set->ranks = calloc(count, sizeof(*set->ranks));
    set->left = calloc(count, sizeof(*set->left));
    int rc = set->ranks && set->left && reads ? gp_rank_workers(reads, count, options) : gp_memory_error(command);
    if (set->ranks && set->left && reads)
        ranks_keep(set, command, reads, count, rc != GP_EXIT_OK);
    free(reads);
    if (!rc)
        gp_rank_set_launchers(set, command);
    return rc;
}

int gp_rank_set_read_job(struct gp_rank_set *set, const struct gp_load_options *options)
{
    int rc = gp_rank_set_read(set, options);
    if (!rc)
        gp_rank_set_choose(set, options->target.command);
    if (!rc && !set->count)
        return GP_EXIT_FAILED; /* each file has been named */
    return rc;
}

int gp_rank_set_load(struct gp_rank_set *set, const struct gp_load_options *options)
{
    int rc = gp_rank_set_read_job(set, options);
    if (!rc) {
        set->all = gp_ranks_find(set->ranks, set->count);
        rc = set->all ? GP_EXIT_OK : gp_memory_error(options->target.command);
    }
    if (!rc) {
        set->all->left = set->left;
        set->all->left_count = set->left_count;
    }
    return rc;
}

void gp_rank_set_free(struct gp_rank_set *set)
{
    gp_ranks_free(set->all);
    for (uint32_t i = 0; set->ranks && i < set->count; i++)
        gp_rank_free(&set->ranks[i]);
    free(set->ranks);
    free(set->left);
}
