/* SPDX-License-Identifier: MIT
 * record.c: `gpuprof record`: a running process's events into a file, from outside.  Called by main.c.  The process
 * notices nothing but a request for its numbers once a second. */
#include <cmd/cmd.h>
#include <collect/extents.h>
#include <collect/mailbox.h>
#include <collect/nvml.h>
#include <collect/watch.h>
#include <gpuprof/gpuprof.h>
#include <record/file.h>
#include <record/recorder.h>
#include <write/write.h>

#include <base/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char record_help[] =
    "usage: gpuprof record [-p PID] -o FILE [--duration SECS] [-q]\n"
    "\n"
    "Writes the memory events of a running process to FILE, with what was live when it began, until the process ends,\n"
    "SECS have passed, or ^C.  What comes too fast to be written is counted, and the process never waits.  To record "
    "a\n"
    "program from its first event, start it with 'gpuprof run --record=FILE CMD...'.\n"
    "\n"
    "  -p, --pid PID        the process; without: your only profiled process\n"
    "  -o, --output FILE    the recording; one that is there already is replaced, any other file is not; - is stdout\n"
    "      --duration SECS  ends it after so many seconds\n"
    "  -q, --quiet          says nothing at the end but what went wrong\n"
    "\n"
    "Then: gpuprof report FILE, leaks, peak, export, snapshot ...  Call sites are in it if the process runs with "
    "them\n"
    "('gpuprof run --stacks=all', GPUPROF_STACKS=all).\n";

enum { GP_RECORD_DURATION = 256 };

/* As `trace`: a reader of 20 ms ago finds every event unless the process writes 1.6 million a second. */
#define GP_RECORD_PAUSE_NS    20000000ull
#define GP_RECORD_ANSWER_NS   200000000ull
#define GP_RECORD_PROGRESS_NS 500000000ull

struct gp_record_options {
    struct gp_target target;
    const char *output;
    int64_t seconds; /* 0: no end */
    bool help, quiet;
};

struct gp_recording_now {
    const struct gp_record_options *options;
    struct gp_proc proc;
    struct gp_watch watch;
    const struct gp_peer *session;
    struct gp_recorder *recorder;
    struct gp_nvml_gpu *gpus; /* as of the last second */
    int gpu_count;
    bool nvml, host_pids;
    uint64_t begin_ns, progress_ns;
};

static int record_option(int c, struct gp_record_options *o)
{
    switch (c) {
    case 'p':
        return gp_target_pids(&o->target, optarg);
    case 'o':
        o->output = optarg;
        return GP_EXIT_OK;
    case GP_RECORD_DURATION:
        if (gp_parse_number(optarg, 1, 1000000000, &o->seconds) != 0)
            return gp_usage_error("record", "--duration: '%s': not a whole number of seconds", optarg);
        return GP_EXIT_OK;
    case 'q':
        o->quiet = true;
        return GP_EXIT_OK;
    default:
        o->help = true;
        return GP_EXIT_OK;
    }
}

static int record_parse(int argc, char **argv, struct gp_record_options *o)
{
    static const struct option options[] = {{"pid", required_argument, NULL, 'p'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"duration", required_argument, NULL, GP_RECORD_DURATION},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c, rc = GP_EXIT_OK;
    optind = 0;
    opterr = 0;
    while (!rc && !o->help && (c = getopt_long(argc, argv, "+:p:o:qh", options, NULL)) != -1) {
        if (c == '?' || c == ':')
            return gp_option_error("record", c, argv, optind, optopt);
        rc = record_option(c, o);
    }
    if (rc || o->help)
        return rc;
    if (optind < argc)
        return gp_usage_error("record", "'%s': takes no program: 'gpuprof run --record=FILE CMD...' does",
                              argv[optind]);
    if (!o->output)
        return gp_usage_error("record", "where to?  Name a file: -o FILE");
    if (o->target.pid_count > 1)
        return gp_usage_error("record", "-p: one process at a time");
    return GP_EXIT_OK;
}

/* ---- what the recorder asks -------------------------------------------------------------------------------------- */

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
        gp_mailbox_call(now->session, &slot, gp_clock_ns() + GP_RECORD_ANSWER_NS); /* unanswered: the last numbers */
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

/* ---- begin ------------------------------------------------------------------------------------------------------- */

/* The header's layout, checked: parts that are not where they could be are taken for none. */
static int record_header(const struct gp_peer *session, struct gp_wire_header *header)
{
    struct gp_peer again;
    char problem[GP_PROBLEM_BYTES];
    int rc = gp_peer_fetch(session, header, sizeof(*header), 0);
    if (!rc)
        rc = gp_peer_check(&again, header, session->total_bytes, problem);
    if (rc)
        return rc;
    bool sites = header->sites_offset % 8 == 0 && header->sites_offset <= session->total_bytes &&
                 header->sites_bytes <= session->total_bytes - header->sites_offset;
    header->sites_offset = sites ? header->sites_offset : 0;
    header->oom_offset = again.oom_offset;
    return 0;
}

static int record_file(const char *path)
{
    if (strcmp(path, "-") != 0) {
        int fd = gp_file_open(path, true);
        if (fd == -EEXIST)
            gp_error("record", "%s: is there already and is no recording: choose another name", path);
        else if (fd == -EBUSY)
            gp_error("record", "%s: somebody is writing a recording there: choose another name", path);
        else if (fd == -ELOOP)
            gp_error("record", "%s: is a link, which is not followed", path);
        else if (fd == -ENXIO)
            gp_error("record", "%s: nobody reads this pipe", path);
        else if (fd < 0)
            gp_error("record", "%s: %s", path, strerror(-fd));
        return fd;
    }
    struct stat status;
    int fd = isatty(STDOUT_FILENO) ? -ENOTTY : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    bool middle = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && lseek(fd, 0, SEEK_CUR) != 0;
    if (fd < 0 || middle) {
        gp_error("record", "stdout: %s", fd < 0 ? "is a terminal: name a file with -o" : "has something in it already");
        if (fd >= 0)
            close(fd);
        return -EINVAL;
    }
    return fd;
}

/* What is live now: everything that the program holds.  What was allocated after the ring's reader began is an event
 * too, and not of the baseline. */
static void record_baseline(struct gp_recording_now *now, pid_t pid)
{
    struct gp_extents pieces;
    char why[160] = "";
    int rc = gp_extents_take(pid, &pieces, 0, why, sizeof(why));
    if (rc) {
        gp_error("record", "pid %d: what is live already stays unknown: %s", (int)pid, why[0] ? why : strerror(-rc));
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

static int record_begin(struct gp_recording_now *now, pid_t pid)
{
    static char proc[32]; /* the recorder keeps the pointer */
    char problem[GP_NVML_PROBLEM_BYTES];
    struct gp_recorder_setup setup = {.copy = record_copy,
                                      .copy_arg = (void *)(uintptr_t)now->session,
                                      .proc = proc,
                                      .refresh = record_refresh,
                                      .arg = now};
    snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
    int rc = record_header(now->session, &setup.header);
    if (rc) {
        gp_error("record", "pid %d: its session is damaged", (int)pid);
        return GP_EXIT_FAILED;
    }
    now->nvml = gp_nvml_read(&now->gpus, &now->gpu_count, problem) == 0;
    now->host_pids = gp_proc_host_pids();
    if (now->nvml)
        setup.measure = record_measure;
    int fd = record_file(now->options->output);
    if (fd < 0)
        return GP_EXIT_FAILED;
    now->begin_ns = gp_clock_ns();
    rc = gp_recorder_new(&now->recorder, fd, &setup);
    if (rc) {
        gp_error("record", "%s: %s", now->options->output, strerror(-rc));
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

/* Until the process ends, the time is over, a signal comes, or nothing can be written any more. */
static enum gp_format_why record_loop(struct gp_recording_now *now, const sigset_t *set)
{
    const struct timespec pause = {0, (long)GP_RECORD_PAUSE_NS};
    uint64_t end_ns =
        now->options->seconds ? now->begin_ns + (uint64_t)now->options->seconds * 1000000000ull : UINT64_MAX;
    struct gp_recorder_stats stats;
    for (;;) {
        bool alive = gp_proc_alive(&now->proc);
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
    if (!rc && !stats.error && !stats.dead)
        return GP_EXIT_OK;
    gp_error("record", "%s: %s: what could not be written is lost", now->options->output,
             strerror(rc            ? -rc
                      : stats.error ? stats.error
                                    : EIO));
    return GP_EXIT_FAILED;
}

static int record_process(struct gp_recording_now *now, pid_t pid)
{
    sigset_t set;
    if (gp_proc_open(&now->proc, pid) != 0 || gp_watch_look(&now->watch, pid, false) == 0) {
        char why[256];
        if (gp_explain_pid(pid, why, sizeof(why)) == GP_PID_OK)
            snprintf(why, sizeof(why), "it has only just begun: try again");
        gp_error("record", "pid %d: %s", (int)pid, why);
        return GP_EXIT_NO_PROCESS;
    }
    now->session = &now->watch.watched[0]->session;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN); /* -o to a pipe whose reader goes */
    int rc = record_begin(now, pid);
    if (!rc)
        rc = record_end(now, record_loop(now, &set), pid);
    gp_nvml_free(now->gpus, now->gpu_count);
    gp_proc_close(&now->proc);
    gp_watch_free(&now->watch);
    return rc;
}

int gp_cmd_record(int argc, char **argv)
{
    struct gp_record_options o = {.target = GP_TARGET_INIT("record")};
    struct gp_recording_now now = {.options = &o};
    struct gp_system *system;
    int rc = record_parse(argc, argv, &o);
    if (!rc && o.help) {
        fputs(record_help, stdout);
    } else if (!rc) {
        rc = gp_target_collect(&o.target, false, false, &system);
        if (!rc) {
            gp_system_free(system);
            rc = record_process(&now, o.target.pids[0]);
        }
    }
    gp_target_free(&o.target);
    return rc;
}
