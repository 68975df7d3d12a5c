/* SPDX-License-Identifier: MIT
 *
 * ranks.h: reads the recordings of several ranks, one after the other, and keeps of each what
 * struct gp_job_rank has.
 */
#ifndef GP_CMD_RANKS_H
#define GP_CMD_RANKS_H

#include <analyze/analyze.h>
#include <cmd/load.h>

struct gp_rank_set {
    struct gp_job_rank *ranks;
    uint32_t count;
    struct gp_ranks *all;
};
/* Reads files[0] and the further files of the options.  GP_EXIT_OK, or an exit status after a message;
 * gp_rank_set_free is safe after either. */
int gp_rank_set_read(struct gp_rank_set *set, const struct gp_load_options *options);
/* The same, and compares the ranks: set->all, and set->ranks in its order. */
int gp_rank_set_load(struct gp_rank_set *set, const struct gp_load_options *options);
void gp_rank_set_free(struct gp_rank_set *set);

#endif
