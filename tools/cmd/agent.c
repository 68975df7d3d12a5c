/* SPDX-License-Identifier: MIT
 *
 * agent.c: `gpuprof agent`: options of the daemon.  Called by main.c; the daemon is tools/agent/agent.c.
 */
#include <agent/agent.h>
#include <cmd/cmd.h>
#include <common/agentlog.h>
#include <gpuprof/gpuprof.h>

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char agent_help[] =
    "usage: gpuprof agent [--listen [ADDR:]PORT] [--library FILE].. [--no-discover] [--pins DIR] [--group NAME]\n"
    "                     [--max-processes N] [--max-containers N] [--ring SIZE] [--metrics-per-process=off|comm|pid]\n"
    "                     [--metrics-series N] [--no-container-names] [-v]\n"
    "\n"
    "Adds up the GPU memory of every profiled process of this machine in the kernel, by GPU and by container, with\n"
    "exact peaks, for 'gpuprof top --system' and for Prometheus.  Runs in the foreground until SIGTERM or Ctrl-C.\n"
    "Needs root, or the rights that docs/agent.md names; 'gpuprof doctor' says what is missing.\n"
    "\n"
    "      --listen PORT         serve metrics on 127.0.0.1 (ADDR:PORT there, :PORT everywhere); default: nowhere\n"
    "      --library FILE        listen to this copy of libgpuprof.so (default: the one beside this command)\n"
    "      --no-discover         to no other copy: by default those that programs load, in containers too, are found\n"
    "      --pins DIR            where the tables are pinned, on a BPF file system (" GP_MAPS_PINS ")\n"
    "      --group NAME          who may read the table of processes (root's group); the other tables all may\n"
    "      --max-processes N     rows for a process on a GPU (16384)\n"
    "      --max-containers N    rows for a container on a GPU (4096)\n"
    "      --ring SIZE           of the events on their way to the agent (4MiB); totals do not depend on it\n"
    "      --metrics-per-process=off|comm|pid\n"
    "                            series of processes: none (default), one for a name in a container, one for each\n"
    "      --metrics-series N    the most series of a page (2000)\n"
    "      --no-container-names  do not look for names of containers and pods\n"
    "  -v, --verbose             say more\n";

/* Limits of what may be asked for: 2^20 rows of a process are 300 MiB of kernel memory. */
#define GP_AGENT_ROWS (1 << 20)
#define GP_AGENT_RING (1ll << 30)

struct gp_agent_command {
    struct gp_agent_options options;
    struct gp_http_address address;
    const char *libraries[GP_AGENT_LIBRARIES];
    char found[PATH_MAX];
    bool help;
};

enum {
    GP_AGENT_LISTEN = 256,
    GP_AGENT_LIBRARY,
    GP_AGENT_NO_DISCOVER,
    GP_AGENT_PINS,
    GP_AGENT_GROUP,
    GP_AGENT_PROCESSES,
    GP_AGENT_CONTAINERS,
    GP_AGENT_RING_SIZE,
    GP_AGENT_PER_PROCESS,
    GP_AGENT_SERIES,
    GP_AGENT_NO_NAMES,
};

static int agent_listen(struct gp_agent_command *command, const char *text)
{
    char why[256];
    if (gp_http_parse(text, &command->address, why, sizeof(why)) != 0)
        return gp_usage_error("agent", "--listen %s: %s", text, why);
    command->options.listen = &command->address;
    return GP_EXIT_OK;
}

static int agent_library(struct gp_agent_command *command, const char *text)
{
    if (command->options.library_count >= GP_AGENT_LIBRARIES)
        return gp_usage_error("agent", "--library %s: more than %u of them", text, GP_AGENT_LIBRARIES);
    command->libraries[command->options.library_count++] = text;
    return GP_EXIT_OK;
}

static int agent_number(const char *option, const char *text, int64_t low, int64_t high, uint32_t *out)
{
    int64_t value;
    if (gp_parse_number(text, low, high, &value) != 0)
        return gp_usage_error("agent", "%s %s: not a number from %lld to %lld", option, text, (long long)low,
                              (long long)high);
    *out = (uint32_t)value;
    return GP_EXIT_OK;
}

static int agent_ring(struct gp_agent_command *command, const char *text)
{
    int64_t bytes;
    if (gp_parse_size(text, &bytes) != 0 || bytes < 4096 || bytes > GP_AGENT_RING)
        return gp_usage_error("agent", "--ring %s: not a size from 4KiB to 1GiB", text);
    command->options.ring_bytes = (uint32_t)bytes;
    return GP_EXIT_OK;
}

static int agent_option(struct gp_agent_command *command, int c, const char *text)
{
    struct gp_agent_options *options = &command->options;
    switch (c) {
    case GP_AGENT_LISTEN:
        return agent_listen(command, text);
    case GP_AGENT_LIBRARY:
        return agent_library(command, text);
    case GP_AGENT_PROCESSES:
        return agent_number("--max-processes", text, 1, GP_AGENT_ROWS, &options->processes);
    case GP_AGENT_CONTAINERS:
        return agent_number("--max-containers", text, 1, GP_AGENT_ROWS, &options->containers);
    case GP_AGENT_SERIES:
        return agent_number("--metrics-series", text, GP_METRICS_SERIES_MIN, 1000000, &options->metrics.series);
    case GP_AGENT_RING_SIZE:
        return agent_ring(command, text);
    case GP_AGENT_PER_PROCESS:
        if (gp_metrics_processes_parse(text, &options->metrics.processes) != 0)
            return gp_usage_error("agent", "--metrics-per-process=%s: must be off, comm or pid", text);
        break;
    case GP_AGENT_NO_DISCOVER:
        options->no_discover = true;
        break;
    case GP_AGENT_NO_NAMES:
        options->metrics.no_names = true;
        break;
    case GP_AGENT_PINS:
        options->pins = text;
        break;
    case GP_AGENT_GROUP:
        options->group = text;
        break;
    case 'v':
        options->verbose = true;
        break;
    default:
        command->help = true;
    }
    return GP_EXIT_OK;
}

static int agent_parse(int argc, char **argv, struct gp_agent_command *command)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, GP_AGENT_LISTEN},
        {"library", required_argument, NULL, GP_AGENT_LIBRARY},
        {"no-discover", no_argument, NULL, GP_AGENT_NO_DISCOVER},
        {"pins", required_argument, NULL, GP_AGENT_PINS},
        {"group", required_argument, NULL, GP_AGENT_GROUP},
        {"max-processes", required_argument, NULL, GP_AGENT_PROCESSES},
        {"max-containers", required_argument, NULL, GP_AGENT_CONTAINERS},
        {"ring", required_argument, NULL, GP_AGENT_RING_SIZE},
        {"metrics-per-process", required_argument, NULL, GP_AGENT_PER_PROCESS},
        {"metrics-series", required_argument, NULL, GP_AGENT_SERIES},
        {"no-container-names", no_argument, NULL, GP_AGENT_NO_NAMES},
        {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int c;
    optind = 0;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":hv", options, NULL)) != -1) {
        if (c == '?' || c == ':')
            return gp_option_error("agent", c, argv, optind, optopt);
        int rc = agent_option(command, c, optarg);
        if (rc)
            return rc;
    }
    if (optind < argc && !command->help)
        return gp_usage_error("agent", "%s: unexpected argument", argv[optind]);
    return GP_EXIT_OK;
}

/* The library that `gpuprof run` would load. */
static int agent_installed(struct gp_agent_command *command)
{
    if (command->options.library_count > 0)
        return GP_EXIT_OK;
    bool is_found = gp_launch_find(command->found, sizeof(command->found), "libgpuprof.so") == 0;
    if (!is_found && command->options.no_discover)
        return gp_usage_error("agent", "%s is missing, so with --no-discover there is nothing to listen to: --library",
                              command->found);
    command->options.installed = command->found;
    return GP_EXIT_OK;
}

static int agent_failed(int error, const char *why)
{
    if (error == -EPERM || error == -ENOTSUP || error == -EACCES || error == -ENOENT) {
        gp_agent_log(GP_AGENTLOG_ERROR, "%s ('gpuprof doctor' says what works here)", why);
        return GP_EXIT_IMPOSSIBLE;
    }
    gp_agent_log(GP_AGENTLOG_ERROR, "%s", why);
    return error == -EINVAL ? GP_EXIT_USAGE : GP_EXIT_FAILED;
}

int gp_cmd_agent(int argc, char **argv)
{
    struct gp_agent_command command = {.options = {.pins = GP_MAPS_PINS, .metrics = {.version = GPUPROF_VERSION}}};
    command.options.libraries = command.libraries;
    int rc = agent_parse(argc, argv, &command);
    if (rc)
        return rc;
    if (command.help) {
        fputs(agent_help, stdout);
        return GP_EXIT_OK;
    }
    gp_agent_log_open(command.options.verbose ? GP_AGENTLOG_DEBUG : GP_AGENTLOG_INFO);
    rc = agent_installed(&command);
    if (rc)
        return rc;
    char why[512] = "";
    int error = gp_agent_run(&command.options, why, sizeof(why));
    return error ? agent_failed(error, why) : GP_EXIT_OK;
}
