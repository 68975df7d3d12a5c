/* SPDX-License-Identifier: MIT
 *
 * asuser.h: opens, makes and removes files with no more right than another process has: with its
 * user, its groups and no capability. What a name that such a process chose leads to is then its
 * own affair. Called by whatever opens files below /proc/PID/root.
 */
#ifndef GP_COMMON_ASUSER_H
#define GP_COMMON_ASUSER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_asuser {
    uid_t uid; /* of the process, for files: new files belong to it */
    gid_t gid;
    /* The rest is what the calling thread had before. */
    uid_t old_uid;
    gid_t old_gid, *old_groups;
    int old_count;
    bool has_groups; /* the process's, which differ */
    uint32_t old_effective[2];
};

/* From now on the calling thread has, for files, the rights of the process whose directory
 * /proc/PID is `proc`. A thread without any capability keeps what it has: it cannot change its
 * user, and has no right that its user lacks. 0 or -errno, and nothing has changed: -EPERM: the
 * thread may not become that user (it needs CAP_SETUID and CAP_SETGID). Any thread; other threads
 * keep their rights. */
int gp_asuser_begin(struct gp_asuser *as, int proc);
/* Gives the thread its rights back. Leaves errno alone. Aborts if the kernel refuses, which it does
 * not: a thread with another user's rights would go on with half of its work. */
void gp_asuser_end(struct gp_asuser *as);

#endif
