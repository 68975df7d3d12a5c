/* SPDX-License-Identifier: MIT
 * run.c: `gpuprof run`: starts a program with the profiler inside.  Called by main.c. */
#include <cmd/cmd.h>
#include <collect/sites.h>
#include <collect/watch.h>
#include <write/write.h>

#include <base/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <record/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char run_help[] =
    "usage: gpuprof run [--sim[=SPEC]] [--summary] [--record[=FILE]] [--stacks=off|native|python|all]\n"
    "                   [--allocator=NAME [--limit=SIZE] [--alloc-conf=K:V,..]] [--library=FILE] [--] CMD...\n"
    "\n"
    "Runs CMD with CUDA_INJECTION64_PATH set to libgpuprof.so, which the CUDA driver loads when CMD initialises it.\n"
    "Signals are passed on; the exit status is CMD's (128 + N if signal N killed it, 126 or 127 if it could not be "
    "run).\n"
    "If CMD fails after a request for GPU memory failed, a page on standard error says why and what would help.\n"
    "\n"
    "      --sim[=SPEC]     on the simulated GPU; SPEC: devices=N,memory=SIZE,latency=zero|typical,faults=FILE\n"
    "      --summary        prints the table of torch.cuda.memory_summary when CMD has ended\n"
    "      --record[=FILE]  writes every event to FILE (%p in it: the pid; a second process adds its own to the "
    "name),\n"
    "                       without FILE to CMD.PID.gpuprof here; then: gpuprof report FILE\n"
    "      --stacks=WHICH   call sites of allocations; for recordings the default is all, else off\n"
    "      --allocator=NAME serves CMD's cuMemAlloc and cudaMalloc from a cache: caching, pytorch, auto_growth,\n"
    "                       prealloc, passthrough or off; by LD_PRELOAD, so not for statically linked programs\n"
    "      --limit=SIZE     the most that the allocator may reserve on a device\n"
    "      --alloc-conf=..  its settings, in the words of PYTORCH_CUDA_ALLOC_CONF\n"
    "      --library=FILE   another libgpuprof.so than the one beside this program\n"
    "\n"
    "GPUPROF_ALLOCATOR, GPUPROF_MEMORY_LIMIT, GPUPROF_ALLOC_CONF, GPUPROF_RECORD and GPUPROF_STACKS do the same;\n"
    "GPUPROF_SOURCE=hooks takes events from the driver's entry points instead of CUPTI.\n";

enum {
    GP_RUN_SIM = 256,
    GP_RUN_SUMMARY,
    GP_RUN_LIBRARY,
    GP_RUN_ALLOCATOR,
    GP_RUN_LIMIT,
    GP_RUN_CONF,
    GP_RUN_RECORD,
    GP_RUN_STACKS
};

/* While nothing is found a short program may come and go: 200 us apart costs 5 % of a CPU, so only for the first
 * seconds, and 1 ms apart where the report of a failure is all that is wanted; afterwards programs that live for less
 * than 2 ms may be missed.  Later ones are children: a look at all is 20 ms apart. */
#define GP_LOOK_FIRST_NS 3000000000ull
#define GP_LOOK_FAST_NS  200000ull
#define GP_LOOK_CALM_NS  1000000ull
#define GP_LOOK_NS       2000000ull
#define GP_LOOK_DEEP_NS  20000000ull

struct gp_run_options {
    struct gp_launch launch;
    bool summary, help;
};

static int run_stacks(const char *value)
{
    static const char *const words[] = {"off", "native", "python", "all"};
    for (size_t i = 0; i < GP_COUNT(words); i++)
        if (strcmp(value, words[i]) == 0)
            return setenv("GPUPROF_STACKS", value, 1) ? GP_EXIT_FAILED : GP_EXIT_OK;
    return gp_usage_error("run", "--stacks=%s: must be off, native, python or all", value);
}

/* An older recording makes way; anything else that lies there was not made by us. */
static int run_clear(const char *path)
{
    char magic[sizeof(GP_RECORD_MAGIC) - 1];
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return GP_EXIT_OK;
    bool ours = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic) &&
                memcmp(magic, GP_RECORD_MAGIC, sizeof(magic)) == 0;
    if (fd >= 0)
        close(fd);
    if (ours && unlink(path) == 0)
        return GP_EXIT_OK;
    gp_error("run",
             ours ? "--record=%s: cannot replace the old recording"
                  : "--record=%s: exists and is no recording: "
                    "choose another name",
             path);
    return GP_EXIT_FAILED;
}

/* The program may change its directory before it comes to the GPU: the name is made absolute. */
static int run_record(const char *name)
{
    char here[4096] = "", path[2 * 4096];
    if (name[0] != '/' && !getcwd(here, sizeof(here)))
        return gp_usage_error("run", "--record=%s: the current directory is gone", name);
    snprintf(path, sizeof(path), "%s%s%s", here, here[0] ? "/" : "", name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    bool writable = access(slash > path ? path : "/", W_OK | X_OK) == 0;
    *slash = '/';
    if (!writable) {
        gp_error("run", "--record=%s: no file can be made there: %s", name, strerror(errno));
        return GP_EXIT_FAILED;
    }
    int rc = strchr(path, '%') ? GP_EXIT_OK : run_clear(path);
    if (!rc && setenv("GPUPROF_RECORD", path, 1) != 0)
        rc = GP_EXIT_FAILED;
    return rc;
}

/* Without a name each process gets a file of its own. */
static int run_record_here(const char *program)
{
    char name[512];
    const char *base = strrchr(program, '/');
    size_t used = 0;
    for (base = base ? base + 1 : program; *base && used < 250; base++) {
        if (*base == '%')
            name[used++] = '%';
        name[used++] = *base;
    }
    snprintf(name + used, sizeof(name) - used, ".%%p.gpuprof");
    return run_record(name);
}

/* `--record FILE CMD` would run FILE: nobody means that. */
static int run_record_apart(char *const *argv)
{
    size_t length = argv[0] ? strlen(argv[0]) : 0;
    if (length < 8 || strcmp(argv[0] + length - 8, ".gpuprof") != 0)
        return argv[0] ? run_record_here(argv[0]) : GP_EXIT_OK;
    return gp_usage_error("run", "--record %s: a name stands behind a '=': --record=%s", argv[0], argv[0]);
}

static int run_parse(int argc, char **argv, struct gp_run_options *o)
{
    static const struct option options[] = {{"sim", optional_argument, NULL, GP_RUN_SIM},
                                            {"summary", no_argument, NULL, GP_RUN_SUMMARY},
                                            {"library", required_argument, NULL, GP_RUN_LIBRARY},
                                            {"allocator", required_argument, NULL, GP_RUN_ALLOCATOR},
                                            {"limit", required_argument, NULL, GP_RUN_LIMIT},
                                            {"alloc-conf", required_argument, NULL, GP_RUN_CONF},
                                            {"record", optional_argument, NULL, GP_RUN_RECORD},
                                            {"stacks", required_argument, NULL, GP_RUN_STACKS},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    bool unnamed = false; /* --record alone */
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
        case GP_RUN_ALLOCATOR:
            o->launch.allocator = optarg;
            break;
        case GP_RUN_LIMIT:
            o->launch.limit = optarg;
            break;
        case GP_RUN_CONF:
            o->launch.conf = optarg;
            break;
        case GP_RUN_RECORD:
            unnamed = !optarg;
            rc = optarg ? run_record(optarg) : GP_EXIT_OK;
            break;
        case GP_RUN_STACKS:
            rc = run_stacks(optarg);
            break;
        case 'h':
            o->help = true;
            return GP_EXIT_OK;
        default:
            return gp_option_error("run", c, argv, optind, optopt);
        }
    }
    o->launch.argv = argv + optind;
    return !rc && unnamed ? run_record_apart(argv + optind) : rc;
}

/* The call sites of those that are watched, for a report of out of memory at the end: only a process that is alive says
 * what code it has mapped. */
struct gp_run_sites {
    struct gp_sites *sites[GP_WATCH_MOST];
    bool tried[GP_WATCH_MOST];
    uint64_t next_ns;
};

static void run_sites_look(struct gp_run_sites *kept, const struct gp_watch *watch, uint64_t now)
{
    char problem[GP_PROBLEM_BYTES], proc[32];
    bool again = now >= kept->next_ns;
    for (int i = 0; i < watch->count; i++) {
        const struct gp_watched *watched = watch->watched[i];
        snprintf(proc, sizeof(proc), "/proc/%d", (int)watched->process.pid);
        if (!kept->tried[i])
            gp_sites_open_peer(&kept->sites[i], &watched->session, watched->process.pid, proc, problem);
        else if (kept->sites[i] && again)
            gp_sites_update(kept->sites[i], problem);
        kept->tried[i] = true;
    }
    if (again)
        kept->next_ns = now + 1000000000ull; /* a look costs up to some milliseconds */
}

static void run_watch(struct gp_child *child, struct gp_watch *watch, struct gp_run_sites *sites, uint64_t first_ns)
{
    uint64_t begin = gp_clock_ns(), deep_at = 0;
    while (!child->ended) {
        uint64_t now = gp_clock_ns();
        bool deep = now >= deep_at;
        gp_watch_look(watch, child->pid, deep);
        run_sites_look(sites, watch, now);
        if (deep)
            deep_at = now + (now - begin < GP_LOOK_FIRST_NS ? GP_LOOK_NS : GP_LOOK_DEEP_NS);
        uint64_t pause = watch->count ? GP_LOOK_DEEP_NS : now - begin < GP_LOOK_FIRST_NS ? first_ns : GP_LOOK_NS;
        gp_child_wait(child, pause);
    }
}

static void run_summary(struct gp_watch *watch)
{
    for (int i = 0; i < watch->count; i++) {
        struct gp_watched *watched = watch->watched[i];
        struct gp_process *process = &watched->process;
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

/* The pages of those that ran out of GPU memory. */
static void run_ooms(struct gp_watch *watch, const struct gp_run_sites *sites)
{
    for (int i = 0; i < watch->count; i++) {
        if (!watch->watched[i]->process.oom.count)
            continue;
        gp_holders_name(&watch->watched[i]->process, sites->sites[i]);
        fputs("gpuprof: ", stderr);
        gp_oom_print(stderr, &watch->watched[i]->process);
    }
}

static bool run_read(struct gp_watch *watch)
{
    for (int i = 0; i < watch->count; i++) {
        if (gp_watch_read(watch->watched[i]) != 0) {
            gp_error("run", "out of memory");
            return false;
        }
    }
    return true;
}

int gp_cmd_run(int argc, char **argv)
{
    struct gp_run_options o = {.launch = {.command = "run"}};
    struct gp_watch watch = {0};
    struct gp_run_sites sites = {0};
    struct gp_child child;
    int rc = run_parse(argc, argv, &o);
    if (!rc && o.help) {
        fputs(run_help, stdout);
        return GP_EXIT_OK;
    }
    if (!rc)
        rc = gp_launch_prepare(&o.launch);
    if (rc)
        return rc;
    rc = gp_child_start(&child, &o.launch);
    if (rc) {
        gp_error("run", "cannot start a process: %s", strerror(-rc));
        return GP_EXIT_FAILED;
    }
    run_watch(&child, &watch, &sites, o.summary ? GP_LOOK_FAST_NS : GP_LOOK_CALM_NS);
    if (run_read(&watch)) {
        if (o.summary)
            run_summary(&watch);
        /* A program that ended well has dealt with it. */
        if (o.summary || child.status != 0)
            run_ooms(&watch, &sites);
        const char *record = getenv("GPUPROF_RECORD");
        if (record && record[0] && child.status != 126 && child.status != 127) /* where there was no program */
            gp_recorded_print(stderr, &watch, record);
    }
    for (int i = 0; i < watch.count; i++)
        gp_sites_close(sites.sites[i]); /* before the sessions that they read */
    gp_watch_free(&watch);
    return child.status;
}
