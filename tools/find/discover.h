/* SPDX-License-Identifier: MIT
 *
 * discover.h: who maps a copy of the library, in whatever mount namespace: the kernel's records of executable mappings
 * (PERF_RECORD_MMAP2 of every CPU, with build ids since Linux 5.12), and one look through /proc for what was mapped
 * before, and again whenever records were lost or a CPU came; and once a minute, for who maps a copy no more.
 *
 * Needs the host's pid namespace and CAP_PERFMON; opening what is found needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH,
 * and with CAP_CHECKPOINT_RESTORE (or CAP_SYS_ADMIN) it goes through /proc/PID/map_files, which opens the very file
 * that is mapped, deleted ones too.  Without, by its path in the process's root, as far as names are cached: a mapped
 * file's are, and whoever serves a file system is not asked.
 *
 * A file whose name does not begin with "libgpuprof" is found by its build id in records alone, and only once a file
 * with that build id is armed.
 */
#ifndef GP_FIND_DISCOVER_H
#define GP_FIND_DISCOVER_H

#include <find/library.h>

struct gp_discover;

struct gp_discover_options {
    struct gp_libraries *libraries; /* gets what is found; must outlive */
    /* Each process that maps an armed file, whenever it is seen; may be NULL. */
    void (*mapped)(void *arg, pid_t pid);
    void *arg;
    bool no_query;    /* reads the text of /proc/PID/maps even where the kernel answers questions (6.11); for tests */
    uint64_t slow_ns; /* between sweeps that nothing asked for; 0: a minute */
};

/* 0, or -errno with a sentence in why: the caller goes on with what the operator named. */
int gp_discover_open(struct gp_discover **out, const struct gp_discover_options *options, char *why, size_t why_bytes);
void gp_discover_close(struct gp_discover *discover);

int gp_discover_fd(const struct gp_discover *discover); /* readable (for epoll): call gp_discover_turn */
void gp_discover_turn(struct gp_discover *discover);    /* bounded work; what is left makes the fd readable again */
/* Looks through /proc.  Processes that map the library; -ETIME: there is more of it (it holds up nobody for longer than
 * 0.3 s), the next call goes on; -errno. */
int gp_discover_sweep(struct gp_discover *discover);

struct gp_discover_count {
    uint64_t records, candidates; /* mappings that were looked at, and offered */
    uint64_t lost;                /* records, each loss made good by a sweep */
    uint64_t sweeps, sweep_ns;    /* of the last one */
    unsigned cpus;
    bool has_build_ids, has_map_files;
};
struct gp_discover_count gp_discover_count(const struct gp_discover *discover);
/* Any thread: the process that is looked at, or was last. */
pid_t gp_discover_looks_at(const struct gp_discover *discover);

#endif
