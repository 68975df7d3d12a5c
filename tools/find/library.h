/* SPDX-License-Identifier: MIT
 *
 * library.h: the files that hold the probe, each armed once.  What makes two descriptors the same file is the inode
 * that the kernel places probes in, and nothing that stat says: overlay mounts over one lower file show it under
 * different device numbers, with xino= or metacopy= under different inode numbers too, and after a copy-up the same
 * numbers are another file.  So the kernel is asked (gp_candidate_is_armed).
 *
 * A file is armed only if it belongs to root and nobody else may write it.  Root of a container can make such a file,
 * with our note in it and anything else: the probe is then placed in that file, at an offset of its choice, and what
 * breaks by it are the processes that map the file, all of them its own.  What they say at the probe is a claim like
 * any other.  Its notes are read by gp_bpf_probe_find alone, which trusts no number in them; the kernel looks at the
 * instruction.  What it can have is bounded for each file system (GP_LIBRARY_OF_ONE), and so is the work that it can
 * make.  Where that is too much, the agent runs with --no-discover.
 *
 * A link holds the file's mount: it goes as soon as nobody maps the file, or the end of a container could not unmount
 * it.
 */
#ifndef GP_FIND_LIBRARY_H
#define GP_FIND_LIBRARY_H

#include <kernel/loader.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define GP_LIBRARY_ID     20u  /* bytes of the longest build id that is compared (SHA-1, the linkers' default) */
#define GP_LIBRARY_ARMED  256u /* files at once: each is a row that every mapping of a page of it looks up */
#define GP_LIBRARY_OF_ONE 16u  /* of them on one file system, and a container has one: a few versions side by side */
#define GP_LIBRARY_BYTES  (256u << 20) /* a larger file is no copy of ours: the library has 1 MiB */

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

struct gp_library_offer {
    int fd;                         /* of the file, O_PATH suffices; stays the caller's */
    int proc;                       /* directory /proc/PID of who maps it: bound to the process, not to the number */
    pid_t pid;                      /* the same */
    const char *name;               /* for messages, and to know it again in a sweep; any bytes */
    const struct gp_library_id *id; /* what the kernel said of the mapping; NULL or 0 bytes: nothing */
};
/* A file that a process maps.  1 newly armed, 0 armed before, -errno: refused or failed, said in the log once a file
 * (-EBUSY: too many new files at once, to be offered again; -ESRCH: the process ended meanwhile). */
int gp_libraries_offer(struct gp_libraries *libraries, const struct gp_library_offer *offer);

/* Whether a mapping is worth an offer: its build id, or the last part of its name (n bytes), is that of an armed file,
 * or the name begins with "libgpuprof". */
bool gp_libraries_knows_id(const struct gp_libraries *libraries, const struct gp_library_id *id);
bool gp_libraries_knows_name(const struct gp_libraries *libraries, const char *base, size_t n);

/* The build id of an ELF file; bounded, trusts no number in it.  0, -ENOENT it has none, -ENOEXEC, -errno. */
int gp_library_id_read(int fd, struct gp_library_id *out);

/* A process that mapped files has ended.  Files that nobody is known to map any more are `idle`: a forked child may
 * still map them, so who calls sweeps (gp_discover_sweep offers again what is mapped) and then disarms what stayed. */
void gp_libraries_left(struct gp_libraries *libraries, pid_t pid);
unsigned gp_libraries_idle(const struct gp_libraries *libraries);
void gp_libraries_disarm_idle(struct gp_libraries *libraries);
/* Readable (for epoll) when a process that maps one of the files has ended; gp_libraries_turn then calls
 * gp_libraries_left for it.  Bounded work; what is left keeps the fd readable. */
int gp_libraries_fd(const struct gp_libraries *libraries);
void gp_libraries_turn(struct gp_libraries *libraries);

/* Around a whole sweep, by gp_discover_sweep alone.  After it, processes that were not offered in it map nothing any
 * more (exec, dlclose).  still: the process maps a file that could not be opened again. */
void gp_libraries_sweep_begin(struct gp_libraries *libraries);
void gp_libraries_sweep_still(struct gp_libraries *libraries, pid_t pid);
void gp_libraries_sweep_end(struct gp_libraries *libraries);

struct gp_libraries_count {
    unsigned armed, mappers;     /* now; who maps a kept file is not followed */
    uint64_t refused, postponed; /* files, so far (one that was forgotten and comes again counts again) */
};
struct gp_libraries_count gp_libraries_count(const struct gp_libraries *libraries);

#endif
