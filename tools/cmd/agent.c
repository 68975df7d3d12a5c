/* SPDX-License-Identifier: MIT
 *
 * agent.c: `gpuprof agent`: the options of the daemon.  Called by commands.c; the daemon is
 * tools/agent/agent.c.
 */
#include <agent/agent.h>
#include <cmd/cmd.h>
#include <gpuprof/gpuprof.h>
#include <read/common/agentlog.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits of the options: 2^20 rows of the table of processes take 300 MiB of kernel memory. */
#define GP_AGENT_ROWS (1 << 20)
#define GP_AGENT_RING (1ll << 30)

struct gp_agent_command {
    struct gp_agent_options options;
    struct gp_http_address address;
    const char *libraries[GP_AGENT_LIBRARIES];
    char found[PATH_MAX];
    const char *per_process;
};

static int agent_listen(void *options, const struct gp_command_option *option, const char *text)
{
    struct gp_agent_command *command = options;
    char why[256];
    (void)option;
    if (gp_http_parse(text, &command->address, why, sizeof(why)) != 0)
        return gp_usage_error("agent", "--listen=%s: %s", text, why);
    command->options.listen = &command->address;
    return GP_EXIT_OK;
}

static int agent_library(void *options, const struct gp_command_option *option, const char *text)
{
    struct gp_agent_command *command = options;
    (void)option;
    if (command->options.library_count >= GP_AGENT_LIBRARIES)
        return gp_usage_error("agent", "--library=%s: more than %u libraries", text, GP_AGENT_LIBRARIES);
    command->libraries[command->options.library_count++] = text;
    return GP_EXIT_OK;
}

/* Without --library: the installed library, which `gpuprof run` loads. */
static int agent_installed(struct gp_agent_command *command)
{
    if (command->options.library_count > 0)
        return GP_EXIT_OK;
    bool is_found = gp_launch_find(command->found, sizeof(command->found), "libgpuprof.so") == 0;
    if (!is_found && command->options.no_discover)
        return gp_usage_error("agent", "%s is missing: with --no-discover, name a library to instrument with --library",
                              command->found);
    command->options.installed = command->found;
    return GP_EXIT_OK;
}

static int agent_failed(int error, const char *why)
{
    if (error == -EPERM || error == -ENOTSUP || error == -EACCES || error == -ENOENT) {
        gp_agent_log(GP_AGENTLOG_ERROR, "%s ('gpuprof doctor' reports what works on this machine)", why);
        return GP_EXIT_IMPOSSIBLE;
    }
    gp_agent_log(GP_AGENTLOG_ERROR, "%s", why);
    return error == -EINVAL ? GP_EXIT_USAGE : GP_EXIT_FAILED;
}

static int agent_run(void *options)
{
    struct gp_agent_command *command = options;
    command->options.libraries = command->libraries;
    if (command->per_process)
        gp_metrics_processes_parse(command->per_process, &command->options.metrics.processes);
    gp_agent_log_open(command->options.verbose ? GP_AGENTLOG_DEBUG : GP_AGENTLOG_INFO);
    if (command->options.attach && command->options.no_discover)
        return gp_usage_error("agent", "--attach-containers and --no-discover exclude each other");
    int rc = agent_installed(command);
    if (rc)
        return rc;
    char why[512] = "";
    int error = gp_agent_run(&command->options, why, sizeof(why));
    return error ? agent_failed(error, why) : GP_EXIT_OK;
}

static const struct gp_command_option agent_options[] = {
    {.name = "listen",
     .argument = "[ADDR:]PORT",
     .type = GP_ARG_TEXT,
     .parse = agent_listen,
     .help = "serve metrics: :PORT on all addresses, ADDR:PORT on that one, PORT alone on 127.0.0.1, which other "
             "machines cannot reach (default: off)"},
    {.name = "library",
     .argument = "FILE",
     .type = GP_ARG_FILE,
     .parse = agent_library,
     .help = "instrument this copy of libgpuprof.so; may be given 16 times (default: the installed one)"},
    GP_FLAG(struct gp_agent_command, options.no_discover, 0, "no-discover",
            "do not search processes and containers for other copies of it"),
    GP_OPTION(struct gp_agent_command, options.attach, 0, "attach-containers", "PATTERN", GP_ARG_TEXT,
              "attach to programs in containers whose name, NAMESPACE/POD/CONTAINER or id matches this shell pattern, "
              "or whose cgroup's path does if it begins with a slash (default: to none)"),
    GP_OPTION(struct gp_agent_command, options.pins, 0, "pins", "DIR", GP_ARG_FILE,
              "directory on a BPF file system where the tables are pinned (default " GP_MAPS_PINS ")"),
    GP_OPTION(
        struct gp_agent_command, options.group, 0, "group", "NAME", GP_ARG_TEXT,
        "group that may read the table of processes (default: that of root); all users may read the other tables"),
    GP_OPTION(struct gp_agent_command, options.processes, 0, "max-processes", "N", GP_ARG_NUMBER,
              "rows of the table of processes, one per process and GPU (default 16384)", .low = 1,
              .high = GP_AGENT_ROWS),
    GP_OPTION(struct gp_agent_command, options.containers, 0, "max-containers", "N", GP_ARG_NUMBER,
              "rows of the table of containers, one per container and GPU (default 4096)", .low = 1,
              .high = GP_AGENT_ROWS),
    GP_OPTION(struct gp_agent_command, options.ring_bytes, 0, "ring", "SIZE", GP_ARG_SIZE,
              "buffer for events on their way to the agent (default 4MiB); totals do not depend on it", .low = 4096,
              .high = GP_AGENT_RING, .small = true),
    GP_OPTION(struct gp_agent_command, per_process, 0, "metrics-per-process", "WHICH", GP_ARG_CHOICE,
              "time series of processes: none (default), one per command name in a container, or one per process",
              .words = GP_LIST("off", "comm", "pid")),
    GP_OPTION(struct gp_agent_command, options.metrics.series, 0, "metrics-series", "N", GP_ARG_NUMBER,
              "the most time series of a metrics page (default 2000)", .low = GP_METRICS_SERIES_MIN, .high = 1000000),
    GP_FLAG(struct gp_agent_command, options.metrics.no_names, 0, "no-container-names",
            "do not look up the names of containers and pods"),
    GP_FLAG(struct gp_agent_command, options.verbose, 'v', "verbose", "log more"),
    {0}};

const struct gp_command_spec gp_command_agent = {
    .name = "agent",
    .summary = "count the memory of the whole machine in the kernel",
    .group = GP_GROUP_MACHINE,
    .usage = GP_LIST("[--listen=[ADDR:]PORT] [--library=FILE].. [--no-discover] [--attach-containers=PATTERN] "
                     "[--pins=DIR] [--group=NAME] "
                     "[--max-processes=N] [--max-containers=N] [--ring=SIZE] [--metrics-per-process=WHICH] "
                     "[--metrics-series=N] [--no-container-names] [-v]"),
    .about =
        GP_LIST("Adds up the GPU memory of every profiled process of the machine in the kernel, by GPU and by "
                "container, with exact peaks, for 'gpuprof top --system', 'gpuprof stat --all' and Prometheus. Runs "
                "in the foreground until SIGTERM, SIGINT or SIGHUP.",
                "It needs root, or the capabilities that docs/agent.md lists. 'gpuprof doctor' reports missing "
                "requirements."),
    .details = GP_LIST(
        "As a systemd service it notifies systemd when it is ready, and it serves the watchdog. Failed allocations are "
        "logged on standard error with process and container.",
        "Without root it needs the capabilities CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH and "
        "CAP_CHECKPOINT_RESTORE (before Linux 6.6 also CAP_SYS_ADMIN). It needs Linux 5.15 or later with BTF, and the "
        "host's pid namespace. Otherwise the exit status is 77. There is one agent per directory of pins; a second one "
        "ends with status 1.",
        "A library of '--library' is instrumented from the start to the end. Of the copies that the agent finds "
        "itself, "
        "only files are used that belong to root and that no other user may write. Updates that find a table full are "
        "counted and shown."),
    .options = agent_options,
    .examples = GP_EXAMPLES(
        {"gpuprof agent --listen :9949",
         "As root: count, and serve metrics to Prometheus on every address of the machine."},
        {"gpuprof agent --attach-containers='train-*'", "Also profile running programs in containers of these names."},
        {"gpuprof agent --group gpu-admins --metrics-per-process=comm",
         "Let a group read the table of processes, with time series by command name."}),
    .defaults =
        &(const struct gp_agent_command){.options = {.pins = GP_MAPS_PINS, .metrics = {.version = GPUPROF_VERSION}}},
    .bytes = sizeof(struct gp_agent_command),
    .run = agent_run,
};
