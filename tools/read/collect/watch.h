/* SPDX-License-Identifier: MIT
 *
 * watch.h: looks at a process again and again.
 */
#ifndef GP_READ_COLLECT_WATCH_H
#define GP_READ_COLLECT_WATCH_H

#include <read/collect/collect.h>
#include <read/collect/peer.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Holds the sessions of a process and of its descendants, so that they can be read after the process
 * has exited. Called by `run --summary`, `record` and `trace -- CMD`. */

/* The most sessions held: each takes a descriptor and some MiB of the dead process. */
#define GP_WATCH_MOST 64

struct gp_watched {
    struct gp_peer session;
    struct gp_process process; /* its identity; gp_watch_read fills in the numbers */
    uint64_t exec_ns;          /* it was first seen to run this program then, and another one before; 0: it was not */
    unsigned unanswered;       /* requests in a row; gp_watch_ask gives up after some */
    char *recording;           /* its file, where a command has found it; NULL */
};

struct gp_watch_seen { /* a process, with a session or without, and its program */
    pid_t pid;
    uint64_t start_time, device, inode, exec_ns;
};

struct gp_watch {
    struct gp_watch_seen seen[GP_WATCH_MOST * 4]; /* the last ones */
    unsigned seen_count;
    int count;
    int left_out; /* sessions found after GP_WATCH_MOST were held */
    struct gp_watched *watched[GP_WATCH_MOST];
};

/* Searches the process and, if deep, its descendants once; holds every session that is new. Returns
 * the number of new ones. */
int gp_watch_look(struct gp_watch *watch, pid_t root, bool deep);

/* Asks every process that still answers to publish its numbers, and waits for each as long as that. A
 * process that ends without its exit handlers publishes nothing more. */
void gp_watch_ask(struct gp_watch *watch, uint64_t each_ns);

/* Reads the current numbers (the final ones once the process has ended). 0 or -ENOMEM. */
int gp_watch_read(struct gp_watched *watched);

void gp_watch_free(struct gp_watch *watch);

#endif
