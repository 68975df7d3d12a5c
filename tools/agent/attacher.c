/* SPDX-License-Identifier: MIT
 *
 * attacher.c: attaches to the programs of chosen containers (attacher.h). Reading the mappings of a
 * process may block for as long as that process likes, so only the workers do it, each in the turn
 * of one container. The attach itself is a command of its own: it reads what the program has
 * mapped, and its end, whatever the reason, does not end the agent.
 */
#include <agent/attacher.h>
#include <agent/maps/maps.h>
#include <base/clock.h>
#include <base/text.h>
#include <base/vma.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <read/collect/procfs.h>
#include <read/common/agentlog.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ATTACHER_SECOND   1000000000ull
#define ATTACHER_EVERY_MS 10000
#define ATTACHER_SOON_MS  1000                   /* until an interrupted look goes on */
#define ATTACHER_LOOK_NS  300000000ull           /* of one look */
#define ATTACHER_MAPS     (8u << 20)             /* bytes of one process's maps */
#define ATTACHER_ENDS_NS  (90 * ATTACHER_SECOND) /* the command's own deadlines add up to 60 s */
#define ATTACHER_NAMES_NS (60 * ATTACHER_SECOND) /* a runtime may write a container's name late */
#define ATTACHER_GROUPS   1024u
#define ATTACHER_WORKERS  8u
#define ATTACHER_GONE     3  /* exit status of the command: the process has ended */
#define ATTACHER_LATER    75 /* the same: it may be attached to later */

struct attacher_group { /* a text of /proc/PID/cgroup, and whether the pattern matches */
    uint64_t hash, asked_ns;
    bool is_chosen;
    char key[GP_TURNS_NAME], name[GP_TURNS_NAME];
};

struct gp_attacher {
    struct gp_attacher_options options;
    pthread_t looker, workers[ATTACHER_WORKERS];
    unsigned thread_count; /* the looker, then workers */
    int stop;
    struct gp_attacher_count count;
    /* The looker's. */
    pid_t resume;           /* where an interrupted look goes on; 0: at the first process */
    bool is_full_logged[2]; /* programs of one container; containers */
    struct attacher_group groups[ATTACHER_GROUPS];
    /* Under the mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_ending;
    struct gp_turns *turns;
};

/* ---- which processes --------------------------------------------------------------------------------------------- */

static bool name_matches(const char *pattern, const struct gp_container_name *name)
{
    char whole[400];
    if (pattern[0] == '/')
        return fnmatch(pattern, name->path, 0) == 0;
    if (!name->id[0] && !name->container[0] && !name->pod[0])
        return false;
    snprintf(whole, sizeof(whole), "%s/%s/%s", name->namespace_, name->pod, name->container);
    return fnmatch(pattern, name->id, 0) == 0 || (name->container[0] && fnmatch(pattern, name->container, 0) == 0) ||
           (name->pod[0] && fnmatch(pattern, whole, 0) == 0);
}

/* Under version 1 a process has a cgroup in each hierarchy, and only one may name its container. */
static bool container_find(const struct gp_attacher *attacher, pid_t pid, struct gp_container_name *name,
                           bool *is_chosen)
{
    uint64_t ids[GP_CONTAINER_HIERARCHIES];
    unsigned count = gp_container_numbers("", pid, ids);
    bool is_found = false;
    *is_chosen = false;
    for (unsigned i = 0; i < count && !*is_chosen; i++) {
        if (gp_container_lookup("", ids[i], pid, name) != 0)
            continue;
        is_found = true;
        *is_chosen = name_matches(attacher->options.pattern, name);
    }
    return is_found;
}

/* The container of a process, with the answer for its cgroup from the last minute.  NULL: it has
 * ended. */
static const struct attacher_group *group_of(struct gp_attacher *attacher, int dir, pid_t pid)
{
    char text[8192];
    struct gp_container_name name;
    bool is_chosen;
    uint64_t hash = 0xcbf29ce484222325ull, now = gp_clock_ns();
    if (gp_proc_read(dir, "cgroup", text, sizeof(text)) <= 0)
        return NULL;
    for (const char *at = text; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 0x100000001b3ull;
    struct attacher_group *group = &attacher->groups[hash % ATTACHER_GROUPS];
    if (group->hash == hash && now - group->asked_ns < ATTACHER_NAMES_NS)
        return group;
    if (!container_find(attacher, pid, &name, &is_chosen))
        return NULL;
    *group = (struct attacher_group){.hash = hash, .asked_ns = now, .is_chosen = is_chosen};
    if (name.pod[0])
        snprintf(group->name, sizeof(group->name), "%.60s/%.60s/%.60s", name.namespace_, name.pod, name.container);
    else
        snprintf(group->name, sizeof(group->name), "%.180s", name.container[0] ? name.container : name.path);
    snprintf(group->key, sizeof(group->key), "%s", name.id[0] ? name.id : name.path);
    return group;
}

static bool identity_read(int dir, struct gp_turn_process *out)
{
    char text[2048];
    unsigned long long start, stack;
    const char *at = gp_proc_read(dir, "stat", text, sizeof(text)) > 0 ? strrchr(text, ')') : NULL;
    /* Fields 3 to 28, of which 22 and 28 are wanted. */
    if (!at || sscanf(at + 1,
                      " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu %*u %*d %*u "
                      "%*u %*u %llu",
                      &start, &stack) != 2)
        return false;
    out->start = start;
    out->stack = stack;
    return true;
}

struct attacher_maps {
    bool has_cuda, has_ours;
};

static bool maps_mapping(void *context, const struct gp_vma *mapping)
{
    static const char cuda[] = "/libcuda.so", ours[] = "/libgpuprof";
    struct attacher_maps *maps = context;
    const char *base = strrchr(mapping->path, '/');
    maps->has_cuda |= base && strncmp(base, cuda, sizeof(cuda) - 1) == 0;
    maps->has_ours |= base && strncmp(base, ours, sizeof(ours) - 1) == 0;
    return true;
}

/* Whether the process has libcuda and not our library.  One that was left by `gpuprof detach` still
 * maps the library: a user wanted it to be left. */
static struct attacher_maps maps_read(int dir)
{
    struct attacher_maps maps = {0};
    char lines[GP_VMA_LINE];
    int fd = openat(dir, "maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return maps;
    gp_vma_walk(fd, lines, sizeof(lines), ATTACHER_MAPS, maps_mapping, &maps);
    close(fd);
    return maps;
}

/* ---- the attach -------------------------------------------------------------------------------------------------- */

/* Starts the command, with its output in a pipe. By the time that it runs, the number may be another process's, in
 * another container: the command is told when the process started. Its pid, or -errno. */
static pid_t command_start(const struct gp_attacher *attacher, const struct gp_turn_process *one, int *output)
{
    char number[16], started[40], library[4160] = "";
    int ends[2], error;
    snprintf(number, sizeof(number), "%d", (int)one->pid);
    snprintf(started, sizeof(started), "--started=%" PRIu64, one->start);
    if (attacher->options.library)
        snprintf(library, sizeof(library), "--library=%s", attacher->options.library);
    char *argv[] = {"gpuprof", "attach", started, number, library[0] ? library : NULL, NULL};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t child = -1;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    error = posix_spawn(&child, "/proc/self/exe", &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error)
        close(ends[0]);
    *output = ends[0];
    return error ? -error : child;
}

/* The first line that the command prints, and its exit status; -1: it did not end in time. */
static int command_finish(pid_t child, int output, char *line, size_t bytes)
{
    uint64_t deadline = gp_clock_ns() + ATTACHER_ENDS_NS;
    char text[2048];
    size_t used = 0;
    ssize_t got = 1;
    int status = 0;
    while (got > 0) {
        uint64_t now = gp_clock_ns();
        struct pollfd readable = {.fd = output, .events = POLLIN};
        if (now >= deadline || poll(&readable, 1, (int)((deadline - now) / 1000000) + 1) < 0)
            break;
        char *to = used < sizeof(text) - 1 ? text + used : text + sizeof(text) / 2;
        got = readable.revents ? read(output, to, (size_t)(text + sizeof(text) - 1 - to)) : 1;
        if (readable.revents && got > 0)
            used = (size_t)(to - text) + (size_t)got;
    }
    close(output);
    if (got > 0)
        kill(child, SIGKILL); /* it is our child and was not waited for, so the pid is its own */
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    text[used] = '\0';
    text[strcspn(text, "\n")] = '\0';
    static const char prefix[] = "gpuprof: attach: ";
    const char *from = strncmp(text, prefix, sizeof(prefix) - 1) == 0 ? text + sizeof(prefix) - 1 : text;
    gp_text_clean(line, bytes, from, strlen(from));
    return got > 0 || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
}

static enum gp_turn_end attach_one(struct gp_attacher *attacher, const struct gp_turn *turn)
{
    char line[400] = "";
    int output = -1, status;
    pid_t child = command_start(attacher, &turn->process, &output);
    if (child < 0) {
        gp_agent_log(GP_AGENTLOG_WARNING, "cannot run 'gpuprof attach': %s", strerror(-(int)child));
        return GP_TURN_DONE;
    }
    status = command_finish(child, output, line, sizeof(line));
    enum gp_turn_end end = status == ATTACHER_LATER ? GP_TURN_LATER : GP_TURN_DONE;
    if (status == ATTACHER_GONE || (status == ATTACHER_LATER && turn->is_again))
        return end;
    if (status == 0)
        gp_agent_log(GP_AGENTLOG_NOTICE, "in %s: %s", turn->name, line);
    else
        gp_agent_log(GP_AGENTLOG_WARNING, "in %s: not attached to process %d: %s", turn->name, (int)turn->process.pid,
                     status < 0 ? "'gpuprof attach' did not end" : line);
    /* relaxed: a number for the metrics, by which nothing else is read */
    __atomic_add_fetch(status == 0 ? &attacher->count.attached : &attacher->count.refused, 1, __ATOMIC_RELAXED);
    return end;
}

/* Reads what the program has mapped, which may block for as long as it likes, and attaches to it. */
static enum gp_turn_end turn_take(struct gp_attacher *attacher, const struct gp_turn *turn)
{
    char path[32];
    struct gp_turn_process now = {.pid = turn->process.pid};
    snprintf(path, sizeof(path), "/proc/%d", (int)now.pid);
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return GP_TURN_UNUSED;
    enum gp_turn_end end = GP_TURN_UNUSED;
    struct attacher_maps maps = maps_read(dir);
    pid_t parent;
    if (maps.has_cuda && gp_proc_is_borrower(now.pid, &parent))
        maps.has_cuda = maps.has_ours = false; /* a child of vfork, in its parent's memory: not yet */
    /* Another program by now: the next look meets it. */
    bool is_same = identity_read(dir, &now) && now.start == turn->process.start && now.stack == turn->process.stack;
    close(dir);
    if (is_same && (turn->is_again || (maps.has_cuda && !maps.has_ours)))
        end = attach_one(attacher, turn);
    else if (is_same && maps.has_ours)
        end = GP_TURN_DONE;
    return end;
}

static void *worker_main(void *arg)
{
    struct gp_attacher *attacher = arg;
    struct gp_turn turn;
    pthread_setname_np(pthread_self(), "gpuprof-attach");
    pthread_mutex_lock(&attacher->mutex);
    while (!attacher->is_ending) {
        if (!gp_attacher_turns_next(attacher->turns, &turn)) {
            pthread_cond_wait(&attacher->changed, &attacher->mutex);
            continue;
        }
        pthread_mutex_unlock(&attacher->mutex);
        enum gp_turn_end end = turn_take(attacher, &turn);
        pthread_mutex_lock(&attacher->mutex);
        gp_attacher_turns_end(attacher->turns, &turn, end);
    }
    pthread_mutex_unlock(&attacher->mutex);
    return NULL;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static void full_log(struct gp_attacher *attacher, enum gp_turn_met met, const char *name)
{
    bool *is_logged = &attacher->is_full_logged[met == GP_TURN_MANY_CONTAINERS];
    if (met == GP_TURN_MANY_CONTAINERS && !*is_logged)
        gp_agent_log(GP_AGENTLOG_WARNING, "more than %u containers to attach to: the others are left alone",
                     GP_TURNS_CONTAINERS);
    else if (met == GP_TURN_MANY_PROCESSES && !*is_logged)
        gp_agent_log(GP_AGENTLOG_WARNING, "in %s: more than %u processes: the others are left alone", name,
                     GP_TURNS_PROCESSES);
    *is_logged |= met != GP_TURN_MET;
}

/* Reads nothing for which the process could let us wait. */
static void look_at(struct gp_attacher *attacher, pid_t pid)
{
    char path[32];
    struct gp_turn_process is = {.pid = pid};
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return;
    const struct attacher_group *group = group_of(attacher, dir, pid);
    bool is_wanted = group && group->is_chosen && identity_read(dir, &is) && is.stack;
    close(dir);
    if (!is_wanted)
        return;
    pthread_mutex_lock(&attacher->mutex);
    enum gp_turn_met met = gp_attacher_turns_meet(attacher->turns, &is, group->key, group->name);
    pthread_mutex_unlock(&attacher->mutex);
    full_log(attacher, met, group->name);
}

static bool is_ending(const struct gp_attacher *attacher, int wait_ms)
{
    struct pollfd stop = {.fd = attacher->stop, .events = POLLIN};
    return poll(&stop, 1, wait_ms) > 0;
}

/* The order of pids is the kernel's, so an interrupted look goes on where it was. */
static void look(struct gp_attacher *attacher)
{
    uint64_t until = gp_clock_ns() + ATTACHER_LOOK_NS;
    DIR *proc = opendir("/proc");
    pid_t resume = 0;
    pthread_mutex_lock(&attacher->mutex);
    if (!attacher->resume)
        gp_attacher_turns_look(attacher->turns);
    pthread_mutex_unlock(&attacher->mutex);
    for (struct dirent *entry; proc && !resume && (entry = readdir(proc));) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (*end || pid < attacher->resume || pid <= 0 || pid > INT32_MAX || pid == getpid())
            continue;
        look_at(attacher, (pid_t)pid);
        if (gp_clock_ns() > until || is_ending(attacher, 0))
            resume = (pid_t)pid + 1;
    }
    attacher->resume = resume;
    pthread_mutex_lock(&attacher->mutex);
    if (proc && !resume)
        gp_attacher_turns_looked(attacher->turns);
    pthread_cond_broadcast(&attacher->changed);
    pthread_mutex_unlock(&attacher->mutex);
    if (proc)
        closedir(proc);
}

static void *looker_main(void *arg)
{
    struct gp_attacher *attacher = arg;
    pthread_setname_np(pthread_self(), "gpuprof-look");
    do
        look(attacher);
    while (!is_ending(attacher, attacher->resume ? ATTACHER_SOON_MS : ATTACHER_EVERY_MS));
    return NULL;
}

/* ---- open, close ------------------------------------------------------------------------------------------------- */

static bool may_trace(void)
{
    char line[256];
    unsigned long long effective = 0;
    FILE *file = fopen("/proc/thread-self/status", "re");
    while (file && fgets(line, sizeof(line), file))
        sscanf(line, "CapEff: %llx", &effective);
    if (file)
        fclose(file);
    return effective >> CAP_SYS_PTRACE & 1;
}

static int threads_start(struct gp_attacher *attacher)
{
    sigset_t all, before;
    int error = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the agent's loop handles signals */
    for (; !error && attacher->thread_count <= ATTACHER_WORKERS; attacher->thread_count += !error)
        error = attacher->thread_count == 0
                    ? pthread_create(&attacher->looker, NULL, looker_main, attacher)
                    : pthread_create(&attacher->workers[attacher->thread_count - 1], NULL, worker_main, attacher);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}

/* False: one of them hangs, or is in an attach. */
static bool threads_end(struct gp_attacher *attacher)
{
    uint64_t until = gp_clock_ns() + 2 * ATTACHER_SECOND;
    struct timespec at = {(time_t)(until / ATTACHER_SECOND), (long)(until % ATTACHER_SECOND)};
    eventfd_write(attacher->stop, 1);
    pthread_mutex_lock(&attacher->mutex);
    attacher->is_ending = true;
    pthread_cond_broadcast(&attacher->changed);
    pthread_mutex_unlock(&attacher->mutex);
    for (unsigned i = 0; i < attacher->thread_count; i++)
        if (pthread_clockjoin_np(i ? attacher->workers[i - 1] : attacher->looker, NULL, CLOCK_MONOTONIC, &at) != 0)
            return false;
    return true;
}

static int attacher_init(struct gp_attacher *attacher, const struct gp_attacher_options *options)
{
    attacher->options = *options;
    pthread_mutex_init(&attacher->mutex, NULL);
    pthread_cond_init(&attacher->changed, NULL);
    attacher->turns = gp_attacher_turns_new();
    attacher->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return attacher->stop < 0 ? -errno : !attacher->turns ? -ENOMEM : threads_start(attacher);
}

int gp_attacher_open(struct gp_attacher **out, const struct gp_attacher_options *options, char *why, size_t why_bytes)
{
    *out = NULL;
#ifndef __x86_64__
    snprintf(why, why_bytes, "--attach-containers: 'gpuprof attach' works on x86-64 only");
    return -ENOTSUP;
#endif
    if (!may_trace()) {
        snprintf(why, why_bytes, "--attach-containers needs the capability CAP_SYS_PTRACE, which the agent lacks");
        return -EPERM;
    }
    struct gp_attacher *attacher = calloc(1, sizeof(*attacher));
    int error = attacher ? attacher_init(attacher, options) : -ENOMEM;
    if (error) {
        snprintf(why, why_bytes, "the threads for --attach-containers: %s", strerror(-error));
        gp_attacher_close(attacher);
        return error;
    }
    *out = attacher;
    return 0;
}

void gp_attacher_close(struct gp_attacher *attacher)
{
    if (!attacher)
        return;
    if (!threads_end(attacher)) {
        gp_agent_log(GP_AGENTLOG_NOTICE, "an attach is under way and goes on without the agent");
        return; /* and its memory stays allocated */
    }
    if (attacher->stop >= 0)
        close(attacher->stop);
    gp_attacher_turns_free(attacher->turns);
    free(attacher);
}

struct gp_attacher_count gp_attacher_count(const struct gp_attacher *attacher)
{
    struct gp_attacher_count count = {__atomic_load_n(&attacher->count.attached, __ATOMIC_RELAXED),
                                      __atomic_load_n(&attacher->count.refused, __ATOMIC_RELAXED)};
    return count;
}
