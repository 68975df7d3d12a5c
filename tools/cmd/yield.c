/* SPDX-License-Identifier: MIT
 * yield.c: `gpuprof yield`: gives the CUPTI subscriber of a process to another tool. Called by commands.c. */
#include <cmd/cmd.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GP_YIELD_NS 2000000000ull

struct gp_yield_options {
    struct gp_target target;
};

static int yield_failed(pid_t pid, int rc)
{
    char why[256];
    switch (rc) {
    case -ESRCH:
    case -EACCES:
        gp_collect_explain_pid(pid, why, sizeof(why));
        gp_error("yield", "pid %d: %s", (int)pid, why);
        return GP_EXIT_NO_PROCESS;
    case -EOPNOTSUPP:
        gp_error("yield", "pid %d: gpuprof does not hold the CUPTI subscriber there: nothing to give up", (int)pid);
        return GP_EXIT_FAILED;
    case -ETIMEDOUT:
        gp_error("yield", "pid %d: no answer: it may be stopped: try again", (int)pid);
        return GP_EXIT_FAILED;
    default:
        gp_error("yield", "pid %d: %s", (int)pid, strerror(-rc));
        return GP_EXIT_FAILED;
    }
}

static int yield_check(void *options)
{
    const struct gp_yield_options *o = options;
    if (o->target.pid_count == 1)
        return GP_EXIT_OK;
    return gp_usage_error("yield", o->target.pid_count ? "one process at a time" : "name a process: -p PID");
}

static int yield_run(void *options)
{
    const struct gp_yield_options *o = options;
    pid_t pid = o->target.pids[0];
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot)); /* 39 KB, too much for the stack */
    if (!slot)
        return GP_EXIT_FAILED;
    slot->command = GP_COMMAND_YIELD;
    slot->device = -1;
    int rc = gp_request(pid, slot, GP_YIELD_NS);
    free(slot);
    if (rc)
        return yield_failed(pid, rc);
    printf("The CUPTI subscriber of %d is free: 'gpuprof stat -p %d' says what counts now.\n", (int)pid, (int)pid);
    return GP_EXIT_OK;
}

static const struct gp_command_option yield_options[] = {GP_OPTION_PID(struct gp_yield_options, "the process"), {0}};

const struct gp_command_spec gp_command_yield = {
    .name = "yield",
    .summary = "give the CUPTI subscriber of a process to another tool",
    .group = GP_GROUP_WATCH,
    .usage = GP_LIST("-p PID"),
    .about = GP_LIST("Before CUPTI 13.3 a process has one CUPTI subscriber. This gives up gpuprof's, so that "
                     "torch.profiler, Nsight or another tool can have it. If the process was started with 'gpuprof "
                     "run', driver hooks count from then on, and the totals go on; otherwise they end."),
    .options = yield_options,
    .examples = GP_EXAMPLES({"gpuprof yield -p 1234", "Let another profiler into process 1234."}),
    GP_DEFAULTS(struct gp_yield_options, .target = GP_TARGET_INIT("yield")),
    .check = yield_check,
    .run = yield_run,
};
