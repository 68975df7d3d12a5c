/* SPDX-License-Identifier: MIT
 *
 * deaths.h: the second line behind the exit tracepoint.  Each counted process is held by a pidfd; when one ends and is
 * still in the tables a moment later, it is taken out.  Containers whose cgroup is gone make room.
 *
 * Needs the host's pid namespace; CAP_DAC_READ_SEARCH to ask for cgroups by number (said in the log if it is missing).
 */
#ifndef GP_AGENT_DEATHS_H
#define GP_AGENT_DEATHS_H

#include <kernel/loader.h>

struct gp_deaths;

/* bpf must outlive it.  Raise RLIMIT_NOFILE first: half of it may become pidfds.  0 or -errno. */
int gp_deaths_open(struct gp_deaths **out, struct gp_bpf *bpf);
void gp_deaths_close(struct gp_deaths *deaths);
int gp_deaths_fd(const struct gp_deaths *deaths); /* readable (for epoll): call gp_deaths_turn */
void gp_deaths_turn(struct gp_deaths *deaths);    /* bounded work; what is left makes the fd readable again */
/* Once a second: begins a look through the tables, which the next turns go on with.  Processes that are there and not
 * held are taken up, those that are gone are let go.  A cgroup that is found removed at two looks in a row is
 * forgotten. */
void gp_deaths_second(struct gp_deaths *deaths);

struct gp_deaths_count {
    uint64_t processes;  /* held now */
    uint64_t looked_at;  /* now, in every look: no descriptor to hold them with */
    uint64_t unknown;    /* of these, could not even be looked at (no descriptors at all) */
    uint64_t taken;      /* that the tracepoint had missed */
    uint64_t containers; /* forgotten */
};
struct gp_deaths_count gp_deaths_count(const struct gp_deaths *deaths);

#endif
