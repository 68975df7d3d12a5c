/* SPDX-License-Identifier: MIT
 *
 * foreign.h: files of other users: opened without harm, with the right of their process, and passed
 * on.
 */
#ifndef GP_READ_COMMON_FOREIGN_H
#define GP_READ_COMMON_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ==== names that others chose ===================================================================================== */
/* Opens a file by a name that another process, or a recording, chose. The name may lead to a device,
 * to a pipe that blocks, or through an absolute link out of a container. So the file is first held
 * without being opened (O_PATH), below the right root, and read only if it is a regular file. Called
 * by the viewers and by the agent's finder.
 *
 * Root does not open files that a process serves (FUSE), because their server may never answer.
 * Another user sees only processes of its own, and may read its own FUSE mounts. */

/* Holds (O_PATH) the file with that path below the directory root; links cannot leave it. cached:
 * fail with -EAGAIN rather than ask the server of a file system. Before Linux 5.6 (-ENOSYS) root
 * gets the error, and any other user a lookup that links may lead out of the root. A descriptor or
 * -errno. */
int gp_foreign_hold(int root, const char *path, bool cached);

/* Whether a process serves (FUSE) the file system with that mount number and device, by the mounts
 * of the process whose directory is proc (AT_FDCWD: by ours). 1; 0; -ENOENT: its mount is not among
 * them; -ESRCH: the process has ended; -errno. */
int gp_foreign_is_served(uint64_t mount, uint64_t device, int proc);

/* Holds (O_PATH) the directory with that name in the directory `at`; a link is not followed. proc:
 * as above. -ENOTDIR: a link, or no directory; -EACCES: a process serves it, and root must not use
 * it. A descriptor or -errno. */
int gp_foreign_folder(int at, const char *name, int proc);

/* Opens a held file, which is known to be regular, for reading. A descriptor or -errno. */
int gp_foreign_reopen(int held);

/* The file with that path, for reading. root: "", or "/proc/PID/root"; then it is opened with the
 * rights of that process, and not at all by a thread that has more rights and cannot give them up
 * (-EPERM: it needs CAP_SETUID and CAP_SETGID). -ENOEXEC: it is not a regular file with contents, or
 * root must not read it; -ETIMEDOUT: its file system does not answer. A descriptor or -errno. */
int gp_foreign_open(const char *root, const char *path);

/* The same below a folder of the user's own choice, such as a copy of a container's files: links do not leave it. */
int gp_foreign_below(const char *folder, const char *path);

/* The file that a process maps at [start, end), for reading, if the kernel gives it that path. proc:
 * "/proc/PID". Needs CAP_CHECKPOINT_RESTORE (before Linux 5.9 CAP_SYS_ADMIN), but works for files
 * that are deleted or out of reach. Errors as gp_foreign_open. */
int gp_foreign_mapped(const char *proc, uint64_t start, uint64_t end, const char *path);

/* ==== another process's rights ==================================================================================== */
/* Opens, makes and removes files with no more right than another process has: with its user, its
 * groups and no capability. What a name that such a process chose leads to is then its own affair.
 * Called by whatever opens files below /proc/PID/root. */

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

/* ==== a descriptor in a message =================================================================================== */
/* A message with a descriptor, between two processes of one command. Both functions make system
 * calls only, as a child of fork must. */

/* file: -1: none.  0 or -errno. */
int gp_foreign_fd_send(int socket, void *body, size_t bytes, int file);
/* *file: -1: the message has none.  0 or -EIO. */
int gp_foreign_fd_receive(int socket, void *body, size_t bytes, int *file);
/* Keeps the socket, as number 0, the other descriptor, if it is not -1, as number 1, and no more. */
void gp_foreign_fd_keep(int socket, int other);

#endif
