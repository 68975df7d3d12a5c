/* SPDX-License-Identifier: MIT
 * reset.c: `gpuprof reset`: peaks and totals of running processes, from outside.  Called by main.c. */
#include <cmd/cmd.h>
#include <write/stats.h>
#include <write/write.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char gp_reset_help[] =
    "usage: gpuprof reset (--allocated | --reserved | --peaks | --accumulated) [-p PID,.. | --all] [--device N] "
    "[--json]\n"
    "\n"
    "Resets statistics of running processes and prints them as they were before and after.\n"
    "\n"
    "      --allocated    peaks of allocated memory become the current values (as Paddle's "
    "reset_max_memory_allocated)\n"
    "      --reserved     peaks of reserved memory become the current values (as Paddle's reset_max_memory_reserved)\n"
    "      --peaks        both (as PyTorch's reset_peak_memory_stats)\n"
    "      --accumulated  totals become zero (as PyTorch's reset_accumulated_memory_stats)\n"
    "  -p, --pid PID,..   these processes; without: your only profiled process\n"
    "  -a, --all          every profiled process that you may read\n"
    "      --device N     this device alone (its number in that process, or 'host')\n"
    "      --json         schema gpuprof.reset/1\n"
    "\n"
    "Somebody else may rely on the same peaks: 'gpuprof scope' gives you watermarks of your own.\n";

struct gp_reset_options {
    struct gp_target target;
    unsigned what; /* GP_RESET_*; 0 none yet */
    bool json, help;
};

static int gp_reset_parse(int argc, char **argv, struct gp_reset_options *o)
{
    /* The value of a sort of reset is its GP_RESET_* number: far below any letter. */
    static const struct option options[] = {{"allocated", no_argument, NULL, GP_RESET_ALLOCATED},
                                            {"reserved", no_argument, NULL, GP_RESET_RESERVED},
                                            {"peaks", no_argument, NULL, GP_RESET_PEAKS},
                                            {"accumulated", no_argument, NULL, GP_RESET_ACCUMULATED},
                                            {"pid", required_argument, NULL, 'p'},
                                            {"all", no_argument, NULL, 'a'},
                                            {"device", required_argument, NULL, 'd'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c, rc = GP_EXIT_OK;
    optind = 0;
    opterr = 0;
    while (!rc && (c = getopt_long(argc, argv, ":p:ah", options, NULL)) != -1) {
        if (c >= (int)GP_RESET_ALLOCATED && c <= (int)GP_RESET_ACCUMULATED) {
            if (o->what && o->what != (unsigned)c)
                return gp_usage_error("reset", "--%s and --%s: one at a time", gp_reset_name(o->what),
                                      gp_reset_name((unsigned)c));
            o->what = (unsigned)c;
        } else if (c == 'p') {
            rc = gp_target_pids(&o->target, optarg);
        } else if (c == 'a') {
            o->target.all = true;
        } else if (c == 'd') {
            rc = gp_target_device(&o->target, optarg);
        } else if (c == 'j') {
            o->json = true;
        } else if (c == 'h') {
            o->help = true;
            return GP_EXIT_OK;
        } else {
            return gp_option_error("reset", c, argv, optind, optopt);
        }
    }
    if (!rc && optind < argc)
        rc = gp_usage_error("reset", "%s: unexpected argument (processes are named with -p)", argv[optind]);
    if (!rc && !o->what)
        rc = gp_usage_error("reset", "say what: --allocated, --reserved, --peaks or --accumulated");
    return rc;
}

static int gp_reset_number(const struct gp_process *process, int index)
{
    for (int i = 0; i < process->device_count; i++) {
        if (process->devices[i].index == index)
            return gp_device_number(&process->devices[i]);
    }
    return index;
}

static json_t *gp_reset_values(const struct gp_wire_value *values, unsigned what)
{
    json_t *object = json_object();
    char key[64];
    for (unsigned stat = 0; stat < GP_STATS; stat++) {
        if (!gp_reset_touches(what, stat))
            continue;
        if (what == GP_RESET_ACCUMULATED) {
            snprintf(key, sizeof(key), "%s.all.allocated", gp_stat_name(stat));
            json_object_set_new(object, key, json_integer(values[stat].allocated));
            snprintf(key, sizeof(key), "%s.all.freed", gp_stat_name(stat));
            json_object_set_new(object, key, json_integer(values[stat].freed));
        } else {
            snprintf(key, sizeof(key), "%s.all.peak", gp_stat_name(stat));
            json_object_set_new(object, key, json_integer(values[stat].peak));
        }
    }
    return object;
}

static json_t *gp_reset_reply_json(const struct gp_wire_before_after *reply, unsigned what)
{
    return json_pack("{s:s,s:o,s:o}", "reset", gp_reset_name(what), "before", gp_reset_values(reply->before, what),
                     "after", gp_reset_values(reply->after, what));
}

/* The host is not a device that a script could pass on: it stands beside them, as in gpuprof.stat/1. */
static json_t *gp_reset_json(const struct gp_process *process, const struct gp_wire_slot *slot, unsigned what)
{
    json_t *devices = json_array(), *host = NULL;
    for (uint32_t i = 0; i < slot->reply_count; i++) {
        const struct gp_wire_before_after *reply = &slot->reply[i];
        if (reply->device == (int32_t)GP_WIRE_HOST && !host) {
            host = gp_reset_reply_json(reply, what);
            continue;
        }
        json_t *device = json_pack("{s:i}", "device", gp_reset_number(process, reply->device));
        json_object_update_new(device, gp_reset_reply_json(reply, what));
        json_array_append_new(devices, device);
    }
    return json_pack("{s:i,s:o,s:o}", "pid", (int)process->pid, "devices", devices, "host", host ? host : json_null());
}

static void gp_reset_line(const char *name, const char *part, int64_t before, int64_t after, bool bytes)
{
    char key[64], a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
    snprintf(key, sizeof(key), "%s.all.%s", name, part);
    if (bytes)
        printf("    %-36s %12s -> %s\n", key, gp_size_text(a, before), gp_size_text(b, after));
    else
        printf("    %-36s %12lld -> %lld\n", key, (long long)before, (long long)after);
}

static void gp_reset_print(const struct gp_process *process, const struct gp_wire_slot *slot, unsigned what)
{
    printf("PID %d  %s\n", (int)process->pid, process->comm);
    for (uint32_t i = 0; i < slot->reply_count; i++) {
        const struct gp_wire_before_after *reply = &slot->reply[i];
        int number = gp_reset_number(process, reply->device);
        if (number == (int)GP_WIRE_HOST)
            printf("  host: reset %s\n", gp_reset_name(what));
        else
            printf("  device %d: reset %s\n", number, gp_reset_name(what));
        for (unsigned stat = 0; stat < GP_STATS; stat++) {
            bool bytes = strstr(gp_stat_name(stat), "_bytes") != NULL;
            if (!gp_reset_touches(what, stat))
                continue;
            if (what != GP_RESET_ACCUMULATED) {
                gp_reset_line(gp_stat_name(stat), "peak", reply->before[stat].peak, reply->after[stat].peak, bytes);
                continue;
            }
            gp_reset_line(gp_stat_name(stat), "allocated", reply->before[stat].allocated, reply->after[stat].allocated,
                          bytes);
            gp_reset_line(gp_stat_name(stat), "freed", reply->before[stat].freed, reply->after[stat].freed, bytes);
        }
    }
}

/* One process.  The slot is 39 KB: the heap, not the stack. */
static int gp_reset_process(const struct gp_reset_options *o, const struct gp_process *process, json_t *array)
{
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot));
    int index = gp_target_index(&o->target, process);
    if (!slot || index == -2) {
        free(slot);
        return slot ? GP_EXIT_USAGE : GP_EXIT_FAILED;
    }
    slot->command = GP_COMMAND_RESET;
    slot->what = o->what;
    slot->device = index;
    int rc = gp_ask("reset", process->pid, slot, NULL);
    if (!rc && array)
        json_array_append_new(array, gp_reset_json(process, slot, o->what));
    else if (!rc)
        gp_reset_print(process, slot, o->what);
    free(slot);
    return rc;
}

static int gp_reset_all(const struct gp_reset_options *o, const struct gp_system *system)
{
    json_t *array = o->json ? json_array() : NULL;
    int rc = GP_EXIT_OK;
    for (int i = 0; i < system->process_count; i++) {
        int one = gp_reset_process(o, &system->processes[i], array);
        rc = one ? one : rc;
    }
    if (!array)
        return rc;
    json_t *top = json_pack("{s:s,s:o}", "schema", "gpuprof.reset/1", "processes", array);
    return gp_json_print(stdout, top, false) ? GP_EXIT_FAILED : rc;
}

int gp_cmd_reset(int argc, char **argv)
{
    struct gp_reset_options o = {.target = GP_TARGET_INIT("reset")};
    struct gp_system *system = NULL;
    int rc = gp_reset_parse(argc, argv, &o);
    if (!rc && o.help)
        fputs(gp_reset_help, stdout);
    else if (!rc)
        rc = gp_target_collect(&o.target, false, false, &system);
    if (system)
        rc = gp_reset_all(&o, system);
    gp_system_free(system);
    gp_target_free(&o.target);
    return rc;
}
