/* SPDX-License-Identifier: MIT
 * stacks.c: `gpuprof stacks`: switches the stacks of running processes on and off, or shows which
 * they take.  Called by commands.c. */
#include <cmd/cmd.h>
#include <read/collect/sites.h>
#include <show/text/write.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gp_stacks_options {
    struct gp_target target;
    const char *mode; /* NULL: show */
    bool json;
};

/* The index is a set of GP_SITES_*. */
static const char *const stacks_modes[] = {"off", "native", "python", "all", NULL};

static const char *stacks_name(uint32_t modes)
{
    return stacks_modes[modes & (GP_SITES_NATIVE | GP_SITES_PYTHON)];
}

static uint32_t stacks_wanted(const char *mode)
{
    uint32_t modes = 0;
    while (strcmp(stacks_modes[modes], mode) != 0)
        modes++;
    return modes;
}

static const struct gp_refusal stacks_refusals[] = {
    {EINVAL, "its libgpuprof.so is older and cannot switch stacks: start the program with GPUPROF_STACKS instead"},
    {ENOSPC, "refused: a limit of memory or of file sizes (ulimit) left no room for the tables of call sites when it "
             "started: start the program with GPUPROF_STACKS, or with a higher limit"},
    {ENODATA, "refused: gpuprof counts nothing in it ('gpuprof stat' shows why), so it would take no stacks"},
    {ENOMEM, "refused: it has no memory for the tables of call sites"},
    {0, NULL},
};

void gp_unwind_stacks_offer(const char *command, pid_t pid)
{
    char problem[GP_PROBLEM_BYTES];
    uint32_t modes;
    if (gp_sites_modes(pid, &modes, problem) == 0 && !modes)
        gp_error(command,
                 "pid %d: it takes no stacks, so call sites have no names: 'gpuprof stacks all -p %d' "
                 "switches them on",
                 (int)pid, (int)pid);
}

/* GP_EXIT_OK, or an exit status after a message. */
static int stacks_read(pid_t pid, uint32_t *modes)
{
    char problem[GP_PROBLEM_BYTES], why[256];
    int rc = gp_sites_modes(pid, modes, problem);
    if (!rc)
        return GP_EXIT_OK;
    if (!problem[0] && gp_collect_explain_pid(pid, why, sizeof(why)) == GP_PID_OK)
        snprintf(why, sizeof(why), "%s", strerror(-rc));
    gp_error("stacks", "pid %d: %s", (int)pid, problem[0] ? problem : why);
    return rc == -ESRCH || rc == -EACCES ? GP_EXIT_NO_PROCESS : GP_EXIT_FAILED;
}

static int stacks_switch(pid_t pid, uint32_t modes, uint32_t *before)
{
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot)); /* 39 KB, too much for the stack */
    if (!slot)
        return GP_EXIT_FAILED;
    slot->command = GP_COMMAND_STACKS;
    slot->what = modes;
    slot->device = -1;
    int rc = gp_ask("stacks", pid, slot, stacks_refusals);
    *before = slot->what;
    free(slot);
    return rc;
}

static int stacks_process(const struct gp_stacks_options *o, const struct gp_process *process, json_t *array)
{
    uint32_t modes = 0, before = 0;
    int rc = GP_EXIT_OK;
    if (o->mode) {
        modes = stacks_wanted(o->mode);
        rc = stacks_switch(process->pid, modes, &before);
    } else {
        rc = stacks_read(process->pid, &modes);
        before = modes;
    }
    if (rc)
        return rc;
    if (array)
        json_array_append_new(array, json_pack("{s:i,s:s,s:s,s:s}", "pid", (int)process->pid, "comm", process->comm,
                                               "before", stacks_name(before), "stacks", stacks_name(modes)));
    else if (before == modes)
        printf("PID %d  %s  stacks %s\n", (int)process->pid, process->comm, stacks_name(modes));
    else
        printf("PID %d  %s  stacks %s -> %s\n", (int)process->pid, process->comm, stacks_name(before),
               stacks_name(modes));
    return GP_EXIT_OK;
}

static int stacks_run(void *options)
{
    struct gp_stacks_options *o = options;
    struct gp_system *system = NULL;
    json_t *array = o->json ? json_array() : NULL;
    int rc = gp_target_collect(&o->target, false, false, &system);
    for (int i = 0; system && i < system->process_count; i++) {
        int one = stacks_process(o, &system->processes[i], array);
        rc = one ? one : rc;
    }
    if (array && system) {
        json_t *top = json_pack("{s:s,s:O}", "schema", "gpuprof.stacks/1", "processes", array);
        rc = gp_json_print(stdout, top, false) ? GP_EXIT_FAILED : rc;
    }
    json_decref(array);
    gp_system_free(system);
    return rc;
}

static const struct gp_command_option stacks_options[] = {GP_OPTION_PIDS(struct gp_stacks_options),
                                                          GP_OPTION_ALL(struct gp_stacks_options),
                                                          GP_OPTION_JSON(struct gp_stacks_options, "gpuprof.stacks/1"),
                                                          {0}};

static const struct gp_command_option stacks_operands[] = {GP_OPERAND(struct gp_stacks_options, mode, "WHICH",
                                                                      GP_ARG_CHOICE, "the stacks to take from now on",
                                                                      .words = stacks_modes),
                                                           {0}};

const struct gp_command_spec gp_command_stacks = {
    .name = "stacks",
    .summary = "switch the stacks of running processes on and off",
    .group = GP_GROUP_ASK,
    .usage = GP_LIST("[off|native|python|all] [-p PID,.. | --all] [--json]"),
    .about = GP_LIST("Stacks name the call sites of allocations in 'top --by site', 'leaks -p', 'peak -p' and "
                     "recordings. A native stack costs about 0.15 us per allocation, a Python stack 0.2 to 2 us, so "
                     "processes take none unless they are told to. "
                     "Without WHICH it prints which stacks the processes take now.",
                     "Memory that was allocated while stacks were off is the call site 'before stacks'. After 'off' "
                     "the memory that has a call site keeps it until it is freed."),
    .options = stacks_options,
    .operands = stacks_operands,
    .examples = GP_EXAMPLES({"gpuprof stacks native -p 1234; gpuprof leaks -p 1234 --duration 60",
                             "Find a leak in a process that was started without stacks."},
                            {"gpuprof stacks off --all", "Take no more stacks in any process."}),
    GP_DEFAULTS(struct gp_stacks_options, .target = GP_TARGET_INIT("stacks"), .target.choice = true),
    .surplus = "processes are named with -p",
    .run = stacks_run,
};
