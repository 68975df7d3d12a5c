/* SPDX-License-Identifier: MIT
 * attach.c: `gpuprof attach`: profiles a process that runs already.  Called by commands.c.  Its
 * parts: detach, attach. */
#include <attach/attach.h>
#include <base/clock.h>
#include <cmd/cmd.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <inttypes.h>
#include <read/collect/collect.h>
#include <read/collect/watch.h>
#include <run/recorded.h>
#include <show/text/write.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- detach ------------------------------------------------------------------------------------------------------ */
/* `gpuprof detach`: lets the library leave a process.  Called by commands.c. */

/* The library waits for three seconds at most until no thread is inside. */
#define GP_DETACH_NS 6000000000ull

struct gp_detach_options {
    struct gp_target target;
};

/* Lets the library leave the process.  GP_EXIT_OK, or an exit status after a message. */
static int detach(const char *command, pid_t pid)
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
        gp_collect_explain_pid(pid, why, sizeof(why));
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
    int rc = detach("detach", pid);
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

/* ---- attach ------------------------------------------------------------------------------------------------------ */

#define GP_ATTACH_FIND_NS  10000000000ull
#define GP_ATTACH_LOAD_NS  30000000000ull
#define GP_ATTACH_START_NS 20000000000ull
/* A Python that computes comes to a safe point within microseconds, and one that waits for a device within a
 * training step. */
#define GP_ATTACH_BLOCKS_NS 5000000000ull

struct gp_attach_options {
    struct gp_target target;
    const char *stacks, *record, *library;
    int64_t seconds; /* 0: no end */
    int64_t started; /* 0: any time */
    bool quiet, blocks, force;
};

static int attach_check(void *options)
{
    const struct gp_attach_options *o = options;
    if (o->target.pid_count != 1)
        return gp_usage_error("attach", o->target.pid_count ? "one process at a time" : "name a process: its PID");
    return GP_EXIT_OK;
}

/* ---- before ------------------------------------------------------------------------------------------------------ */

static void attach_setting(char *text, size_t bytes, const char *name, const char *value)
{
    size_t used = strlen(text);
    if (value && !strchr(value, '\n') && used + strlen(name) + strlen(value) + 2 < bytes)
        snprintf(text + used, bytes - used, "%s=%s\n", name, value);
}

/* As `run` does, the caller's environment goes to the library, but for the allocator, which would have
 * to serve from the first allocation on, and the recording, which this command writes. */
static void attach_settings(const struct gp_attach_options *o, char *text, size_t bytes)
{
    static const char *const names[] = {"GPUPROF_SOURCE", "GPUPROF_CUPTI", "GPUPROF_LOG", "GPUPROF_RING"};
    const char *stacks = o->stacks ? o->stacks : getenv("GPUPROF_STACKS");
    text[0] = '\0';
    for (size_t i = 0; i < GP_COUNT(names); i++)
        attach_setting(text, bytes, names[i], getenv(names[i]));
    attach_setting(text, bytes, "GPUPROF_STACKS", stacks ? stacks : o->record ? "all" : NULL);
}

static int attach_library(const struct gp_attach_options *o, char *path, size_t bytes)
{
    int rc = 0;
    if (o->library)
        snprintf(path, bytes, "%s", o->library);
    else
        rc = gp_launch_find(path, bytes, "libgpuprof.so");
    if (!rc && access(path, R_OK) == 0)
        return GP_EXIT_OK;
    gp_error("attach", "%s: the library of the profiler is missing", path);
    return GP_EXIT_USAGE;
}

/* ---- PyTorch's blocks from before -------------------------------------------------------------------------------- */

static const struct gp_refusal attach_refusals[] = {
    {EINVAL, "its libgpuprof.so is older and cannot ask for the blocks from before"},
    {ENODATA, "gpuprof was there from the start: there are no blocks from before"},
    {0, NULL},
};

static void attach_blocks_tell(const struct gp_attach_options *o, pid_t pid, const struct gp_process *process)
{
    int64_t count = 0, bytes = 0;
    char size[GP_SIZE_TEXT];
    switch (process->blocks_state) {
    case GP_BLOCKS_DONE:
        for (int i = 0; i < process->device_count; i++) {
            count += process->devices[i].blocks.count > 0 ? process->devices[i].blocks.count : 0;
            bytes += process->devices[i].blocks.bytes > 0 ? process->devices[i].blocks.bytes : 0;
        }
        if (!o->quiet)
            printf("PyTorch had %" PRId64 " blocks before, %s; its main thread was held for %.1f ms.\n", count,
                   gp_size_text(size, bytes), (double)process->blocks_took_ns / 1e6);
        break;
    case GP_BLOCKS_ABSENT:
        if (!o->quiet)
            printf("No blocks from before: %s.\n", process->blocks_text);
        break;
    case GP_BLOCKS_FAILED:
        gp_error("attach", "pid %d: the blocks from before stay unknown: %s", (int)pid, process->blocks_text);
        break;
    default:
        gp_error("attach",
                 "pid %d: its main thread runs no Python code now: the blocks from before become known when it does",
                 (int)pid);
    }
    fflush(stdout);
}

/* -1: it is under way; 0: that has been told; or an exit status after a message. last: tell it in any case. */
static int attach_blocks_look(const struct gp_attach_options *o, pid_t pid, struct gp_wire_slot *slot, bool last)
{
    struct gp_watch watch = {0};
    char why[256];
    int rc = GP_EXIT_NO_PROCESS;
    *slot = (struct gp_wire_slot){.command = GP_COMMAND_SNAPSHOT, .device = -1};
    gp_request(pid, slot, 0); /* else the numbers are those of the last answer */
    gp_watch_look(&watch, pid, false);
    if (watch.count && gp_watch_read(watch.watched[0]) == 0) {
        const struct gp_process *process = &watch.watched[0]->process;
        bool going = process->blocks_state == GP_BLOCKS_ASKED || process->blocks_state == GP_BLOCKS_RUNNING;
        rc = going && !last ? -1 : GP_EXIT_OK;
        if (!rc)
            attach_blocks_tell(o, pid, process);
    } else {
        gp_collect_explain_pid(pid, why, sizeof(why));
        gp_error("attach", "pid %d: %s", (int)pid, why[0] ? why : "its session cannot be read");
    }
    gp_watch_free(&watch);
    return rc;
}

/* Whatever comes of it, the process is profiled. */
static int attach_blocks(const struct gp_attach_options *o, pid_t pid)
{
    const struct timespec pause = {0, 10000000};
    uint64_t deadline = gp_clock_ns() + GP_ATTACH_BLOCKS_NS;
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot)); /* too large for the stack */
    if (!slot)
        return GP_EXIT_FAILED;
    slot->command = GP_COMMAND_BLOCKS;
    slot->device = -1;
    int rc = gp_ask("attach", pid, slot, attach_refusals);
    if (!rc)
        while ((rc = attach_blocks_look(o, pid, slot, gp_clock_ns() >= deadline)) < 0)
            nanosleep(&pause, NULL);
    free(slot);
    return rc;
}

static int attach_already(const struct gp_attach_options *o, pid_t pid)
{
    char why[256];
    if (gp_collect_explain_pid(pid, why, sizeof(why)) != GP_PID_OK)
        return -1;
    if (o->record || o->seconds || o->stacks) {
        gp_error("attach",
                 "pid %d: it is profiled already: use 'gpuprof record -p %d -o FILE' or 'gpuprof stacks -p %d'",
                 (int)pid, (int)pid, (int)pid);
        return GP_EXIT_FAILED;
    }
    if (o->blocks)
        return attach_blocks(o, pid);
    if (!o->quiet)
        printf("%d is profiled already. See it with 'gpuprof top -p %d'.\n", (int)pid, (int)pid);
    return GP_EXIT_OK;
}

/* ---- the start in the process ------------------------------------------------------------------------------------ */

/* Waits until the library has started.  GP_EXIT_OK, or an exit status after a message. */
static int attach_wait(pid_t pid)
{
    const struct timespec pause = {0, 2000000};
    uint64_t deadline = gp_clock_ns() + GP_ATTACH_START_NS;
    struct gp_wire_attach_state state;
    for (;;) {
        int rc = gp_attach_state(pid, &state);
        if (rc && rc != -EMFILE && rc != -ENFILE && rc != -ENOMEM) {
            gp_error("attach", "pid %d: it ended (%s)", (int)pid, strerror(-rc));
            return GP_EXIT_NO_PROCESS;
        }
        if (rc)
            state = (struct gp_wire_attach_state){.state = GP_ATTACH_STARTING}; /* look again */
        if (state.state == GP_ATTACH_IN)
            return GP_EXIT_OK;
        if (state.state != GP_ATTACH_STARTING) {
            gp_error("attach", "pid %d: the library did not start and has left again: %s", (int)pid,
                     state.text[0] ? state.text : strerror(-state.error));
            return state.error == -EAGAIN ? GP_EXIT_TIMEOUT : GP_EXIT_FAILED;
        }
        if (gp_clock_ns() >= deadline) {
            gp_error("attach", "pid %d: the library is still starting: 'gpuprof stat -p %d' shows when it is there",
                     (int)pid, (int)pid);
            return GP_EXIT_FAILED;
        }
        nanosleep(&pause, NULL);
    }
}

static int attach_refused(const struct gp_attach *attach, enum gp_attach_outcome outcome)
{
    gp_error("attach", "pid %d: %s%s", (int)attach->pid,
             outcome == GP_ATTACH_REFUSED || outcome == GP_ATTACH_IMPOSSIBLE ? "cannot attach: " : "", attach->why);
    if (attach->hint[0])
        gp_error("attach", "%s", attach->hint);
    switch (outcome) {
    case GP_ATTACH_GONE:
        return GP_EXIT_NO_PROCESS;
    case GP_ATTACH_IMPOSSIBLE:
        return GP_EXIT_IMPOSSIBLE;
    default:
        return GP_EXIT_FAILED;
    }
}

/* What the library found: where events come from. */
static void attach_tell(const struct gp_attach_options *o, const struct gp_attach *attach)
{
    struct gp_watch watch = {0};
    char comm[GP_COMM_BYTES + 8] = "", source[128] = "";
    gp_watch_look(&watch, attach->pid, false);
    if (watch.count && gp_watch_read(watch.watched[0]) == 0) {
        const struct gp_process *process = &watch.watched[0]->process;
        snprintf(comm, sizeof(comm), " (%s)", process->comm);
        snprintf(source, sizeof(source), "%s",
                 process->source == GP_SOURCE_CUPTI   ? "events come from CUPTI"
                 : process->source == GP_SOURCE_HOOKS ? "events come from the entry points of the driver"
                                                      : process->source_detail);
        if (process->source == GP_SOURCE_NONE)
            gp_error("attach", "pid %d: no events: %s", (int)attach->pid, process->source_detail);
    }
    gp_watch_free(&watch);
    if (o->quiet)
        return;
    int pid = (int)attach->pid;
    double ms = (double)attach->pause_ns / 1e6;
    if (attach->by_python)
        printf("Attached to %d%s: its Python loaded the library in %.1f ms", pid, comm, ms);
    else
        printf("Attached to %d%s: thread %d was stopped for %.1f ms", pid, comm, (int)attach->thread, ms);
    printf("%s%s.\n", source[0] ? "; " : "", source);
    if (attach->note[0])
        printf("Its Python was not asked to load it, a thread was borrowed: %s.\n", attach->note);
    if (!o->record && !o->seconds)
        printf("See it with 'gpuprof top -p %d', record it with 'gpuprof record -p %d -o FILE', "
               "and leave it with 'gpuprof detach %d'.\n",
               pid, pid, pid);
    fflush(stdout);
}

/* ---- until the end ----------------------------------------------------------------------------------------------- */

/* Until the time is over, a signal arrives, or the process ends.  False: it has ended. */
static bool attach_stay(pid_t pid, int64_t seconds, const sigset_t *set)
{
    const struct timespec pause = {0, 50000000};
    uint64_t end_ns = gp_clock_ns() + (uint64_t)seconds * 1000000000ull;
    char why[256];
    while (gp_clock_ns() < end_ns) {
        if (sigtimedwait(set, NULL, &pause) > 0)
            return true;
        enum gp_pid_problem problem = gp_collect_explain_pid(pid, why, sizeof(why));
        if (problem == GP_PID_DEAD || problem == GP_PID_NOT_PROFILED)
            return false;
    }
    return true;
}

static int attach_session(const struct gp_attach_options *o, pid_t pid, const sigset_t *set)
{
    char why[256];
    int rc = GP_EXIT_OK;
    if (!o->record && !o->seconds)
        return rc;
    if (!o->quiet)
        fprintf(stderr,
                o->seconds ? "gpuprof: attach: leaving after %" PRId64 " s, or on ^C\n"
                           : "gpuprof: attach: recording until ^C\n",
                o->seconds);
    if (o->record)
        rc = gp_record_process(pid, o->record, o->seconds, o->force);
    else
        attach_stay(pid, o->seconds, set);
    if (gp_collect_explain_pid(pid, why, sizeof(why)) == GP_PID_DEAD || kill(pid, 0) != 0)
        return rc; /* it has ended: there is nothing to leave */
    int left = detach("attach", pid);
    if (!left && !o->quiet)
        fprintf(stderr, "gpuprof: attach: detached from %d\n", (int)pid);
    return rc ? rc : left;
}

static int attach_go(const struct gp_attach_options *o, int *lock)
{
    char library[4096], settings[GP_ATTACH_SETTINGS];
    struct gp_attach attach = {.pid = o->target.pids[0],
                               .started = (uint64_t)o->started,
                               .library = library,
                               .settings = settings,
                               .find_ns = GP_ATTACH_FIND_NS,
                               .load_ns = GP_ATTACH_LOAD_NS};
    int rc = attach_already(o, attach.pid);
    if (rc >= 0)
        return rc;
    rc = attach_library(o, library, sizeof(library));
    if (rc)
        return rc;
    attach_settings(o, settings, sizeof(settings));
    sigset_t set, all, before;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    /* gp_attach waits for SIGCHLD, and no signal may end or stop this command while a thread is borrowed. */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    bool screen = !o->quiet && isatty(STDERR_FILENO);
    if (screen)
        fprintf(stderr, "Looking for a thread of %d that can be borrowed ...\r", (int)attach.pid);
    enum gp_attach_outcome outcome = gp_attach(&attach);
    sigorset(&all, &before, &set);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (screen)
        fprintf(stderr, "%70s\r", "");
    if (outcome != GP_ATTACH_DONE)
        return attach_refused(&attach, outcome);
    if (attach.returned) {
        gp_error("attach", "pid %d: the library refused: %s", (int)attach.pid, strerror(-attach.returned));
        return GP_EXIT_FAILED;
    }
    rc = attach_wait(attach.pid);
    if (rc)
        return rc;
    if (*lock >= 0)
        close(*lock);
    *lock = -1;
    attach_tell(o, &attach);
    if (o->blocks && (rc = attach_blocks(o, attach.pid)))
        return rc;
    return attach_session(o, attach.pid, &set);
}

static int attach_run(void *options)
{
    const struct gp_attach_options *o = options;
    bool old;
    int refused = o->record ? gp_recorded_old("attach", "--record=", o->record, o->force, &old) : GP_EXIT_OK;
    if (refused)
        return refused;
    int lock = gp_attach_lock(o->target.pids[0], GP_ATTACH_START_NS), rc;
    if (lock == -ETIMEDOUT) {
        gp_error("attach", "pid %d: cannot attach: another 'gpuprof attach' is at work there", (int)o->target.pids[0]);
        return GP_EXIT_FAILED;
    }
    if (lock < 0 && lock != -ENOENT && lock != -ESRCH && lock != -EACCES && lock != -EPERM) {
        gp_error("attach", "pid %d: cannot attach: its lock: %s", (int)o->target.pids[0], strerror(-lock));
        return GP_EXIT_FAILED;
    }
    rc = attach_go(o, &lock);
    if (lock >= 0)
        close(lock);
    return rc;
}

static const struct gp_command_option attach_options[] = {
    GP_OPTION(struct gp_attach_options, seconds, 0, "duration", "SECS", GP_ARG_NUMBER,
              "detach after so many seconds, or on ^C", .low = 1, .high = 1000000000),
    GP_OPTION(struct gp_attach_options, record, 0, "record", "FILE", GP_ARG_RECORDING,
              "write the events to FILE as 'gpuprof record' does, until SECS are over or ^C, then detach"),
    GP_OPTION_FORCE_RECORDING(struct gp_attach_options),
    GP_OPTION(struct gp_attach_options, stacks, 0, "stacks", "WHICH", GP_ARG_CHOICE,
              "record call sites of allocations (default all with --record, else off)",
              .words = GP_LIST("off", "native", "python", "all")),
    GP_FLAG(struct gp_attach_options, blocks, 0, "blocks",
            "ask PyTorch for the blocks that it has already: a function runs on Python's main thread"),
    GP_OPTION(struct gp_attach_options, library, 0, "library", "FILE", GP_ARG_FILE,
              "load this libgpuprof.so instead of the installed one"),
    GP_OPTION(struct gp_attach_options, started, 0, "started", "TICKS", GP_ARG_NUMBER,
              "only if the process started then: field 22 of /proc/PID/stat; its PID may be used again", .low = 1,
              .high = INT64_MAX),
    GP_OPTION_PID(struct gp_attach_options, "the process, as other commands name it"),
    GP_FLAG(struct gp_attach_options, quiet, 'q', "quiet", "print no line unless something is wrong"),
    {0}};

static const struct gp_command_option attach_operands[] = {
    GP_OPERAND(struct gp_attach_options, target, "PID", GP_ARG_PID, "the process"), {0}};

const struct gp_command_spec gp_command_attach = {
    .name = "attach",
    .summary = "profile a process that runs already",
    .group = GP_GROUP_WATCH,
    .usage = GP_LIST("[--duration=SECS] [--record=FILE [--force]] [--stacks=WHICH] [--blocks] [--library=FILE] "
                     "[--started=TICKS] [-q] PID"),
    .about = GP_LIST(
        "Loads libgpuprof.so into a running process that uses CUDA. From then on 'gpuprof top', 'record', "
        "'leaks' and other commands see it as any other process. One thread is stopped for about a millisecond; it "
        "starts a thread of the library's, and its interrupted system call is continued. Python 3.14 is asked "
        "to load the library itself, which stops no thread.",
        "What the process allocated before has no call sites, and is counted as memory from before the attach.",
        "With --blocks, PyTorch is also asked for its snapshot, so that its blocks from before are known one by one: "
        "'gpuprof snapshot' shows them. This runs on Python's main thread, at its next safe point, and holds it as "
        "long "
        "as torch.cuda.memory_snapshot() takes. It can be given later too, for a process that was attached already.",
        "It needs the right to trace the process: the same user and ptrace_scope 0, or root. If it cannot "
        "attach, it says why, and the process is as it was."),
    .details = GP_LIST(
        "The exit status is 0 if the process is profiled now or was already, 3 if there is no such "
        "process, 75 if it is a child of fork that has not initialised CUDA yet, 77 if this machine's "
        "processor is not supported, 2 if the usage is wrong or the library is missing, else 1. With "
        "--duration, --record or --stacks, a process that was "
        "profiled already is refused, with status 1.",
        "The variables GPUPROF_STACKS, GPUPROF_SOURCE, GPUPROF_CUPTI, GPUPROF_RING and GPUPROF_LOG of the command "
        "are settings of the library, as with 'gpuprof run'."),
    .options = attach_options,
    .operands = attach_operands,
    .examples = GP_EXAMPLES({"gpuprof attach 1234", "Start to profile process 1234."},
                            {"gpuprof attach --record=now.gpuprof --duration=60 1234",
                             "Record it for a minute, with call sites, and leave it."},
                            {"gpuprof attach --blocks 1234", "Profile it, with the blocks that PyTorch had before."}),
    GP_DEFAULTS(struct gp_attach_options, .target = GP_TARGET_INIT("attach")),
    .check = attach_check,
    .run = attach_run,
};
