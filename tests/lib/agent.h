/* SPDX-License-Identifier: MIT
 *
 * agent.h: `gpuprof agent` as a process of a place: started until it says READY=1, stopped, and looked at from outside:
 * the kernel's objects that it holds by their ids, its pins, a target's semaphore.
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
    unsigned port; /* of --listen, if it was asked for */
};

/* 0 once it is READY=1; -ETIMEDOUT; -ECHILD: it ended, with its exit status in *status and its last words in why. */
int agent_start(struct agent *agent, struct place *place, const struct agent_options *options, int *status, char *why,
                size_t why_bytes);
/* Does not wait: its pid, or -errno. */
pid_t agent_launch(struct agent *agent, struct place *place, const struct agent_options *options);
/* Sends the signal (SIGTERM, SIGKILL) and waits for the end: the status of waitpid, -1 after 20 s. */
int agent_stop(struct agent *agent, int signal);
/* All that it wrote to stderr so far; free it. */
char *agent_words(const struct agent *agent);

/* ---- what it holds in the kernel --------------------------------------------------------------------------------- */

struct agent_ids {
    uint32_t programs[64], maps[64], links[64];
    unsigned program_count, map_count, link_count;
};
/* By /proc/PID/fdinfo. */
void agent_ids_read(struct agent_ids *ids, pid_t pid);
/* Objects of these that still are; the kernel takes them away a moment after the last descriptor, so waits up to 10 s
 * for none.  pinned: maps are expected to stay. */
unsigned agent_ids_left(const struct agent_ids *ids, bool pinned);

/* ---- what is pinned ---------------------------------------------------------------------------------------------- */

int agent_map(const struct place *place, const char *name); /* a descriptor, or -errno */
int agent_meta(const struct place *place, struct gp_map_meta *out);
uint64_t agent_heartbeat_age_ns(const struct place *place); /* UINT64_MAX: no pins */

/* The probe's semaphore in a process that maps the file; -errno. */
int agent_semaphore(pid_t pid, const char *file);

/* ---- what the commands say --------------------------------------------------------------------------------------- */

/* GET path from 127.0.0.1:port: the body, or NULL.  Free it. */
char *agent_get(unsigned port, const char *path);
/* A sample's value: its line begins with this text (name and the labels that matter, in the page's order).  -1:
 * none. */
double agent_sample(const char *page, const char *begins);

#endif
