/* SPDX-License-Identifier: MIT
 *
 * launcher.h: launchers of ranks (torchrun, mpirun and so on) as the beginning of a command line: what they would start.
 */
#ifndef GP_DRYRUN_LAUNCHER_H
#define GP_DRYRUN_LAUNCHER_H

#include <stddef.h>
#include <stdint.h>

enum gp_launcher_kind { GP_LAUNCHER_NONE, GP_LAUNCHER_TORCH, GP_LAUNCHER_MPI, GP_LAUNCHER_SLURM };

struct gp_launcher {
    enum gp_launcher_kind kind; /* whose variables the program reads; NONE: argv is the command line itself */
    char name[64];              /* as people call it */
    char **argv;                /* what it would start: words of the command line, and some of its own */
    char **set;                 /* NAME=VALUE, until NULL */
    int64_t size, local, nodes; /* as it was told; 0: not */
    size_t local_rank_at;       /* argv has "--local_rank=" there, which each rank completes; 0: it has not */
};

/* Reads the command line.  GP_EXIT_OK, or GP_EXIT_USAGE after a message, which has the line to type instead. */
int gp_launcher_read(struct gp_launcher *launcher, char **argv, int64_t world);
void gp_launcher_free(struct gp_launcher *launcher);

#endif
