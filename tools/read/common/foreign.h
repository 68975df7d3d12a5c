/* SPDX-License-Identifier: MIT
 *
 * foreign.h: opens a file by a name that another process, or a recording, chose. The name may lead
 * to a device, to a pipe that blocks, or through an absolute link out of a container. So the file is
 * first held without being opened (O_PATH), below the right root, and read only if it is a regular
 * file. Called by the viewers and by the agent's finder.
 *
 * Root does not open files that a process serves (FUSE), because their server may never answer.
 * Another user sees only processes of its own, and may read its own FUSE mounts.
 */
#ifndef GP_COMMON_FOREIGN_H
#define GP_COMMON_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
