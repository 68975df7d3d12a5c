/* SPDX-License-Identifier: MIT
 *
 * agent.h: the root daemon. One loop loads the BPF programs, attaches them to the copies of the
 * library, tracks the profiled processes and writes the heartbeat. tools/cmd/agent.c turns the
 * command's options into gp_agent_options.
 */
#ifndef GP_AGENT_AGENT_H
#define GP_AGENT_AGENT_H

#include <agent/find/find.h>
#include <agent/metrics/metrics.h>

#define GP_AGENT_LIBRARIES GP_FINDER_LIBRARIES /* the most that may be named */

struct gp_agent_options {
    const char *pins;             /* a directory on a BPF file system */
    const char *group;            /* the group that may read the process table; NULL: root's group */
    const char *const *libraries; /* always instrumented; the agent exits if one of these cannot be */
    unsigned library_count;
    const char *installed; /* the same, but if it cannot be armed this is logged and tried again; NULL: none */
    const char *attach;    /* --attach-containers: a pattern (attacher.h); NULL: off */
    bool verbose;          /* also logs libbpf's messages */
    bool no_discover;      /* arm only these libraries: for machines whose containers are not trusted */
    uint32_t processes, containers, ring_bytes; /* sizes of the tables; 0: those of maps.h */
    const struct gp_http_address *listen;       /* NULL: no metrics */
    struct gp_metrics_options metrics;
};

/* Runs until SIGTERM, SIGINT or SIGHUP, then removes its pins. 0; -errno, with a sentence in why:
 * -EPERM (capabilities), -ENOTSUP (kernel, pid namespace), -ENOENT (no bpffs, and it could not mount
 * one), -EINVAL (unusable library or unknown group), -EEXIST (another agent has the pins; the
 * sentence names its pid), ...  Runs on the caller's thread and creates threads for the metrics
 * server, the querier and the finder. */
int gp_agent_run(const struct gp_agent_options *options, char *why, size_t why_bytes);

#endif
