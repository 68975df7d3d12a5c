/* SPDX-License-Identifier: MIT
 *
 * run.c: `gpuprof run`: starts a program with the profiler loaded.  Called by commands.c.
 */
#include <base/clock.h>
#include <cmd/checks.h>
#include <cmd/cmd.h>
#include <cmd/load.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <inttypes.h>
#include <limits.h>
#include <read/collect/collect.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>
#include <read/collect/sites.h>
#include <read/collect/watch.h>
#include <read/common/hash.h>
#include <record/file.h>
#include <record/format.h>
#include <record/recorder.h>
#include <run/recorded.h>
#include <show/text/write.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* ==== recordings that it did not see ============================================================================== */

static bool unseen_watched(const struct gp_watch *watch, const struct gp_format_head *head)
{
    for (int i = 0; i < watch->count; i++)
        if (memcmp(watch->watched[i]->session.id, head->session_id, sizeof(head->session_id)) == 0)
            return true;
    return false;
}

/* The recorder holds a lock (gp_file_open), where the file system has locks. */
static bool unseen_busy(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    bool busy = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return busy;
}

static void unseen_add(struct gp_unseen *out, const char *path, const struct gp_format_head *head, int64_t bytes)
{
    char *copy = out->count < GP_UNSEEN_MOST ? strdup(path) : NULL;
    struct gp_unseen_file *files = copy ? reallocarray(out->files, (size_t)out->count + 1, sizeof(*files)) : NULL;
    if (!files) {
        free(copy);
        out->left_out++;
        return;
    }
    out->files = files;
    out->files[out->count++] = (struct gp_unseen_file){copy, head->pid, head->begin_unix_ns, bytes, unseen_busy(path)};
}

static int unseen_earlier(const void *a, const void *b)
{
    const struct gp_unseen_file *one = a, *other = b;
    return GP_ORDER(one->begin_unix_ns, other->begin_unix_ns);
}

/* pattern: value of GPUPROF_RECORD; run_unix_ns: what the recordings of this run name in their
 * heads; 0: nothing is searched. Ranks, pids and numbers of a name stand between its beginning and
 * its end (record/recorder.h). The pattern of a `run` is absolute. */
static void unseen_find(struct gp_unseen *out, const struct gp_watch *watch, const char *pattern, uint64_t run_unix_ns)
{
    const char *slash = strrchr(pattern, '/'), *base = slash ? slash + 1 : pattern;
    const struct gp_rank none = {-1, -1, -1};
    char folder[PATH_MAX], path[PATH_MAX];
    size_t stem = gp_record_stem(base), begin = strcspn(base, "%"), end = strlen(base) - stem;
    if (!run_unix_ns || snprintf(path, sizeof(path), "%.*s.", (int)(base - pattern), pattern) >= PATH_MAX ||
        gp_record_name(folder, sizeof(folder), path, 0, &none, false) != 0)
        return;
    folder[strlen(folder) - 1] = '\0';
    begin = begin < stem ? begin : stem;
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        struct gp_format_head head;
        size_t length = strlen(entry->d_name);
        if (length < begin + end || strncmp(entry->d_name, base, begin) != 0 ||
            strcmp(entry->d_name + length - end, base + stem) != 0 ||
            snprintf(path, sizeof(path), "%s%s", folder, entry->d_name) >= PATH_MAX)
            continue;
        int64_t bytes = gp_recorded_head(path, &head);
        if (bytes >= 0 && head.run_unix_ns == run_unix_ns && !unseen_watched(watch, &head))
            unseen_add(out, path, &head, bytes);
    }
    if (entries)
        closedir(entries);
    if (out->count)
        qsort(out->files, (size_t)out->count, sizeof(out->files[0]), unseen_earlier);
}

static void unseen_free(struct gp_unseen *unseen)
{
    for (int i = 0; i < unseen->count; i++)
        free(unseen->files[i].path);
    free(unseen->files);
    *unseen = (struct gp_unseen){0};
}

/* ==== the command ================================================================================================= */

/* How often the program and its children are searched for sessions.  A short program may start
 * and end between two searches.  A search every 200 us costs 5 % of a CPU, so it is done only in
 * the first seconds and for --summary; without it the interval is 1 ms, because only the report
 * of a failure is lost.  After the first seconds a program that runs for less than 2 ms may be
 * missed.  Children are searched every 20 ms. */
#define GP_LOOK_FIRST_NS 3000000000ull
#define GP_LOOK_FAST_NS  200000ull
#define GP_LOOK_CALM_NS  1000000ull
#define GP_LOOK_NS       2000000ull
#define GP_LOOK_DEEP_NS  20000000ull
/* How often --summary asks the processes for their numbers. */
#define GP_ASK_NS 20000000ull

struct gp_run_options {
    struct gp_launch launch;
    const char *stacks, *record; /* NULL: not given; record "": without a name */
    bool summary, symbols, force;
    struct gp_budget_options budget;
    char kept[PATH_MAX]; /* folder of the recordings that only the budgets need; "" none */
    bool beside;         /* older recordings have the names: the new ones are written beside them */
    uint64_t since_ns;   /* what recordings of this run name in their heads; 0: another `run` decides on them */
};

static const char *run_variable(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* Makes a file beside the recording and reserves the space that a recording begins with, so that a
 * folder or disk that cannot take it is reported before the program runs.  Under the recording's own
 * name, another `run` would take it for somebody's file.  0 or -errno. */
static int run_try(const char *record)
{
    char path[2 * 4096 + 16];
    snprintf(path, sizeof(path), "%s.%u", record, (unsigned)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600), error = 0;
    if (fd < 0)
        return errno == EEXIST ? 0 : -errno;
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, GP_FILE_BEGIN_BYTES) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        error = -errno;
    if (!error && write(fd, GP_RECORD_MAGIC, 1) != 1)
        error = -errno;
    if (close(fd) != 0 && !error)
        error = -errno; /* some network file systems report a full disk here */
    unlink(path);
    return error;
}

/* Makes the name absolute, because the program may change its directory before it uses the GPU. */
static int run_record(struct gp_run_options *o, const char *name)
{
    char here[4096] = "", path[2 * 4096], first[2 * 4096], part[2 * 4096 + 32], since[24];
    struct gp_rank rank;
    struct timespec now;
    if (name[0] != '/' && !getcwd(here, sizeof(here)))
        return gp_usage_error("run", "--record=%s: the current directory is gone", name);
    snprintf(path, sizeof(path), "%s%s%s", here, here[0] ? "/" : "", name);
    gp_rank_read(&rank, run_variable, NULL);
    int error = gp_record_name(first, sizeof(first), path, (unsigned)getpid(), &rank, false);
    int rc = error ? GP_EXIT_OK : gp_recorded_names_free("run", path, first, &rank, o->force, &o->beside);
    if (!error && !rc)
        error = run_try(first);
    if (!error && !rc && o->beside)
        error = gp_recorded_part(part, sizeof(part), path);
    if (error) {
        gp_error("run", "--record=%s: cannot begin a recording there: %s", name, strerror(-error));
        return GP_EXIT_FAILED;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    o->since_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    snprintf(since, sizeof(since), "%" PRIu64, o->since_ns);
    if (!rc &&
        (setenv("GPUPROF_RECORD", o->beside ? part : path, 1) != 0 || setenv("GPUPROF_RECORD_SINCE", since, 1) != 0))
        rc = GP_EXIT_FAILED;
    return rc;
}

/* --record without a name: each process gets a file of its own, named after the program. */
static int run_record_here(struct gp_run_options *o)
{
    char *const *argv = o->launch.argv;
    char name[512];
    if (!argv)
        return GP_EXIT_OK; /* gp_launch_prepare reports it */
    const char *base = strrchr(argv[0], '/');
    size_t used = 0;
    for (base = base ? base + 1 : argv[0]; *base && used < 250; base++) {
        if (*base == '%')
            name[used++] = '%';
        name[used++] = *base;
    }
    snprintf(name + used, sizeof(name) - used, ".%%p.gpuprof");
    return run_record(o, name);
}

/* `--record FILE CMD` would run FILE, which no caller means. */
static int run_check(void *options)
{
    const struct gp_run_options *o = options;
    const char *program = o->launch.argv ? o->launch.argv[0] : "";
    size_t length = strlen(program);
    const char *set = getenv("GPUPROF_RECORD");
    if (o->symbols && !o->record && !(set && set[0]))
        return gp_usage_error("run", "--symbols: names are put into a recording: add --record");
    if (!o->record || o->record[0] || length < 8 || strcmp(program + length - 8, ".gpuprof") != 0)
        return GP_EXIT_OK;
    return gp_usage_error("run", "--record %s: join the name with '=': --record=%s", program, program);
}

/* The same of another name than a recording's: it is none of a program, but what follows is. */
static int run_joined(const struct gp_run_options *o)
{
    char *const *argv = o->launch.argv;
    if (!argv || !argv[0] || !o->record || o->record[0] || !argv[1] || gp_launch_is_program(argv[0]) ||
        !(gp_launch_is_program(argv[1]) || gp_launch_is_script(argv[1])))
        return GP_EXIT_OK;
    return gp_usage_error("run",
                          "%s: no such program; to record into it, join the name with '=': --record=%s, or -o %s",
                          argv[0], argv[0], argv[0]);
}

static bool run_is_held(const struct gp_run_options *o)
{
    return o->budget.most.given || o->budget.file;
}

/* Budgets need a recording: without --record one in a folder that is removed afterwards. */
static int run_keep(struct gp_run_options *o)
{
    const char *folder = getenv("TMPDIR");
    char name[PATH_MAX + 16];
    snprintf(o->kept, sizeof(o->kept), "%s/gpuprof-run-XXXXXX", folder && folder[0] == '/' ? folder : "/tmp");
    if (!mkdtemp(o->kept)) {
        gp_error("run", "%s: a folder for the recording cannot be made there: %s", o->kept, strerror(errno));
        o->kept[0] = '\0';
        return GP_EXIT_FAILED;
    }
    snprintf(name, sizeof(name), "%s/%%p.gpuprof", o->kept);
    return run_record(o, name);
}

static void run_unkeep(const struct gp_run_options *o)
{
    char path[PATH_MAX + 300];
    DIR *entries = o->kept[0] ? opendir(o->kept) : NULL;
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        snprintf(path, sizeof(path), "%s/%s", o->kept, entry->d_name);
        unlink(path);
    }
    if (entries) {
        closedir(entries);
        rmdir(o->kept);
    }
}

/* Whether all processes that recorded were within the budgets.  The program's own failure goes first. */
static int run_judge(const struct gp_run_options *o, struct gp_watch *watch, const struct gp_unseen *unseen,
                     const char *record, int status)
{
    struct gp_budgets budgets;
    struct gp_findings gate = {0};
    char path[PATH_MAX];
    int rc = gp_budget_options_read("run", &o->budget, &budgets);
    for (int i = 0; !rc && i < watch->count; i++)
        if (gp_recorded_path(watch->watched[i], record, path))
            rc = gp_check_file("run", path, &budgets, &gate);
    for (int i = 0; !rc && i < unseen->count; i++)
        rc = gp_check_file("run", unseen->files[i].path, &budgets, &gate);
    if (!rc && unseen->left_out) {
        gp_error("run", "%d recordings were not checked: there are too many", unseen->left_out);
        rc = GP_EXIT_FAILED;
    }
    gp_budgets_unmatched(&gate, &budgets);
    if (!rc && !gate.count) {
        gp_error("run", "no process recorded memory of a GPU: the budgets were not checked");
        rc = GP_EXIT_FAILED;
    }
    if (!rc)
        rc = gp_gate_end("run", &gate, stderr, o->budget.junit, -1);
    gp_gate_free(&gate);
    gp_budgets_free(&budgets);
    return status ? status : rc;
}

/* Sets the variables of --stacks and --record, which the program inherits. */
static int run_prepare(struct gp_run_options *o)
{
    int rc = GP_EXIT_OK;
    if (o->stacks && setenv("GPUPROF_STACKS", o->stacks, 1) != 0)
        rc = GP_EXIT_FAILED;
    if (!rc && o->record)
        rc = o->record[0] ? run_record(o, o->record) : run_record_here(o);
    const char *record = getenv("GPUPROF_RECORD");
    if (!rc && run_is_held(o) && !(record && record[0]))
        rc = run_keep(o);
    return rc ? rc : gp_launch_prepare(&o->launch);
}

/* The call sites of the watched processes, for an out-of-memory report at the end.  They are
 * read while the process is alive, because its code mappings are gone afterwards. */
struct gp_run_sites {
    struct gp_sites *sites[GP_WATCH_MOST];
    bool tried[GP_WATCH_MOST]; /* opened, or refused for good */
    uint64_t next_ns;
};

static void run_sites_look(struct gp_run_sites *kept, const struct gp_watch *watch, uint64_t now)
{
    char problem[GP_PROBLEM_BYTES], proc[GP_PROC_FOLDER];
    bool again = now >= kept->next_ns;
    for (int i = 0; i < watch->count; i++) {
        const struct gp_watched *watched = watch->watched[i];
        /* While the library starts, the session exists and its tables of sites do not. */
        if (!kept->tried[i])
            kept->tried[i] = gp_sites_open_peer(&kept->sites[i], &watched->session, watched->process.pid,
                                                gp_proc_folder(watched->process.pid, proc), problem) != -ENOENT;
        else if (kept->sites[i] && again)
            gp_sites_update(kept->sites[i], problem);
    }
    if (again)
        kept->next_ns = now + 1000000000ull; /* an update may cost some milliseconds */
}

struct gp_run_source {
    int looked; /* processes whose source is known */
    bool said;
};

/* Says once why the events do not come from CUPTI, unless the user chose another source. */
static void run_source(struct gp_watch *watch, struct gp_run_source *source)
{
    const char *chosen = getenv("GPUPROF_SOURCE");
    bool is_hooks_chosen = chosen && strcmp(chosen, "hooks") == 0;
    while (source->looked < watch->count) {
        struct gp_watched *watched = watch->watched[source->looked];
        const struct gp_process *p = &watched->process;
        if (gp_watch_read(watched) != 0 || (p->state == GP_PROCESS_UNKNOWN && !p->disabled))
            return; /* its start is not over */
        source->looked++;
        if (source->said || p->state == GP_PROCESS_DAMAGED || p->disabled)
            continue;
        source->said = p->source == GP_SOURCE_NONE || (p->source == GP_SOURCE_HOOKS && !is_hooks_chosen);
        if (source->said && p->source == GP_SOURCE_HOOKS)
            gp_error("run", "PID %d (%s): events come from %s", (int)p->pid, p->comm, p->source_detail);
        else if (source->said)
            gp_error("run", "PID %d (%s): no events: %s", (int)p->pid, p->comm, p->source_detail);
    }
}

/* How long to wait for the next look. A program that fails some milliseconds after cuInit must have
 * its call sites read before: they are there when its start is over. */
static uint64_t run_pause(const struct gp_watch *watch, const struct gp_run_source *source, bool is_first,
                          uint64_t first_ns)
{
    if (!watch->count)
        return is_first ? first_ns : GP_LOOK_NS;
    return is_first && source->looked < watch->count ? GP_LOOK_CALM_NS : GP_LOOK_DEEP_NS;
}

static void run_watch(struct gp_child *child, struct gp_watch *watch, struct gp_run_sites *sites, bool summary)
{
    struct gp_run_source source = {0};
    uint64_t begin = gp_clock_ns(), deep_at = 0, ask_at = 0, first_ns = summary ? GP_LOOK_FAST_NS : GP_LOOK_CALM_NS;
    while (!child->ended) {
        uint64_t now = gp_clock_ns();
        bool deep = now >= deep_at, is_first = now - begin < GP_LOOK_FIRST_NS;
        gp_watch_look(watch, child->pid, deep);
        run_source(watch, &source);
        run_sites_look(sites, watch, now);
        if (summary && watch->count && now >= ask_at) {
            gp_watch_ask(watch, GP_ASK_NS / 4);
            ask_at = now + GP_ASK_NS;
        }
        if (deep)
            deep_at = now + (is_first ? GP_LOOK_NS : GP_LOOK_DEEP_NS);
        gp_launch_child_wait(child, run_pause(watch, &source, is_first, first_ns));
    }
    run_source(watch, &source);
    run_sites_look(sites, watch, gp_clock_ns()); /* Python's frames are still there */
}

static void run_summary(struct gp_watch *watch)
{
    for (int i = 0; i < watch->count; i++) {
        struct gp_watched *watched = watch->watched[i];
        struct gp_process *process = &watched->process;
        printf("PID %d  %s\n", (int)process->pid, process->comm);
        process->closed = false; /* do not print that it has ended: here all have */
        if (process->state == GP_PROCESS_STALE)
            printf(
                "  state: it ended by a signal, _exit or exec, without its exit handlers: these are its last numbers, "
                "which are read every %llu ms\n",
                GP_ASK_NS / 1000000);
        else if (process->state == GP_PROCESS_UNKNOWN)
            printf("  state: it ended before its numbers were read\n");
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
        gp_error("run", "--summary: %d processes are missing: only %d are kept", watch->left_out, GP_WATCH_MOST);
    fflush(stdout);
}

/* Prints the reports of the processes that ran out of GPU memory. */
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

/* A program that failed without a session, on a machine without a driver: it was not told what it lacks. */
static void run_driver(const struct gp_run_options *o, const struct gp_watch *watch, int status)
{
    struct gp_probe probe;
    if (o->launch.sim || watch->count || status == 0 || status >= 126)
        return;
    gp_libcheck_driver(&probe);
    if (!probe.ok)
        gp_error("run",
                 "this machine has no NVIDIA driver (%s): 'gpuprof run --sim -- CMD' simulates a GPU, and 'gpuprof "
                 "doctor' says more",
                 probe.text);
}

static void run_symbols(struct gp_watch *watch, const char *record, const struct gp_unseen *unseen)
{
    char path[PATH_MAX];
    for (int i = 0; i < watch->count; i++)
        if (gp_recorded_path(watch->watched[i], record, path))
            gp_recorded_names("run", gp_recorded_short(path), "");
    for (int i = 0; i < unseen->count; i++)
        gp_recorded_names("run", gp_recorded_short(unseen->files[i].path), "");
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

static int run_run(void *options)
{
    struct gp_run_options *o = options;
    struct gp_watch watch = {0};
    struct gp_run_sites sites = {0};
    struct gp_unseen unseen = {0};
    struct gp_child child;
    if (o->launch.sim && strcmp(o->launch.sim, "gpu=list") == 0)
        return gp_launch_gpus("run");
    struct gp_budgets budgets = {0};
    int rc = run_joined(o);
    if (!rc)
        rc = gp_budget_options_read("run", &o->budget, &budgets); /* a mistake in them, before the program runs */
    gp_budgets_free(&budgets);
    if (!rc)
        rc = gp_output_check("run", "--junit=", o->budget.junit, o->force);
    if (!rc)
        rc = run_prepare(o);
    if (rc) {
        run_unkeep(o);
        return rc;
    }
    rc = gp_launch_child_start(&child, &o->launch);
    if (rc) {
        run_unkeep(o);
        gp_error("run", "cannot start a process: %s", strerror(-rc));
        return GP_EXIT_FAILED;
    }
    run_watch(&child, &watch, &sites, o->summary);
    if (run_read(&watch)) {
        if (o->summary)
            run_summary(&watch);
        /* A program that ended with status 0 has coped with its failed requests. */
        if (o->summary || child.status != 0)
            run_ooms(&watch, &sites);
        const char *record = getenv("GPUPROF_RECORD");
        bool started = child.status != 126 && child.status != 127;
        if (record && record[0] && started) {
            unseen_find(&unseen, &watch, record, o->since_ns);
            if (o->kept[0] || o->beside)
                gp_recorded_finish(&watch, record);
            if (o->beside)
                gp_recorded_replace("run", &watch, record, &unseen);
            if (!o->kept[0])
                gp_recorded_print(stderr, &watch, record, &unseen);
            if (o->symbols)
                run_symbols(&watch, record, &unseen);
        }
        if (started && run_is_held(o))
            child.status = run_judge(o, &watch, &unseen, record ? record : "", child.status);
    }
    unseen_free(&unseen);
    run_unkeep(o);
    gp_launch_sim_end(&o->launch);
    run_driver(o, &watch, child.status);
    for (int i = 0; i < watch.count; i++)
        gp_sites_close(sites.sites[i]); /* first: they read the sessions that gp_watch_free closes */
    gp_watch_free(&watch);
    return child.status;
}

static const struct gp_command_option run_options[] = {
    GP_OPTION_SIM(struct gp_run_options),
    GP_FLAG(struct gp_run_options, summary, 0, "summary",
            "print the table of torch.cuda.memory_summary when CMD has ended"),
    GP_OPTION(struct gp_run_options, record, 'o', "record", "FILE", GP_ARG_RECORDING,
              "write every event to FILE (default CMD.PID.gpuprof in the current directory); %p in FILE is the process "
              "number. A second process writes x.PID.gpuprof instead of x.gpuprof, and of several ranks each one "
              "x.rankN.gpuprof",
              .optional = true),
    GP_FLAG(struct gp_run_options, force, 0, "force",
            "replace older recordings of that name when the new ones are complete, and the file of --junit even if "
            "gpuprof did not write it"),
    GP_FLAG(struct gp_run_options, symbols, 0, "symbols",
            "put the names of native functions into the recordings, so that they can be read on any machine"),
    GP_OPTION_BUDGET(struct gp_run_options, budget),
    GP_OPTION_BUDGETS(struct gp_run_options, budget),
    GP_OPTION_JUNIT(struct gp_run_options, budget),
    GP_OPTION(struct gp_run_options, stacks, 0, "stacks", "WHICH", GP_ARG_CHOICE,
              "record call sites of allocations (default all with --record, else off)",
              .words = GP_LIST("off", "native", "python", "all")),
    GP_OPTION(struct gp_run_options, launch.allocator, 0, "allocator", "NAME", GP_ARG_CHOICE,
              "serve cuMemAlloc and cudaMalloc of CMD from a cache; uses LD_PRELOAD, which does not reach statically "
              "linked programs",
              .choice = gp_allocator_name),
    GP_OPTION(struct gp_run_options, launch.limit, 0, "limit", "SIZE", GP_ARG_SIZE,
              "the most memory that the allocator reserves on a device"),
    GP_OPTION(struct gp_run_options, launch.conf, 0, "alloc-conf", "K:V,..", GP_ARG_TEXT,
              "settings of the allocator, in the grammar of PYTORCH_CUDA_ALLOC_CONF"),
    GP_OPTION_LIBRARY(struct gp_run_options),
    {0}};

static const struct gp_command_option run_operands[] = {
    GP_OPERAND(struct gp_run_options, launch.argv, "CMD", GP_ARG_PROGRAM, "the program and its arguments"), {0}};

const struct gp_command_spec gp_command_run = {
    .name = "run",
    .summary = "run a program with the profiler loaded",
    .group = GP_GROUP_WATCH,
    .usage =
        GP_LIST("[--sim[=SPEC]] [--summary] [--record[=FILE] [--force] [--symbols]] [--stacks=WHICH] [--allocator=NAME "
                "[--limit=SIZE] "
                "[--alloc-conf=K:V,..]] [--budget=SIZE] [--budgets=FILE] [--junit=FILE] [--library=FILE] [--] CMD..."),
    .about =
        GP_LIST("Runs CMD with CUDA_INJECTION64_PATH set to libgpuprof.so, which the CUDA driver loads when CMD "
                "initialises it. LD_PRELOAD names libgpuprof-shim.so: where CUPTI is missing, does not work, or is "
                "taken by another tool, events come from the entry points of the driver, and a message says so. "
                "Signals are forwarded. The exit status is that of CMD: 128 + N if signal N killed "
                "it, 126 if it could not be run, 127 if it was not found.",
                "With '--budget' or '--budgets', the exit status is 3 if CMD succeeded and a process of it needed more "
                "memory; 'gpuprof check' explains the budgets.",
                "If CMD fails after a request for GPU memory failed, a report on standard error explains why and "
                "what would help.",
                "The variables GPUPROF_ALLOCATOR, GPUPROF_MEMORY_LIMIT, GPUPROF_ALLOC_CONF, GPUPROF_RECORD and "
                "GPUPROF_STACKS do the same as the options. GPUPROF_SOURCE=hooks takes events from the entry "
                "points of the driver in any case, and GPUPROF_SOURCE=cupti preloads nothing."),
    .details =
        GP_LIST("The forwarded signals are INT, TERM, HUP, QUIT, USR1, USR2, TSTP, CONT and WINCH. The report about "
                "failed requests covers CMD and the processes that it started; see OUT OF MEMORY. With '--summary' it "
                "is printed even if they ended with status 0, and there is a table for each profiled process.",
                "If a recording of the given name is there, the program is not started (status 2), unless '--force' is "
                "given: the new recording is then written to FILE.PID.part and takes the place of the older one when "
                "it is complete. Any other file stays in any case.",
                "The allocator 'passthrough' sends every request to the driver; 'off' loads no allocator."),
    .options = run_options,
    .operands = run_operands,
    .examples =
        GP_EXAMPLES({"gpuprof run --summary python train.py", "Print a memory summary when the program has ended."},
                    {"gpuprof run --sim=devices=2 ./program", "Run on two simulated GPUs."},
                    {"gpuprof run --sim --budget=20GiB -- python train.py --steps 3",
                     "Fail if three steps need more than 20 GiB, without a GPU."},
                    {"gpuprof run --record=train.gpuprof python train.py; gpuprof report train.gpuprof -o report.html",
                     "Record a program and make a page of it."}),
    GP_DEFAULTS(struct gp_run_options, .launch = {.command = "run", .limit = -1}),
    .operand_ends = true,
    .check = run_check,
    .run = run_run,
};
