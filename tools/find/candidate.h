/* SPDX-License-Identifier: MIT
 *
 * candidate.h: one file that may hold the probe, looked at without being hurt by it: a FIFO or a device at that path, a file
 * system whose server never answers, a file that shrinks while it is read.
 */
#ifndef GP_FIND_CANDIDATE_H
#define GP_FIND_CANDIDATE_H

#include <find/library.h>

struct gp_candidate {
    uint64_t device, inode, size, changed_ns; /* what it is known by, while it is not touched */
    uint64_t mount;
    uint32_t mode, uid;
};

/* What the kernel knows about it without asking a file system's server.  0 or -errno. */
int gp_candidate_look(int fd, struct gp_candidate *out);
/* NULL, or why it is not to be armed. */
const char *gp_candidate_refusal(const struct gp_candidate *file);
/* Whether its file system is one that a process serves (FUSE), by the mounts of the process whose directory is proc.
 * 1, 0, -ENOENT its mount is not among them, -ESRCH the process is gone, -errno. */
int gp_candidate_is_served(const struct gp_candidate *file, int proc);
/* Opens for reading what fd (O_PATH) stands for.  A descriptor or -errno. */
int gp_candidate_reopen(int fd);
/* Whether a breakpoint stands at this offset of the inode behind fd: 1, 0 or -errno. */
int gp_candidate_is_armed(int fd, uint64_t offset);

#endif
