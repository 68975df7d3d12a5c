/* SPDX-License-Identifier: MIT
 *
 * deaths.h: the second line behind the exit tracepoint.  Each counted process is held by a pidfd; when one ends and is
 * still in the tables a moment later, it is taken out.  Containers whose cgroup is gone make room.
 */
#ifndef GP_AGENT_DEATHS_H
#define GP_AGENT_DEATHS_H

#include <bpf/loader.h>

struct gp_deaths;

int gp_deaths_open(struct gp_deaths **out, struct gp_bpf *bpf); /* bpf must outlive it.  0 or -errno */
void gp_deaths_close(struct gp_deaths *deaths);
int gp_deaths_fd(const struct gp_deaths *deaths); /* readable (for epoll): call gp_deaths_turn */
void gp_deaths_turn(struct gp_deaths *deaths);
void gp_deaths_second(struct gp_deaths *deaths); /* once a second: takes up new processes, forgets removed cgroups */

struct gp_deaths_count {
    uint64_t processes;  /* held now */
    uint64_t taken;      /* that the tracepoint had missed */
    uint64_t containers; /* forgotten */
};
struct gp_deaths_count gp_deaths_count(const struct gp_deaths *deaths);

#endif
