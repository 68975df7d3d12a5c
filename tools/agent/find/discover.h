/* SPDX-License-Identifier: MIT
 *
 * discover.h: how processes are discovered.
 */
#ifndef GP_AGENT_FIND_DISCOVER_H
#define GP_AGENT_FIND_DISCOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_procopen;
struct gp_libraries;
struct gp_discover;

/* Opens files of /proc/PID in a process of its own, because there the kernel may block for as long
 * as the examined process likes. A call that takes too long is given up: the process that makes it
 * is killed, which the kernel allows in these waits, and the next call starts another one. One
 * thread uses it at a time. */

#define GP_PROCOPEN_PATIENCE_NS 500000000ull /* an open takes microseconds; the rest is for a machine short of CPUs */

struct gp_procopen *gp_procopen_new(void); /* NULL: out of memory; the process starts with the first call */
void gp_procopen_free(struct gp_procopen *procopen);

/* openat() of a short name (at most 63 bytes). A descriptor, which is closed at exec, or -errno;
 * -ETIMEDOUT: given up. */
int gp_procopen_open(struct gp_procopen *procopen, int folder, const char *name, int flags);

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
