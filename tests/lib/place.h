/* SPDX-License-Identifier: MIT
 *
 * place.h: the surroundings of a test of the agent: a folder with a copy of the library, a name for pins on a
 * private bpffs (the test moves to a mount namespace of its own), cgroups, and programs in them that execute
 * commands. The copy has its own inode, name and build id, so no other agent's probes are in it.
 *
 * When the test has ended in any way, a keeper process kills the processes in the place's cgroups and removes
 * the cgroups, the pins and the folder. So a test must start its processes in one of these cgroups.
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
    uint64_t id; /* as BPF programs see it */
    bool is_v1;  /* of the memory controller */
};

struct place {
    char dir[64], library[96], pins[64], group_at[2][96]; /* parents of new cgroups: v2, and v1 memory ("": none) */
    struct place_group groups[PLACE_GROUPS];
    int group_count, agent_group; /* -1: no agent has been started */
    pid_t keeper;
    int keeper_fd;
};

/* 0 or -errno, with the reason in why. -EPERM (no root) and -ENOTSUP (no bpffs, or no cgroup v2): the caller
 * skips the test. Other errors: the test fails. */
int place_make(struct place *place, char *why, size_t why_bytes);
/* 0, or -EBUSY with a description of what could not be removed. */
int place_free(struct place *place, char *why, size_t why_bytes);

/* Unmounts the bpffs in the test's mount namespace, as on a machine that mounts none.  0 or -errno. */
int place_unmount(void);

/* Makes a cgroup. Returns its number or -errno. */
int place_group(struct place *place, bool want_v1);
/* Removes a cgroup. -errno as rmdir. The number of the last one is reused. */
int place_group_remove(struct place *place, int group);
/* Copies the library to DIR/name with a new build id. Returns the path in a static buffer; NULL: failed. An agent
 * that runs outside the tests ignores the copy unless its name starts with "libgpuprof". */
const char *place_copy(const struct place *place, const char *file, const char *name);
/* Moves the calling process into the cgroup. */
int place_enter(const struct place_group *group);

/* ---- programs in it ---------------------------------------------------------------------------------------------- */

struct kid_options {
    const char *file; /* the program's file */
    int group;
    const char *library; /* CUDA_INJECTION64_PATH; NULL: the place's library; "": not profiled */
    const char *sim;     /* GPUPROF_SIM */
};

/* As kid_begin, but in one of the place's cgroups, and executes exec_fd. */
int kid_start(struct kid *kid, const struct place *place, const struct kid_options *options);

#endif
