/* SPDX-License-Identifier: MIT
 *
 * reconcile.c: `gpuprof reconcile`: what a process holds, compared with what NVML reports.  A
 * recording has the kinds of memory; a running process is also asked for its owners.  Called by
 * commands.c.
 */
#include <cmd/load.h>
#include <show/text/text.h>
#include <show/text/write.h>

/* The process as it is after the recording. NULL: it has ended, or does not answer. */
static struct gp_system *reconcile_live(const struct gp_load_options *o)
{
    struct gp_system *system = NULL;
    struct gp_collect_options collect = {.pids = o->target.pids, .pid_count = 1, .exact = true, .with_nvml = true};
    if (o->target.pid_count == 0 || gp_collect(&collect, &system) != 0)
        return NULL;
    bool usable = system->process_count == 1 && system->processes[0].state == GP_PROCESS_LIVE;
    if (!usable)
        gp_system_free(system);
    return usable ? system : NULL;
}

static const struct gp_device_view *reconcile_device(const struct gp_system *system, int index)
{
    const struct gp_process *process = system ? &system->processes[0] : NULL;
    for (int i = 0; process && i < process->device_count; i++) {
        if (process->devices[i].index == index)
            return &process->devices[i];
    }
    return NULL;
}

static int reconcile_json(const struct gp_loaded *loaded, const struct gp_system *system)
{
    json_t *object = gp_report_reconcile_json(&loaded->report), *devices = json_object_get(object, "devices");
    for (uint32_t d = 0; object && d < loaded->recording->device_count; d++) {
        const struct gp_device_view *device = reconcile_device(system, (int)loaded->recording->devices[d].index);
        json_t *now = device ? gp_owner_bill_json(&system->processes[0], device) : json_null();
        if (json_object_set_new(json_array_get(devices, d), "now", now) == 0)
            continue;
        json_decref(object);
        object = NULL;
    }
    return gp_load_json(loaded->command, object);
}

static int reconcile_run(void *options)
{
    struct gp_load_options *o = options;
    struct gp_loaded loaded;
    o->nameless = true;
    int rc = gp_load(&loaded, o, 0);
    if (rc)
        return rc;
    struct gp_system *system = reconcile_live(o);
    struct gp_text_page page = gp_load_page();
    if (gp_report_run(&loaded.report, GP_REPORT_BILL | (o->json ? GP_REPORT_HELD : 0),
                      o->json ? GP_DETAIL_PLOT : GP_DETAIL_TABLE) != 0) {
        rc = gp_memory_error(loaded.command);
    } else if (o->json) {
        rc = reconcile_json(&loaded, system);
    } else {
        gp_text_reconcile(&page, &loaded.report);
        for (int i = 0; system && i < system->processes[0].device_count; i++)
            gp_owner_bill_print(stdout, &system->processes[0], &system->processes[0].devices[i]);
    }
    gp_system_free(system);
    gp_load_free(&loaded);
    return rc;
}

const struct gp_command_spec gp_command_reconcile = {
    .name = "reconcile",
    .summary = "compare the counted memory with what NVML reports",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LOAD_USAGE_LIVE,
    .about = GP_LIST("Prints everything that the process is known to hold on each device, and how much more NVML "
                     "reports for it. docs/analyses.md explains the numbers.",
                     "For a running process a second table says which library holds what: the blocks and the cache of "
                     "PyTorch, NCCL, cuBLAS, the program itself, and the rest of what nvidia-smi shows."),
    .options = (const struct gp_command_option[]){GP_LOAD_OPTION_PID,
                                                  GP_LOAD_OPTION_DURATION,
                                                  GP_OPTION_JSON(struct gp_load_options, "gpuprof.reconcile/1"),
                                                  {0}},
    .examples = GP_EXAMPLES(
        {"gpuprof reconcile -p 1234", "Record a process for 10 seconds and explain its memory in nvidia-smi."}),
    GP_LOAD_SPEC("reconcile", reconcile_run, false),
};
