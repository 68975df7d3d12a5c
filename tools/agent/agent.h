/* SPDX-License-Identifier: MIT
 *
 * agent.h: the root daemon: one loop that loads the kernel's side, arms libraries, holds processes, beats its heart.
 * The command (tools/cmd/agent.c) turns options into this.
 */
#ifndef GP_AGENT_AGENT_H
#define GP_AGENT_AGENT_H

#include <find/finder.h>
#include <metrics/http.h>

#define GP_AGENT_LIBRARIES GP_FINDER_LIBRARIES /* that may be named */

struct gp_agent_options {
    const char *pins;             /* a directory on a bpffs */
    const char *group;            /* may read the table of processes; NULL: root's group */
    const char *const *libraries; /* armed from the start to the end; one that cannot be ends the agent */
    unsigned library_count;
    const char *installed; /* the same, but one that cannot be armed is said and waited for; NULL: none */
    bool verbose;          /* libbpf's words too */
    bool no_discover;      /* arm these alone: where containers are not trusted */
    uint32_t processes, containers, ring_bytes; /* of the tables; 0: those of maps.h */
    const struct gp_http_address *listen;       /* NULL: no metrics */
    struct gp_metrics_options metrics;
};

/* Runs until SIGTERM or SIGINT, then takes its pins away.  0; -errno, with a sentence in why: -EPERM (capabilities),
 * -ENOTSUP (kernel, pid namespace), -ENOENT (no bpffs, and none could be mounted), -EINVAL (a library or group that is
 * none), -EEXIST (another agent has the pins; its pid is in the sentence), ...  The caller's thread; makes threads for
 * the server, the querier and the finder. */
int gp_agent_run(const struct gp_agent_options *options, char *why, size_t why_bytes);

#endif
