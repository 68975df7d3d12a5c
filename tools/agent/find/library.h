/* SPDX-License-Identifier: MIT
 *
 * library.h: the libraries that are armed, and what may be one.
 */
#ifndef GP_AGENT_FIND_LIBRARY_H
#define GP_AGENT_FIND_LIBRARY_H

#include <agent/kernel/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_libraries;

/* Writes a line of the log once an hour, however often its event occurs. A library on a shared
 * machine is loaded by many short programs, and one line for each of them would fill the journal. */

#define GP_HOURLY_LINES 64u
#define GP_HOURLY_TEXT  240u /* of a longer text only the beginning is compared */
/* Different lines: so many at once, then one a minute. Names come from tenants. */
#define GP_HOURLY_BURST 16u

struct gp_hourly_line {
    char text[GP_HOURLY_TEXT];
    uint64_t logged_ns; /* 0: the entry is free */
    uint64_t more;      /* events since then */
};

struct gp_hourly { /* zeros: no line yet */
    struct gp_hourly_line lines[GP_HOURLY_LINES];
    uint64_t full_ns;   /* when the whole burst is there again */
    uint64_t forgotten; /* events without a line of their own */
};

/* Whether to write the line `text` at this time; *more is then how many events like it had none since
 * the last one, and *others how many of texts that were not logged or had to make room. */
bool gp_library_hourly_take(struct gp_hourly *hourly, const char *text, uint64_t now_ns, uint64_t *more,
                            uint64_t *others);

/* The files that hold the probe, each armed once. Two descriptors are the same file if they have the
 * inode in which the kernel places probes; stat does not show that. Overlay mounts over one lower
 * file show it under different device numbers, with xino= or metacopy= also under different inode
 * numbers, and after a copy-up the same numbers are another file. So the kernel is asked
 * (gp_candidate_is_armed).
 *
 * A file is armed only if it belongs to root and no other user may write it. Root of a container can
 * create such a file with our note and any contents. The probe is then placed in that file at an
 * offset of its choice, and only the processes that map the file can break, all of them its own. The
 * batches that they fire are claims like any other. Only gp_bpf_probe_find reads the notes, and it
 * trusts no number in them; the kernel checks the instruction. The files and the work per file
 * system are bounded (GP_LIBRARY_OF_ONE). Where that is too much, use --no-discover.
 *
 * `gpuprof attach` loads the library from a memory file (memfd), which belongs to the program's
 * user.  Such a file is armed if it is sealed against changes and equal to a file that the operator
 * named or installed.
 *
 * A link holds the file's mount, so it is closed as soon as no process maps the file; otherwise a
 * container that ends could not unmount it. */

#define GP_LIBRARY_ID      20u  /* bytes of the longest build id that is compared (SHA-1, the linkers' default) */
#define GP_LIBRARY_ARMED   256u /* files at once: every mapping of a page of an armed file searches these rows */
#define GP_LIBRARY_OF_ONE  16u  /* of these on one file system; a container has one, with a few versions side by side */
#define GP_LIBRARY_OF_USER 64u  /* of these in memory files of one user: each attached program has one of its own */
#define GP_LIBRARY_BYTES   (256u << 20) /* a larger file is not a copy: the library has 1 MiB */

struct gp_library_id { /* bytes 0: no id */
    uint8_t bytes, id[GP_LIBRARY_ID];
};

/* bpf must outlive it.  0 or -errno. */
int gp_libraries_open(struct gp_libraries **out, struct gp_bpf *bpf);
void gp_libraries_close(struct gp_libraries *libraries); /* disarms all */

/* Arms a file that the operator named until the end, whether mapped or not. 0, or -errno with a
 * sentence in why (-EPERM: not root's, or others may write it; -ENOENT: no probe in it). */
int gp_libraries_keep(struct gp_libraries *libraries, const char *path, char *why, size_t why_bytes);

struct gp_library_offer {
    int fd;                         /* of the file; O_PATH suffices; stays the caller's */
    int proc;                       /* directory /proc/PID of the process that maps it; bound to the process, not to
                                     * the number */
    pid_t pid;                      /* the same process */
    const char *name;               /* for messages and to recognize it in a sweep; any bytes */
    const struct gp_library_id *id; /* the mapping's build id from the kernel; NULL or 0 bytes: unknown */
};
/* Offers a file that a process maps. 1: newly armed; 0: armed before; -errno: refused or failed,
 * logged once per file (-EBUSY: too many new files at once, offer it again; -ESRCH: the process
 * ended meanwhile). */
int gp_libraries_offer(struct gp_libraries *libraries, const struct gp_library_offer *offer);

/* Whether a mapping should be offered: its build id, or the last part of its name (n bytes), is
 * that of an armed file, or the name starts with "libgpuprof". */
bool gp_libraries_knows_id(const struct gp_libraries *libraries, const struct gp_library_id *id);
bool gp_libraries_knows_name(const struct gp_libraries *libraries, const char *base, size_t n);

/* Reads the build id of an ELF file; bounded, trusts no number in it. 0; -ENOENT: it has none;
 * -ENOEXEC; -errno. */
int gp_candidate_id_read(int fd, struct gp_library_id *out);

unsigned gp_libraries_idle(const struct gp_libraries *libraries);
void gp_libraries_disarm_idle(struct gp_libraries *libraries);
/* Readable (for epoll) when a process that maps one of the files has ended; gp_libraries_turn then
 * calls libraries_process_ended for it. Bounded work; the fd stays readable while work remains. */
int gp_libraries_fd(const struct gp_libraries *libraries);
void gp_libraries_turn(struct gp_libraries *libraries);

/* Only gp_discover_sweep calls these, around a whole sweep. After it, processes that were not
 * offered in it map no file any more (exec, dlclose). keep: the process maps a file that could not
 * be opened again. */
void gp_libraries_sweep_begin(struct gp_libraries *libraries);
void gp_libraries_sweep_keep(struct gp_libraries *libraries, pid_t pid);
void gp_libraries_sweep_end(struct gp_libraries *libraries);

struct gp_libraries_count {
    unsigned armed, mappers;     /* now; mappers of a kept file are not counted */
    uint64_t refused, postponed; /* files, so far (a file that was forgotten and offered again counts again) */
};
struct gp_libraries_count gp_libraries_count(const struct gp_libraries *libraries);
/* Whether a file was offered, since the last sweep began, whose probe another tracer has: it may be armed when it is
 * offered again. */
bool gp_libraries_blocked(const struct gp_libraries *libraries);

/* Examines one file that may hold the probe, safely: the path may be a FIFO or a device, the file
 * may be on a file system whose server never answers, or shrink while it is read. library.c calls
 * it. */

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
