/* SPDX-License-Identifier: MIT
 *
 * remote.h: reads and writes the memory of the process; finds functions in the libraries that it
 * has mapped.
 */
#ifndef GP_ATTACH_REMOTE_H
#define GP_ATTACH_REMOTE_H

#include <attach/facts.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* 0 or -errno; a part is -EFAULT. */
int gp_remote_read(pid_t pid, void *to, size_t bytes, uint64_t from);
int gp_remote_write(pid_t pid, const void *from, size_t bytes, uint64_t to);
/* Until gp_remote_let_go both mean the memory of the program that the process runs now, and fail after
 * an exec.  A write below the main thread's stack makes it larger.  0 or -errno. */
int gp_remote_hold(pid_t pid);
void gp_remote_let_go(void);
/* Where these bytes are in the code of a mapped ELF object; 0: nowhere. */
uint64_t gp_remote_code(pid_t pid, const struct gp_attach_map *map, const void *code, size_t bytes);
/* Addresses of functions in one mapped ELF object, 0 for those that it lacks; *found counts.
 * 0 or -errno. */
int gp_remote_symbols(pid_t pid, const struct gp_attach_map *map, const char *const *names, uint64_t *addresses,
                      size_t count);

#endif
