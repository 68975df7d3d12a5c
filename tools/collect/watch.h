/* SPDX-License-Identifier: MIT
 *
 * watch.h: keeps hold of the sessions of a process and of those it starts, so that they can still be read when the
 * process is gone.  Called by `run --summary` and `trace -- CMD`.
 */
#ifndef GP_COLLECT_WATCH_H
#define GP_COLLECT_WATCH_H

#include <collect/peer.h>

/* Sessions kept at most: each holds a descriptor and some MiB of the dead process. */
#define GP_WATCH_MOST 64

struct gp_watched {
    struct gp_peer session;
    struct gp_process process; /* who; its numbers are read by gp_watch_read */
};

struct gp_watch {
    int count;
    int left_out; /* found when GP_WATCH_MOST were kept already */
    struct gp_watched *watched[GP_WATCH_MOST];
};

/* Looks once at the process and, if deep, at its descendants; keeps every session not known yet.  Number of new
 * ones. */
int gp_watch_look(struct gp_watch *watch, pid_t root, bool deep);

/* Reads the numbers as they are now (the final ones once the process has ended).  0 or -ENOMEM. */
int gp_watch_read(struct gp_watched *watched);

void gp_watch_free(struct gp_watch *watch);

#endif
