/* SPDX-License-Identifier: MIT
 *
 * merge.h: `gpuprof dryrun --merge`: ranks that ran elsewhere as one run.
 */
#ifndef GP_DRYRUN_MERGE_H
#define GP_DRYRUN_MERGE_H

#include <dryrun/dryrun.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_dryrun_merge {
    char *const *files; /* answers (dryrun --json) and recordings (dryrun --record) */
    const struct gp_sim_gpu *gpus;
    uint32_t gpu_count;
    const struct gp_sim_gpu *gpu; /* the one that is asked for; NULL: that of the first file, which is filled in */
    int64_t local;                /* ranks of a node; 0: as the command takes it */
    int64_t budget_bytes;         /* 0: none */

    /* Found out. */
    int64_t total_bytes;                  /* of the GPU, as the first file has it */
    int64_t needed_bytes, smallest_bytes; /* of the fullest device of the answers; -1: there are none */
    bool too_large;                       /* an answer says that it does not fit */
    char **command;                       /* of the first answer; NULL: there are none */
    char **recordings;                    /* of which the page is made, NULL after the last */
    uint32_t recording_count, answer_count;
};

/* Takes the options out of the words that follow --merge, which are files otherwise. */
int gp_dryrun_merge_words(char **argv, const char **output, bool *json, bool *force);
/* Reads the files into *run, each once.  A file that is damaged, of something else or of another job is said, and is left out: it is
 * in run->left.  GP_EXIT_OK, or an exit status after a message, as where none is left. */
int gp_dryrun_merge(struct gp_dryrun_merge *merge, struct gp_dryrun_run *run);
void gp_dryrun_merge_end(struct gp_dryrun_merge *merge);

/* ---- mergejson.c ------------------------------------------------------------------------------------------------- */

struct gp_dryrun_said {       /* an answer */
    struct gp_dryrun_run run; /* with the rows of one GPU */
    int64_t total_bytes, needed_bytes, smallest_bytes;
    bool too_large;
};
/* The name of the first GPU of an answer; NULL, with the reason: it is none. */
const char *gp_dryrun_said_gpu(const json_t *top, char why[GP_NEED_TEXT]);
/* Reads an answer.  0; -EPROTO with the reason; -ENOMEM.  Free it by gp_dryrun_run_free, in each case. */
int gp_dryrun_said(struct gp_dryrun_said *said, const json_t *top, const char *gpu, char why[GP_NEED_TEXT]);

#endif
