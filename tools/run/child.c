/* SPDX-License-Identifier: MIT
 *
 * child.c: runs a program as a child: forwards signals, follows stops, keeps the exit status; see
 * launch.h. The child stays in the process group of the command, so the kernel sends signals of
 * the terminal (^C, ^\, ^Z, a change of size) to both, and these are not forwarded. No handler is
 * installed and no disposition changed: the signals are blocked and fetched one by one, and the
 * child gets the old mask back.
 */
#include <common/messages.h>
#include <errno.h>
#include <run/launch.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Replaces this process with the program.  Returns only on failure: 126 or 127, after a message. */
static int launch_exec(const struct gp_launch *launch)
{
    execvp(launch->argv[0], launch->argv);
    int error = errno;
    gp_error(launch->command, "%s: %s", launch->argv[0], strerror(error));
    return error == ENOENT ? GP_EXIT_NOT_FOUND : GP_EXIT_CANNOT_RUN;
}

static const int child_signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,  SIGUSR1,
                                    SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH, SIGCHLD};

static void child_set(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < GP_COUNT(child_signals); i++)
        sigaddset(set, child_signals[i]);
}

int gp_launch_child_start(struct gp_child *child, const struct gp_launch *launch)
{
    sigset_t set, before;
    struct sigaction chld = {.sa_handler = SIG_DFL}, chld_before;
    memset(child, 0, sizeof(*child));
    child_set(&set);
    sigprocmask(SIG_BLOCK, &set, &before);
    /* If SIGCHLD is ignored, which is inherited, the kernel discards the status.  The child gets
     * the old setting. */
    sigaction(SIGCHLD, &chld, &chld_before);
    child->pid = fork();
    if (child->pid == 0) {
        sigaction(SIGCHLD, &chld_before, NULL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        _exit(launch->instead ? launch->instead(launch->data) : launch_exec(launch));
    }
    return child->pid < 0 ? -errno : 0;
}

static void child_status(struct gp_child *child)
{
    int status;
    while (!child->ended) {
        pid_t pid = waitpid(child->pid, &status, WNOHANG | WUNTRACED);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid == 0)
            return;
        if (pid > 0 && WIFSTOPPED(status)) {
            /* Stop too, so that the shell sees a stopped job; when it continues this process,
             * continue the child. */
            raise(SIGSTOP);
            kill(child->pid, SIGCONT);
            continue;
        }
        child->ended = true;
        if (pid < 0)
            child->status = GP_EXIT_FAILED;
        else
            child->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
}

void gp_launch_child_wait(struct gp_child *child, uint64_t timeout_ns)
{
    struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    siginfo_t info;
    sigset_t set;
    child_set(&set);
    int number = sigtimedwait(&set, &info, &timeout);
    bool from_user =
        number > 0 && info.si_code <= 0; /* kill, tgkill, sigqueue; signals of the terminal have SI_KERNEL */
    if (from_user && number != SIGCHLD && !child->ended)
        kill(child->pid, number);
    child_status(child);
}
