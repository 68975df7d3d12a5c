/* SPDX-License-Identifier: MIT
 *
 * discover.h: who maps a copy of the library, in whatever mount namespace: the kernel's records of executable mappings
 * (PERF_RECORD_MMAP2 of every CPU, with build ids), and one look through /proc for what was mapped before, and again
 * whenever records were lost.  Needs the host's pid namespace and CAP_PERFMON; opening what is found needs
 * CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (or CAP_CHECKPOINT_RESTORE / CAP_SYS_ADMIN for /proc/PID/map_files).
 */
#ifndef GP_AGENT_DISCOVER_H
#define GP_AGENT_DISCOVER_H

#include <agent/library.h>

struct gp_discover;

struct gp_discover_options {
    struct gp_libraries *libraries; /* gets what is found; must outlive */
    /* Each process that maps an armed file, whenever it is seen; may be NULL. */
    void (*mapped)(void *arg, pid_t pid);
    void *arg;
};

/* 0, or -errno with a sentence in why: the caller goes on with what the operator named. */
int gp_discover_open(struct gp_discover **out, const struct gp_discover_options *options, char *why, size_t why_bytes);
void gp_discover_close(struct gp_discover *discover);

int gp_discover_fd(const struct gp_discover *discover); /* readable (for epoll): call gp_discover_turn */
void gp_discover_turn(struct gp_discover *discover);    /* bounded work; what is left makes the fd readable again */
int gp_discover_sweep(
    struct gp_discover *discover); /* looks through /proc.  Processes that map the library, or -errno */

#endif
