/* SPDX-License-Identifier: MIT
 *
 * vma.h: reads /proc/PID/maps, the one place that knows its form (proc_pid_maps(5)).
 */
#ifndef GP_BASE_VMA_H
#define GP_BASE_VMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One line: numbers, and a path of at most 4095 bytes, each of which the kernel may escape as four. */
#define GP_VMA_LINE (20u << 10)

struct gp_vma {
    uint64_t start, end, offset, inode;
    dev_t device;
    char rights[5];   /* "rwxp", '-' for each that lacks; 's' for shared */
    const char *path; /* a file, "[heap]" and the like, or "" */
};

/* Returns false to stop. The mapping is valid during the call. */
typedef bool gp_vma_each(void *context, const struct gp_vma *mapping);

/* Calls `each` for every mapping of the open file. Lines that do not parse are left out. The buffer
 * bounds a line; it may be static where a stack is small, for nothing is allocated here. 0 at the
 * file's end, -ECANCELED after `each` said stop, -EFBIG when `most` bytes were read, -E2BIG at a line
 * that the buffer does not hold (GP_VMA_LINE holds all that Linux writes), or what read said. */
int gp_vma_walk(int fd, char *buffer, size_t bytes, size_t most, gp_vma_each *each, void *context);

#endif
