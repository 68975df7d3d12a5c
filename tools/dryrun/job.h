/* SPDX-License-Identifier: MIT
 *
 * job.h: what the files share that run a program dry; see dryrun.h.
 */
#ifndef GP_DRYRUN_JOB_H
#define GP_DRYRUN_JOB_H

#include <dryrun/dryrun.h>
#include <dryrun/model.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- folder.c ---------------------------------------------------------------------------------------------------- */

/* The folder of the run `number` (from 0). */
void gp_dryrun_folder(const struct gp_dryrun_job *job, unsigned number, char *path, size_t bytes);
/* Removes the files of a folder, and the folder. */
void gp_dryrun_folder_remove(const char *folder);
/* The first `most` bytes of a file; "" if it cannot be read; free it.  False: out of memory. */
bool gp_dryrun_text(const char *path, size_t most, char **text);

/* ---- follow.c ---------------------------------------------------------------------------------------------------- */

struct gp_dryrun_follow { /* looks at the recordings of a run while they are written */
    const struct gp_dryrun_job *job;
    unsigned number; /* of the run */
    const char *gpu;
    uint64_t begin_ns, next_ns, say_ns;
    uint32_t steps; /* that have ended, of the process that has most; with --world of the rank that has fewest */
    bool repeats;   /* the last of them need no more memory than the others */
};

/* Looks, if it is time to, and on a terminal says how far the program is.  True: it has taken job->steps steps, and
 * the peak repeats. */
bool gp_dryrun_look(struct gp_dryrun_follow *follow);

/* ---- readback.c, notes.c ----------------------------------------------------------------------------------------- */

/* Fills in run->reads from the file that the simulated driver wrote.  GP_EXIT_OK, or an exit status after a message. */
int gp_dryrun_readback(struct gp_dryrun_run *run, const char *path);
/* Fills in run->notes from the file that the stand-ins wrote.  GP_EXIT_OK, or an exit status after a message. */
int gp_dryrun_notes(struct gp_dryrun_run *run, const char *path);
/* Fills in run->messages from the file in which the ranks of a job, and the process that starts them, said why they end. */
int gp_dryrun_messages(struct gp_dryrun_run *run, const char *path);

/* ---- try.c ------------------------------------------------------------------------------------------------------- */

#define GP_DRYRUN_KERNELS "kernels" /* in the folder of a run: the simulated driver counts there */
struct gp_dryrun_kernels {
    uint64_t launches;
    uint64_t stack; /* the most bytes that each thread of a context had */
};
#define GP_DRYRUN_FOUND "found" /* ... and the hook of Python programs says what it met */

/* Makes the file in which the processes of a run count their kernels; without it they count none. */
void gp_dryrun_kernels_begin(const char *folder);
/* Fills in run->kernels and run->stack. */
void gp_dryrun_kernels(struct gp_dryrun_run *run, const char *folder);

#endif
