/* SPDX-License-Identifier: MIT
 * stat.c: `gpuprof stat`: the numbers of profiled processes, once.  Called by main.c. */
#include <cmd/cmd.h>
#include <write/write.h>

#include <getopt.h>
#include <stdio.h>

static const char gp_stat_help[] =
    "usage: gpuprof stat [-p PID,.. | --all] [--device N] [--json | --summary]\n"
    "\n"
    "Prints what profiled processes hold and held at the peak: allocated and reserved memory, by device and by kind.\n"
    "Without -p and --all: your only profiled process.\n"
    "\n"
    "  -p, --pid PID,..   these processes\n"
    "  -a, --all          every profiled process that you may read\n"
    "      --device N     this device alone (its number in that process, or 'host')\n"
    "      --json         schema gpuprof.stat/1: the 122 statistics of torch.cuda.memory_stats and more\n"
    "      --summary      the table of torch.cuda.memory_summary, for each device\n"
    "\n"
    "Exit status: 0, 1 failed, 2 usage, 3 no such profiled process.\n";

struct gp_stat_options {
    struct gp_target target;
    bool json, summary, help;
};

static int gp_stat_parse(int argc, char **argv, struct gp_stat_options *o)
{
    static const struct option options[] = {
        {"pid", required_argument, NULL, 'p'},    {"all", no_argument, NULL, 'a'},
        {"device", required_argument, NULL, 'd'}, {"json", no_argument, NULL, 'j'},
        {"summary", no_argument, NULL, 's'},      {"system", no_argument, NULL, 'S'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
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
            return gp_no_agent("stat");
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
    return rc;
}

static void gp_stat_summaries(const struct gp_system *system, int device)
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

int gp_cmd_stat(int argc, char **argv)
{
    struct gp_stat_options o = {.target = GP_TARGET_INIT("stat")};
    struct gp_system *system = NULL;
    int rc = gp_stat_parse(argc, argv, &o);
    if (!rc && o.help)
        fputs(gp_stat_help, stdout);
    else if (!rc)
        rc = gp_target_collect(&o.target, true, true, &system);
    for (int i = 0; system && i < system->process_count; i++)
        gp_holders_name(&system->processes[i], NULL);
    if (system) {
        if (o.json)
            rc = gp_json_print(stdout, gp_stat_json(system, o.target.device), false) ? GP_EXIT_FAILED : GP_EXIT_OK;
        else if (o.summary)
            gp_stat_summaries(system, o.target.device);
        else
            gp_stat_table(stdout, system, o.target.device);
    }
    gp_system_free(system);
    gp_target_free(&o.target);
    return rc;
}
