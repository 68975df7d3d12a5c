/* SPDX-License-Identifier: MIT
 *
 * deaths.h: processes that ended.
 */
#ifndef GP_AGENT_DEATHS_H
#define GP_AGENT_DEATHS_H

#include <agent/kernel/bpf.h>
#include <stdint.h>

struct gp_deaths;

/* bpf must outlive it. Raise RLIMIT_NOFILE first: half of it may become pidfds. 0 or -errno. */
int gp_deaths_open(struct gp_deaths **out, struct gp_bpf *bpf);
void gp_deaths_close(struct gp_deaths *deaths);
int gp_deaths_fd(const struct gp_deaths *deaths); /* readable (for epoll): call gp_deaths_turn */
void gp_deaths_turn(struct gp_deaths *deaths);    /* bounded work; the fd becomes readable again while work remains */
/* Call once a second: starts a scan of the tables, which the next turns continue. Processes in the
 * tables that are not tracked yet are added; those no longer there are dropped. A cgroup found
 * removed by two scans in a row is forgotten. */
void gp_deaths_second(struct gp_deaths *deaths);

struct gp_deaths_count {
    uint64_t processes;    /* tracked by pidfd now */
    uint64_t polled;       /* without a pidfd now: checked in every scan */
    uint64_t unknown;      /* of these, could not be checked (no descriptors at all) */
    uint64_t removed_late; /* that the tracepoint had missed */
    uint64_t containers;   /* whose rows were freed */
};
struct gp_deaths_count gp_deaths_count(const struct gp_deaths *deaths);

#endif
