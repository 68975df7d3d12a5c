/* SPDX-License-Identifier: MIT
 * reset.c: `gpuprof reset`: resets peaks and totals of running processes from outside.  Called
 * by commands.c. */
#include <base/text.h>
#include <cmd/cmd.h>
#include <show/text/stats.h>
#include <show/text/write.h>

#include <agent/maps/maps.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gp_reset_options {
    struct gp_target target;
    unsigned what; /* GP_RESET_*; 0 none yet */
    const char *pins;
    bool json;
    bool named;   /* -p was given */
    bool machine; /* only the machine-wide peaks of the GPU of --device: the caller owns no profiled process */
};

static int reset_what(void *options, const struct gp_command_option *option, const char *text)
{
    struct gp_reset_options *o = options;
    unsigned what = (unsigned)option->low;
    (void)text;
    if (o->what && o->what != what)
        return gp_usage_error("reset", "--%s and --%s: one at a time", gp_reset_name(o->what), gp_reset_name(what));
    o->what = what;
    return GP_EXIT_OK;
}

static int reset_check(void *options)
{
    const struct gp_reset_options *o = options;
    if (!o->what)
        return gp_usage_error("reset", "name what to reset: --allocated, --reserved, --peaks or --accumulated");
    return GP_EXIT_OK;
}

static int reset_number(const struct gp_process *process, int index)
{
    for (int i = 0; i < process->device_count; i++) {
        if (process->devices[i].index == index)
            return gp_device_number(&process->devices[i]);
    }
    return index;
}

/* Its peak is restarted with that of the allocated bytes. */
static bool reset_touches_asleep(unsigned what)
{
    return what == GP_RESET_ALLOCATED || what == GP_RESET_PEAKS;
}

static json_t *reset_values(const struct gp_wire_value *values, const struct gp_wire_value *asleep, unsigned what)
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
    if (reset_touches_asleep(what))
        json_object_set_new(object, "asleep_bytes.peak", json_integer(asleep->peak));
    return object;
}

static json_t *reset_reply_json(const struct gp_wire_before_after *reply, unsigned what)
{
    return json_pack("{s:s,s:o,s:o}", "reset", gp_reset_name(what), "before",
                     reset_values(reply->before, &reply->asleep_before, what), "after",
                     reset_values(reply->after, &reply->asleep_after, what));
}

/* The host has no device number, so it has a key of its own, as in gpuprof.stat/1. */
static json_t *reset_json(const struct gp_process *process, const struct gp_wire_slot *slot, unsigned what)
{
    json_t *devices = json_array(), *host = NULL;
    for (uint32_t i = 0; i < slot->reply_count; i++) {
        const struct gp_wire_before_after *reply = &slot->reply[i];
        if (reply->device == (int32_t)GP_WIRE_HOST && !host) {
            host = reset_reply_json(reply, what);
            continue;
        }
        json_t *device = json_pack("{s:i}", "device", reset_number(process, reply->device));
        json_object_update_new(device, reset_reply_json(reply, what));
        json_array_append_new(devices, device);
    }
    return json_pack("{s:i,s:o,s:o}", "pid", (int)process->pid, "devices", devices, "host", host ? host : json_null());
}

static void reset_line(const char *name, const char *part, int64_t before, int64_t after, bool bytes)
{
    char key[64], a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
    snprintf(key, sizeof(key), "%s.all.%s", name, part);
    if (bytes)
        printf("    %-36s %12s -> %s\n", key, gp_size_text(a, before), gp_size_text(b, after));
    else
        printf("    %-36s %12lld -> %lld\n", key, (long long)before, (long long)after);
}

/* Most programs have nothing asleep. */
static void reset_line_asleep(int64_t before, int64_t after)
{
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT];
    if (before > 0)
        printf("    %-36s %12s -> %s\n", "asleep_bytes.peak", gp_size_text(a, before), gp_size_text(b, after));
}

static void reset_print(const struct gp_process *process, const struct gp_wire_slot *slot, unsigned what)
{
    printf("PID %d  %s\n", (int)process->pid, process->comm);
    for (uint32_t i = 0; i < slot->reply_count; i++) {
        const struct gp_wire_before_after *reply = &slot->reply[i];
        int number = reset_number(process, reply->device);
        if (number == (int)GP_WIRE_HOST)
            printf("  host: reset %s\n", gp_reset_name(what));
        else
            printf("  device %d: reset %s\n", number, gp_reset_name(what));
        for (unsigned stat = 0; stat < GP_STATS; stat++) {
            bool bytes = strstr(gp_stat_name(stat), "_bytes") != NULL;
            if (!gp_reset_touches(what, stat))
                continue;
            if (what != GP_RESET_ACCUMULATED) {
                reset_line(gp_stat_name(stat), "peak", reply->before[stat].peak, reply->after[stat].peak, bytes);
                continue;
            }
            reset_line(gp_stat_name(stat), "allocated", reply->before[stat].allocated, reply->after[stat].allocated,
                       bytes);
            reset_line(gp_stat_name(stat), "freed", reply->before[stat].freed, reply->after[stat].freed, bytes);
        }
        if (reset_touches_asleep(what))
            reset_line_asleep(reply->asleep_before.peak, reply->asleep_after.peak);
    }
}

/* Resets one process.  The slot has 39 KB, too much for the stack. */
static int reset_process(const struct gp_reset_options *o, const struct gp_process *process, json_t *array)
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
    int rc = gp_request(process->pid, slot, 0);
    if (rc == -ESRCH && o->target.all && kill(process->pid, 0) != 0 && errno == ESRCH) {
        free(slot); /* it has ended since the list was made, as any of all processes may */
        return GP_EXIT_OK;
    }
    rc = gp_asked("reset", process->pid, rc, NULL);
    if (!rc && array)
        json_array_append_new(array, reset_json(process, slot, o->what));
    else if (!rc)
        reset_print(process, slot, o->what);
    free(slot);
    return rc;
}

/* ---- the whole machine ------------------------------------------------------------------------------------------ */

static bool reset_is_zero(const uint8_t uuid[16])
{
    static const uint8_t zero[16];
    return memcmp(uuid, zero, 16) == 0;
}

/* Whether --device means this GPU.  The number is the one that a process uses for the GPU, in
 * its session or in the agent's table; with o->machine it is the one that 'top --system' shows. */
static bool reset_wants(const struct gp_reset_options *o, const struct gp_system *system,
                        const struct gp_system_view *view, const uint8_t uuid[16])
{
    char text[48];
    gp_text_uuid(text, sizeof(text), uuid);
    for (int i = 0; i < system->gpu_count && o->machine; i++) {
        if (system->gpus[i].index == o->target.device)
            return strcmp(system->gpus[i].uuid, text) == 0;
    }
    if (o->machine)
        return false;
    for (int i = 0; i < system->process_count; i++) {
        for (int d = 0; d < system->processes[i].device_count; d++) {
            const struct gp_device_view *device = &system->processes[i].devices[d];
            if (gp_device_number(device) == o->target.device && strcmp(device->uuid, text) == 0)
                return true;
        }
    }
    for (uint32_t i = 0; o->target.all && i < view->process_count; i++) {
        if ((int)view->processes[i].key.device == o->target.device &&
            memcmp(view->processes[i].value.uuid, uuid, 16) == 0)
            return true;
    }
    return o->target.device < 0;
}

static const struct gp_map_sum *reset_find(const struct gp_system_view *view, const uint8_t uuid[16])
{
    for (uint32_t i = 0; i < view->device_count; i++) {
        if (memcmp(view->devices[i].uuid, uuid, 16) == 0)
            return &view->devices[i].value;
    }
    return NULL;
}

static json_t *reset_sum_json(unsigned what, const struct gp_map_sum *sum)
{
    json_t *object = json_object();
    if (what & GP_RESET_ALLOCATED)
        json_object_set_new(object, "allocated_bytes.all.peak",
                            sum ? gp_json_known(sum->allocated_peak_bytes) : json_null());
    if (what & GP_RESET_RESERVED)
        json_object_set_new(object, "reserved_bytes.all.peak",
                            sum ? gp_json_known(sum->reserved_peak_bytes) : json_null());
    if (reset_touches_asleep(what))
        json_object_set_new(object, "asleep_bytes.peak", sum ? gp_json_known(sum->asleep_peak_bytes) : json_null());
    return object;
}

static void reset_sum_print(unsigned what, const struct gp_map_sum *before, const struct gp_map_sum *after,
                            const char *uuid, json_t *array)
{
    if (array) {
        json_array_append_new(array,
                              json_pack("{s:s,s:s,s:o,s:o}", "uuid", uuid, "reset", gp_reset_name(what), "before",
                                        reset_sum_json(what, before), "after", reset_sum_json(what, after)));
        return;
    }
    printf("%s, whole machine: reset %s\n", uuid, gp_reset_name(what));
    if (after && what & GP_RESET_ALLOCATED)
        reset_line("allocated_bytes", "peak", before->allocated_peak_bytes, after->allocated_peak_bytes, true);
    if (after && what & GP_RESET_RESERVED)
        reset_line("reserved_bytes", "peak", before->reserved_peak_bytes, after->reserved_peak_bytes, true);
    if (after && reset_touches_asleep(what))
        reset_line_asleep(before->asleep_peak_bytes, after->asleep_peak_bytes);
}

static int reset_machine_do(const struct gp_reset_options *o, const struct gp_system *system, const char *pins,
                            const struct gp_system_view *before, json_t *array)
{
    struct gp_system_view *after = NULL;
    char why[GP_SYSTEM_WHY], uuid[48];
    bool allocated = o->what & GP_RESET_ALLOCATED, reserved = o->what & GP_RESET_RESERVED;
    int err = 0;
    for (uint32_t i = 0; i < before->device_count && !err && o->target.device >= 0; i++) {
        if (reset_wants(o, system, before, before->devices[i].uuid))
            err = gp_system_reset_peaks(pins, before->devices[i].uuid, allocated, reserved);
    }
    if (o->target.device < 0)
        err = gp_system_reset_peaks(pins, NULL, allocated, reserved);
    if (!err)
        err = gp_system_view_read(&after, pins, why, sizeof(why));
    for (uint32_t i = 0; i < before->device_count && !err; i++) {
        const uint8_t *key = before->devices[i].uuid;
        if (reset_is_zero(key) || !reset_wants(o, system, before, key))
            continue;
        gp_text_uuid(uuid, sizeof(uuid), key);
        reset_sum_print(o->what, &before->devices[i].value, reset_find(after, key), uuid, array);
    }
    gp_system_view_free(after);
    return err;
}

/* Whether the options name the machine-wide peaks too. */
static bool reset_meant(const struct gp_reset_options *o)
{
    bool gpu = o->target.device >= 0 && o->target.device != (int)GP_WIRE_HOST && !o->named;
    return o->what != GP_RESET_ACCUMULATED && (o->target.all || gpu);
}

/* Resets the machine-wide peaks if the options name them and an agent runs.  Prints text if
 * array is NULL. */
static int reset_machine(const struct gp_reset_options *o, const struct gp_system *system, json_t *array)
{
    const char *pins = o->pins ? o->pins : GP_MAPS_PINS;
    struct gp_system_view *before;
    char why[GP_SYSTEM_WHY];
    if (!reset_meant(o))
        return GP_EXIT_OK;
    int err = gp_system_view_read(&before, pins, why, sizeof(why));
    if (err == -ENOENT && !o->pins)
        return GP_EXIT_OK;
    if (!err) {
        err = reset_machine_do(o, system, pins, before, array);
        gp_system_view_free(before);
        if (err)
            gp_maps_explain(err, pins, "reset", why, sizeof(why));
    }
    if (!err)
        return GP_EXIT_OK;
    gp_error("reset", "the machine-wide peaks were not reset: %s", why);
    return o->pins || o->machine || err != -EACCES ? GP_EXIT_FAILED : GP_EXIT_OK;
}

/* For `reset --device N` by a caller without profiled processes, mostly root: the GPUs that the
 * agent knows.  NULL, with *rc set, if no agent runs, the caller may not read its tables, or the
 * GPU is unknown. */
static struct gp_system *reset_gpus(const struct gp_reset_options *o, int *rc)
{
    struct gp_collect_options options = {.pins = o->pins ? o->pins : GP_MAPS_PINS, .with_nvml = true};
    struct gp_system *system = NULL;
    char why[GP_SYSTEM_WHY], have[256] = "";
    size_t used = 0;
    int err = gp_system_sample(&options, &system, why, sizeof(why));
    if (err) {
        gp_target_none_owned(&o->target);
        if (o->pins || (err != -ENOENT && err != -EACCES))
            gp_error("reset", "the machine-wide peaks were not reset: %s", why);
        *rc = GP_EXIT_NO_PROCESS;
        return NULL;
    }
    for (int i = 0; i < system->gpu_count; i++) {
        if (system->gpus[i].index == o->target.device)
            return system;
        if (used < sizeof(have) - 16)
            used += (size_t)snprintf(have + used, sizeof(have) - used, "%s%d", used ? ", " : "", system->gpus[i].index);
    }
    gp_error("reset", "--device %d: the agent knows no such GPU (it knows: %s)", o->target.device,
             used ? have : "none yet");
    gp_system_free(system);
    *rc = GP_EXIT_USAGE;
    return NULL;
}

static int reset_all(const struct gp_reset_options *o, const struct gp_system *system)
{
    json_t *array = o->json ? json_array() : NULL, *machine = o->json ? json_array() : NULL;
    int rc = GP_EXIT_OK;
    for (int i = 0; i < system->process_count && !o->machine; i++) {
        int one = reset_process(o, &system->processes[i], array);
        rc = one ? one : rc;
    }
    int whole = reset_machine(o, system, machine);
    rc = rc ? rc : whole;
    if (!array)
        return rc;
    json_t *top = json_pack("{s:s,s:o,s:o}", "schema", "gpuprof.reset/1", "processes", array, "machine", machine);
    return gp_json_print(stdout, top, false) ? GP_EXIT_FAILED : rc;
}

static int reset_run(void *options)
{
    struct gp_reset_options *o = options;
    struct gp_system *system = NULL;
    o->named = o->target.pids != NULL; /* gp_target_collect fills pids with the caller's only process */
    bool gpu = reset_meant(o) && !o->target.all;
    o->target.more = gpu;
    int rc = gp_target_collect(&o->target, false, false, &system);
    if (rc == GP_EXIT_NO_PROCESS && gpu && !o->target.pids) {
        o->machine = true;
        system = reset_gpus(o, &rc);
    }
    if (system)
        rc = reset_all(o, system);
    gp_system_free(system);
    return rc;
}

static const struct gp_command_option reset_options[] = {
    {.name = "allocated",
     .help = "peaks of allocated memory, as Paddle's reset_max_memory_allocated",
     .parse = reset_what,
     .low = GP_RESET_ALLOCATED},
    {.name = "reserved",
     .help = "peaks of reserved memory, as Paddle's reset_max_memory_reserved",
     .parse = reset_what,
     .low = GP_RESET_RESERVED},
    {.name = "peaks", .help = "both, as PyTorch's reset_peak_memory_stats", .parse = reset_what, .low = GP_RESET_PEAKS},
    {.name = "accumulated",
     .help = "totals, which become zero, as PyTorch's reset_accumulated_memory_stats",
     .parse = reset_what,
     .low = GP_RESET_ACCUMULATED},
    GP_OPTION_PIDS(struct gp_reset_options),
    GP_OPTION_ALL(struct gp_reset_options),
    GP_OPTION_DEVICE(struct gp_reset_options),
    GP_OPTION_JSON(struct gp_reset_options, "gpuprof.reset/1"),
    GP_OPTION_PINS(struct gp_reset_options),
    {0}};

const struct gp_command_spec gp_command_reset = {
    .name = "reset",
    .summary = "reset peaks or totals of running processes",
    .group = GP_GROUP_ASK,
    .usage = GP_LIST("(--allocated | --reserved | --peaks | --accumulated) [-p PID,.. | --all] [--device=N] [--json] "
                     "[--pins=DIR]"),
    .about =
        GP_LIST("Resets statistics of running processes and prints each value before and after. A peak becomes the "
                "current value. Without '-p' and '--all' it resets your only profiled process.",
                "If 'gpuprof agent' runs, '--all', or '--device' without '-p', also resets the machine-wide peaks "
                "that 'gpuprof top --system' shows for GPUs and containers. This needs root. If you own no profiled "
                "process, '--device' resets only the machine-wide peaks of that GPU; N is then the number that "
                "'gpuprof top --system' shows.",
                "Other users of the process may rely on the same peaks. 'gpuprof scope' gives you peaks of your own."),
    .details = GP_LIST(
        "'--allocated' resets the peaks of allocation, allocated_bytes, active, active_bytes and requested_bytes; "
        "'--reserved' those of segment, reserved_bytes, inactive_split and inactive_split_bytes. A caller who "
        "may not write the agent's tables gets a message, and the machine-wide peaks stay."),
    .options = reset_options,
    .examples =
        GP_EXAMPLES({"gpuprof reset --peaks -p 1234", "Start the peaks of a process again from its current values."},
                    {"gpuprof reset --peaks --device 0", "As root: reset the machine-wide peaks of GPU 0."}),
    GP_DEFAULTS(struct gp_reset_options, .target = GP_TARGET_INIT("reset"), .target.choice = true),
    .surplus = "processes are named with -p",
    .check = reset_check,
    .run = reset_run,
};
