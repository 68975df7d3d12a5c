/* SPDX-License-Identifier: MIT
 *
 * agent.h: runs `gpuprof agent` in a place (place.h): starts it and waits for READY=1, stops it, and
 * inspects it from outside: the ids of the kernel's objects that it holds, its pins, a target's semaphore.
 */
#ifndef GP_TEST_LIB_AGENT_H
#define GP_TEST_LIB_AGENT_H

#include <gpuprof/maps.h>
#include <jansson.h>

#include "lib/place.h"

#define AGENT_WORDS 24

struct agent_options {
    const char *const *before; /* argv in front of the command (setpriv ...), NULL-terminated; or NULL */
    const char *const *more;   /* arguments after the usual ones */
    bool want_discover;        /* neither --library nor --no-discover */
};

struct agent {
    pid_t pid;
    int notify_fd, group;
    char log[96], status[512]; /* its stderr; the last STATUS= */
    bool is_ready;
    unsigned port; /* of --listen, if the options have it */
};

/* 0 when the agent has reported READY=1. -ETIMEDOUT, or -ECHILD if it exited: then *status has its exit
 * status, and why has the end of its output. */
int agent_start(struct agent *agent, struct place *place, const struct agent_options *options, int *status, char *why,
                size_t why_bytes);
/* As agent_start, but does not wait. Returns the agent's pid or -errno. */
pid_t agent_launch(struct agent *agent, struct place *place, const struct agent_options *options);
/* Sends the signal (SIGTERM, SIGKILL) and waits for the exit. Returns waitpid's status; -1 after 20 s. */
int agent_stop(struct agent *agent, int signal);
/* All that the agent wrote to stderr so far. The caller frees it. */
char *agent_words(const struct agent *agent);

/* ---- objects of an agent in the kernel --------------------------------------------------------------------------- */

struct agent_ids {
    uint32_t programs[64], maps[64], links[64];
    unsigned program_count, map_count, link_count;
};
/* The ids of the kernel's objects that the process holds, from /proc/PID/fdinfo. */
void agent_ids_read(struct agent_ids *ids, pid_t pid);
/* Counts the objects of the list that still exist. The kernel removes them a moment after the last
 * descriptor was closed, so this waits up to 10 s for the count to become 0. pinned: maps are expected to stay. */
unsigned agent_ids_left(const struct agent_ids *ids, bool pinned);

/* ---- pins -------------------------------------------------------------------------------------------------------- */

int agent_map(const struct place *place, const char *name); /* a descriptor, or -errno */
int agent_meta(const struct place *place, struct gp_map_meta *out);
uint64_t agent_heartbeat_age_ns(const struct place *place); /* UINT64_MAX: no pins */

/* The value of the probe's semaphore in a process that maps the file, or -errno. */
int agent_semaphore(pid_t pid, const char *file);

/* ---- answers of the agent ---------------------------------------------------------------------------------------- */

/* Gets path from 127.0.0.1:port. Returns the body, which the caller frees, or NULL. */
char *agent_get(unsigned port, const char *path);
/* The value of the sample whose line starts with this text: the name and the labels that matter, in the
 * page's order. -1: no such line. */
double agent_sample(const char *page, const char *begins);

#endif
