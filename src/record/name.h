/* SPDX-License-Identifier: MIT
 *
 * name.h: the names of recordings, and the place of a process in a distributed program. Called by
 * the library, which opens the file, and by `run` and `record`, which look for it. Any thread.
 */
#ifndef GP_RECORD_NAME_H
#define GP_RECORD_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_NAME_SUFFIX ".gpuprof"

struct gp_rank {                /* -1: unknown */
    int32_t rank, local, world; /* local: on this machine; world: number of ranks */
};

/* From the environment variables of the launchers: of torchrun, else of Open MPI, MPICH or Slurm. get
 * returns a variable's value, or NULL. */
void gp_rank_read(struct gp_rank *out, const char *get(void *arg, const char *name), void *arg);

/* Expands the pattern: %p is the pid, %% a percent sign. Without %p one of several ranks gets its own
 * name. second: another process has that name already. What is added stands before ".gpuprof", if the
 * name ends with it: x.gpuprof, x.rank3.gpuprof, x.1234.gpuprof, x.rank3.1234.gpuprof. 0,
 * -ENAMETOOLONG or -EINVAL. */
int gp_record_name(char *out, size_t bytes, const char *pattern, unsigned pid, const struct gp_rank *rank, bool second);

/* The length of the name without GP_NAME_SUFFIX at its end. */
size_t gp_record_stem(const char *name);

#endif
