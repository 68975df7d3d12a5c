/* SPDX-License-Identifier: MIT
 * stat.c: `gpuprof stat`: the numbers of profiled processes, once.  Called by commands.c. */
#include <cmd/cmd.h>
#include <write/write.h>

#include <maps/maps.h>
#include <maps/sample.h>
#include <stdio.h>

struct gp_stat_options {
    struct gp_target target;
    const char *pins;
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

static int stat_run(void *options)
{
    struct gp_stat_options *o = options;
    struct gp_system *system = NULL;
    int rc = gp_target_collect(&o->target, true, true, &system);
    if (system && o->target.all)
        rc = stat_complete(o, system);
    for (int i = 0; system && i < system->process_count; i++)
        gp_holders_name(&system->processes[i], NULL);
    if (system && !rc) {
        if (o->json)
            rc = gp_json_print(stdout, gp_stat_json(system, o->target.device), false) ? GP_EXIT_FAILED : GP_EXIT_OK;
        else if (o->summary)
            stat_summaries(system, o->target.device);
        else
            gp_stat_table(stdout, system, o->target.device);
    }
    gp_system_free(system);
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
    GP_OPTION_PINS(struct gp_stat_options),
    {0}};

const struct gp_command_spec gp_command_stat = {
    .name = "stat",
    .summary = "print the numbers of profiled processes once",
    .group = GP_GROUP_WATCH,
    .usage = GP_LIST("[-p PID,.. | --all] [--device=N] [--json | --summary] [--system] [--pins=DIR]"),
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
