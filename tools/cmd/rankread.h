/* SPDX-License-Identifier: MIT
 * rankread.h: reads the recordings of a job's ranks; shared by ranks.c, rankread.c, rankgrowth.c,
 * rankworkers.c and rankfiles.c. */
#ifndef GP_CMD_RANKREAD_H
#define GP_CMD_RANKREAD_H

#include <analyze/ranks.h>
#include <cmd/load.h>

struct gp_rank_read {
    struct gp_job_rank rank; /* of a refused file its name alone */
    bool refused;            /* the file cannot be read as a recording: */
    char why[GP_RANK_WHY];
};

/* rankread.c.  Reads one file of the options: files[0], or of order n more[n - 1].  GP_EXIT_OK, also of a refused file;
 * or an exit status after a message. */
int gp_rank_file_read(struct gp_rank_read *read, const struct gp_load_options *options, uint32_t order);
/* rankread.c.  The number behind the last "rank" of a file's name; false: there is none. */
bool gp_rank_of_name(const char *file, int32_t *number);
/* rankread.c.  Frees what the rank points to. */
void gp_rank_free(struct gp_job_rank *rank);

/* rankgrowth.c.  Fills in what grows, and nothing else of its memory (gp_load_options.growth).  loaded: with the steps that
 * gpuprof finds; this replaces them by those of --step.  False: out of memory. */
bool gp_rank_growth_fill(struct gp_job_rank *rank, struct gp_loaded *loaded, const struct gp_load_options *options);

/* rankworkers.c.  Reads all `count` files, in several processes, with a bar on a terminal.  As gp_rank_file_read; the
 * caller frees what has been read, in any case. */
int gp_rank_workers(struct gp_rank_read *reads, uint32_t count, const struct gp_load_options *options);

/* rankfiles.c.  Leaves a file out, after a message that names it. */
void gp_rank_set_leave(struct gp_rank_set *set, const char *command, const char *file, const char *why);
/* rankfiles.c.  Sets aside what torchrun and other launchers record beside their ranks, after a message: nothing is missing
 * without it. */
void gp_rank_set_launchers(struct gp_rank_set *set, const char *command);
/* rankfiles.c.  Leaves out the recordings that are certainly of another job or run than most, and names those of one rank. */
void gp_rank_set_choose(struct gp_rank_set *set, const char *command);

#endif
