/* SPDX-License-Identifier: MIT
 *
 * attacher.h: attaches to the programs of chosen containers (--attach-containers), on threads of its
 * own. Every ten seconds it looks for processes of these containers. For those that have loaded
 * libcuda.so.1 and not our library it runs `gpuprof attach PID`, once for each process and executed
 * program, whether it succeeds or not. Up to eight run at once, each for another container (turns.h).
 */
#ifndef GP_AGENT_ATTACHER_H
#define GP_AGENT_ATTACHER_H

#include <stddef.h>
#include <stdint.h>

struct gp_attacher_options {
    /* A shell pattern.  With a '/' in front it is compared with the cgroup's path, else with a
     * container's name, NAMESPACE/POD/CONTAINER, and id. */
    const char *pattern;
    const char *library; /* NULL: the installed one */
};

struct gp_attacher;

/* 0; -EPERM without CAP_SYS_PTRACE or -ENOTSUP on this processor, with a sentence in why; -errno. */
int gp_attacher_open(struct gp_attacher **out, const struct gp_attacher_options *options, char *why, size_t why_bytes);
/* Waits up to 2 s for the threads. An attach that is under way goes on. */
void gp_attacher_close(struct gp_attacher *attacher);

struct gp_attacher_count {
    uint64_t attached, refused;
};
struct gp_attacher_count gp_attacher_count(const struct gp_attacher *attacher); /* any thread */

#endif
