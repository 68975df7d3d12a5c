/* SPDX-License-Identifier: MIT
 * trace.c: `gpuprof trace`: every event as it happens.  Called by main.c.  Only looks: the process does not notice. */
#include <cmd/cmd.h>
#include <collect/watch.h>
#include <record/ringread.h>
#include <write/stats.h>
#include <write/write.h>

#include <base/clock.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char trace_help[] =
    "usage: gpuprof trace -p PID [--backlog] [FILTERS] [--json]\n"
    "       gpuprof trace [--sim[=SPEC]] [FILTERS] [--json] -- CMD...\n"
    "\n"
    "Prints every memory event of a process as it happens, until the process ends or ^C.  With CMD: from its first "
    "event;\n"
    "the exit status is then CMD's.  At the end stderr says how many events were shown, missed and lost.\n"
    "\n"
    "  -p, --pid PID      the process; without PID and CMD: your only profiled process\n"
    "      --backlog      begins with the events that the process still holds (the last 32 thousand or so)\n"
    "      --kind K,..    only these kinds of memory: linear pitched array vmm pool graph managed pinned registered\n"
    "                     imported virtual context module\n"
    "      --min SIZE     only events of at least SIZE bytes\n"
    "      --json         one object a line, schema gpuprof.trace/1\n"
    "  -o, --output FILE  writes there instead of stdout\n";

enum { GP_TRACE_SIM = 256, GP_TRACE_LIBRARY, GP_TRACE_KIND, GP_TRACE_MIN, GP_TRACE_JSON, GP_TRACE_BACKLOG };

/* Events are looked for this often: a reader of 20 ms ago still finds them unless the process writes more than the ring
 * (32 thousand) in that time, which is 1.6 million events a second. */
#define GP_TRACE_PAUSE_NS 20000000ull
/* A program that has not made its session yet is looked at this often, see run.c. */
#define GP_TRACE_LOOK_NS     1000000ull
#define GP_TRACE_LOOK_FOR_NS 3000000000ull

struct gp_trace_options {
    struct gp_target target;
    struct gp_launch launch;
    uint32_t kinds; /* bit mask; 0 all */
    int64_t min_bytes;
    const char *output;
    bool json, backlog, help;
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

static int trace_kinds(const char *text, uint32_t *kinds)
{
    char *copy = strdup(text), *state = copy, *word;
    int rc = copy ? GP_EXIT_OK : GP_EXIT_FAILED;
    while (!rc && (word = strsep(&state, ","))) {
        unsigned kind = GP_KIND_LINEAR;
        while (kind < GP_KINDS && strcmp(word, gp_kind_name(kind)) != 0)
            kind++;
        if (kind == GP_KINDS)
            rc = gp_usage_error("trace", "--kind: '%s': not a kind of memory", word);
        else
            *kinds |= 1u << kind;
    }
    free(copy);
    return rc;
}

static int trace_option(int c, struct gp_trace_options *o)
{
    switch (c) {
    case 'p':
        return gp_target_pids(&o->target, optarg);
    case 'o':
        o->output = optarg;
        return GP_EXIT_OK;
    case GP_TRACE_SIM:
        o->launch.sim = optarg ? optarg : "";
        return GP_EXIT_OK;
    case GP_TRACE_LIBRARY:
        snprintf(o->launch.library, sizeof(o->launch.library), "%s", optarg);
        return GP_EXIT_OK;
    case GP_TRACE_KIND:
        return trace_kinds(optarg, &o->kinds);
    case GP_TRACE_MIN:
        if (gp_parse_size(optarg, &o->min_bytes) != 0)
            return gp_usage_error("trace", "--min %s: not a size (like 4096 or 2MiB), or out of range", optarg);
        return GP_EXIT_OK;
    case GP_TRACE_JSON:
        o->json = true;
        return GP_EXIT_OK;
    case GP_TRACE_BACKLOG:
        o->backlog = true;
        return GP_EXIT_OK;
    default:
        o->help = true;
        return GP_EXIT_OK;
    }
}

static int trace_parse(int argc, char **argv, struct gp_trace_options *o)
{
    static const struct option options[] = {{"pid", required_argument, NULL, 'p'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"sim", optional_argument, NULL, GP_TRACE_SIM},
                                            {"library", required_argument, NULL, GP_TRACE_LIBRARY},
                                            {"kind", required_argument, NULL, GP_TRACE_KIND},
                                            {"min", required_argument, NULL, GP_TRACE_MIN},
                                            {"json", no_argument, NULL, GP_TRACE_JSON},
                                            {"backlog", no_argument, NULL, GP_TRACE_BACKLOG},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c, rc = GP_EXIT_OK;
    optind = 0;
    opterr = 0;
    while (!rc && !o->help && (c = getopt_long(argc, argv, "+:p:o:h", options, NULL)) != -1) {
        if (c == '?' || c == ':')
            return gp_option_error("trace", c, argv, optind, optopt);
        rc = trace_option(c, o);
    }
    o->launch.argv = argv + optind;
    bool program = optind < argc;
    if (rc || o->help)
        return rc;
    if (program && o->target.pids)
        return gp_usage_error("trace", "-p and a program exclude each other");
    if (!program && (o->launch.sim || o->launch.library[0]))
        return gp_usage_error("trace", "--sim and --library need a program to start");
    if (o->target.pid_count > 1)
        return gp_usage_error("trace", "-p: one process at a time");
    return GP_EXIT_OK;
}

/* Gives every session that is watched and has no reader one.  GP_EXIT_*. */
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
    if (o->kinds && !(event->kind < GP_KINDS && o->kinds >> event->kind & 1))
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

/* last: everything that is left. */
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
            trace_show(trace, &trace->traced[i], &events[k]);
    }
    if (fflush(trace->out) == 0 && !ferror(trace->out))
        return GP_EXIT_OK;
    gp_error("trace", "cannot write: %s", strerror(errno));
    return GP_EXIT_FAILED;
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
    int last = trace_poll(trace, true);
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
    rc = gp_child_start(&child, &o->launch);
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
        gp_child_wait(&child, trace->count ? GP_TRACE_PAUSE_NS : early ? GP_TRACE_LOOK_NS / 5 : GP_TRACE_LOOK_NS * 2);
    }
    if (trace->count == 0)
        gp_error("trace", "no profiled process was seen: did the program initialise CUDA?");
    rc = trace_finish(trace, rc);
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
        if (gp_explain_pid(pid, why, sizeof(why)) == GP_PID_OK)
            snprintf(why, sizeof(why), "it has only just begun: try again");
        gp_error("trace", "pid %d: %s", (int)pid, why);
        return GP_EXIT_NO_PROCESS;
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    rc = trace_attach(trace, o->backlog ? GP_RINGREAD_OLDEST : GP_RINGREAD_NOW);
    const struct timespec pause = {0, (long)GP_TRACE_PAUSE_NS};
    bool going = true;
    while (!rc && going) {
        going = sigtimedwait(&set, NULL, &pause) < 0 && gp_proc_alive(&proc);
        rc = trace_poll(trace, false);
    }
    gp_proc_close(&proc);
    return trace_finish(trace, rc);
}

int gp_cmd_trace(int argc, char **argv)
{
    struct gp_trace_options o = {.target = GP_TARGET_INIT("trace"), .launch = {.command = "trace"}};
    struct gp_trace *trace = calloc(1, sizeof(*trace));
    int rc = trace ? trace_parse(argc, argv, &o) : GP_EXIT_FAILED;
    if (!rc && o.help) {
        fputs(trace_help, stdout);
    } else if (!rc) {
        trace->options = &o;
        trace->out = o.output ? fopen(o.output, "we") : stdout;
        if (!trace->out) {
            gp_error("trace", "%s: %s", o.output, strerror(errno));
            rc = GP_EXIT_FAILED;
        } else {
            rc = o.launch.argv[0] ? trace_program(trace, &o) : trace_process(trace, &o);
        }
        if (o.output && trace->out)
            fclose(trace->out);
    }
    gp_target_free(&o.target);
    free(trace);
    return rc;
}
