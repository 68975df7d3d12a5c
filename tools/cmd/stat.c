/* SPDX-License-Identifier: MIT
 * stat.c: `gpuprof stat`: the numbers of profiled processes, once.  Called by main.c. */
#include <cmd/cmd.h>
#include <write/write.h>

#include <getopt.h>
#include <maps/maps.h>
#include <maps/sample.h>
#include <stdio.h>

static const char stat_help[] =
    "usage: gpuprof stat [-p PID,.. | --all] [--device N] [--json | --summary] [--pins DIR]\n"
    "\n"
    "Prints what profiled processes hold and held at the peak: allocated and reserved memory, by device and by kind.\n"
    "Without -p and --all: your only profiled process.\n"
    "\n"
    "  -p, --pid PID,..   these processes\n"
    "  -a, --all          every profiled process that you may read; where 'gpuprof agent' runs, with the totals and "
    "peaks\n"
    "                     that its maps have of those that you may not (--system: the same, and it must run)\n"
    "      --device N     this device alone (its number in that process, or 'host')\n"
    "      --json         schema gpuprof.stat/1: the 122 statistics of torch.cuda.memory_stats and more\n"
    "      --pins DIR     where that agent pins its maps (" GP_MAPS_PINS ")\n"
    "      --summary      the table of torch.cuda.memory_summary, for each device\n"
    "\n"
    "Exit status: 0, 1 failed, 2 usage, 3 no such profiled process.\n";

struct gp_stat_options {
    struct gp_target target;
    const char *pins;
    bool json, summary, help, system;
};

static int stat_parse(int argc, char **argv, struct gp_stat_options *o)
{
    static const struct option options[] = {{"pid", required_argument, NULL, 'p'},
                                            {"all", no_argument, NULL, 'a'},
                                            {"device", required_argument, NULL, 'd'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"summary", no_argument, NULL, 's'},
                                            {"system", no_argument, NULL, 'S'},
                                            {"pins", required_argument, NULL, 'P'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c, rc = GP_EXIT_OK;
    optind = 0;
    opterr = 0;
    while (!rc && (c = getopt_long(argc, argv, ":p:ah", options, NULL)) != -1) {
        switch (c) {
        case 'p':
            rc = gp_target_pids(&o->target, optarg);
            break;
        case 'a':
            o->target.all = true;
            break;
        case 'd':
            rc = gp_target_device(&o->target, optarg);
            break;
        case 'j':
            o->json = true;
            break;
        case 's':
            o->summary = true;
            break;
        case 'S':
            o->system = o->target.all = true;
            break;
        case 'P':
            o->pins = optarg;
            break;
        case 'h':
            o->help = true;
            return GP_EXIT_OK;
        default:
            return gp_option_error("stat", c, argv, optind, optopt);
        }
    }
    if (!rc && optind < argc)
        rc = gp_usage_error("stat", "%s: unexpected argument (processes are named with -p)", argv[optind]);
    if (!rc && o->json && o->summary)
        rc = gp_usage_error("stat", "--json and --summary exclude each other");
    if (!rc && o->pins && !o->target.all)
        rc = gp_usage_error("stat", "--pins %s: it goes with --all", o->pins);
    return rc;
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
                continue; /* the table has more than the agent's maps know */
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

/* What the agent knows beside the sessions.  Its absence matters only to who asked for it. */
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
        gp_error("stat", "the agent has given no sign of life for %s: what comes from its maps stands still", age);
    if (agent->map_full || agent->refused)
        gp_error("stat",
                 "the agent did not count %llu updates without room in its tables and %llu batches that it "
                 "refused",
                 (unsigned long long)agent->map_full, (unsigned long long)agent->refused);
    for (int i = 0; agent->processes_hidden && i < agent->sum_count; i++) {
        const struct gp_sum *sum = &agent->sums[i];
        char allocated[GP_SIZE_TEXT], peak[GP_SIZE_TEXT];
        if (!sum->cgroup_id)
            gp_error("stat", "%s: %s allocated, at most %s, by %d %s: only root may see those of other users",
                     sum->uuid, gp_size_text(allocated, sum->allocated), gp_size_text(peak, sum->allocated_peak),
                     sum->processes, sum->processes == 1 ? "process" : "processes");
    }
    if (system->process_count == 0 && !agent->processes_hidden)
        gp_target_nobody(&o->target, system);
    return GP_EXIT_OK;
}

int gp_cmd_stat(int argc, char **argv)
{
    struct gp_stat_options o = {.target = GP_TARGET_INIT("stat")};
    struct gp_system *system = NULL;
    int rc = stat_parse(argc, argv, &o);
    o.target.more = o.target.all;
    o.target.choice = true;
    if (!rc && o.help)
        fputs(stat_help, stdout);
    else if (!rc)
        rc = gp_target_collect(&o.target, true, true, &system);
    if (system && o.target.all)
        rc = stat_complete(&o, system);
    for (int i = 0; system && i < system->process_count; i++)
        gp_holders_name(&system->processes[i], NULL);
    if (system && !rc) {
        if (o.json)
            rc = gp_json_print(stdout, gp_stat_json(system, o.target.device), false) ? GP_EXIT_FAILED : GP_EXIT_OK;
        else if (o.summary)
            stat_summaries(system, o.target.device);
        else
            gp_stat_table(stdout, system, o.target.device);
    }
    gp_system_free(system);
    gp_target_free(&o.target);
    return rc;
}
