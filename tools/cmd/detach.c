/* SPDX-License-Identifier: MIT
 * detach.c: `gpuprof detach`: lets the library leave a process.  Called by commands.c. */
#include <cmd/cmd.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The library waits for three seconds at most until no thread is inside. */
#define GP_DETACH_NS 6000000000ull

struct gp_detach_options {
    struct gp_target target;
};

int gp_detach(const char *command, pid_t pid)
{
    char why[256];
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot)); /* 39 KB, too much for the stack */
    if (!slot)
        return GP_EXIT_FAILED;
    slot->command = GP_COMMAND_DETACH;
    slot->device = -1;
    int rc = gp_request(pid, slot, GP_DETACH_NS);
    free(slot);
    switch (rc) {
    case 0:
        return GP_EXIT_OK;
    case -ESRCH:
    case -EACCES:
        gp_explain_pid(pid, why, sizeof(why));
        gp_error(command, "pid %d: %s", (int)pid, why);
        return GP_EXIT_NO_PROCESS;
    case -EBUSY:
        gp_error(command,
                 "pid %d: refused: gpuprof's allocator serves its memory (GPUPROF_ALLOCATOR), and cannot leave",
                 (int)pid);
        return GP_EXIT_FAILED;
    case -EINVAL:
        gp_error(command, "pid %d: refused: its libgpuprof.so is older and cannot leave", (int)pid);
        return GP_EXIT_FAILED;
    case -EAGAIN:
        gp_error(command, "pid %d: its library has not started yet: try again", (int)pid);
        return GP_EXIT_FAILED;
    case -ETIMEDOUT:
        gp_error(command, "pid %d: no answer: it may be stopped: try again", (int)pid);
        return GP_EXIT_FAILED;
    default:
        gp_error(command, "pid %d: %s", (int)pid, strerror(-rc));
        return GP_EXIT_FAILED;
    }
}

static int detach_check(void *options)
{
    const struct gp_detach_options *o = options;
    if (o->target.pid_count == 1)
        return GP_EXIT_OK;
    return gp_usage_error("detach", o->target.pid_count ? "one process at a time" : "name a process: its PID");
}

static int detach_run(void *options)
{
    const struct gp_detach_options *o = options;
    pid_t pid = o->target.pids[0];
    int rc = gp_detach("detach", pid);
    if (!rc)
        printf("Detached from %d: 'gpuprof attach %d' begins again.\n", (int)pid, (int)pid);
    return rc;
}

static const struct gp_command_option detach_options[] = {
    GP_OPTION_PID(struct gp_detach_options, "the process, as other commands name it"), {0}};

static const struct gp_command_option detach_operands[] = {
    GP_OPERAND(struct gp_detach_options, target, "PID", GP_ARG_PID, "the process"), {0}};

const struct gp_command_spec gp_command_detach = {
    .name = "detach",
    .summary = "leave a running process",
    .group = GP_GROUP_WATCH,
    .usage = GP_LIST("PID"),
    .about =
        GP_LIST("Ends the profiling of a process that 'gpuprof attach' or 'gpuprof run' started. The library removes "
                "its callbacks and functions, finishes a recording, and ends its threads and its session. The "
                "process runs on. The library's code stays in memory, unused; 'gpuprof attach' starts it again."),
    .details = GP_LIST("A process that allocates through gpuprof's allocator cannot be left, because only the "
                       "allocator can take its blocks back."),
    .options = detach_options,
    .operands = detach_operands,
    .examples = GP_EXAMPLES({"gpuprof detach 1234", "Stop profiling process 1234."}),
    GP_DEFAULTS(struct gp_detach_options, .target = GP_TARGET_INIT("detach")),
    .check = detach_check,
    .run = detach_run,
};
