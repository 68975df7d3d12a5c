/* SPDX-License-Identifier: MIT
 *
 * outlook.h: the forecast of each process on each device, from the samples that the model takes.
 * Pure, as model.h.  Called by model.c and track.c.
 */
#ifndef GP_VIEW_OUTLOOK_H
#define GP_VIEW_OUTLOOK_H

#include <analyze/forecast.h>
#include <show/terminal/model.h>

/* Seconds: `top` warns of what runs out within an hour. */
#define GP_OUTLOOK_SOON 3600.0

struct gp_outlook {
    struct gp_forecast forecast;
    struct gp_forecast_result result; /* as of the newest sample */
    int64_t peak;                     /* of allocated, at the sample before: it tells the peak between two samples */
    int owner_count;                  /* the owners and what each held when the forecast began */
    struct gp_outlook_owner {
        char owner[24];
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

#endif
