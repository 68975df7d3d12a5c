/* SPDX-License-Identifier: MIT
 *
 * kid.c: see kid.h.
 */
#include "lib/kid.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void kid_exec_file(void *arg, int exec_fd)
{
    const char *name = strrchr(arg, '/');
    (void)exec_fd;
    execl(arg, name ? name + 1 : arg, (char *)NULL);
}

int kid_begin(struct kid *kid, void (*exec)(void *arg, int exec_fd), void *arg)
{
    int to[2], from[2], ended[2];
    *kid = (struct kid){.exec_fd = -1};
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0 || pipe2(ended, O_CLOEXEC) != 0)
        return -errno;
    kid->pid = fork();
    if (kid->pid == 0) {
        sigset_t none;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        dup2(to[0], 0);
        dup2(from[1], 1);
        exec(arg, ended[1]);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    close(ended[1]);
    kid->to = fdopen(to[1], "w");
    kid->from = fdopen(from[0], "r");
    kid->exec_fd = ended[0];
    return kid->pid > 0 && kid_answer(kid) == 0 ? 0 : -ECHILD;
}

long long kid_answer(struct kid *kid)
{
    char line[64];
    return fgets(line, sizeof(line), kid->from) ? atoll(line) : -1;
}

static void kid_write(struct kid *kid, const char *format, va_list args)
{
    vfprintf(kid->to, format, args);
    fputc('\n', kid->to);
    fflush(kid->to);
}

void kid_send(struct kid *kid, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    kid_write(kid, format, args);
    va_end(args);
}

long long kid_tell(struct kid *kid, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    kid_write(kid, format, args);
    va_end(args);
    return kid_answer(kid);
}

int kid_end(struct kid *kid, int with)
{
    int status = -1;
    if (kid->pid <= 0)
        return -1;
    if (with)
        kill(kid->pid, with);
    fclose(kid->to);
    while (waitpid(kid->pid, &status, 0) < 0 && errno == EINTR) {
    }
    fclose(kid->from);
    close(kid->exec_fd);
    kid->pid = 0;
    return status;
}
