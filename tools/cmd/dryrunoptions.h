/* SPDX-License-Identifier: MIT
 *
 * dryrunoptions.h: the options of `gpuprof dryrun`.
 */
#ifndef GP_CMD_DRYRUNOPTIONS_H
#define GP_CMD_DRYRUNOPTIONS_H

#include <cmd/load.h>
#include <dryrun/dryrun.h>
#include <stdbool.h>
#include <stdint.h>

#define GP_DRYRUN_GPU "h100-80g" /* without --gpu */

struct gp_dryrun_options {
    struct gp_launch launch;
    const char *gpu, *memory, *record, *output, *fill, *batch, *change; /* NULL: not given; record "": without a name */
    const char *imbalance;
    int64_t devices, budget, steps;   /* budget: of share, once the GPU is known */
    int64_t world, local_world, jobs; /* 0: not given */
    const char *ranks;
    struct gp_share share;         /* --budget */
    struct gp_budget_options gate; /* most: not used, --budget is of what the device must have */
    bool json, list, force, merge;
};

/* Runs the program as the options say, and prints the answer.  options: struct gp_dryrun_options, checked.  An exit
 * status. */
int gp_dryrun_command(void *options);

#endif
