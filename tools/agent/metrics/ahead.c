/* SPDX-License-Identifier: MIT
 *
 * ahead.c: the headroom of a container, and the seconds until it has none, from the growth between
 * pages (internal.h).
 */
#include <agent/metrics/internal.h>
#include <read/collect/collect.h>
#include <stdlib.h>

struct gp_ahead *gp_metrics_ahead_new(void)
{
    struct gp_ahead *ahead = calloc(1, sizeof(*ahead));
    if (ahead)
        gp_forecast_begin(&ahead->forecast, GP_FORECAST_MOMENTS);
    return ahead;
}

void gp_metrics_ahead_look(struct gp_ahead *ahead, const struct gp_map_sum *sum, uint64_t now_ns, int64_t free_bytes,
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
