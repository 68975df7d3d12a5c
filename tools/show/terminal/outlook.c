/* SPDX-License-Identifier: MIT
 * outlook.c: the forecast of a pair of process and device; see outlook.h.
 */
#include <show/terminal/outlook.h>

#include <show/terminal/model.h>
#include <stdlib.h>
#include <string.h>

struct gp_outlook *gp_outlook_new(void)
{
    struct gp_outlook *outlook = calloc(1, sizeof(*outlook));
    if (outlook)
        gp_forecast_begin(&outlook->forecast, GP_FORECAST_MOMENTS);
    return outlook;
}

static void outlook_owners(struct gp_outlook *outlook, const struct gp_row *pair, bool begins)
{
    struct gp_owner_view views[GP_OWNER_VIEWS];
    int count = gp_peer_owners_of(pair->process, pair->device, views);
    int64_t most = 0;
    outlook->grows[0] = '\0';
    if (begins)
        outlook->owner_count = 0;
    for (int i = 0; i < count; i++) {
        int64_t allocated = views[i].value.allocated_bytes, before = 0;
        if (begins) {
            struct gp_outlook_owner *owner = &outlook->owners[outlook->owner_count++];
            memcpy(owner->owner, views[i].owner, sizeof(owner->owner));
            owner->allocated = allocated;
            continue;
        }
        for (int k = 0; k < outlook->owner_count; k++) {
            if (strcmp(outlook->owners[k].owner, views[i].owner) == 0)
                before = outlook->owners[k].allocated;
        }
        if (allocated > 0 && before >= 0 && allocated - before > most) {
            most = allocated - before;
            memcpy(outlook->grows, views[i].owner, sizeof(outlook->grows));
        }
    }
}

void gp_outlook_feed(struct gp_outlook *outlook, const struct gp_row *pair, uint64_t time_ns)
{
    if (!pair->device || pair->allocated < 0 || !gp_model_process_readable(pair->process))
        return;
    const struct gp_wire_device *wire = &pair->device->wire;
    const struct gp_wire_value *calls = &wire->stats[GP_STAT_ALLOCATION][GP_POOL_ALL];
    /* A higher peak than before was reached since the last sample. */
    bool rose = outlook->forecast.begun && pair->allocated_peak > outlook->peak;
    struct gp_forecast_sample sample = {
        .time_ns = time_ns,
        .low = pair->allocated,
        .high = !outlook->forecast.begun || rose ? pair->allocated_peak : pair->allocated,
        .last = pair->allocated,
        .allocs = calls->allocated,
        .frees = calls->freed,
        .taken_bytes = -1,
        .fresh_bytes = -1,
    };
    outlook->peak = pair->allocated_peak;
    gp_forecast_feed(&outlook->forecast, &sample);
    outlook_owners(outlook, pair, outlook->forecast.count == 0 && outlook->forecast.open == 0);
}

/* The kernel's limit is for one GPU, and its name of it is the driver's: it is only certain which one
 * is meant if the process uses one. */
static int64_t outlook_limit(const struct gp_row *pair)
{
    const struct gp_process *process = pair->process;
    int64_t left = -1;
    int devices = 0;
    for (int i = 0; i < process->device_count; i++)
        devices += process->devices[i].index != (int)GP_WIRE_HOST;
    if (devices == 1 && process->cgroup_limit_count == 1 && process->cgroup_limits[0].limit_bytes >= 0) {
        const struct gp_cgroup_limit *limit = &process->cgroup_limits[0];
        int64_t used = limit->used_bytes >= 0 ? limit->used_bytes : gp_row_held(pair);
        left = limit->limit_bytes > used ? limit->limit_bytes - used : 0;
    }
    const struct gp_wire_oom *oom = &process->oom;
    if (oom->count && (oom->flags & GP_OOM_CACHE) && oom->device == pair->device->index && oom->limit_bytes > 0) {
        int64_t most = oom->limit_bytes > pair->reserved ? oom->limit_bytes - pair->reserved : 0;
        left = left < 0 || most < left ? most : left;
    }
    return left;
}

/* Idle memory of a framework's private pools serves nothing else. What blocks have of them is not known, so all of
 * them is left out: no more is promised than there is. */
static int64_t outlook_idle(const struct gp_row *pair)
{
    int64_t of_pools = pair->device->framework.private_bytes;
    int64_t idle = pair->reserved - pair->allocated - (of_pools > 0 ? of_pools : 0);
    return idle > 0 ? idle : 0;
}

void gp_outlook_find(struct gp_outlook *outlook, const struct gp_row *pair, int64_t free_bytes)
{
    struct gp_forecast_room room = {
        .device_free_bytes = free_bytes,
        .limit_left_bytes = outlook_limit(pair),
        .idle_bytes = outlook_idle(pair),
    };
    gp_forecast_find(&outlook->forecast, &room, &outlook->result);
}
