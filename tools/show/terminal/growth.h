/* SPDX-License-Identifier: MIT
 *
 * growth.h: finds the call site of the process whose memory runs out first: the one that holds more
 * than before.  Memory that comes and goes does not count: the least that a site holds now is compared
 * with the most that it held at first.  Only that process's call sites are read.  Called by the screen
 * of `top`, its printed form and `stat --watch`; one thread.
 */
#ifndef GP_VIEW_GROWTH_H
#define GP_VIEW_GROWTH_H

#include <read/collect/sites.h>
#include <show/terminal/model.h>

struct gp_growth_site { /* live bytes */
    int64_t most;       /* while the first looks were taken */
    int64_t least;      /* since then, or since the last finding */
};

struct gp_growth {
    pid_t pid; /* whose call sites were read, or could not be; 0 none */
    uint64_t start_time;
    struct gp_sites *sites; /* NULL: it takes no stacks */
    struct gp_growth_site *held;
    uint32_t held_count;
    uint64_t most_ns; /* until when the first looks are taken */
    uint64_t from_ns; /* when the next looks begin */
    uint64_t find_ns; /* and end */
    char site[128];   /* the finding; "" none yet */
};

/* The pair whose memory runs out first, NULL if there is none. */
const struct gp_row *gp_growth_first(const struct gp_model *model);
/* Call it after each update of the model.  Puts the finding into the pair's outlook. */
void gp_growth_look(struct gp_growth *growth, const struct gp_model *model);
void gp_growth_fini(struct gp_growth *growth);

#endif
