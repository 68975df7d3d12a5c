/* SPDX-License-Identifier: MIT
 *
 * find.h: finds the copies of the library in the processes of the machine, and keeps them armed.
 */
#ifndef GP_AGENT_FIND_FIND_H
#define GP_AGENT_FIND_FIND_H

#include <agent/kernel/bpf.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ==== one line an hour ============================================================================================ */
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

/* ==== files of /proc/PID ========================================================================================== */
/* Opens files of /proc/PID in a process of its own, because there the kernel may block for as long
 * as the examined process likes. A call that takes too long is given up: the process that makes it
 * is killed, which the kernel allows in these waits, and the next call starts another one. One
 * thread uses it at a time. */

#define GP_PROCOPEN_PATIENCE_NS 500000000ull /* an open takes microseconds; the rest is for a machine short of CPUs */

struct gp_procopen;

struct gp_procopen *gp_procopen_new(void); /* NULL: out of memory; the process starts with the first call */
void gp_procopen_free(struct gp_procopen *procopen);

/* openat() of a short name (at most 63 bytes). A descriptor, which is closed at exec, or -errno;
 * -ETIMEDOUT: given up. */
int gp_procopen_open(struct gp_procopen *procopen, int folder, const char *name, int flags);

/* ==== the libraries =============================================================================================== */
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

struct gp_libraries;

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

/* ==== one file ==================================================================================================== */
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

/* ==== the search ================================================================================================== */
/* Finds the processes that map a copy of the library, in any mount namespace. It reads the kernel's
 * records of executable mappings (PERF_RECORD_MMAP2 of every CPU, with build ids since Linux 5.12).
 * It also sweeps /proc: at the start, whenever records were lost or a CPU came online, and once a
 * minute to see which processes unmapped a copy.
 *
 * Needs the host's pid namespace and CAP_PERFMON; opening files needs CAP_SYS_PTRACE and
 * CAP_DAC_READ_SEARCH. With CAP_CHECKPOINT_RESTORE (or CAP_SYS_ADMIN) files are opened through
 * /proc/PID/map_files: exactly the mapped file, even if deleted. Without it they are opened by path
 * in the process's root, only as far as names are cached: a mapped file's names are, and no file
 * system's server is asked.
 *
 * A file whose name does not start with "libgpuprof" is found only by its build id in records, and
 * only once a file with that build id is armed. */

struct gp_discover;

struct gp_discover_options {
    struct gp_libraries *libraries; /* receives the files that are found; must outlive it */
    /* Called for each process that maps an armed file, whenever one is seen; may be NULL. */
    void (*mapped)(void *arg, pid_t pid);
    void *arg;
    bool no_query;    /* reads /proc/PID/maps as text even if the kernel has PROCMAP_QUERY (6.11); for tests */
    uint64_t slow_ns; /* time between regular sweeps; 0: one minute */
};

/* 0, or -errno with a sentence in why: the caller then continues with the libraries that the
 * operator named. */
int gp_discover_open(struct gp_discover **out, const struct gp_discover_options *options, char *why, size_t why_bytes);
void gp_discover_close(struct gp_discover *discover);

int gp_discover_fd(const struct gp_discover *discover); /* readable (for epoll): call gp_discover_turn */
void gp_discover_turn(struct gp_discover *discover);    /* bounded work; the fd becomes readable again while work
                                                         * remains */
/* Sweeps /proc. Returns the number of processes that map the library; -ETIME: interrupted after 0.3
 * s, and the next call continues; -errno. */
int gp_discover_sweep(struct gp_discover *discover);

struct gp_discover_count {
    uint64_t records, candidates; /* mappings examined, and mappings offered */
    uint64_t lost;                /* records lost; a sweep makes up for each loss */
    uint64_t sweeps, sweep_ns;    /* sweep_ns: of the last one */
    uint64_t stalls;              /* opens that were given up because the kernel blocked in them */
    unsigned cpus;
    bool has_build_ids, has_map_files;
};
struct gp_discover_count gp_discover_count(const struct gp_discover *discover);
/* Any thread: the process that is being examined, or was last. */
pid_t gp_discover_current(const struct gp_discover *discover);

/* ==== the thread ================================================================================================== */
/* Finds copies of the library and keeps them armed, on a thread of its own. It opens files of
 * /proc/PID, where the kernel may block for as long as a process likes (find.h bounds the waits
 * that are known). Should the thread hang all the same, new copies are not found until that ends,
 * which the agent logs; the heartbeat and the armed files are unaffected. */

#define GP_FINDER_LIBRARIES 16u /* the most that may be named */

struct gp_finder_options {
    struct gp_bpf *bpf;           /* must outlive it */
    const char *const *libraries; /* always armed; an error if one of these cannot be */
    unsigned library_count;       /* at most GP_FINDER_LIBRARIES */
    const char *installed;        /* the same, but if it cannot be armed this is logged and tried again; NULL: none */
    bool no_discover;             /* only these files */
    void (*mapped)(void *arg, pid_t pid); /* as in find.h; on the finder's thread */
    void *arg;
    uint64_t hangs_ns; /* a round that takes longer counts as stalled; 0: 5 s */
    uint64_t slow_ns;  /* as in find.h */
};

struct gp_finder;

/* Arms the named files before it returns. 0, or -errno with a sentence in why. */
int gp_finder_open(struct gp_finder **out, const struct gp_finder_options *options, char *why, size_t why_bytes);
/* Disarms all files. false: the thread still hangs in a file after 2 s and is left running with all
 * that it uses, bpf included; the caller must end the process. */
bool gp_finder_close(struct gp_finder *finder);

struct gp_finder_count { /* as of the thread's last round */
    struct gp_libraries_count libraries;
    unsigned unarmed; /* named files, and the installed one, that are there and could not be armed */
    struct gp_discover_count discover;
    bool is_searching; /* false: named files only */
    uint64_t hangs_ns; /* how long the current round has taken, if it counts as stalled; else 0 */
    pid_t at;          /* the process that it examines then */
};
struct gp_finder_count gp_finder_count(struct gp_finder *finder); /* any thread; never waits for the finder's */

#endif
