/* SPDX-License-Identifier: MIT
 *
 * outlook.h: the forecast of each process on each device, from the samples that the model takes,
 * and the call site that grows.
 */
#ifndef GP_SHOW_TERMINAL_OUTLOOK_H
#define GP_SHOW_TERMINAL_OUTLOOK_H

#include <analyze/forecast.h>
#include <read/collect/sites.h>
#include <show/terminal/model.h>

/* Seconds: `top` warns of what runs out within an hour. */
#define GP_OUTLOOK_SOON 3600.0

struct gp_outlook {
    struct gp_forecast forecast;
    struct gp_forecast_result result; /* as of the newest sample */
    int64_t peak;                     /* of allocated, at the sample before: it tells the peak between two samples */
    int owner_count;                  /* the owners and what each held when the forecast began */
    struct gp_outlook_owner {
        char owner[40];
        int64_t allocated;
    } owners[GP_OWNER_VIEWS];
    char site[128]; /* the call site whose memory has grown most, if a caller looked for it; else "" */
    char grows[24]; /* the owner whose memory has grown most since then; "" unknown */
};

/* NULL: out of memory.  Freed with free(). */
struct gp_outlook *gp_outlook_new(void);
/* Takes the newest sample of a pair. */
void gp_outlook_feed(struct gp_outlook *outlook, const struct gp_row *pair, uint64_t time_ns);
/* Makes the result.  free_bytes: of the device; -1 unknown. */
void gp_outlook_find(struct gp_outlook *outlook, const struct gp_row *pair, int64_t free_bytes);

/* ---- the site that grows ----------------------------------------------------------------------------------------- */
/* Finds the call site of the process whose memory runs out first: the one that holds more than
 * before.  Memory that comes and goes does not count: the least that a site holds now is compared
 * with the most that it held at first.  Only that process's call sites are read.  Called by the
 * screen of `top`, its printed form and `stat --watch`; one thread. */

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
const struct gp_row *gp_outlook_growth_first(const struct gp_model *model);
/* Call it after each update of the model.  Puts the finding into the pair's outlook. */
void gp_outlook_growth_look(struct gp_growth *growth, const struct gp_model *model);
void gp_outlook_growth_fini(struct gp_growth *growth);

#endif
