/* SPDX-License-Identifier: MIT
 * rankread.c: reads the recording of one rank (rankread.h).  Called by rankworkers.c. */
#include <analyze/ranks.h>
#include <cmd/load.h>
#include <cmd/rankread.h>
#include <symbol/symbol.h>

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GP_RANKS_POINTS 2000u
/* From this confidence on, the report calls a suspect likely. */
#define GP_RANKS_LIKELY 0.7

static void ranks_name(const struct gp_loaded *loaded, uint32_t site, char name[GP_RANK_NAME])
{
    gp_symbols_line(loaded->symbols, site, NULL, NULL, name, GP_RANK_NAME);
}

bool gp_rank_of_name(const char *file, int32_t *number)
{
    const char *base = strrchr(file, '/'), *found = NULL;
    for (const char *at = base ? base : file; (at = strcasestr(at, "rank")); at += 4)
        if (isdigit((unsigned char)at[4 + strspn(at + 4, "-_.")]))
            found = at + 4 + strspn(at + 4, "-_.");
    if (found)
        *number = (int32_t)(strtoul(found, NULL, 10) & INT32_MAX);
    return found;
}

static void ranks_identity(struct gp_job_rank *rank, const struct gp_recording *r, uint32_t order)
{
    rank->number = (int32_t)order;
    rank->from = GP_RANK_ORDER;
    rank->local_number = rank->world_size = -1;
    if (r->has_rank) {
        rank->from = GP_RANK_RECORDED;
        rank->number = r->rank;
        rank->local_number = r->local_rank;
        rank->world_size = r->world_size;
    } else if (gp_rank_of_name(rank->file, &rank->number)) {
        rank->from = GP_RANK_FILE_NAME;
    }
    snprintf(rank->host, sizeof(rank->host), "%s", r->host);
    snprintf(rank->comm, sizeof(rank->comm), "%s", r->comm);
    rank->pid = r->pid;
    rank->from_torch = r->from_torch;
    rank->from_rmm = r->from_rmm;
    rank->from_pprof = r->from_pprof;
    rank->complete = r->complete;
    rank->missing = gp_rec_missing(r);
    rank->events = r->event_count;
    rank->begin_ns = r->begin_ns;
    rank->end_ns = r->end_ns;
    rank->begin_unix_ns = r->begin_unix_ns;
    for (size_t i = 0; i < r->event_count; i++)
        rank->ooms += r->events[i].type == GP_EVENT_OOM;
}

static struct gp_rank_site *ranks_sites(const struct gp_loaded *loaded, const struct gp_peak *peak)
{
    struct gp_rank_site *sites = calloc(peak->count + 1ul, sizeof(*sites));
    for (uint32_t i = 0; sites && i < peak->count; i++) {
        const struct gp_peak_part *part = &peak->parts[i];
        sites[i].kind = part->kind;
        sites[i].peak_bytes = part->bytes;
        ranks_name(loaded, part->site, sites[i].name);
        gp_bill_site_owner(loaded->recording, part->site, sites[i].owner);
    }
    return sites;
}

/* The next of the rank's GPUs; there is room. */
static void ranks_gpu(struct gp_job_rank *rank, const struct gp_loaded *loaded, const struct gp_rec_device *device,
                      const struct gp_peak *peak, int64_t reserved)
{
    struct gp_rank_gpu *gpu = &rank->gpus[rank->device_count++];
    gpu->device = device->ordinal;
    snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", device->uuid);
    gpu->total_bytes = device->total_bytes > 0 ? device->total_bytes : -1;
    gpu->peak_bytes = peak->bytes;
    gpu->reserved_peak_bytes = reserved;
    if (!peak->count)
        return;
    gpu->site_bytes = peak->parts[0].bytes;
    ranks_name(loaded, peak->parts[0].site, gpu->site);
}

/* Takes over the numbers of the device if it is fuller than the one before.  False: out of memory. */
static bool ranks_device(struct gp_job_rank *rank, const struct gp_loaded *loaded, uint32_t d)
{
    const struct gp_rec_device *device = &loaded->recording->devices[d];
    struct gp_series *reserved = gp_flow_reserved(loaded->report.flow, d, GP_RANKS_POINTS);
    struct gp_peak *peak = gp_flow_peak(loaded->report.flow, d, 0);
    bool ok = reserved && peak;
    int64_t most = 0;
    for (uint32_t i = 0; ok && i < reserved->count; i++)
        most = reserved->points[i].high > most ? reserved->points[i].high : most;
    if (ok && (peak->bytes > 0 || most > 0)) {
        ranks_gpu(rank, loaded, device, peak, most);
        double full = device->total_bytes > 0 ? (double)device->total_bytes : 1;
        double was = rank->total_bytes > 0 ? (double)rank->total_bytes : 1;
        if (rank->device_count == 1 || (double)most / full > (double)rank->reserved_peak_bytes / was) {
            free(rank->allocated);
            free(rank->sites);
            rank->allocated = gp_flow_allocated(loaded->report.flow, d, GP_KIND_NONE, GP_RANKS_POINTS);
            rank->sites = ranks_sites(loaded, peak);
            ok = rank->allocated && rank->sites;
            rank->site_count = ok ? peak->count : 0;
            rank->device = device->ordinal;
            for (uint32_t g = 0; g < rank->device_count; g++)
                rank->gpus[g].own = g + 1 == rank->device_count;
            snprintf(rank->device_name, sizeof(rank->device_name), "%s", device->name);
            rank->total_bytes = device->total_bytes > 0 ? device->total_bytes : -1;
            rank->peak_bytes = peak->bytes;
            rank->peak_ns = peak->time_ns;
            rank->reserved_peak_bytes = most;
            rank->end_bytes =
                ok && rank->allocated->count ? rank->allocated->points[rank->allocated->count - 1].last : 0;
        }
    }
    free(reserved);
    free(peak);
    return ok;
}

static bool ranks_growth(struct gp_job_rank *rank, const struct gp_loaded *loaded)
{
    struct gp_leaks *leaks = gp_flow_leaks(loaded->report.flow, loaded->report.steps, 0);
    rank->seconds_to_oom = -1;
    for (uint32_t i = 0; leaks && i < leaks->count; i++) {
        const struct gp_leak *leak = &leaks->suspects[i];
        if (leak->confidence < GP_RANKS_LIKELY)
            continue;
        if (!rank->grows[0])
            ranks_name(loaded, leak->site, rank->grows);
        rank->growth_per_second += leak->bytes_per_second;
        if (loaded->report.steps->source != GP_STEPS_TIME)
            rank->growth_per_step += leak->bytes_per_step;
        if (leak->seconds_to_oom >= 0 && (rank->seconds_to_oom < 0 || leak->seconds_to_oom < rank->seconds_to_oom))
            rank->seconds_to_oom = leak->seconds_to_oom;
    }
    if (leaks && leaks->count + leaks->candidates && !rank->grows[0])
        ranks_name(loaded, leaks->suspects[0].site, rank->may_grow);
    free(leaks);
    return leaks;
}

static int ranks_fill(struct gp_job_rank *rank, const struct gp_loaded *loaded)
{
    const struct gp_recording *r = loaded->recording;
    rank->gpus = calloc(r->device_count + 1ul, sizeof(*rank->gpus));
    bool ok = rank->gpus != NULL;
    rank->total_bytes = -1;
    for (uint32_t d = 0; ok && d < r->device_count; d++)
        if (r->devices[d].ordinal >= 0)
            ok = ranks_device(rank, loaded, d);
    rank->headroom_bytes = -1;
    if (rank->total_bytes > 0)
        rank->headroom_bytes =
            rank->total_bytes > rank->reserved_peak_bytes ? rank->total_bytes - rank->reserved_peak_bytes : 0;
    return ok && ranks_growth(rank, loaded) ? GP_EXIT_OK : gp_memory_error(loaded->command);
}

int gp_rank_file_read(struct gp_rank_read *read, const struct gp_load_options *options, uint32_t order)
{
    struct gp_loaded loaded = {.command = options->target.command};
    struct gp_recording *recording = NULL;
    const struct gp_load_view view = {
        .part = options->part, .step = options->growth ? NULL : options->step, .symfs = options->symfs};
    *read = (struct gp_rank_read){.rank.file = order ? options->more[order - 1] : options->files[0]};
    int error =
        gp_recording_open_as(&recording, read->rank.file, options->listed, read->why, sizeof(read->why), NULL, NULL);
    if (error == -ENOMEM)
        return gp_memory_error(options->target.command);
    if (error) {
        read->refused = true;
        if (!read->why[0])
            snprintf(read->why, sizeof(read->why), "%s", strerror(-error));
        return GP_EXIT_OK;
    }
    int rc = gp_load_recording(&loaded, recording, read->rank.file, &view);
    if (rc)
        return rc;
    ranks_identity(&read->rank, recording, order);
    if (!options->growth)
        rc = ranks_fill(&read->rank, &loaded);
    else if (!gp_rank_growth_fill(&read->rank, &loaded, options))
        rc = gp_memory_error(options->target.command);
    gp_load_unload(&loaded, order == 0);
    return rc;
}

void gp_rank_free(struct gp_job_rank *rank)
{
    free(rank->allocated);
    free(rank->sites);
    free(rank->gpus);
    free(rank->growth);
}
