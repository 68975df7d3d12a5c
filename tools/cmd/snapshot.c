/* SPDX-License-Identifier: MIT
 * snapshot.c: `gpuprof snapshot`: a memory snapshot in PyTorch's format, of a recording or of a
 * running process.  Called by commands.c. */
#include <cmd/cmd.h>
#include <cmd/load.h>
#include <convert/snapshot/snapshot.h>
#include <read/collect/collect.h>
#include <read/collect/sites.h>
#include <show/text/write.h>

#include <base/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A day; for longer times there are recordings. */
#define GP_SNAPSHOT_MOST_SECONDS 86400
/* The ring holds 32 thousand events: at 600 000 per second it is overwritten after 50 ms. */
#define GP_SNAPSHOT_PAUSE_NS 20000000ull

struct gp_snapshot_options {
    struct gp_target target;
    const char *file, *output;
    int64_t trace_seconds; /* -1: no trace */
    int64_t max_entries;   /* -1: all */
    bool force;
};

static int snapshot_check(void *options)
{
    const struct gp_snapshot_options *o = options;
    if (o->file && o->target.pids)
        return gp_usage_error("snapshot", "a recording and -p exclude each other");
    if (o->file && o->trace_seconds >= 0)
        return gp_usage_error("snapshot", "--trace is for a running process: a recording has its events");
    return o->output ? GP_EXIT_OK : gp_usage_error("snapshot", "missing output file: use -o snapshot.pickle");
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int snapshot_open(struct gp_output *out, const struct gp_snapshot_options *o)
{
    int rc = gp_output_open(out, o->output);
    return rc ? gp_write_error("snapshot", o->output, -rc) : GP_EXIT_OK;
}

/* error: result of the writing, 0 or -errno. */
static int snapshot_finish(struct gp_output *out, int error)
{
    error = gp_output_close(out, error);
    return error ? gp_write_error("snapshot", out->path, -error) : GP_EXIT_OK;
}

static void snapshot_report(const struct gp_output *out, const struct gp_snapshot_counts *counts)
{
    if (strcmp(out->path, "-") != 0)
        fprintf(stderr,
                "gpuprof: snapshot: %s: %" PRIu64 " segments, %" PRIu64 " blocks, %" PRIu64 " trace entries, %" PRIu64
                " annotations, %" PRIu64 " bytes\n",
                out->path, counts->segments, counts->blocks, counts->entries, counts->annotations, counts->bytes);
    if (counts->left_out)
        fprintf(stderr, "gpuprof: snapshot: %" PRIu64 " older trace entries were left out\n", counts->left_out);
}

/* Above this a viewer takes long to open the file. */
#define GP_SNAPSHOT_LARGE (32u << 20)

static void snapshot_expect(const struct gp_snapshot_options *o, const struct gp_snapshot_size *size)
{
    char text[GP_SIZE_TEXT];
    if (size->bytes >= GP_SNAPSHOT_LARGE)
        fprintf(stderr, "gpuprof: snapshot: %s will have about %s: %" PRIu64 " trace entries%s\n", o->output,
                gp_size_text(text, (int64_t)size->bytes), size->entries,
                o->max_entries < 0 ? "; --max-entries=N writes only the last N of each device" : "");
}

static uint64_t snapshot_limit(const struct gp_snapshot_options *o)
{
    return o->max_entries < 0 ? UINT64_MAX : (uint64_t)o->max_entries;
}

static void snapshot_notes(const struct gp_symbols *symbols)
{
    const char *note;
    for (uint32_t i = 0; symbols && (note = gp_symbols_note(symbols, i)); i++)
        gp_error("snapshot", "%s", note);
}

/* ---- a running process ------------------------------------------------------------------------------------------- */

/* Collects events for some seconds.  ^C ends that early, and the snapshot is written; a second
 * ^C ends the command. */
static int snapshot_wait(struct gp_recent *recent, int64_t seconds)
{
    const struct timespec pause = {0, GP_SNAPSHOT_PAUSE_NS};
    uint64_t end = gp_clock_ns() + (uint64_t)seconds * 1000000000u;
    bool stopped = false;
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &before);
    if (seconds > 1)
        fprintf(stderr, "gpuprof: snapshot: collecting events for %lld s, or until ^C\n", (long long)seconds);
    int rc = gp_snapshot_recent_poll(recent, 0);
    while (!rc && !stopped && gp_clock_ns() < end) {
        stopped = sigtimedwait(&set, NULL, &pause) > 0;
        rc = gp_snapshot_recent_poll(recent, 0);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int snapshot_extents(pid_t pid, struct gp_extents *extents)
{
    char why[128], what[256];
    int rc = gp_extents_take(pid, extents, 0, why, sizeof(why));
    if (!rc && extents->missed)
        fprintf(stderr,
                "gpuprof: snapshot: pid %d allocates faster than its memory can be listed: %" PRIu64
                " segments and blocks are missing\n",
                (int)pid, extents->missed);
    if (!rc)
        return GP_EXIT_OK;
    if (rc == -ESRCH || rc == -EACCES) {
        gp_collect_explain_pid(pid, what, sizeof(what));
        gp_error("snapshot", "pid %d: %s", (int)pid, what);
        return GP_EXIT_NO_PROCESS;
    }
    if (rc == -ETIMEDOUT)
        gp_error("snapshot", "pid %d does not answer (is it stopped?): try again when it runs", (int)pid);
    else if (rc == -EINVAL)
        gp_error("snapshot", "pid %d runs another version of the library, which makes no snapshots: restart it",
                 (int)pid);
    else if (rc == -EPERM)
        gp_error("snapshot", "pid %d has entered a seccomp sandbox, where a snapshot's system calls may be forbidden",
                 (int)pid);
    else
        gp_error("snapshot", "pid %d: its memory cannot be listed: %s", (int)pid, rc == -EPROTO ? why : strerror(-rc));
    return GP_EXIT_FAILED;
}

/* Collects the trace, takes the segments and blocks, then collects the events that arrived in
 * between. */
static int snapshot_gather(pid_t pid, int64_t seconds, struct gp_recent *recent, struct gp_extents *extents)
{
    int rc = 0;
    if (seconds >= 0 && (rc = gp_snapshot_recent_open(recent, pid)) == 0)
        rc = snapshot_wait(recent, seconds);
    if (rc) {
        gp_error("snapshot", "pid %d: its events cannot be read: %s", (int)pid, strerror(-rc));
        return rc == -ESRCH || rc == -EACCES ? GP_EXIT_NO_PROCESS : GP_EXIT_FAILED;
    }
    int status = snapshot_extents(pid, extents);
    if (!status && seconds >= 0 && (rc = gp_snapshot_recent_poll(recent, 1)) != 0) {
        gp_error("snapshot", "pid %d: its events cannot be read: %s", (int)pid, strerror(-rc));
        status = GP_EXIT_FAILED;
    }
    if (!status && recent->missed)
        fprintf(stderr, "gpuprof: snapshot: %" PRIu64 " events came too fast and are missing in the trace\n",
                recent->missed);
    return status;
}

static int64_t snapshot_unix_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)gp_clock_ns();
}

static struct gp_snapshot_live snapshot_process(const struct gp_process *process)
{
    struct gp_snapshot_live live = {
        .unix_ns = snapshot_unix_ns(), .allocator = process->allocator, .split_limit = -1, .oom = &process->oom};
    for (int i = 0; i < process->device_count; i++) {
        const struct gp_device_view *device = &process->devices[i];
        if (device->index >= (int)GP_WIRE_GPUS)
            continue;
        live.split_limit = live.device_count ? live.split_limit : device->wire.max_split_size;
        if ((uint32_t)device->index >= live.device_count)
            live.device_count = (uint32_t)device->index + 1;
    }
    return live;
}

struct gp_snapshot_sites { /* NULL: stacks are off, or cannot be read */
    struct gp_sites *sites;
    struct gp_symbols *symbols;
};

/* Called after the blocks were taken, so that the tables have all their call sites.  Without
 * call sites the snapshot is still written. */
static void snapshot_sites(pid_t pid, struct gp_snapshot_sites *out)
{
    char problem[GP_PROBLEM_BYTES] = "";
    int rc = gp_sites_open(&out->sites, pid, problem);
    if (rc)
        out->sites = NULL;
    if (rc && rc != -ENOENT)
        fprintf(stderr, "gpuprof: snapshot: pid %d: call sites are missing: %s\n", (int)pid,
                problem[0] ? problem : strerror(-rc));
    if (rc)
        return;
    const struct gp_symbol_source source = GP_SYMBOL_SOURCE(out->sites, out->sites->root);
    if (gp_symbols_new(&out->symbols, &source) != 0)
        out->symbols = NULL;
}

static void snapshot_sites_free(struct gp_snapshot_sites *sites)
{
    gp_symbols_free(sites->symbols);
    if (sites->sites)
        gp_sites_close(sites->sites);
}

static int snapshot_of_process(struct gp_snapshot_options *o)
{
    struct gp_system *system = NULL;
    struct gp_recent recent = {.session.fd = -1};
    struct gp_extents extents = {0};
    struct gp_snapshot_sites sites = {0};
    struct gp_snapshot_counts counts;
    struct gp_output out;
    int rc = gp_target_collect(&o->target, true, false, &system);
    if (!rc)
        rc = snapshot_gather(system->processes[0].pid, o->trace_seconds, &recent, &extents);
    if (!rc)
        rc = snapshot_open(&out, o);
    if (!rc) {
        struct gp_snapshot_live live = snapshot_process(&system->processes[0]);
        snapshot_sites(system->processes[0].pid, &sites);
        const struct gp_snapshot_names names = {gp_symbols_site, sites.symbols,
                                                sites.symbols ? sites.sites->site_count : 0, o->max_entries >= 0,
                                                snapshot_limit(o)};
        live.pieces = &extents;
        live.events = recent.events;
        live.event_count = recent.count;
        const struct gp_snapshot_size size = gp_snapshot_expect_live(&live, snapshot_limit(o));
        snapshot_expect(o, &size);
        rc = snapshot_finish(&out, gp_snapshot_live(out.fd, &live, &names, &counts));
    }
    if (!rc) {
        snapshot_notes(sites.symbols);
        snapshot_report(&out, &counts);
    }
    snapshot_sites_free(&sites);
    gp_extents_free(&extents);
    gp_snapshot_recent_close(&recent);
    gp_system_free(system);
    return rc;
}

/* ---- a recording ------------------------------------------------------------------------------------------------- */

static int snapshot_of_file(const struct gp_snapshot_options *o)
{
    struct gp_recording *recording = NULL;
    struct gp_symbols *symbols = NULL;
    struct gp_snapshot_counts counts;
    struct gp_output out;
    char why[256] = "";
    gp_progress_begin("reading");
    int rc = gp_recording_open(&recording, o->file, why, sizeof(why), gp_progress_listener, NULL);
    gp_progress_end();
    if (rc)
        return gp_load_refused("snapshot", o->file, rc, why);
    gp_load_warn("snapshot", o->file, recording);
    const struct gp_symbol_source source = gp_symbol_source_of(recording, "");
    rc = gp_symbols_new(&symbols, &source);
    if (rc)
        gp_error("snapshot", "%s: %s", o->file, strerror(-rc));
    rc = rc ? GP_EXIT_FAILED : snapshot_open(&out, o);
    if (!rc) {
        const struct gp_snapshot_names names = {gp_symbols_site, symbols, recording->site_count, o->max_entries >= 0,
                                                snapshot_limit(o)};
        const struct gp_snapshot_size size = gp_snapshot_expect(recording, snapshot_limit(o));
        snapshot_expect(o, &size);
        rc = snapshot_finish(&out, gp_snapshot_recording(out.fd, recording, &names, &counts));
    }
    if (!rc) {
        snapshot_notes(symbols);
        snapshot_report(&out, &counts);
    }
    gp_symbols_free(symbols);
    gp_recording_free(recording);
    return rc;
}

static int snapshot_run(void *options)
{
    struct gp_snapshot_options *o = options;
    int rc = gp_output_check("snapshot", "-o ", o->output, o->force);
    if (rc)
        return rc;
    return o->file ? snapshot_of_file(o) : snapshot_of_process(o);
}

static const struct gp_command_option snapshot_options[] = {
    GP_OPTION_PID(struct gp_snapshot_options, "a running process (default without FILE: your only profiled process)"),
    GP_OPTION(struct gp_snapshot_options, trace_seconds, 0, "trace", "SECS", GP_ARG_NUMBER,
              "add the events that the process still holds and those of the next SECS seconds; ^C ends that early",
              .high = GP_SNAPSHOT_MOST_SECONDS),
    GP_OPTION(struct gp_snapshot_options, max_entries, 0, "max-entries", "N", GP_ARG_NUMBER,
              "write only the last N entries of each device's trace (default: all)", .high = INT64_MAX),
    GP_OPTION(struct gp_snapshot_options, output, 'o', "output", "OUT", GP_ARG_FILE,
              "the file to write; an older snapshot is replaced when the new one is complete; '-' is standard output"),
    GP_OPTION_FORCE(struct gp_snapshot_options),
    {0}};

static const struct gp_command_option snapshot_operands[] = {
    GP_OPERAND(struct gp_snapshot_options, file, "FILE", GP_ARG_RECORDING,
               "its memory at the end, and all its events: " GP_LOAD_READS),
    {0}};

const struct gp_command_spec gp_command_snapshot = {
    .name = "snapshot",
    .summary = "write a memory snapshot for PyTorch's viewer, of any program",
    .group = GP_GROUP_EXPORT,
    .usage = GP_LIST("FILE [--max-entries=N] -o snapshot.pickle [--force]",
                     "[-p PID] [--trace=SECS] [--max-entries=N] -o snapshot.pickle [--force]"),
    .about =
        GP_LIST("Writes the blocks of memory and their call sites in the format of torch.cuda.memory._snapshot(), "
                "for pytorch.org/memory_viz, torch's _memory_viz.py and 'gpuprof replay'. The program need not use "
                "PyTorch.",
                "The format has no place for host memory, so the snapshot has none. docs/snapshot.md describes it."),
    .options = snapshot_options,
    .operands = snapshot_operands,
    .examples =
        GP_EXAMPLES({"gpuprof snapshot -p 1234 -o now.pickle", "Write the current memory of a running process."},
                    {"gpuprof snapshot train.gpuprof -o end.pickle", "Write the end and the history of a recording."}),
    GP_DEFAULTS(struct gp_snapshot_options, .target = GP_TARGET_INIT("snapshot"), .trace_seconds = -1,
                .max_entries = -1),
    .surplus = "one recording at a time",
    .check = snapshot_check,
    .run = snapshot_run,
};
