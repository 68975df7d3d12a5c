/* SPDX-License-Identifier: MIT
 *
 * spawn.c: see spawn.h.  Called by the integration tests; kills only processes that it started.
 */
#include "lib/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "lib/paths.h"

/* High numbers, so that the program's open() returns the same numbers as without the harness. */
#define SPAWN_FD_HOLD 200
#define SPAWN_FD_GO   201

extern char **environ;

static long long spawn_now_ms(void)
{
    return (long long)(gp_clock_ns() / 1000000);
}

/* ---- in the child, between fork and exec --------------------------------------------------------------------- */

/* Makes one way to make a thread or a memory file fail in the whole program. Children inherit the filter. */
static void spawn_seccomp(bool want_thread, bool want_memfd)
{
#define SPAWN_LOAD(_field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, _field))
    struct sock_filter filter[] = {
        SPAWN_LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, want_memfd ? SYS_memfd_create : 0xffffffffu, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, want_thread ? SYS_clone3 : 0xffffffffu, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, want_thread ? SYS_clone : 0xffffffffu, 0, 4),
        SPAWN_LOAD(args[0]), /* little end first: the low half holds CLONE_THREAD */
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 2),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS), /* libc then falls back to clone */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(125);
}

static void spawn_setenv(const char *entry)
{
    const char *equals = strchr(entry, '=');
    char name[64];
    if (equals == NULL) {
        unsetenv(entry);
        return;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(equals - entry), entry);
    setenv(name, equals + 1, 1);
}

/* The program gets only the test's CUDA and gpuprof settings, none of the caller's environment. */
static void spawn_environment(const struct spawn_options *options)
{
    static const char *const ours[] = {"CUDA_", "GPUPROF_", "LD_PRELOAD=", "LD_LIBRARY_PATH=", "NVTX_"};
    const char *library = path_library(), *sim = path_sim(); /* before GPUPROF_BUILD is removed too */
    char number[16], shim[PATH_MAX];
    size_t i;
    char **entry;
    for (entry = environ; *entry != NULL;) {
        for (i = 0; i < sizeof(ours) / sizeof(ours[0]) && strncmp(*entry, ours[i], strlen(ours[i])) != 0; i++) {
        }
        if (i == sizeof(ours) / sizeof(ours[0])) {
            entry++;
            continue;
        }
        char name[128];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
        unsetenv(name); /* moves the rest down: same place again */
    }
    setenv("LD_LIBRARY_PATH", sim, 1);
    if (options->want_library && options->source != NULL) {
        snprintf(shim, sizeof(shim), "%.*s/libgpuprof-shim.so", (int)(strrchr(library, '/') - library), library);
        setenv("LD_PRELOAD", shim, 1);
        setenv("GPUPROF_SOURCE", options->source, 1);
    } else if (options->want_library) {
        setenv("CUDA_INJECTION64_PATH", library, 1);
    }
    if (options->sim != NULL)
        setenv("GPUPROF_SIM", options->sim, 1);
    if (options->want_hold) {
        snprintf(number, sizeof(number), "%d", SPAWN_FD_HOLD);
        setenv("GPUPROF_TEST_HOLD", number, 1);
        snprintf(number, sizeof(number), "%d", SPAWN_FD_GO);
        setenv("GPUPROF_TEST_GO", number, 1);
    }
    for (i = 0; options->env != NULL && options->env[i] != NULL; i++)
        spawn_setenv(options->env[i]);
}

/* GPUPROF_TEST_ROOT names a root with another C library, in which the programs run (tests/real/roots.sh).  The command does not. */
static void spawn_root(const char *root)
{
    if (root != NULL && (chroot(root) != 0 || chdir("/") != 0)) {
        dprintf(2, "cannot enter %s: %s\n", root, strerror(errno));
        _exit(127);
    }
}

static void spawn_child(const struct spawn_options *options, const struct spawn *spawn, int hold_write, int go_read)
{
    sigset_t none;
    const char *root = getenv("GPUPROF_TEST_ROOT");
    int null = open("/dev/null", O_RDONLY), fd;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the program does not survive a killed test */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(null, 0);
    dup2(spawn->out_fd, 1);
    dup2(spawn->err_fd, 2);
    if (options->want_hold) {
        dup2(hold_write, SPAWN_FD_HOLD);
        dup2(go_read, SPAWN_FD_GO);
    }
    /* Descriptors that the test runner left open would change the program's numbers. */
    for (fd = 3; fd < 1024; fd++)
        if (!options->want_hold || (fd != SPAWN_FD_HOLD && fd != SPAWN_FD_GO))
            close(fd);
    root = root != NULL && strcmp(options->argv[0], path_command()) != 0 ? strdup(root) : NULL;
    spawn_environment(options);
    spawn_root(root);
    if (options->want_seccomp_thread || options->want_seccomp_memfd)
        spawn_seccomp(options->want_seccomp_thread, options->want_seccomp_memfd);
    execv(options->argv[0], (char *const *)options->argv);
    dprintf(2, "cannot run %s: %s\n", options->argv[0], strerror(errno));
    _exit(127);
}

/* ---- in the test --------------------------------------------------------------------------------------------- */

int spawn_start(struct spawn *spawn, const struct spawn_options *options)
{
    int hold[2] = {-1, -1}, go[2] = {-1, -1};
    int seconds = options->seconds ? options->seconds : SPAWN_SECONDS;
    *spawn = (struct spawn){.hold_fd = -1, .go_fd = -1, .deadline_ms = spawn_now_ms() + seconds * 1000};
    spawn->out_fd = memfd_create("out", MFD_CLOEXEC);
    spawn->err_fd = memfd_create("err", MFD_CLOEXEC);
    if (spawn->out_fd < 0 || spawn->err_fd < 0 ||
        (options->want_hold && (pipe2(hold, O_CLOEXEC) != 0 || pipe2(go, O_CLOEXEC) != 0)))
        return -errno;
    /* Appending: parent and child of the program share the file's offset anyway, but a reopened stdout would not. */
    fcntl(spawn->out_fd, F_SETFL, O_APPEND);
    fcntl(spawn->err_fd, F_SETFL, O_APPEND);
    spawn->pid = fork();
    if (spawn->pid == 0)
        spawn_child(options, spawn, hold[1], go[0]);
    if (spawn->pid < 0)
        return -errno;
    setpgid(spawn->pid, spawn->pid); /* either of the two may come first */
    spawn->pidfd = (int)syscall(SYS_pidfd_open, spawn->pid, 0);
    if (options->want_hold) {
        close(hold[1]);
        close(go[0]);
        spawn->hold_fd = hold[0];
        spawn->go_fd = go[1];
    }
    return spawn->pidfd < 0 ? -errno : 0;
}

/* 1: readable within the deadline; 0: the deadline has passed. */
static int spawn_poll(const struct spawn *spawn, int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    long long left;
    do {
        left = spawn->deadline_ms - spawn_now_ms();
    } while (left > 0 && poll(&wait, 1, (int)left) < 0 && errno == EINTR);
    return wait.revents != 0;
}

int spawn_wait_held(struct spawn *spawn, int count)
{
    char line[16];
    size_t len = 0;
    while (spawn->held_count < count) {
        if (!spawn_poll(spawn, spawn->hold_fd))
            return -ETIMEDOUT;
        if (read(spawn->hold_fd, line + len, 1) != 1)
            return -ESRCH; /* all writers have closed it */
        if (line[len] == '\n') {
            line[len] = '\0';
            spawn->held[spawn->held_count++] = (pid_t)atoi(line);
            len = 0;
        } else if (len < sizeof(line) - 2) {
            len++;
        }
    }
    return 0;
}

void spawn_release(struct spawn *spawn)
{
    if (spawn->go_fd >= 0) {
        close(spawn->go_fd);
        spawn->go_fd = -1;
    }
}

int spawn_step(struct spawn *spawn)
{
    if (write(spawn->go_fd, "g", 1) != 1)
        return -errno;
    spawn->held_count = 0;
    return spawn_wait_held(spawn, 1);
}

void spawn_kill(struct spawn *spawn, int signal)
{
    if (spawn->pid > 0)
        kill(-spawn->pid, signal);
}

int spawn_stop(pid_t child)
{
    siginfo_t info;
    return kill(child, SIGSTOP) == 0 && waitid(P_PID, (id_t)child, &info, WSTOPPED) == 0 ? 0 : -errno;
}

static char *spawn_collect(int fd, size_t *len_out)
{
    off_t len = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)len + 1);
    *len_out = (size_t)pread(fd, text, (size_t)len, 0);
    close(fd);
    return text;
}

void spawn_finish(struct spawn *spawn, struct spawn_result *result)
{
    *result = (struct spawn_result){.status = -1};
    spawn_release(spawn);
    if (!spawn_poll(spawn, spawn->pidfd))
        result->is_timed_out = true;
    if (result->is_timed_out)
        spawn_kill(spawn, SIGKILL);
    while (waitpid(spawn->pid, &result->status, 0) < 0 && errno == EINTR) {
    }
    spawn->pid = 0;
    close(spawn->pidfd);
    if (spawn->hold_fd >= 0)
        close(spawn->hold_fd);
    result->out = spawn_collect(spawn->out_fd, &result->out_len);
    result->err = spawn_collect(spawn->err_fd, &result->err_len);
}

void spawn_result_free(struct spawn_result *result)
{
    free(result->out);
    free(result->err);
    *result = (struct spawn_result){0};
}

int spawn_run(const struct spawn_options *options, struct spawn_result *result)
{
    struct spawn spawn;
    int status = spawn_start(&spawn, options);
    if (status == 0)
        spawn_finish(&spawn, result);
    return status;
}

int spawn_command(struct spawn_result *result, const char *first, ...)
{
    const char *argv[32] = {path_command(), first};
    int count = 2;
    va_list more;
    va_start(more, first);
    while (count < 31 && (argv[count] = va_arg(more, const char *)) != NULL)
        count++;
    va_end(more);
    argv[count] = NULL;
    return spawn_run(&(struct spawn_options){.argv = argv}, result);
}

const char *spawn_status_text(const struct spawn_result *result)
{
    static char text[32];
    if (result->is_timed_out)
        return "timed out";
    if (WIFSIGNALED(result->status))
        snprintf(text, sizeof(text), "signal %d", WTERMSIG(result->status));
    else
        snprintf(text, sizeof(text), "exit %d", WEXITSTATUS(result->status));
    return text;
}
