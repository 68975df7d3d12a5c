/* SPDX-License-Identifier: MIT
 * record.c: `gpuprof record`: writes the events of a running process to a file.  Called by
 * commands.c.  All that the process does for it is to answer one request for its numbers per
 * second. */
#include "record/format.h"
#include <cmd/cmd.h>
#include <cmd/load.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>
#include <read/collect/watch.h>
#include <record/file.h>
#include <record/recorder.h>
#include <run/recorded.h>
#include <show/text/write.h>

#include <base/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* As in trace.c: nothing is missed in 20 ms unless the process writes more than 1.6 million
 * events per second. */
#define GP_RECORD_PAUSE_NS    20000000ull
#define GP_RECORD_ANSWER_NS   200000000ull
#define GP_RECORD_PROGRESS_NS 500000000ull

struct gp_record_options {
    struct gp_target target;
    const char *output;
    int64_t seconds; /* 0: no end */
    bool quiet, symbols, force;
};

struct gp_recording_now {
    const struct gp_record_options *options;
    char part[PATH_MAX]; /* written here, beside an older recording, and renamed at the end; "" not */
    struct gp_proc proc;
    struct gp_watch watch;
    const struct gp_peer *session;
    struct gp_listen listen;
    struct gp_recorder *recorder;
    struct gp_nvml_gpu *gpus; /* as of the last second */
    int gpu_count;
    bool nvml, host_pids;
    uint64_t begin_ns, progress_ns;
};

static int record_check(void *options)
{
    const struct gp_record_options *o = options;
    if (!o->output)
        return gp_usage_error("record", "missing output file: use -o FILE");
    if (o->symbols && strcmp(o->output, "-") == 0)
        return gp_usage_error("record", "--symbols: names are added to a file: name one with -o");
    return GP_EXIT_OK;
}

/* ---- callbacks of the recorder ----------------------------------------------------------------------------------- */

static int record_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    return gp_peer_fetch(arg, into, bytes, offset);
}

static void record_refresh(void *arg)
{
    struct gp_recording_now *now = arg;
    struct gp_wire_slot slot = {.command = GP_COMMAND_SNAPSHOT, .device = -1};
    char problem[GP_NVML_PROBLEM_BYTES];
    if (gp_proc_alive(&now->proc))
        gp_mailbox_call(now->session, &slot,
                        gp_clock_ns() + GP_RECORD_ANSWER_NS); /* without an answer: the last numbers */
    if (!now->nvml)
        return;
    gp_nvml_free(now->gpus, now->gpu_count);
    if (gp_nvml_read(&now->gpus, &now->gpu_count, problem) != 0) {
        now->gpus = NULL;
        now->gpu_count = 0;
    }
}

static void record_measure(void *arg, const char *uuid, int64_t *used_bytes, int64_t *process_bytes)
{
    const struct gp_recording_now *now = arg;
    for (int i = 0; i < now->gpu_count; i++) {
        const struct gp_nvml_gpu *gpu = &now->gpus[i];
        if (strcmp(gpu->uuid, uuid) != 0)
            continue;
        *used_bytes = gpu->used_bytes;
        for (int k = 0; now->host_pids && k < gpu->process_count; k++)
            if (gpu->processes[k].pid == (uint32_t)now->proc.pid)
                *process_bytes = gpu->processes[k].bytes;
    }
}

/* ---- start ------------------------------------------------------------------------------------------------------- */

static int record_file(struct gp_recording_now *now)
{
    const char *path = now->part[0] ? now->part : now->options->output;
    if (strcmp(path, "-") != 0) {
        int fd = gp_file_open(path, true);
        if (fd == -EEXIST)
            gp_error("record", "%s: exists and is not a recording: choose another name", path);
        else if (fd == -EBUSY)
            gp_error("record", "%s: another process is writing a recording to this file: choose another name", path);
        else if (fd == -ELOOP)
            gp_error("record", "%s: is a symbolic link, which is not followed: name the file itself", path);
        else if (fd == -ENXIO)
            gp_error("record", "%s: the pipe has no reader", path);
        else if (fd < 0)
            gp_error("record", "%s: %s", path, strerror(-fd));
        return fd;
    }
    struct stat status;
    int fd = isatty(STDOUT_FILENO) ? -ENOTTY : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    bool middle = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && lseek(fd, 0, SEEK_CUR) != 0;
    if (fd < 0 || middle) {
        gp_error("record", "stdout: %s", fd < 0 ? "is a terminal: name a file with -o" : "the file is not empty");
        if (fd >= 0)
            close(fd);
        return -EINVAL;
    }
    return fd;
}

/* Adds everything that the program holds now.  Blocks allocated after the reader of the ring was
 * opened are left out, because they are events too. */
static void record_baseline(struct gp_recording_now *now, pid_t pid)
{
    struct gp_extents pieces;
    char why[160] = "";
    int rc = gp_extents_take(pid, &pieces, 0, why, sizeof(why));
    if (rc) {
        gp_error("record", "pid %d: the memory that it holds already cannot be listed: %s", (int)pid,
                 why[0] ? why : strerror(-rc));
        return;
    }
    for (uint64_t i = 0; i < pieces.count; i++) {
        const struct gp_wire_extent *piece = &pieces.pieces[i];
        struct gp_wire_event event = {.time_ns = piece->time_ns,
                                      .type = GP_EVENT_ALLOC,
                                      .kind = piece->kind,
                                      .device = (uint8_t)piece->device,
                                      .site = piece->site};
        bool segment = piece->what == GP_EXTENT_SEGMENT;
        if (piece->flags & GP_EXTENT_BEFORE) /* in no total: a row of its own */
            continue;
        if (piece->time_ns >= now->begin_ns || (!segment && piece->state != GPUPROF_LIVE))
            continue;
        event.type = segment ? GP_EVENT_SEGMENT_ALLOC : GP_EVENT_ALLOC;
        event.address = piece->address;
        event.bytes = piece->bytes;
        event.requested_bytes = segment ? piece->bytes : piece->requested_bytes;
        event.stream = piece->stream;
        gp_recorder_baseline(now->recorder, &event);
    }
    gp_extents_free(&pieces);
}

struct gp_record_environ {
    char *text;
    size_t bytes;
};

static const char *record_variable(void *arg, const char *name)
{
    const struct gp_record_environ *all = arg;
    return gp_proc_variable(all->text, all->bytes, name);
}

/* The environment that the process was started with. */
static void record_rank(struct gp_rank *rank, const struct gp_proc *proc)
{
    struct gp_record_environ all;
    all.text = gp_proc_whole(proc->dir, "environ", GP_ENVIRON_BYTES, &all.bytes);
    *rank = (struct gp_rank){-1, -1, -1};
    gp_rank_read(rank, record_variable, &all);
    free(all.text);
}

static int record_begin(struct gp_recording_now *now, pid_t pid)
{
    static char proc[32], memory[GP_PROC_FOLDER]; /* the recorder keeps the pointers */
    char problem[GP_NVML_PROBLEM_BYTES];
    struct gp_recorder_setup setup = {.copy = record_copy,
                                      .copy_arg = (void *)(uintptr_t)now->session,
                                      .proc = proc,
                                      .memory = gp_proc_folder(pid, memory),
                                      .open_module = gp_proc_mapped_open,
                                      .refresh = record_refresh,
                                      .arg = now};
    snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
    int rc = gp_record_header(now->session, &setup.header);
    if (rc) {
        gp_error("record", "pid %d: its session is damaged", (int)pid);
        return GP_EXIT_FAILED;
    }
    record_rank(&setup.rank, &now->proc);
    now->nvml = gp_nvml_read(&now->gpus, &now->gpu_count, problem) == 0;
    now->host_pids = gp_proc_host_pids();
    if (now->nvml)
        setup.measure = record_measure;
    int fd = record_file(now);
    if (fd < 0)
        return GP_EXIT_FAILED;
    gp_listen(&now->listen, now->session); /* before begin_ns, from which on every block is an event */
    now->begin_ns = gp_clock_ns();
    rc = gp_recorder_new(&now->recorder, fd, &setup);
    if (rc) {
        gp_error("record", "%s: cannot begin the recording: %s", now->options->output, strerror(-rc));
        if (strcmp(now->options->output, "-") != 0)
            gp_file_drop(now->part[0] ? now->part : now->options->output);
        return GP_EXIT_FAILED;
    }
    record_baseline(now, pid);
    return GP_EXIT_OK;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static void record_progress(struct gp_recording_now *now, bool end)
{
    struct gp_recorder_stats stats;
    char size[GP_SIZE_TEXT];
    if (!isatty(STDERR_FILENO) || (!end && gp_clock_ns() < now->progress_ns))
        return;
    now->progress_ns = gp_clock_ns() + GP_RECORD_PROGRESS_NS;
    gp_recorder_stats(now->recorder, &stats);
    if (end)
        fprintf(stderr, "\r%70s\r", "");
    else
        fprintf(stderr, "\rrecording: %" PRIu64 " events, %s, %" PRIu64 " lost   ", stats.recorded + stats.waiting,
                gp_size_text(size, (int64_t)stats.bytes), stats.lost);
    fflush(stderr);
}

/* Runs until the process ends, the time is over, a signal arrives, or the file cannot be
 * written. */
static enum gp_format_why record_loop(struct gp_recording_now *now, const sigset_t *set)
{
    const struct timespec pause = {0, (long)GP_RECORD_PAUSE_NS};
    uint64_t end_ns =
        now->options->seconds ? now->begin_ns + (uint64_t)now->options->seconds * 1000000000ull : UINT64_MAX;
    struct gp_recorder_stats stats;
    for (;;) {
        bool alive = gp_proc_alive(&now->proc);
        if (alive)
            gp_listen_again(&now->listen);
        ssize_t count = gp_recorder_poll(now->recorder);
        gp_recorder_stats(now->recorder, &stats);
        record_progress(now, false);
        if (count < 0 || stats.dead)
            return GP_END_ERROR;
        if (!alive)
            return GP_END_PROCESS;
        if (gp_clock_ns() >= end_ns || sigtimedwait(set, NULL, &pause) > 0)
            return GP_END_STOPPED;
    }
}

static int record_end(struct gp_recording_now *now, enum gp_format_why why, pid_t pid)
{
    struct gp_recorder_stats stats;
    char size[GP_SIZE_TEXT];
    record_progress(now, true);
    int rc = gp_recorder_end(now->recorder, why, &stats);
    bool console = strcmp(now->options->output, "-") == 0;
    if (!now->options->quiet || stats.lost)
        fprintf(stderr, "gpuprof: record: pid %d: %" PRIu64 " events recorded, %" PRIu64 " lost, %s %s%s\n", (int)pid,
                stats.recorded, stats.lost, gp_size_text(size, (int64_t)stats.bytes), console ? "to stdout" : "in ",
                console ? "" : now->options->output);
    bool whole = !rc && !stats.error && !stats.lost_error && !stats.dead;
    int error = stats.lost_error ? stats.lost_error : stats.error;
    if (rc)
        error = -rc;
    if (!whole)
        gp_error("record", "%s: %s: the events that could not be written are lost", now->options->output,
                 strerror(error ? error : EIO));
    rc = now->part[0] ? whole ? gp_recorded_rename(now->part, now->options->output, true) : -ECANCELED : 0;
    if (rc)
        gp_error("record", "%s: the new recording stays beside it, as %s: %s", now->options->output, now->part,
                 whole ? strerror(-rc) : "it is not complete");
    return whole && !rc ? GP_EXIT_OK : GP_EXIT_FAILED;
}

static int record_process(struct gp_recording_now *now, pid_t pid)
{
    sigset_t set;
    if (gp_proc_open(&now->proc, pid) != 0 || gp_watch_look(&now->watch, pid, false) == 0) {
        char why[256];
        if (gp_collect_explain_pid(pid, why, sizeof(why)) == GP_PID_OK)
            snprintf(why, sizeof(why), "it has only just started: try again");
        gp_error("record", "pid %d: %s", (int)pid, why);
        return GP_EXIT_NO_PROCESS;
    }
    now->session = &now->watch.watched[0]->session;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN); /* the reader of a pipe may exit */
    int rc = record_begin(now, pid);
    if (!rc)
        rc = record_end(now, record_loop(now, &set), pid);
    gp_nvml_free(now->gpus, now->gpu_count);
    gp_proc_close(&now->proc);
    gp_watch_free(&now->watch);
    return rc;
}

/* Chooses the file. */
static int record_name(const char *command, struct gp_recording_now *now, const char *option)
{
    const char *path = now->options->output;
    bool old = false;
    int rc = strcmp(path, "-") == 0 ? GP_EXIT_OK : gp_recorded_old(command, option, path, now->options->force, &old);
    if (rc || !old || gp_recorded_part(now->part, sizeof(now->part), path) == 0)
        return rc;
    gp_error(command, "%s%s: %s", option, path, strerror(ENAMETOOLONG));
    return GP_EXIT_FAILED;
}

int gp_record_process(pid_t pid, const char *path, int64_t seconds, bool force)
{
    const struct gp_record_options options = {.output = path, .seconds = seconds, .force = force};
    struct gp_recording_now now = {.options = &options};
    int rc = record_name("attach", &now, "--record=");
    return rc ? rc : record_process(&now, pid);
}

static int record_run(void *options)
{
    struct gp_record_options *o = options;
    struct gp_recording_now now = {.options = o};
    struct gp_system *system;
    int rc = record_name("record", &now, "-o ");
    if (!rc)
        rc = gp_target_collect(&o->target, false, false, &system);
    if (rc)
        return rc;
    gp_system_free(system);
    if (!o->quiet)
        gp_unwind_stacks_offer("record", o->target.pids[0]);
    char root[64] = "";
    gp_load_root(root, sizeof(root), o->target.pids[0]); /* first: the process may end meanwhile */
    rc = record_process(&now, o->target.pids[0]);
    return rc || !o->symbols ? rc : gp_recorded_names("record", o->output, root);
}

static const struct gp_command_option record_options[] = {
    GP_OPTION_PID(struct gp_record_options, "the process (default: your only profiled process)"),
    GP_OPTION(struct gp_record_options, output, 'o', "output", "FILE", GP_ARG_RECORDING,
              "the recording; '-' is standard output"),
    GP_OPTION_FORCE_RECORDING(struct gp_record_options),
    GP_OPTION(struct gp_record_options, seconds, 0, "duration", "SECS", GP_ARG_NUMBER, "stop after so many seconds",
              .low = 1, .high = 1000000000),
    GP_FLAG(struct gp_record_options, symbols, 0, "symbols",
            "put the names of native functions into the recording, so that it can be read on any machine"),
    GP_FLAG(struct gp_record_options, quiet, 'q', "quiet", "print no line at the end unless events were lost"),
    {0}};

const struct gp_command_spec gp_command_record = {
    .name = "record",
    .summary = "write the events of a running process to a file",
    .group = GP_GROUP_RECORD,
    .usage = GP_LIST("[-p PID] -o FILE [--force] [--duration=SECS] [--symbols] [-q]"),
    .about = GP_LIST(
        "Writes the memory that a running process holds now, then its memory events, until the process ends, "
        "SECS seconds have passed, or ^C. The process never waits: events that arrive faster than they can "
        "be written are counted as lost. To record a program from its first event, start it with 'gpuprof "
        "run --record=FILE CMD...'.",
        "The recording has call sites if the process takes stacks: 'gpuprof stacks' switches them on, also while "
        "the recording runs. 'gpuprof report' and the analyses read it."),
    .options = record_options,
    .examples = GP_EXAMPLES({"gpuprof record -p 1234 -o now.gpuprof --duration 60", "Record a process for a minute."},
                            {"gpuprof report now.gpuprof", "Summarise the recording."}),
    GP_DEFAULTS(struct gp_record_options, .target = GP_TARGET_INIT("record")),
    .surplus = "it starts no program: 'gpuprof run --record=FILE CMD...' does",
    .operand_ends = true,
    .check = record_check,
    .run = record_run,
};
