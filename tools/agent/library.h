/* SPDX-License-Identifier: MIT
 *
 * library.h: the files that hold the probe, each armed once.  What makes two descriptors the same file is the inode
 * that the kernel places probes in: two overlay mounts over one lower file show it under different device numbers.
 *
 * A file is armed only if it belongs to root and nobody else may write it, and its notes are read by gp_bpf_probe_find
 * alone, which trusts no number in them.  A link holds the file's mount: it goes as soon as nobody maps the file, or
 * the end of a container could not unmount it.
 */
#ifndef GP_AGENT_LIBRARY_H
#define GP_AGENT_LIBRARY_H

#include <bpf/loader.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define GP_LIBRARY_ID 20u /* bytes of the longest build id that is compared (SHA-1, the linkers' default) */

struct gp_library_id { /* bytes 0: none */
    uint8_t bytes, id[GP_LIBRARY_ID];
};

struct gp_libraries;

/* bpf must outlive it.  0 or -errno. */
int gp_libraries_open(struct gp_libraries **out, struct gp_bpf *bpf);
void gp_libraries_close(struct gp_libraries *libraries); /* disarms all */

/* A file that the operator named: armed until the end, mapped or not.  0, or -errno with a sentence in why (-EPERM: not
 * root's, or others may write it; -ENOENT no probe in it). */
int gp_libraries_keep(struct gp_libraries *libraries, const char *path, char *why, size_t why_bytes);

/* A file that the process maps, open in fd (which stays the caller's); name is for messages.  1 newly armed, 0 armed
 * before, -errno: refused or failed, said in the log once a file. */
int gp_libraries_offer(struct gp_libraries *libraries, int fd, const char *name, pid_t pid);

/* The build id of an ELF file; bounded, trusts no number in it.  0, -ENOENT it has none, -ENOEXEC, -errno. */
int gp_library_id_read(int fd, struct gp_library_id *out);

/* A process that mapped files has ended.  Files that nobody is known to map any more are `idle`: a forked child may
 * still map them, so who calls sweeps (gp_discover_sweep offers again what is mapped) and then disarms what stayed. */
void gp_libraries_left(struct gp_libraries *libraries, pid_t pid);
unsigned gp_libraries_idle(const struct gp_libraries *libraries);
void gp_libraries_disarm_idle(struct gp_libraries *libraries);
/* Readable (for epoll) when a process that maps one of the files has ended; gp_libraries_turn then calls
 * gp_libraries_left for it. */
int gp_libraries_fd(const struct gp_libraries *libraries);
void gp_libraries_turn(struct gp_libraries *libraries);

struct gp_libraries_count {
    unsigned armed, refused, mappers;
};
struct gp_libraries_count gp_libraries_count(const struct gp_libraries *libraries);

#endif
