/* SPDX-License-Identifier: MIT
 * run.c: `gpuprof run`: starts a program with the profiler inside.  Called by main.c. */
#include <cmd/cmd.h>
#include <collect/watch.h>
#include <write/write.h>

#include <base/clock.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char gp_run_help[] =
    "usage: gpuprof run [--sim[=SPEC]] [--summary] [--library=FILE] [--] CMD...\n"
    "\n"
    "Runs CMD with CUDA_INJECTION64_PATH set to libgpuprof.so, which the CUDA driver loads when CMD initialises it.\n"
    "Signals are passed on; the exit status is CMD's (128 + N if signal N killed it, 126 or 127 if it could not be "
    "run).\n"
    "\n"
    "      --sim[=SPEC]     on the simulated GPU; SPEC: devices=N,memory=SIZE,latency=zero|typical,faults=FILE\n"
    "      --summary        prints the table of torch.cuda.memory_summary when CMD has ended\n"
    "      --library=FILE   another libgpuprof.so than the one beside this program\n"
    "\n"
    "--allocator, --limit, --record and --stacks are not in this version ('off' is accepted).\n";

enum { GP_RUN_SIM = 256, GP_RUN_SUMMARY, GP_RUN_LIBRARY, GP_RUN_ALLOCATOR, GP_RUN_LIMIT, GP_RUN_RECORD, GP_RUN_STACKS };

/* While nothing is found a short program may come and go: 200 us apart costs 5 % of a CPU, so only for the first
 * seconds; afterwards programs that live for less than 2 ms may be missed.  Later ones are children: a look at all is
 * 20 ms apart. */
#define GP_LOOK_FIRST_NS 3000000000ull
#define GP_LOOK_FAST_NS  200000ull
#define GP_LOOK_NS       2000000ull
#define GP_LOOK_DEEP_NS  20000000ull

struct gp_run_options {
    struct gp_launch launch;
    bool summary, help;
};

static int gp_run_refuse(int code, const char *value)
{
    static const char *const names[] = {"--allocator", "--limit", "--record", "--stacks"};
    int64_t size;
    if (strcmp(value, "off") == 0 && (code == GP_RUN_ALLOCATOR || code == GP_RUN_STACKS))
        return GP_EXIT_OK;
    if (code == GP_RUN_LIMIT && gp_parse_size(value, &size) != 0)
        return gp_usage_error("run", "--limit=%s: not a size (like 512MiB or 16GiB), or out of range", value);
    gp_error("run", "%s=%s: not part of this version", names[code - GP_RUN_ALLOCATOR], value);
    return GP_EXIT_USAGE;
}

static int gp_run_parse(int argc, char **argv, struct gp_run_options *o)
{
    static const struct option options[] = {{"sim", optional_argument, NULL, GP_RUN_SIM},
                                            {"summary", no_argument, NULL, GP_RUN_SUMMARY},
                                            {"library", required_argument, NULL, GP_RUN_LIBRARY},
                                            {"allocator", required_argument, NULL, GP_RUN_ALLOCATOR},
                                            {"limit", required_argument, NULL, GP_RUN_LIMIT},
                                            {"record", required_argument, NULL, GP_RUN_RECORD},
                                            {"stacks", required_argument, NULL, GP_RUN_STACKS},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c, rc = GP_EXIT_OK;
    optind = 0;
    opterr = 0;
    while (!rc && (c = getopt_long(argc, argv, "+:h", options, NULL)) != -1) {
        switch (c) {
        case GP_RUN_SIM:
            o->launch.sim = optarg ? optarg : "";
            break;
        case GP_RUN_SUMMARY:
            o->summary = true;
            break;
        case GP_RUN_LIBRARY:
            snprintf(o->launch.library, sizeof(o->launch.library), "%s", optarg);
            break;
        case 'h':
            o->help = true;
            return GP_EXIT_OK;
        case '?':
        case ':':
            return gp_option_error("run", c, argv, optind, optopt);
        default:
            rc = gp_run_refuse(c, optarg);
        }
    }
    o->launch.argv = argv + optind;
    return rc;
}

static void gp_run_watch(struct gp_child *child, struct gp_watch *watch)
{
    uint64_t begin = gp_clock_ns(), deep_at = 0;
    while (!child->ended) {
        uint64_t now = gp_clock_ns();
        bool deep = now >= deep_at;
        gp_watch_look(watch, child->pid, deep);
        if (deep)
            deep_at = now + (now - begin < GP_LOOK_FIRST_NS ? GP_LOOK_NS : GP_LOOK_DEEP_NS);
        uint64_t pause = watch->count ? GP_LOOK_DEEP_NS : now - begin < GP_LOOK_FIRST_NS ? GP_LOOK_FAST_NS : GP_LOOK_NS;
        gp_child_wait(child, pause);
    }
}

static void gp_run_summary(struct gp_watch *watch)
{
    for (int i = 0; i < watch->count; i++) {
        struct gp_watched *watched = watch->watched[i];
        struct gp_process *process = &watched->process;
        if (gp_watch_read(watched) != 0) {
            gp_error("run", "out of memory");
            return;
        }
        printf("PID %d  %s\n", (int)process->pid, process->comm);
        process->closed = false; /* that it has ended goes without saying here */
        if (process->state == GP_PROCESS_STALE)
            printf("  state: it did not end normally: these are the numbers that it published last\n");
        else
            gp_notes_print(stdout, process);
        for (int d = 0; d < process->device_count; d++) {
            if (process->devices[d].index != (int)GP_WIRE_HOST)
                gp_summary_print(stdout, &process->devices[d]);
        }
    }
    if (watch->count == 0)
        gp_error("run", "--summary: no profiled process was seen: did the program initialise CUDA?");
    if (watch->left_out)
        gp_error("run", "--summary: %d more processes than the %d that are kept", watch->left_out, GP_WATCH_MOST);
    fflush(stdout);
}

int gp_cmd_run(int argc, char **argv)
{
    struct gp_run_options o = {.launch = {.command = "run"}};
    struct gp_watch watch = {0};
    struct gp_child child;
    int rc = gp_run_parse(argc, argv, &o);
    if (!rc && o.help) {
        fputs(gp_run_help, stdout);
        return GP_EXIT_OK;
    }
    if (!rc)
        rc = gp_launch_prepare(&o.launch);
    if (rc)
        return rc;
    if (!o.summary)
        return gp_launch_exec(&o.launch);
    rc = gp_child_start(&child, &o.launch);
    if (rc) {
        gp_error("run", "cannot start a process: %s", strerror(-rc));
        return GP_EXIT_FAILED;
    }
    gp_run_watch(&child, &watch);
    gp_run_summary(&watch);
    gp_watch_free(&watch);
    return child.status;
}
