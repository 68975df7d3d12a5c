/* SPDX-License-Identifier: MIT
 *
 * world.h: a job of many ranks, of which this machine runs some (`dryrun --world`).  The others are absent: the simulated GPU's
 * library for communication answers for them.
 */
#ifndef GP_DRYRUN_WORLD_H
#define GP_DRYRUN_WORLD_H

#include <dryrun/launcher.h>
#include <dryrun/model.h>
#include <stdbool.h>
#include <stdint.h>

#define GP_WORLD_MOST   16384 /* ranks of a job */
#define GP_WORLD_LINES  8     /* kinds of groups whose members send to each other */
#define GP_WORLD_LOCAL  8     /* ranks of a node, if nothing else is said */
#define GP_WORLD_ROUNDS 6     /* runs that only find out which ranks to run */

struct gp_world {
    int64_t size, local; /* ranks of the job, and of each of its nodes; size 0: no --world */
    int64_t jobs;        /* ranks that run at a time; 0: all of `ranks` */
    bool automatic;      /* more are added, as those that run send to them */
    int32_t *ranks;      /* that run, in rising order */
    uint32_t count;
    struct gp_world_line { /* groups of that many ranks, at that distance, whose members send to each other */
        int32_t ranks, distance;
    } lines[GP_WORLD_LINES];
    uint32_t line_count;
    unsigned rounds;
    struct gp_launcher launcher;
    char *const *argv; /* the program */
};

/* Reads the options; launcher.argv or argv is the program.  GP_EXIT_OK, or an exit status after a message. */
int gp_world_begin(struct gp_world *world, int64_t size, int64_t local, const char *ranks, int64_t jobs, char **argv);
void gp_world_end(struct gp_world *world);
/* The ranks as --ranks takes them: "0,8-15"; to be freed.  NULL: out of memory. */
char *gp_world_list(const int32_t *ranks, uint32_t count);
/* Starts the ranks, waits for them, and ends them all if one fails or none moves: called in a process of its own.  Returns the
 * status of the first that failed, or 0. */
int gp_world_run(void *world);
/* Adds the ranks to which those that ran have sent, or from which they have received: the simulated GPU wrote them into the
 * file.  True: there are more now, so the run is to be made again. */
bool gp_world_grow(struct gp_world *world, const char *file);
/* Which of the job's ranks each process of the run stands for.  Those for which it stands already, in an answer of elsewhere, it
 * goes on to stand for if they did not run.  False: out of memory. */
bool gp_world_kinds(const struct gp_world *world, struct gp_dryrun_run *run);

#endif
