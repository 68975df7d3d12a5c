/* SPDX-License-Identifier: MIT
 *
 * ahead.h: the forecast of each container on each device, fed once per page. Only samples.c calls
 * it.
 */
#ifndef GP_METRICS_AHEAD_H
#define GP_METRICS_AHEAD_H

#include <agent/maps/maps.h>
#include <analyze/forecast.h>

struct gp_ahead {
    struct gp_forecast forecast;
    int64_t peak; /* of allocated, at the page before: it tells the peak between two pages */
};

/* NULL: out of memory. Freed with free(). */
struct gp_ahead *gp_ahead_new(void);
/* Takes the container's sum as of now and makes the numbers of its row; -1: unknown, no series.
 * free_bytes: of the device; limit_left: until the container's limit. */
void gp_ahead_look(struct gp_ahead *ahead, const struct gp_map_sum *sum, uint64_t now_ns, int64_t free_bytes,
                   int64_t limit_left, int64_t *headroom_bytes, int64_t *seconds_to_oom);
/* What the kernel's limit of GPU memory leaves the container, if it has one limit; -1: none. */
int64_t gp_ahead_limit(const char *root, const struct gp_system_view *view, uint64_t cgroup_id);

#endif
