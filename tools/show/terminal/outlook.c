/* SPDX-License-Identifier: MIT
 * outlook.c: see model.h.  Its parts: the site that grows, the forecast. */
#include <show/terminal/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>
#include <unistd.h>

/* ---- the site that grows ----------------------------------------------------------------------------------------- */

/* Two seconds until the first finding: in that time, what stays is more than what a step has. Then
 * a time that reading the call sites of a large process does not fill. */
#define GP_GROWTH_LOOK_NS 1000000000ull
#define GP_GROWTH_REST_NS 9000000000ull

const struct gp_row *gp_outlook_growth_first(const struct gp_model *model)
{
    const struct gp_row_list *pairs = &model->lists[GP_LIST_PAIRS];
    const struct gp_row *first = NULL;
    for (int i = 0; i < pairs->count; i++) {
        const struct gp_row *pair = &pairs->rows[i];
        if (pair->outlook && pair->device && pair->outlook->result.seconds_to_oom >= 0 &&
            (!first || pair->outlook->result.seconds_to_oom < first->outlook->result.seconds_to_oom))
            first = pair;
    }
    return first;
}

void gp_outlook_growth_fini(struct gp_growth *growth)
{
    gp_sites_close(growth->sites);
    free(growth->held);
    *growth = (struct gp_growth){0};
}

static void growth_begin(struct gp_growth *growth, const struct gp_row *pair, uint64_t now_ns)
{
    char problem[GP_PROBLEM_BYTES];
    gp_outlook_growth_fini(growth);
    growth->pid = pair->id.pid;
    growth->start_time = pair->id.start_time;
    if (pair->process->from_agent || gp_sites_open(&growth->sites, growth->pid, problem) != 0) {
        growth->sites = NULL;
        return;
    }
    growth->most_ns = growth->from_ns = now_ns + GP_GROWTH_LOOK_NS;
    growth->find_ns = growth->from_ns + GP_GROWTH_LOOK_NS;
}

/* A site that was not there before has held at first what it holds now. */
static bool growth_room(struct gp_growth *growth)
{
    const struct gp_sites *sites = growth->sites;
    if (sites->site_count <= growth->held_count)
        return true;
    struct gp_growth_site *held = realloc(growth->held, sites->site_count * sizeof(*held));
    if (!held)
        return false;
    for (uint32_t i = growth->held_count; i < sites->site_count; i++)
        held[i] = (struct gp_growth_site){sites->sites[i].live_bytes, INT64_MAX};
    growth->held = held;
    growth->held_count = sites->site_count;
    return true;
}

static bool growth_sample(struct gp_growth *growth, uint64_t now_ns)
{
    char problem[GP_PROBLEM_BYTES];
    const struct gp_sites *sites = growth->sites;
    if (gp_sites_update(growth->sites, problem) != 0 || !growth_room(growth))
        return false;
    for (uint32_t i = 0; i < sites->site_count; i++) {
        struct gp_growth_site *held = &growth->held[i];
        int64_t live = sites->sites[i].live_bytes;
        if (now_ns < growth->most_ns)
            held->most = live > held->most ? live : held->most;
        else
            held->least = live < held->least ? live : held->least;
    }
    return true;
}

static void growth_label(struct gp_growth *growth, uint32_t site)
{
    const struct gp_sites *sites = growth->sites;
    struct gp_symbol_source source = GP_SYMBOL_SOURCE(sites, access(sites->root, X_OK) == 0 ? sites->root : "");
    struct gp_symbols *symbols;
    if (gp_symbols_new(&symbols, &source) != 0)
        return;
    gp_symbols_line(symbols, site, NULL, NULL, growth->site, sizeof(growth->site));
    gp_symbols_free(symbols);
}

static void growth_find(struct gp_growth *growth, int device)
{
    int64_t most = 0;
    uint32_t best = 0;
    for (uint32_t i = 0; i < growth->held_count; i++) {
        struct gp_growth_site *held = &growth->held[i];
        if (growth->sites->sites[i].device == device && held->least - held->most > most) {
            most = held->least - held->most;
            best = i;
        }
        held->least = INT64_MAX; /* the next looks begin with what it holds then */
    }
    if (best)
        growth_label(growth, best);
}

void gp_outlook_growth_look(struct gp_growth *growth, const struct gp_model *model)
{
    const struct gp_row *pair = gp_outlook_growth_first(model);
    if (!pair)
        return;
    uint64_t now = model->system->time_ns;
    if (growth->pid != pair->id.pid || growth->start_time != pair->id.start_time)
        growth_begin(growth, pair, now);
    bool looks = growth->sites && (now < growth->most_ns || now >= growth->from_ns);
    if (looks && growth_sample(growth, now) && now >= growth->find_ns) {
        growth_find(growth, pair->device->index);
        growth->from_ns = now + GP_GROWTH_REST_NS;
        growth->find_ns = growth->from_ns + GP_GROWTH_LOOK_NS;
    }
    memcpy(pair->outlook->site, growth->site, sizeof(pair->outlook->site));
}

/* ---- the forecast ------------------------------------------------------------------------------------------------ */

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
