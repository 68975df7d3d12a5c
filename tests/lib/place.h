/* SPDX-License-Identifier: MIT
 *
 * place.h: where a test of the agent does its work: a folder with a copy of the library (another inode, name and
 * build id: nobody else's probes), a name for pins on a bpffs of its own (the test is in a mount namespace of its own from
 * then on), cgroups, and programs in them that do what they are told.
 *
 * A keeper process takes all of it away when the test has ended, however it ended: what stands in the place's cgroups
 * is killed, the cgroups, the pins and the folder go.  So what a test starts belongs into one of its cgroups.
 */
#ifndef GP_TEST_LIB_PLACE_H
#define GP_TEST_LIB_PLACE_H

#include "lib/kid.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define PLACE_GROUPS 64

struct place_group {
    char path[160];
    uint64_t id; /* as the kernel's side knows it */
    bool is_v1;  /* of the memory controller */
};

struct place {
    char dir[64], library[96], pins[64], group_at[2][96]; /* where cgroups are made: v2, v1 memory ("" none) */
    struct place_group groups[PLACE_GROUPS];
    int group_count, agent_group; /* -1: no agent was started yet */
    pid_t keeper;
    int keeper_fd;
};

/* 0; else the test is to be skipped, or (-EIO and the like) has failed, with a sentence in why: -EPERM no root,
 * -ENOTSUP no bpffs or no cgroup v2. */
int place_make(struct place *place, char *why, size_t why_bytes);
/* 0, or -EBUSY with what could not be taken away. */
int place_free(struct place *place, char *why, size_t why_bytes);

/* Takes the bpffs away from the test's mount namespace, as on a machine that mounts none.  -errno. */
int place_unmount(void);

/* The number of a new cgroup, or -errno. */
int place_group(struct place *place, bool want_v1);
/* Removes one: -errno as rmdir.  The last one's number is used again. */
int place_group_remove(struct place *place, int group);
/* DIR/name of a copy of that library, with a build id of this place's; static buffer.  NULL: could not.  An agent that
 * somebody else runs on this machine takes no interest in it unless the name begins with "libgpuprof". */
const char *place_copy(const struct place *place, const char *file, const char *name);
/* Moves the calling process. */
int place_enter(const struct place_group *group);

/* ---- programs in it ---------------------------------------------------------------------------------------------- */

struct kid_options {
    const char *file; /* what is executed */
    int group;
    const char *library; /* CUDA_INJECTION64_PATH; NULL: the place's; "": not profiled */
    const char *sim;     /* GPUPROF_SIM */
};

/* As kid_begin, in one of the place's cgroups, with exec_fd. */
int kid_start(struct kid *kid, const struct place *place, const struct kid_options *options);

#endif
