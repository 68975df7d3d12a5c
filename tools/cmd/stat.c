/* SPDX-License-Identifier: MIT
 * stat.c: `gpuprof stat`: the numbers of profiled processes, once.  Called by commands.c. */
#include <cmd/cmd.h>
#include <show/text/forecast.h>
#include <show/text/write.h>

#include <agent/maps/maps.h>
#include <analyze/forecast.h>
#include <analyze/libraries.h>
#include <base/clock.h>
#include <gpuprof/wire.h>
#include <jansson.h>
#include <read/collect/collect.h>
#include <read/collect/sites.h>
#include <show/terminal/model.h>
#include <show/terminal/outlook.h>
#include <show/text/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* How often --watch looks.  The forecast needs 16 moments and ten seconds. */
#define GP_STAT_LOOK_NS 250000000ull
/* How long it waits for one process, which may be stopped. */
#define GP_STAT_ANSWER_NS 100000000ull

struct gp_stat_options {
    struct gp_target target;
    const char *pins;
    int64_t watch_s;
    bool json, summary, system;
};

static int stat_check(void *options)
{
    struct gp_stat_options *o = options;
    o->target.all |= o->system;
    o->target.more = o->target.all;
    if (o->json && o->summary)
        return gp_usage_error("stat", "--json and --summary exclude each other");
    if (o->pins && !o->target.all)
        return gp_usage_error("stat", "--pins %s: it goes with --all", o->pins);
    return GP_EXIT_OK;
}

static void stat_summaries(const struct gp_system *system, int device)
{
    int printed = 0;
    for (int i = 0; i < system->process_count; i++) {
        const struct gp_process *process = &system->processes[i];
        if (process->state == GP_PROCESS_FOREIGN)
            continue;
        if (process->state != GP_PROCESS_LIVE) {
            fprintf(stderr, "gpuprof: stat: pid %d\n", (int)process->pid);
            gp_notes_print(stderr, process);
        }
        for (int d = 0; d < process->device_count; d++) {
            const struct gp_device_view *view = &process->devices[d];
            if (view->totals_only)
                continue; /* the agent does not count everything that this table shows */
            bool wanted = device < 0 ? view->index != (int)GP_WIRE_HOST : gp_device_number(view) == device;
            if (!wanted)
                continue;
            if (system->process_count > 1)
                printf("%sPID %d  %s\n", printed ? "\n" : "", (int)process->pid, process->comm);
            gp_summary_print(stdout, view);
            printed++;
        }
    }
}

/* Adds the processes and totals that only the agent knows.  A missing agent is an error with
 * --system or --pins. */
static int stat_complete(const struct gp_stat_options *o, struct gp_system *system)
{
    struct gp_system_view *view;
    char why[GP_SYSTEM_WHY], age[GP_SIZE_TEXT];
    const char *pins = o->pins ? o->pins : GP_MAPS_PINS;
    if (o->system || o->pins) {
        if (gp_system_view_read(&view, pins, why, sizeof(why)) != 0) {
            gp_error("stat", "--system: %s", why);
            return GP_EXIT_IMPOSSIBLE;
        }
        gp_system_view_free(view);
    }
    if (gp_system_complete(system, pins) != 0) {
        gp_error("stat", "out of memory");
        return GP_EXIT_FAILED;
    }
    const struct gp_agent *agent = &system->agent;
    snprintf(age, sizeof(age), "%llu s", (unsigned long long)(agent->silent_ns / 1000000000ull));
    if (agent->present && !agent->alive)
        gp_error("stat", "the agent has not reported for %s: the numbers from its tables are not updated", age);
    if (agent->map_full || agent->refused)
        gp_error("stat", "the agent did not count %llu updates, because its tables were full, and refused %llu batches",
                 (unsigned long long)agent->map_full, (unsigned long long)agent->refused);
    for (int i = 0; agent->processes_hidden && i < agent->sum_count; i++) {
        const struct gp_sum *sum = &agent->sums[i];
        char allocated[GP_SIZE_TEXT], peak[GP_SIZE_TEXT];
        if (!sum->cgroup_id)
            gp_error("stat", "%s: %s allocated, peak %s, in %d %s: only root may list the processes of other users",
                     sum->uuid, gp_size_text(allocated, sum->allocated), gp_size_text(peak, sum->allocated_peak),
                     sum->processes, sum->processes == 1 ? "process" : "processes");
    }
    if (system->process_count == 0 && !agent->processes_hidden)
        gp_target_none(&o->target, system);
    return GP_EXIT_OK;
}

/* ---- libraries ----------------------------------------------------------------------------------------------- */

/* What each library of analyze/libraries.h holds on the device: of the call sites, where stacks are taken, and at
 * least what its shared object owns.  Without stacks, a library of Python or with compiled code is not known. */
static void stat_library_bytes(const struct gp_process *process, const struct gp_device_view *device,
                               const struct gp_sites *sites, int64_t bytes[GP_LIBRARIES])
{
    struct gp_owner_view owners[GP_OWNER_VIEWS];
    int count = gp_peer_owners_of(process, device, owners);
    struct gp_recording tables = {0};
    if (sites)
        tables = (struct gp_recording){.sites = sites->sites,
                                       .site_count = sites->site_count,
                                       .frames = sites->frames,
                                       .frame_count = sites->frame_count,
                                       .modules = sites->modules,
                                       .module_count = sites->module_count,
                                       .strings = sites->strings,
                                       .string_bytes = sites->string_bytes};
    gp_library_bytes_live(&tables, device->index, bytes);
    for (uint32_t i = 0; i < GP_LIBRARIES; i++) {
        int64_t owned = 0;
        for (int k = 0; k < count; k++)
            if (owners[k].library[0] && gp_library_is(gp_library(i), owners[k].library))
                owned += owners[k].value.allocated_bytes;
        if (owned > bytes[i])
            bytes[i] = owned;
    }
}

/* Gives the devices that are printed what libraries hold; the memory is the caller's.  NULL: there is none. */
static int64_t *stat_libraries(struct gp_system *system)
{
    size_t devices = 0;
    for (int i = 0; i < system->process_count; i++)
        devices += (size_t)system->processes[i].device_count;
    int64_t *all = calloc(devices + 1, GP_LIBRARIES * sizeof(*all)), *bytes = all;
    for (int i = 0; all && i < system->process_count; i++) {
        struct gp_process *process = &system->processes[i];
        struct gp_sites *sites = NULL;
        char problem[GP_PROBLEM_BYTES];
        if (process->from_agent || process->state == GP_PROCESS_FOREIGN || process->state == GP_PROCESS_DAMAGED)
            continue;
        if (gp_sites_open(&sites, process->pid, problem) != 0)
            sites = NULL;
        for (int d = 0; d < process->device_count; d++, bytes += GP_LIBRARIES) {
            stat_library_bytes(process, &process->devices[d], sites, bytes);
            process->devices[d].library_bytes = bytes;
        }
        gp_sites_close(sites);
    }
    return all;
}

/* ---- forecast ------------------------------------------------------------------------------------------------ */

struct gp_stat_watch {
    struct gp_model model;
    struct gp_growth growth;
};

/* Without NVML it looks at all processes, because the memory of the others is not free.  With it the
 * chosen ones are enough.  A single look reads what they have just published. */
static void stat_look(struct gp_stat_watch *watch, const struct gp_target *target, bool nvml, bool exact)
{
    struct gp_collect_options options = {.pids = nvml ? target->pids : NULL,
                                         .pid_count = nvml ? target->pid_count : 0,
                                         .exact = exact,
                                         .with_nvml = true,
                                         .deadline_ns = GP_STAT_ANSWER_NS};
    struct gp_system *system;
    if (gp_collect(&options, &system) == 0 && gp_model_update(&watch->model, system) == 0)
        gp_outlook_growth_look(&watch->growth, &watch->model);
}

static void stat_watch(struct gp_stat_watch *watch, const struct gp_target *target, bool nvml, int64_t seconds)
{
    uint64_t begin = gp_clock_ns(), span = (uint64_t)seconds * 1000000000ull;
    const struct timespec pause = {0, (long)GP_STAT_LOOK_NS};
    stat_look(watch, target, nvml, seconds > 0);
    while (gp_clock_ns() - begin < span) {
        nanosleep(&pause, NULL);
        stat_look(watch, target, nvml, true);
    }
}

static struct gp_outlook *stat_outlook(const struct gp_stat_watch *watch, const struct gp_process *process,
                                       const struct gp_device_view *device)
{
    const struct gp_row_list *pairs = &watch->model.lists[GP_LIST_PAIRS];
    for (int i = 0; i < pairs->count; i++) {
        const struct gp_row *pair = &pairs->rows[i];
        if (pair->outlook && pair->device && pair->id.pid == process->pid &&
            pair->id.start_time == process->start_time && pair->device->index == device->index)
            return pair->outlook;
    }
    return NULL;
}

/* Gives the devices of the printed processes their forecasts. */
static void stat_forecast(const struct gp_stat_watch *watch, struct gp_system *system, bool print)
{
    char line[GP_FORECAST_TEXT];
    for (int i = 0; i < system->process_count; i++) {
        struct gp_process *process = &system->processes[i];
        for (int d = 0; d < process->device_count; d++) {
            struct gp_outlook *outlook = stat_outlook(watch, process, &process->devices[d]);
            if (!outlook)
                continue;
            process->devices[d].forecast = &outlook->result;
            bool grows = print && outlook->result.verdict == GP_FORECAST_GROWS;
            if (print)
                printf("forecast of PID %d on device %d: %s%s%s%s%s\n", (int)process->pid,
                       gp_device_number(&process->devices[d]), gp_forecast_line(&outlook->result, "step", line),
                       grows && outlook->grows[0] ? "; what grows: " : "", grows ? outlook->grows : "",
                       grows && outlook->site[0] ? " at " : "", grows ? outlook->site : "");
        }
    }
}

/* The owner and the call site that grow; gp_stat_json knows only the numbers. */
static json_t *stat_json(const struct gp_stat_watch *watch, const struct gp_system *system, int device)
{
    json_t *top = gp_stat_json(system, device), *process, *one;
    size_t i, k;
    json_array_foreach(json_object_get(top, "processes"), i, process)
    {
        json_array_foreach(json_object_get(process, "devices"), k, one)
        {
            json_t *forecast = json_object_get(one, "forecast");
            const struct gp_outlook *outlook = NULL;
            for (int p = 0; p < system->process_count && !outlook; p++) {
                const struct gp_process *from = &system->processes[p];
                for (int d = 0; d < from->device_count && !outlook; d++) {
                    if (from->pid == json_integer_value(json_object_get(process, "pid")) &&
                        gp_device_number(&from->devices[d]) == json_integer_value(json_object_get(one, "device")))
                        outlook = stat_outlook(watch, from, &from->devices[d]);
                }
            }
            bool grows = outlook && outlook->result.verdict == GP_FORECAST_GROWS;
            if (json_is_object(forecast)) {
                json_object_set_new(forecast, "owner", gp_json_text(grows ? outlook->grows : ""));
                json_object_set_new(forecast, "site", gp_json_text(grows ? outlook->site : ""));
            }
        }
    }
    return top;
}

static int stat_run(void *options)
{
    struct gp_stat_options *o = options;
    struct gp_system *system = NULL;
    int rc = gp_target_collect(&o->target, true, true, &system);
    struct gp_stat_watch *watch = !rc && (o->json || o->watch_s) ? calloc(1, sizeof(*watch)) : NULL;
    if (watch)
        stat_watch(watch, &o->target, system->nvml, o->watch_s);
    if (watch && o->watch_s) { /* the numbers are those of the end */
        gp_system_free(system);
        rc = gp_target_collect(&o->target, true, true, &system);
    }
    if (system && o->target.all)
        rc = stat_complete(o, system);
    for (int i = 0; system && i < system->process_count; i++)
        gp_holders_name(&system->processes[i], NULL);
    int64_t *libraries = system && !o->summary ? stat_libraries(system) : NULL;
    if (system && watch)
        stat_forecast(watch, system, false);
    if (system && !rc) {
        if (o->json && watch)
            rc = gp_json_print(stdout, stat_json(watch, system, o->target.device), false) ? GP_EXIT_FAILED : GP_EXIT_OK;
        else if (o->summary)
            stat_summaries(system, o->target.device);
        else
            gp_stat_table(stdout, system, o->target.device);
        if (watch && !o->json)
            stat_forecast(watch, system, true);
    }
    if (watch) {
        gp_outlook_growth_fini(&watch->growth);
        gp_model_fini(&watch->model);
        free(watch);
    }
    gp_system_free(system);
    free(libraries);
    return rc;
}

static const struct gp_command_option stat_options[] = {
    GP_OPTION_PIDS(struct gp_stat_options),
    GP_OPTION_ALL(struct gp_stat_options),
    GP_FLAG(struct gp_stat_options, system, 0, "system", "like --all, but fail if no agent runs"),
    GP_OPTION_DEVICE(struct gp_stat_options),
    GP_FLAG(struct gp_stat_options, json, 0, "json",
            "print JSON, schema gpuprof.stat/1: the 122 statistics of torch.cuda.memory_stats and more"),
    GP_FLAG(struct gp_stat_options, summary, 0, "summary",
            "print the table of torch.cuda.memory_summary for each device"),
    GP_OPTION(struct gp_stat_options, watch_s, 0, "watch", "SECS", GP_ARG_NUMBER,
              "watch for SECS seconds and forecast the peak and when memory runs out; it takes ten seconds or more",
              .low = 1, .high = 86400),
    GP_OPTION_PINS(struct gp_stat_options),
    {0}};

const struct gp_command_spec gp_command_stat = {
    .name = "stat",
    .summary = "print the numbers of profiled processes once",
    .group = GP_GROUP_WATCH,
    .usage = GP_LIST("[-p PID,.. | --all] [--device=N] [--json | --summary] [--watch=SECS] [--system] [--pins=DIR]"),
    .about = GP_LIST(
        "Prints the current and the peak memory of profiled processes, allocated and reserved, by device and by "
        "kind of memory. Without '-p' and '--all' it prints your only profiled process.",
        "With '--all' and a running 'gpuprof agent', processes that you may not read are listed with the "
        "totals and peaks that the agent has counted."),
    .details = GP_LIST("In JSON the other statistics of such processes are null, and 'known_from' is 'agent'. "
                       "Without an agent '--system' ends with status 77."),
    .options = stat_options,
    .examples =
        GP_EXAMPLES({"gpuprof stat", "Print your only profiled process."},
                    {"gpuprof stat --summary --device 0 -p 1234", "Print the memory summary that PyTorch users know."},
                    {"gpuprof stat --json -p 1234 | jq '.processes[].devices[].stats[\"allocated_bytes.all.peak\"]'",
                     "Print the peak of allocated memory on each device."}),
    GP_DEFAULTS(struct gp_stat_options, .target = GP_TARGET_INIT("stat"), .target.choice = true),
    .surplus = "processes are named with -p",
    .check = stat_check,
    .run = stat_run,
};
