/* SPDX-License-Identifier: MIT
 *
 * candidate.h: examines one file that may hold the probe, safely: the path may be a FIFO or a
 * device, the file may be on a file system whose server never answers, or shrink while it is read.
 * library.c calls it.
 */
#ifndef GP_FIND_CANDIDATE_H
#define GP_FIND_CANDIDATE_H

#include <agent/find/library.h>

struct gp_candidate {
    uint64_t device, inode, size, changed_ns; /* identify the file as long as it is not changed */
    uint64_t mount;
    uint32_t mode, uid;
    bool is_memory; /* a file of memfd_create; `device` then differs for each user */
};

/* Reads what the kernel knows without asking a file system's server. 0 or -errno. */
int gp_candidate_stat(int fd, struct gp_candidate *out);
/* NULL, or the reason why the file must not be armed.  A memory file is judged by its contents
 * instead, when it is open (gp_candidate_is_copy). */
const char *gp_candidate_refusal(const struct gp_candidate *file);
/* Whether the memory file open as fd can change no more, and equals the file open as `original`.
 * 1; 0: it differs; -EPERM: it is not sealed; -errno. */
int gp_candidate_is_copy(int fd, uint64_t size, int original);
/* Whether a process serves the file's file system (FUSE), by the mounts of the process whose
 * directory is proc. 1; 0; -ENOENT: its mount is not among them; -ESRCH: the process has ended;
 * -errno. */
int gp_candidate_is_served(const struct gp_candidate *file, int proc);
/* Whether a breakpoint is at this offset of the inode behind fd: 1, 0 or -errno. */
int gp_candidate_is_armed(int fd, uint64_t offset);

#endif
