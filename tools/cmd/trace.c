/* SPDX-License-Identifier: MIT
 * trace.c: `gpuprof trace`: prints every event as it happens.  Called by commands.c.  It only
 * reads the shared memory of the process, which answers one request when it begins. */
#include <cmd/cmd.h>
#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>
#include <read/collect/watch.h>
#include <record/ringread.h>
#include <show/text/stats.h>
#include <show/text/write.h>

#include <base/clock.h>
#include <base/numbers.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* How often events are read.  The ring holds 32 thousand events, so nothing is missed in 20 ms
 * unless the process writes more than 1.6 million events per second. */
#define GP_TRACE_PAUSE_NS 20000000ull
/* How often a program without a session is examined, and for how long; see run.c. */
#define GP_TRACE_LOOK_NS     1000000ull
#define GP_TRACE_LOOK_FOR_NS 3000000000ull

struct gp_trace_options {
    struct gp_target target;
    struct gp_launch launch;
    uint32_t kinds; /* a bit for each choice of --kind; 0: all */
    int64_t min_bytes;
    const char *output;
    bool json, backlog, force;
};

struct gp_trace_totals {
    struct gp_watched *watched;
    struct gp_ringread *reader;
    struct gp_trace_place place;
    uint64_t shown, filtered;
};

struct gp_trace {
    const struct gp_trace_options *options;
    FILE *out;
    struct gp_watch watch;
    struct gp_trace_totals traced[GP_WATCH_MOST]; /* parallel to watch */
    int count;
};

/* The choices of --kind; a bit of the mask is the number of the kind less that of the first. */
static const char *trace_kind(unsigned i)
{
    return GP_KIND_LINEAR + i < GP_KINDS ? gp_kind_name(GP_KIND_LINEAR + i) : NULL;
}

static int trace_check(void *options)
{
    const struct gp_trace_options *o = options;
    if (o->launch.argv && o->target.pids)
        return gp_usage_error("trace", "-p and a program exclude each other");
    if (!o->launch.argv && (o->launch.sim || o->launch.given))
        return gp_usage_error("trace", "--sim and --library need a program to start");
    return GP_EXIT_OK;
}

/* Opens a reader for every watched session that has none.  GP_EXIT_OK, or GP_EXIT_FAILED after a
 * message. */
static int trace_attach(struct gp_trace *trace, enum gp_ringread_start start)
{
    while (trace->count < trace->watch.count) {
        struct gp_trace_totals *traced = &trace->traced[trace->count];
        struct gp_watched *watched = trace->watch.watched[trace->count];
        const struct gp_peer *session = &watched->session;
        memset(traced, 0, sizeof(*traced));
        traced->watched = watched;
        traced->place = (struct gp_trace_place){.pid = watched->process.pid, .start_ns = session->start_ns};
        int rc = gp_ringread_new_fd(&traced->reader, session->fd, session->ring_offset, session->chunk_count, start);
        if (rc) {
            gp_error("trace", "pid %d: its events cannot be read: %s", (int)watched->process.pid, strerror(-rc));
            return GP_EXIT_FAILED;
        }
        trace->count++;
    }
    return GP_EXIT_OK;
}

static bool trace_wanted(const struct gp_trace_options *o, const struct gp_wire_event *event)
{
    if (o->kinds &&
        !(event->kind >= GP_KIND_LINEAR && event->kind < GP_KINDS && o->kinds >> (event->kind - GP_KIND_LINEAR) & 1))
        return false;
    bool sized = event->type != GP_EVENT_MARK;
    return !o->min_bytes || (sized && event->bytes >= (uint64_t)o->min_bytes);
}

static void trace_show(struct gp_trace *trace, struct gp_trace_totals *traced, const struct gp_wire_event *event)
{
    if (!trace_wanted(trace->options, event)) {
        traced->filtered++;
        return;
    }
    traced->shown++;
    if (!trace->options->json) {
        if (trace->count > 1)
            fprintf(trace->out, "[pid %d] ", (int)traced->place.pid);
        gp_event_line(trace->out, &traced->place, event);
        return;
    }
    json_t *object = gp_event_json(&traced->place, event);
    if (object && json_dumpf(object, trace->out, JSON_COMPACT) == 0)
        fputc('\n', trace->out);
    json_decref(object);
}

/* Prints the new events of all sessions; last: all that is left. */
static int trace_poll(struct gp_trace *trace, bool last)
{
    uint64_t horizon = last ? UINT64_MAX : gp_clock_ns();
    for (int i = 0; i < trace->count; i++) {
        const struct gp_wire_event *events;
        ssize_t n = gp_ringread_poll(trace->traced[i].reader, horizon, &events);
        if (n < 0) {
            gp_error("trace", "pid %d: its events cannot be read: %s", (int)trace->traced[i].place.pid,
                     strerror((int)-n));
            return GP_EXIT_FAILED;
        }
        for (ssize_t k = 0; k < n; k++)
            if (!gp_wire_is_poll(events[k].type, events[k].kind)) /* for recordings */
                trace_show(trace, &trace->traced[i], &events[k]);
    }
    if (fflush(trace->out) == 0 && !ferror(trace->out))
        return GP_EXIT_OK;
    return gp_write_error("trace", trace->options->output, errno);
}

static void trace_report(struct gp_trace_totals *traced)
{
    struct gp_ringread_stats stats;
    uint64_t lost = 0;
    gp_ringread_stats(traced->reader, &stats);
    bool known = gp_watch_read(traced->watched) == 0 && traced->watched->process.state != GP_PROCESS_DAMAGED;
    if (known)
        lost = traced->watched->process.lost[GP_LOST_RING];
    fprintf(stderr, "gpuprof: trace: pid %d: %" PRIu64 " events shown, %" PRIu64 " missed, ", (int)traced->place.pid,
            traced->shown, stats.overwritten + stats.damaged);
    if (known)
        fprintf(stderr, "%" PRIu64 " lost", lost);
    else
        fprintf(stderr, "lost unknown");
    if (traced->filtered)
        fprintf(stderr, ", %" PRIu64 " filtered out", traced->filtered);
    if (stats.damaged || stats.damaged_chunks)
        fprintf(stderr, " (%" PRIu64 " damaged, in %u chunks)", stats.damaged, stats.damaged_chunks);
    fputc('\n', stderr);
}

static int trace_finish(struct gp_trace *trace, int rc)
{
    int last = ferror(trace->out) ? rc : trace_poll(trace, true); /* its message is printed once */
    for (int i = 0; i < trace->count; i++) {
        trace_report(&trace->traced[i]);
        gp_ringread_free(trace->traced[i].reader);
    }
    gp_watch_free(&trace->watch);
    return rc ? rc : last;
}

static int trace_program(struct gp_trace *trace, struct gp_trace_options *o)
{
    struct gp_child child;
    int rc = gp_launch_prepare(&o->launch);
    if (rc)
        return rc;
    /* The program must not wait until its session is found. */
    if (setenv("GPUPROF_RING", "always", 1) != 0) {
        gp_error("trace", "out of memory");
        return GP_EXIT_FAILED;
    }
    rc = gp_launch_child_start(&child, &o->launch);
    if (rc) {
        gp_error("trace", "cannot start a process: %s", strerror(-rc));
        return GP_EXIT_FAILED;
    }
    uint64_t begin = gp_clock_ns(), look_at = 0;
    while (!child.ended) {
        uint64_t now = gp_clock_ns();
        bool early = now - begin < GP_TRACE_LOOK_FOR_NS;
        bool deep = now >= look_at;
        if (deep || !trace->count)
            gp_watch_look(&trace->watch, child.pid, deep);
        if (deep)
            look_at = now + (early ? GP_TRACE_LOOK_NS : GP_TRACE_PAUSE_NS);
        /* If we cannot go on writing, the program still runs to its end. */
        if (!rc)
            rc = trace_attach(trace, GP_RINGREAD_OLDEST);
        if (!rc)
            rc = trace_poll(trace, false);
        gp_launch_child_wait(&child, trace->count ? GP_TRACE_PAUSE_NS
                                     : early      ? GP_TRACE_LOOK_NS / 5
                                                  : GP_TRACE_LOOK_NS * 2);
    }
    if (trace->count == 0)
        gp_error("trace", "no profiled process was seen: did the program initialise CUDA?");
    rc = trace_finish(trace, rc);
    gp_launch_sim_end(&o->launch);
    return child.status ? child.status : rc;
}

static int trace_process(struct gp_trace *trace, struct gp_trace_options *o)
{
    struct gp_system *system;
    struct gp_proc proc;
    int rc = gp_target_collect(&o->target, false, false, &system);
    if (rc)
        return rc;
    gp_system_free(system);
    pid_t pid = o->target.pids[0];
    if (gp_proc_open(&proc, pid) != 0 || gp_watch_look(&trace->watch, pid, false) == 0) {
        char why[256];
        if (gp_collect_explain_pid(pid, why, sizeof(why)) == GP_PID_OK)
            snprintf(why, sizeof(why), "it has only just started: try again");
        gp_error("trace", "pid %d: %s", (int)pid, why);
        return GP_EXIT_NO_PROCESS;
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct gp_listen listen = {0};
    rc = trace_attach(trace, o->backlog ? GP_RINGREAD_OLDEST : GP_RINGREAD_NOW);
    if (!rc)
        gp_listen(&listen, &trace->traced[0].watched->session);
    const struct timespec pause = {0, (long)GP_TRACE_PAUSE_NS};
    bool going = true;
    while (!rc && going) {
        going = sigtimedwait(&set, NULL, &pause) < 0 && gp_proc_alive(&proc);
        if (going)
            gp_listen_again(&listen);
        rc = trace_poll(trace, false);
    }
    gp_proc_close(&proc);
    return trace_finish(trace, rc);
}

/* A new file is written under its name, so that others can follow it. Beside an older one, whose place it
 * takes at the end. */
static FILE *trace_open(struct gp_output *file, const char *path)
{
    struct stat status;
    *file = (struct gp_output){.fd = -1};
    if (!path || strcmp(path, "-") == 0)
        return stdout;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
        return fopen(path, "we");
    int rc = gp_output_open(file, path);
    FILE *out = rc ? NULL : fdopen(file->fd, "w");
    if (out)
        file->fd = -1; /* fclose closes it */
    else
        errno = rc ? -rc : errno;
    return out;
}

/* An older file stays if nothing was traced. */
static int trace_close(const struct gp_trace *trace, struct gp_output *file, int rc)
{
    bool bad = ferror(trace->out);
    int error = trace->out != stdout && fclose(trace->out) != 0 ? -errno : 0;
    if (file->part[0] && !trace->count)
        gp_error("trace", "-o %s: nothing was traced: the older file stays", file->path);
    if (file->part[0])
        error = gp_output_close(file, error ? error : !trace->count || bad ? -ECANCELED : 0);
    if (error && error != -ECANCELED && !rc)
        rc = gp_write_error("trace", trace->options->output, -error);
    return rc;
}

static int trace_run(void *options)
{
    struct gp_trace_options *o = options;
    struct gp_output file;
    if (gp_output_check("trace", "-o ", o->output, o->force))
        return GP_EXIT_FAILED;
    struct gp_trace *trace = calloc(1, sizeof(*trace));
    FILE *out = trace ? trace_open(&file, o->output) : NULL;
    int rc = GP_EXIT_FAILED;
    if (!trace) {
        gp_error("trace", "out of memory");
    } else if (!out) {
        gp_error("trace", "%s: %s", o->output, strerror(errno));
    } else {
        trace->options = o;
        trace->out = out;
        rc = trace_close(trace, &file, o->launch.argv ? trace_program(trace, o) : trace_process(trace, o));
    }
    free(trace);
    return rc;
}

static const struct gp_command_option trace_options[] = {
    GP_OPTION_PID(struct gp_trace_options, "the process (default: your only profiled process)"),
    GP_FLAG(struct gp_trace_options, backlog, 0, "backlog",
            "start with the events that the process still holds, about the last 32 thousand"),
    GP_OPTION(struct gp_trace_options, kinds, 0, "kind", "K,..", GP_ARG_LIST, "only events of these kinds of memory",
              .choice = trace_kind),
    GP_OPTION(struct gp_trace_options, min_bytes, 0, "min", "SIZE", GP_ARG_SIZE, "only events of at least SIZE",
              .small = true),
    GP_FLAG(struct gp_trace_options, json, 0, "json", "print one JSON object per line, schema gpuprof.trace/1"),
    GP_OPTION(struct gp_trace_options, output, 'o', "output", "FILE", GP_ARG_FILE,
              "write to FILE instead of standard output"),
    GP_OPTION_FORCE(struct gp_trace_options),
    GP_OPTION_SIM(struct gp_trace_options),
    GP_OPTION_LIBRARY(struct gp_trace_options),
    {0}};

static const struct gp_command_option trace_operands[] = {
    GP_OPERAND(struct gp_trace_options, launch.argv, "CMD", GP_ARG_PROGRAM, "a program to start and trace"), {0}};

const struct gp_command_spec gp_command_trace = {
    .name = "trace",
    .summary = "print every memory event as it happens",
    .group = GP_GROUP_WATCH,
    .usage =
        GP_LIST("[-p PID] [--backlog] [--kind=K,..] [--min=SIZE] [--json] [-o FILE [--force]]",
                "[--sim[=SPEC]] [--library=FILE] [--kind=K,..] [--min=SIZE] [--json] [-o FILE [--force]] -- CMD..."),
    .about =
        GP_LIST("Prints every memory event of a process as it happens, until the process ends or ^C. A program that "
                "is started this way is traced from its first event, and the exit status is that of the program. "
                "At the end, standard error reports how many events were shown, missed and lost."),
    .details = GP_LIST("A line has the seconds since the start of the session, thread, event, kind of memory, device, "
                       "bytes, stream and address. Missed events were overwritten before they were read. Lost events "
                       "were never written; the process counts them."),
    .options = trace_options,
    .operands = trace_operands,
    .examples =
        GP_EXAMPLES({"gpuprof trace --min 1MiB -p 1234", "Print the events of at least 1 MiB of a running process."},
                    {"gpuprof trace --json -- python train.py", "Start a program and print its events for a script."}),
    GP_DEFAULTS(struct gp_trace_options, .target = GP_TARGET_INIT("trace"),
                .launch = {.command = "trace", .limit = -1}),
    .operand_ends = true,
    .check = trace_check,
    .run = trace_run,
};
