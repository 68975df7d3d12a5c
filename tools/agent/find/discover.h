/* SPDX-License-Identifier: MIT
 *
 * discover.h: finds the processes that map a copy of the library, in any mount namespace. It reads
 * the kernel's records of executable mappings (PERF_RECORD_MMAP2 of every CPU, with build ids since
 * Linux 5.12). It also sweeps /proc: at the start, whenever records were lost or a CPU came online,
 * and once a minute to see which processes unmapped a copy.
 *
 * Needs the host's pid namespace and CAP_PERFMON; opening files needs CAP_SYS_PTRACE and
 * CAP_DAC_READ_SEARCH. With CAP_CHECKPOINT_RESTORE (or CAP_SYS_ADMIN) files are opened through
 * /proc/PID/map_files: exactly the mapped file, even if deleted. Without it they are opened by path
 * in the process's root, only as far as names are cached: a mapped file's names are, and no file
 * system's server is asked.
 *
 * A file whose name does not start with "libgpuprof" is found only by its build id in records, and
 * only once a file with that build id is armed.
 */
#ifndef GP_FIND_DISCOVER_H
#define GP_FIND_DISCOVER_H

#include <agent/find/library.h>

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

#endif
