/* SPDX-License-Identifier: MIT
 *
 * collect.c: see collect.h. Finds the processes, sends a request to all of them, then reads them
 * one by one: the wait for processes that do not answer is paid once, not once per process.
 */
#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>

#include <base/clock.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The drain thread answers in microseconds; a full second allows for a machine short of CPUs. */
#define GP_ANSWER_NS 1000000000ull

struct gp_asked { /* parallel to system->processes while collecting */
    struct gp_peer session;
    struct gp_mailbox box;
    bool posted;
    int answer; /* 0: the numbers are exact; -errno */
};

struct gp_collecting {
    struct gp_system *system;
    struct gp_asked *asked;
    struct gp_peer_look look;
    bool every; /* the whole machine, not a list of pids */
};

/* Kernel threads and zombies have neither a command line nor descriptors. */
static bool has_descriptors(const struct gp_proc *proc)
{
    char text[2];
    return gp_proc_read(proc->dir, "cmdline", text, sizeof(text)) > 0;
}

static int collect_add(struct gp_collecting *c, const struct gp_proc *proc, const struct gp_peer *session, int found,
                       const char *problem)
{
    int n = c->system->process_count;
    struct gp_asked *asked = realloc(c->asked, (size_t)(n + 1) * sizeof(*asked));
    if (!asked)
        return -ENOMEM;
    c->asked = asked;
    struct gp_process *process = gp_system_add(c->system);
    if (!process)
        return -ENOMEM;
    memset(&asked[n], 0, sizeof(asked[n]));
    asked[n].answer = -ETIMEDOUT;
    asked[n].session = *session;
    gp_proc_describe(proc, process);
    if (found) {
        process->state = GP_PROCESS_DAMAGED;
        snprintf(process->problem, sizeof(process->problem), "%s", problem);
    }
    return 0;
}

/* These errors are a shortage of this command, not a property of the process: leaving the process
 * out would give a wrong result silently. */
static bool collect_fatal(int error)
{
    return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

static int collect_pid(pid_t pid, void *context)
{
    struct gp_collecting *c = context;
    struct gp_proc proc;
    struct gp_peer session = {.fd = -1};
    char problem[GP_PROBLEM_BYTES];
    int opened = gp_proc_open(&proc, pid);
    if (opened)
        return collect_fatal(opened) ? opened : 0;
    int found = gp_peer_find(&session, &proc, c->every ? &c->look : NULL, problem);
    int rc = 0;
    if (found == -EACCES || found == -EPERM)
        c->system->denied_count += c->every && has_descriptors(&proc);
    else if (found == 0 || found == -EPROTO)
        rc = collect_add(c, &proc, &session, found, problem);
    else if (collect_fatal(found))
        rc = found;
    if (rc)
        gp_peer_close(&session);
    gp_proc_close(&proc);
    return rc;
}

static void collect_ask(struct gp_collecting *c, uint64_t deadline)
{
    static const struct gp_wire_slot snapshot = {.command = GP_COMMAND_SNAPSHOT, .device = -1};
    struct gp_wire_slot *answer = calloc(1, sizeof(*answer));
    for (int i = 0; answer && i < c->system->process_count; i++) {
        struct gp_asked *asked = &c->asked[i];
        if (asked->session.fd < 0)
            continue;
        asked->answer = gp_mailbox_open(&asked->box, &asked->session);
        asked->posted = asked->answer == 0 && gp_mailbox_post(&asked->box, &snapshot) == 0;
    }
    for (int i = 0; answer && i < c->system->process_count; i++) {
        struct gp_asked *asked = &c->asked[i];
        if (asked->posted)
            asked->answer = gp_mailbox_wait(&asked->box, answer, deadline);
        gp_mailbox_close(&asked->box);
        if (asked->answer == 0 && !asked->posted) { /* every slot was taken before; most are free again now */
            *answer = snapshot;
            asked->answer = gp_mailbox_call(&asked->session, answer, deadline);
        }
    }
    free(answer);
}

static int collect_read(struct gp_collecting *c)
{
    int rc = 0;
    for (int i = 0; i < c->system->process_count && !rc; i++) {
        struct gp_process *process = &c->system->processes[i];
        struct gp_asked *asked = &c->asked[i];
        if (asked->session.fd < 0)
            continue;
        rc = gp_peer_read(&asked->session, process);
        if (process->state == GP_PROCESS_STALE && (asked->answer == 0 || process->closed))
            process->state = GP_PROCESS_LIVE;
        if (asked->answer == -EPROTO && process->state != GP_PROCESS_DAMAGED) {
            process->state = GP_PROCESS_DAMAGED;
            gp_peer_drop(process);
            process->scope_count = process->failure_count = 0;
            memset(&process->oom, 0, sizeof(process->oom));
            snprintf(process->problem, sizeof(process->problem), "mailbox: the answer to a request is malformed");
        }
    }
    return rc;
}

static int collect_find(struct gp_collecting *c, const struct gp_collect_options *options)
{
    int rc = 0;
    if (c->every)
        return gp_proc_each(collect_pid, c);
    for (int i = 0; i < options->pid_count && !rc; i++)
        rc = collect_pid(options->pids[i], c);
    return rc;
}

/* One descriptor per profiled process is held while collecting: raise the limit to the hard
 * limit. */
static void collect_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int gp_collect(const struct gp_collect_options *options, struct gp_system **out)
{
    struct gp_collecting c = {.system = calloc(1, sizeof(struct gp_system)), .every = options->pids == NULL};
    *out = NULL;
    if (!c.system)
        return -ENOMEM;
    collect_limit();
    int rc = collect_find(&c, options);
    c.system->unsearched_count = c.look.unsearched;
    int profiled = c.system->process_count;
    if (!rc && options->exact)
        collect_ask(&c, gp_clock_ns() + (options->deadline_ns ? options->deadline_ns : GP_ANSWER_NS));
    c.system->time_ns = gp_clock_ns();
    if (!rc)
        rc = collect_read(&c);
    if (!rc && options->with_nvml)
        rc = gp_machine_add_nvml(c.system, !c.every);
    else
        snprintf(c.system->nvml_problem, sizeof(c.system->nvml_problem), "not asked");
    if (!rc)
        rc = gp_machine_add_gpus(c.system);
    for (int i = 0; i < profiled && c.asked; i++)
        gp_peer_close(&c.asked[i].session);
    free(c.asked);
    if (rc) {
        gp_system_free(c.system);
        return rc;
    }
    *out = c.system;
    return 0;
}

void gp_system_free(struct gp_system *system)
{
    if (!system)
        return;
    for (int i = 0; i < system->process_count; i++)
        gp_peer_drop(&system->processes[i]);
    free(system->processes);
    free(system->gpus);
    free(system->agent.sums);
    free(system);
}

/* Finds profiled processes that `pid` started, directly or through up to `depth` others: the pid of
 * 'gpuprof run', a shell or a launcher is easily taken for that of the program.  Returns how many;
 * *first: one of them; *room: how many processes it may still look at, because all are children of
 * init. */
static int explain_started(pid_t pid, int depth, int *room, pid_t *first)
{
    char path[64], problem[GP_PROBLEM_BYTES];
    int child, count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    while (file && *room > 0 && fscanf(file, "%d", &child) == 1) {
        struct gp_peer session;
        --*room;
        if (gp_peer_open_pid(&session, (pid_t)child, problem) == 0) {
            gp_peer_close(&session);
            *first = (pid_t)child;
            count++;
        }
        if (depth > 0)
            count += explain_started((pid_t)child, depth - 1, room, first);
    }
    if (file)
        fclose(file);
    return count;
}

static void explain_not_profiled(pid_t pid, char *why, size_t n)
{
    pid_t first = 0;
    int room = 100, count = explain_started(pid, 2, &room, &first);
    if (count == 1)
        snprintf(why, n, "not profiled itself, but the process %d that it started is: use -p %d", (int)first,
                 (int)first);
    else if (count > 1)
        snprintf(why, n, "not profiled itself, but %d processes that it started are: 'gpuprof stat' lists them", count);
    else
        snprintf(why, n, "not profiled: 'gpuprof attach %d' begins, if it uses CUDA; or start it with 'gpuprof run'",
                 (int)pid);
}

static enum gp_pid_problem explain(const struct gp_proc *proc, int found, const char *problem, char *why, size_t n)
{
    if (found == -EACCES || found == -EPERM) {
        snprintf(why, n, "belongs to another user (uid %u) or is not dumpable: run as that user or as root",
                 (unsigned)proc->uid);
        return GP_PID_DENIED;
    }
    if (found == -ESRCH) {
        snprintf(why, n, "no such process");
        return GP_PID_DEAD;
    }
    if (found == -EMFILE || found == -ENFILE || found == -ENOMEM) {
        snprintf(why, n, "it cannot be looked at: %s", strerror(-found));
        return GP_PID_DENIED;
    }
    if (found == -EPROTO)
        snprintf(why, n, "damaged session: %s", problem);
    else
        explain_not_profiled(proc->pid, why, n);
    return GP_PID_NOT_PROFILED;
}

enum gp_pid_problem gp_collect_explain_pid(pid_t pid, char *why, size_t why_bytes)
{
    struct gp_proc proc;
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES];
    why[0] = '\0';
    int rc = gp_proc_open(&proc, pid);
    if (rc && rc != -ESRCH && rc != -ENOENT) { /* out of descriptors, for example: it may be alive */
        snprintf(why, why_bytes, "it cannot be looked at: %s", strerror(-rc));
        return GP_PID_DENIED;
    }
    if (rc) {
        snprintf(why, why_bytes, "no such process");
        return GP_PID_DEAD;
    }
    int found = gp_peer_open(&session, &proc, problem);
    gp_peer_close(&session);
    enum gp_pid_problem result = found ? explain(&proc, found, problem, why, why_bytes) : GP_PID_OK;
    gp_proc_close(&proc);
    return result;
}

int gp_request(pid_t pid, struct gp_wire_slot *slot, uint64_t deadline_ns)
{
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES];
    int rc = gp_peer_open_pid(&session, pid, problem);
    if (rc)
        return rc;
    rc = gp_mailbox_call(&session, slot, gp_clock_ns() + (deadline_ns ? deadline_ns : GP_ANSWER_NS));
    gp_peer_close(&session);
    return rc;
}
