/* SPDX-License-Identifier: MIT
 *
 * procopen.c: see discover.h. Descriptors travel in both directions (SCM_RIGHTS), so what is opened is
 * bound to the caller's folder, and not to a number that another process may have by now.
 */
#include <agent/find/discover.h>

#include <base/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <read/common/foreign.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCOPEN_DEAD 16u /* killed and not waited for yet */

struct gp_procopen {
    pid_t pid; /* 0: none */
    int socket;
    pid_t dead[PROCOPEN_DEAD];
};

struct procopen_ask {
    int flags;
    char name[64];
};

/* ---- the process ------------------------------------------------------------------------------------------------- */

/* After a fork of a process with threads: system calls only. Of the agent's descriptors it keeps only the
 * socket: the agent's lock ends with the agent. */
static _Noreturn void procopen_serve(int socket, pid_t parent)
{
    struct procopen_ask ask;
    sigset_t all;
    int folder;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    gp_foreign_fd_keep(socket, -1);
    while (gp_foreign_fd_receive(STDIN_FILENO, &ask, sizeof(ask), &folder) == 0) {
        int file = openat(folder, ask.name, ask.flags), error = file < 0 ? errno : 0;
        if (gp_foreign_fd_send(STDIN_FILENO, &error, sizeof(error), file))
            break;
        close(folder);
        if (file >= 0)
            close(file);
    }
    _exit(0);
}

static void procopen_reap(struct gp_procopen *procopen)
{
    for (unsigned i = 0; i < PROCOPEN_DEAD; i++)
        if (procopen->dead[i] && waitpid(procopen->dead[i], NULL, WNOHANG) != 0)
            procopen->dead[i] = 0;
}

/* Does not wait for its end: a killed process leaves the kernel when it can. */
static void procopen_end(struct gp_procopen *procopen)
{
    if (!procopen->pid)
        return;
    kill(procopen->pid, SIGKILL);
    close(procopen->socket);
    for (unsigned i = 0; i < PROCOPEN_DEAD && procopen->pid; i++)
        if (!procopen->dead[i]) {
            procopen->dead[i] = procopen->pid;
            procopen->pid = 0;
        }
    procopen->pid = 0;
    procopen_reap(procopen);
}

static int procopen_start(struct gp_procopen *procopen)
{
    int sockets[2];
    pid_t parent = getpid();
    procopen_reap(procopen);
    for (unsigned i = 0; i < PROCOPEN_DEAD; i++)
        if (!procopen->dead[i])
            break;
        else if (i == PROCOPEN_DEAD - 1)
            return -EAGAIN; /* so many do not end: do not make more */
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0)
        procopen_serve(sockets[1], parent);
    int error = pid < 0 ? -errno : 0;
    close(sockets[1]);
    if (error) {
        close(sockets[0]);
        return error;
    }
    procopen->pid = pid;
    procopen->socket = sockets[0];
    return 0;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static int procopen_wait(const struct gp_procopen *procopen)
{
    uint64_t until = gp_clock_ns() + GP_PROCOPEN_PATIENCE_NS;
    for (uint64_t now; (now = gp_clock_ns()) < until;) {
        struct pollfd at = {.fd = procopen->socket, .events = POLLIN};
        int ready = poll(&at, 1, (int)((until - now) / 1000000) + 1);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return -errno;
    }
    return -ETIMEDOUT;
}

static int procopen_once(struct gp_procopen *procopen, int folder, struct procopen_ask *ask)
{
    int answer = 0, file = -1, error = procopen->pid ? 0 : procopen_start(procopen);
    if (error)
        return error;
    error = gp_foreign_fd_send(procopen->socket, ask, sizeof(*ask), folder);
    if (!error)
        error = procopen_wait(procopen);
    if (!error)
        error = gp_foreign_fd_receive(procopen->socket, &answer, sizeof(answer), &file);
    if (error) { /* an answer that comes later would be taken for that of the next call */
        procopen_end(procopen);
        return error == -ETIMEDOUT ? error : -ECHILD;
    }
    return answer ? -answer : file < 0 ? -EMFILE : file;
}

int gp_procopen_open(struct gp_procopen *procopen, int folder, const char *name, int flags)
{
    struct procopen_ask ask = {.flags = flags | O_CLOEXEC};
    size_t bytes = strlen(name);
    if (bytes >= sizeof(ask.name))
        return -ENAMETOOLONG;
    memcpy(ask.name, name, bytes);
    int fd = procopen_once(procopen, folder, &ask);
    return fd == -ECHILD ? procopen_once(procopen, folder, &ask) : fd; /* the process was killed meanwhile */
}

struct gp_procopen *gp_procopen_new(void)
{
    return calloc(1, sizeof(struct gp_procopen));
}

void gp_procopen_free(struct gp_procopen *procopen)
{
    if (!procopen)
        return;
    procopen_end(procopen);
    for (int i = 0; i < 20; i++) {
        procopen_reap(procopen);
        bool is_left = false;
        for (unsigned k = 0; k < PROCOPEN_DEAD; k++)
            is_left |= procopen->dead[k] != 0;
        if (!is_left)
            break;
        usleep(5000);
    }
    free(procopen);
}
