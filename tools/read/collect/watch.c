/* SPDX-License-Identifier: MIT
 * watch.c: see watch.h. */
#define _GNU_SOURCE /* O_PATH */
#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>
#include <read/collect/watch.h>

#include <base/clock.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bounds of one search: a program that starts thousands of threads or processes must not keep the
 * viewer busy. */
#define GP_WATCH_DEPTH   16
#define GP_WATCH_THREADS 256
/* Requests without an answer after which a process is not asked again: it has become another program,
 * or its library starts for longer than a second. */
#define GP_WATCH_UNANSWERED 50u

/* Since when the process runs its program, if that is known. */
static uint64_t watch_exec(struct gp_watch *watch, const struct gp_proc *proc)
{
    const unsigned most = sizeof(watch->seen) / sizeof(watch->seen[0]);
    struct gp_watch_seen *seen = NULL;
    struct stat program;
    if (fstatat(proc->dir, "exe", &program, 0) != 0)
        return 0;
    for (unsigned i = 0; !seen && i < most && i < watch->seen_count; i++)
        if (watch->seen[i].pid == proc->pid && watch->seen[i].start_time == proc->start_time)
            seen = &watch->seen[i];
    if (seen && (seen->device != program.st_dev || seen->inode != program.st_ino))
        seen->exec_ns = gp_clock_ns();
    if (!seen) {
        seen = &watch->seen[watch->seen_count++ % most];
        *seen = (struct gp_watch_seen){.pid = proc->pid, .start_time = proc->start_time};
    }
    seen->device = program.st_dev;
    seen->inode = program.st_ino;
    return seen->exec_ns;
}

static void watch_keep(struct gp_watch *watch, const struct gp_proc *proc, struct gp_peer *session, uint64_t exec_ns)
{
    for (int i = 0; i < watch->count; i++) {
        if (memcmp(watch->watched[i]->session.id, session->id, sizeof(session->id)) == 0 &&
            watch->watched[i]->process.pid == proc->pid) {
            gp_peer_close(session);
            return;
        }
    }
    struct gp_watched *watched = watch->count < GP_WATCH_MOST ? calloc(1, sizeof(*watched)) : NULL;
    if (!watched) {
        watch->left_out++;
        gp_peer_close(session);
        return;
    }
    watched->session = *session;
    watched->exec_ns = exec_ns;
    gp_proc_describe(proc, &watched->process);
    watch->watched[watch->count++] = watched;
}

/* Its session is held already.  A look at a program with many descriptors takes half as long then. */
static bool watch_holds(const struct gp_watch *watch, const struct gp_proc *proc)
{
    for (int i = watch->count; i-- > 0;)
        if (watch->watched[i]->process.pid == proc->pid && watch->watched[i]->process.start_time == proc->start_time)
            return gp_peer_stays(&watch->watched[i]->session, proc); /* the last one: an exec makes another */
    return false;
}

static void watch_process(struct gp_watch *watch, pid_t pid, int depth);

static void watch_children(struct gp_watch *watch, const struct gp_proc *proc, int depth)
{
    int fd = openat(proc->process, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *tasks = fd >= 0 ? fdopendir(fd) : NULL;
    if (!tasks) {
        if (fd >= 0)
            close(fd);
        return;
    }
    struct dirent *task;
    for (int n = 0; n < GP_WATCH_THREADS && (task = readdir(tasks)); n++) {
        char name[300], text[4096];
        if (task->d_name[0] == '.')
            continue;
        snprintf(name, sizeof(name), "%s/children", task->d_name);
        if (gp_proc_read(fd, name, text, sizeof(text)) <= 0)
            continue;
        for (char *at = text, *end;; at = end) {
            long pid = strtol(at, &end, 10);
            if (end == at)
                break;
            watch_process(watch, (pid_t)pid, depth + 1);
        }
    }
    closedir(tasks);
}

/* depth < 0: only this process. */
static void watch_process(struct gp_watch *watch, pid_t pid, int depth)
{
    struct gp_proc proc;
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES];
    if (depth > GP_WATCH_DEPTH || gp_proc_open(&proc, pid) != 0)
        return;
    const uint64_t exec_ns = watch_exec(watch, &proc);
    if (!watch_holds(watch, &proc) && gp_peer_open(&session, &proc, problem) == 0)
        watch_keep(watch, &proc, &session, exec_ns);
    if (depth >= 0)
        watch_children(watch, &proc, depth);
    gp_proc_close(&proc);
}

int gp_watch_look(struct gp_watch *watch, pid_t root, bool deep)
{
    int before = watch->count;
    watch_process(watch, root, deep ? 0 : -1);
    return watch->count - before;
}

void gp_watch_ask(struct gp_watch *watch, uint64_t each_ns)
{
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot));
    for (int i = 0; slot && i < watch->count; i++) {
        struct gp_watched *watched = watch->watched[i];
        if (watched->unanswered >= GP_WATCH_UNANSWERED)
            continue;
        *slot = (struct gp_wire_slot){.command = GP_COMMAND_SNAPSHOT, .device = -1};
        bool gone = kill(watched->process.pid, 0) != 0 && errno == ESRCH;
        bool answered = !gone && gp_mailbox_call(&watched->session, slot, gp_clock_ns() + each_ns) == 0;
        watched->unanswered = answered ? 0 : gone ? GP_WATCH_UNANSWERED : watched->unanswered + 1;
    }
    free(slot);
}

int gp_watch_read(struct gp_watched *watched)
{
    gp_peer_drop(&watched->process);
    watched->process.scope_count = watched->process.failure_count = 0;
    int rc = gp_peer_read(&watched->session, &watched->process);
    if (watched->process.state == GP_PROCESS_STALE && watched->process.closed)
        watched->process.state = GP_PROCESS_LIVE;
    return rc;
}

void gp_watch_free(struct gp_watch *watch)
{
    for (int i = 0; i < watch->count; i++) {
        gp_peer_drop(&watch->watched[i]->process);
        gp_peer_close(&watch->watched[i]->session);
        free(watch->watched[i]->recording);
        free(watch->watched[i]);
    }
    watch->count = 0;
}
