/* SPDX-License-Identifier: MIT
 * ahead.c: see ahead.h. */
#include <agent/metrics/ahead.h>

#include <read/collect/collect.h>
#include <stdlib.h>
#include <string.h>

struct gp_ahead *gp_ahead_new(void)
{
    struct gp_ahead *ahead = calloc(1, sizeof(*ahead));
    if (ahead)
        gp_forecast_begin(&ahead->forecast, GP_FORECAST_MOMENTS);
    return ahead;
}

void gp_ahead_look(struct gp_ahead *ahead, const struct gp_map_sum *sum, uint64_t now_ns, int64_t free_bytes,
                   int64_t limit_left, int64_t *headroom_bytes, int64_t *seconds_to_oom)
{
    int64_t allocated = sum->allocated_bytes, peak = sum->allocated_peak_bytes;
    bool begun = ahead->forecast.begun;
    struct gp_forecast_sample sample = {.time_ns = now_ns,
                                        .low = allocated,
                                        .high = !begun || peak > ahead->peak ? peak : allocated,
                                        .last = allocated,
                                        .allocs = sum->calls,
                                        .frees = sum->frees,
                                        .taken_bytes = -1,
                                        .fresh_bytes = -1};
    struct gp_forecast_room room = {.device_free_bytes = free_bytes,
                                    .limit_left_bytes = limit_left,
                                    .idle_bytes =
                                        sum->reserved_bytes > allocated ? sum->reserved_bytes - allocated : 0};
    struct gp_forecast_result result;
    ahead->peak = peak;
    gp_forecast_feed(&ahead->forecast, &sample);
    gp_forecast_find(&ahead->forecast, &room, &result);
    *headroom_bytes = result.headroom_bytes;
    *seconds_to_oom = result.seconds_to_oom < 0 ? -1 : (int64_t)result.seconds_to_oom;
}

/* The kernel names a region as the driver does, so with limits for several GPUs it is not certain
 * which one is meant. */
int64_t gp_ahead_limit(const char *root, const struct gp_system_view *view, uint64_t cgroup_id)
{
    struct gp_cgroup_limit limits[GP_CGROUP_LIMITS];
    for (uint32_t i = 0; i < view->process_count; i++) {
        if (view->processes[i].value.cgroup_id != cgroup_id)
            continue;
        if (gp_proc_cgroup_limits(root, (pid_t)view->processes[i].key.tgid, limits) != 1 || limits[0].limit_bytes < 0 ||
            limits[0].used_bytes < 0)
            return -1;
        int64_t left = limits[0].limit_bytes - limits[0].used_bytes;
        return left > 0 ? left : 0;
    }
    return -1;
}
