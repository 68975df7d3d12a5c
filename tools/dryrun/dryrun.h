/* SPDX-License-Identifier: MIT
 *
 * dryrun.h: the parts of `gpuprof dryrun`.  tools/cmd/dryrun.c decides what to run and what follows from
 * it; job.c runs the program once, with its files in a folder, and follow.c looks how far it is; need.c reads
 * what a recording of it needs of a device; sum.c adds up the processes of a device; answer.c picks the process that decides.
 */
#ifndef GP_DRYRUN_DRYRUN_H
#define GP_DRYRUN_DRYRUN_H

#include <dryrun/model.h>
#include <dryrun/world.h>
#include <run/launch.h>

struct gp_dryrun_job { /* what is the same for all runs */
    struct gp_launch launch;
    char folder[4096];      /* of the recordings and of the notes: made by gp_dryrun_begin, and removed at the end */
    const char *memory;     /* --memory; NULL: that of the GPU */
    int64_t devices;        /* simulated GPUs of one machine */
    int64_t budget_bytes;   /* 0: none */
    int64_t steps;          /* end the program when so many were seen; 0: it ends by itself */
    const char *fill;       /* --fill; NULL: zeros */
    const char *imbalance;  /* --imbalance; NULL: 1 */
    const char *change;     /* --try: what the run changes, "" only looks for what could be changed; NULL: not --try */
    bool json;              /* the program's standard output is not ours */
    struct gp_world *world; /* --world; NULL: one process, which may start others */
    unsigned runs;
};

/* Prepares the environment and makes the folder, beside `beside` (a file to come) or among temporary
 * files.  GP_EXIT_OK, or an exit status after a message. */
int gp_dryrun_begin(struct gp_dryrun_job *job, const char *beside);
/* Removes the folder. */
void gp_dryrun_end(struct gp_dryrun_job *job);
/* Runs the program on `gpu`, whose memory is that of the job, or `memory`.  Fills in all of *run but its
 * total; the recordings are in the folder, under gp_dryrun_files.  GP_EXIT_OK, or an exit status after a message. */
int gp_dryrun_run(struct gp_dryrun_job *job, const struct gp_dryrun_gpu *gpu, const char *memory,
                  struct gp_dryrun_run *run);
void gp_dryrun_run_free(struct gp_dryrun_run *run);
/* Its recordings, NULL after the last; free each and the list.
 * NULL: out of memory. */
char **gp_dryrun_files(const struct gp_dryrun_job *job, unsigned number);

/* Adds to run->needs what the recording needs of each device.  GP_EXIT_OK, or an exit status after a message. */
int gp_dryrun_read(struct gp_dryrun_run *run, const char *file, int64_t budget_bytes, bool first);
/* The same of a recording that is open, which this takes over, also if it fails. */
int gp_dryrun_read_opened(struct gp_dryrun_run *run, struct gp_recording *recording, const char *file,
                          int64_t budget_bytes, bool first);

/* What the fullest device must have of a GPU with so many threads: to be sure, and at least.  -1: none was
 * used.  False: out of memory. */
bool gp_dryrun_sum(const struct gp_dryrun_run *run, int64_t threads, int64_t *needed, int64_t *least);
/* When the processes lived, as they were seen from outside. */
struct gp_dryrun_life {
    uint32_t pid;
    uint64_t start_ns, alive_ns; /* it started before that; it was alive then */
};
void gp_dryrun_lives(struct gp_dryrun_run *run, const struct gp_dryrun_life *lives, uint32_t count);

/* --try: the names that it takes; "" after the last. */
extern const char *const gp_dryrun_try_names[];
/* Runs CMD once with job->change on a copy of `gpu`, whose verdict and sizes it fills in.  An exit status. */
typedef int gp_dryrun_try_run(void *data, const char *change, struct gp_dryrun_gpu *gpu);
/* Tries what the run of `gpu`, made with job->change "", has shown to be possible: the names in `names`, separated by
 * commas, or all of them.  Fills in answer->changes.  GP_EXIT_OK, or the exit status of what ended it; the changes so
 * far are there in each case. */
int gp_dryrun_try(const struct gp_dryrun_job *job, struct gp_dryrun_answer *answer, const char *names,
                  gp_dryrun_try_run *run, void *data);
/* The word of the list that is no such name; NULL: all are. */
const char *gp_dryrun_try_unknown(const char *names, char *word, size_t bytes);

/* --batch=N[,M].  Not 0: not such a list. */
int gp_dryrun_batch_parse(const char *text, int64_t sizes[2]);
/* Whether an argument of the program has "{batch}", and the command line with a size for it; NULL: out of memory. */
bool gp_dryrun_batch_named(char *const *argv);
char **gp_dryrun_batch_argv(char *const *argv, int64_t size);
void gp_dryrun_batch_free(char **argv);
/* The size to try next; 0: none. */
int64_t gp_dryrun_batch_next(const struct gp_dryrun_answer *answer, int64_t total_bytes);
/* Keeps a size that was tried.  Room for GP_DRYRUN_BATCHES. */
#define GP_DRYRUN_BATCHES 12u
void gp_dryrun_batch_add(struct gp_dryrun_answer *answer, struct gp_dryrun_batch batch);

#endif
