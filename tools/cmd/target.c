/* SPDX-License-Identifier: MIT
 * target.c: finds the processes and the device that the options of a command name; see cmd.h. */
#include <cmd/cmd.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gp_target_pids(struct gp_target *target, const char *text)
{
    free(target->pids);
    target->pids = NULL;
    int rc = gp_parse_pids(text, &target->pids, &target->pid_count);
    if (rc == -ENOMEM)
        gp_error(target->command, "out of memory");
    if (rc)
        return gp_usage_error(target->command, "-p %s: not a list of pids (like 1234 or 1234,5678)", text);
    return GP_EXIT_OK;
}

int gp_target_device(struct gp_target *target, const char *text)
{
    int rc = gp_parse_device(text, &target->device);
    if (rc == -ERANGE)
        return gp_usage_error(target->command, "--device %s: out of range: devices are 0 to %u", text,
                              GP_WIRE_GPUS - 1);
    if (rc)
        return gp_usage_error(target->command, "--device %s: not a device number (nor 'host')", text);
    return GP_EXIT_OK;
}

void gp_target_free(struct gp_target *target)
{
    free(target->pids);
    target->pids = NULL;
}

static int target_read(const struct gp_target *target, bool exact, bool with_nvml, struct gp_system **system)
{
    struct gp_collect_options options = {
        .pids = target->pids, .pid_count = target->pid_count, .exact = exact, .with_nvml = with_nvml};
    int rc = gp_collect(&options, system);
    if (rc == 0)
        return GP_EXIT_OK;
    gp_error(target->command, "cannot read processes: %s", strerror(-rc));
    return GP_EXIT_FAILED;
}

/* The most candidates that are listed: about one screen. */
#define GP_TARGET_LISTED 20

static void target_list(const struct gp_system *system, uid_t uid)
{
    int mine = 0;
    for (int i = 0; i < system->process_count; i++) {
        const struct gp_process *process = &system->processes[i];
        if (process->uid == uid && mine++ < GP_TARGET_LISTED)
            fprintf(stderr, "  %7d  %s\n", (int)process->pid, process->cmdline[0] ? process->cmdline : process->comm);
    }
    if (mine > GP_TARGET_LISTED)
        fprintf(stderr, "  and %d more\n", mine - GP_TARGET_LISTED);
}

void gp_target_none_owned(const struct gp_target *target)
{
    gp_error(target->command,
             "no process of yours is profiled: start one with 'gpuprof run CMD...', or 'gpuprof attach PID'");
}

/* Without -p and --all: finds the caller's only profiled process. */
static int target_guess(struct gp_target *target)
{
    struct gp_system *system;
    uid_t uid = getuid();
    int mine = 0, rc = target_read(target, false, false, &system);
    pid_t pid = 0;
    if (rc)
        return rc;
    for (int i = 0; i < system->process_count; i++) {
        if (system->processes[i].uid == uid) {
            pid = system->processes[i].pid;
            mine++;
        }
    }
    if (mine == 1) {
        target->pids = malloc(sizeof(*target->pids));
        rc = target->pids ? GP_EXIT_OK : GP_EXIT_FAILED;
        if (target->pids)
            target->pids[0] = pid;
        target->pid_count = 1;
    } else if (mine == 0) {
        if (!target->more)
            gp_target_none_owned(target);
        rc = GP_EXIT_NO_PROCESS;
    } else {
        gp_error(target->command, "%d processes of yours are profiled: choose with -p PID%s:", mine,
                 target->choice ? ", or all with --all" : "");
        target_list(system, uid);
        rc = GP_EXIT_USAGE;
    }
    gp_system_free(system);
    return rc;
}

/* Reports for each pid of -p that is not in the result why it is missing. */
static int target_missing(const struct gp_target *target, const struct gp_system *system)
{
    int rc = GP_EXIT_OK;
    for (int i = 0; i < target->pid_count; i++) {
        bool found = false;
        for (int k = 0; k < system->process_count; k++)
            found |= system->processes[k].pid == target->pids[i];
        if (found)
            continue;
        char why[256];
        if (gp_collect_explain_pid(target->pids[i], why, sizeof(why)) == GP_PID_OK)
            snprintf(why, sizeof(why), "it has only just started: try again");
        gp_error(target->command, "pid %d: %s", (int)target->pids[i], why);
        rc = GP_EXIT_NO_PROCESS;
    }
    return rc;
}

int gp_target_index(const struct gp_target *target, const struct gp_process *process)
{
    char have[256] = "";
    size_t used = 0;
    if (target->device < 0)
        return -1;
    for (int i = 0; i < process->device_count; i++) {
        int number = gp_device_number(&process->devices[i]);
        if (number == target->device)
            return process->devices[i].index;
        if (used < sizeof(have) - 16)
            used += (size_t)snprintf(have + used, sizeof(have) - used, number == (int)GP_WIRE_HOST ? "%shost" : "%s%d",
                                     used ? ", " : "", number);
    }
    char asked[16] = "host";
    if (target->device != (int)GP_WIRE_HOST)
        snprintf(asked, sizeof(asked), "%d", target->device);
    gp_error(target->command, "--device %s: pid %d has used no such device (it has: %s)", asked, (int)process->pid,
             used ? have : "none yet");
    return -2;
}

void gp_target_none(const struct gp_target *target, const struct gp_system *system)
{
    gp_error(target->command, system->denied_count ? "no profiled process that you may read: run as root to see those "
                                                     "of other users"
                                                   : "no process is profiled: start one with 'gpuprof run CMD...'");
}

int gp_target_collect(struct gp_target *target, bool exact, bool with_nvml, struct gp_system **system)
{
    *system = NULL;
    if (target->all && target->pids)
        return gp_usage_error(target->command, "-p and --all exclude each other");
    int rc = GP_EXIT_OK;
    if (!target->all && !target->pids)
        rc = target_guess(target);
    if (!rc)
        rc = target_read(target, exact, with_nvml, system);
    if (!rc && target->pids)
        rc = target_missing(target, *system);
    for (int i = 0; !rc && i < (*system)->process_count; i++) {
        const struct gp_process *process = &(*system)->processes[i];
        bool shown = process->state == GP_PROCESS_LIVE || process->state == GP_PROCESS_STALE;
        /* With --all some processes may lack the device. */
        if (shown && !target->all && gp_target_index(target, process) == -2)
            rc = GP_EXIT_USAGE;
    }
    if (!rc && target->all && !target->more && (*system)->process_count == 0)
        gp_target_none(target, *system);
    if (rc) {
        gp_system_free(*system);
        *system = NULL;
    }
    return rc;
}

static const char *refusal_text(const struct gp_refusal *refusals, int error)
{
    for (; refusals && refusals->error; refusals++) {
        if (refusals->error == error)
            return refusals->text;
    }
    return strerror(error);
}

int gp_ask(const char *command, pid_t pid, struct gp_wire_slot *slot, const struct gp_refusal *refusals)
{
    return gp_asked(command, pid, gp_request(pid, slot, 0), refusals);
}

int gp_asked(const char *command, pid_t pid, int rc, const struct gp_refusal *refusals)
{
    char why[256];
    switch (rc) {
    case 0:
        return GP_EXIT_OK;
    case -ESRCH:
    case -EACCES:
        if (gp_collect_explain_pid(pid, why, sizeof(why)) == GP_PID_OK)
            snprintf(why, sizeof(why), "refused: %s", refusal_text(refusals, -rc));
        gp_error(command, "pid %d: %s", (int)pid, why);
        return GP_EXIT_NO_PROCESS;
    case -ETIMEDOUT:
        gp_error(command, "pid %d: no answer within a second: it may be stopped or ending: try again", (int)pid);
        return GP_EXIT_FAILED;
    case -EPROTO:
        gp_error(command, "pid %d: its session is damaged or belongs to another version of gpuprof", (int)pid);
        return GP_EXIT_FAILED;
    default:
        gp_error(command, "pid %d: %s", (int)pid, refusal_text(refusals, -rc));
        return GP_EXIT_FAILED;
    }
}
