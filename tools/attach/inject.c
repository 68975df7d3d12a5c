/* SPDX-License-Identifier: MIT
 *
 * inject.c: the way in by ptrace.  Called by attach.c.
 *
 * A thread that sleeps in a system call is stopped, maps memory, starts a thread of ours in it and
 * goes back to its call.  The new thread makes a memory file, waits until this process has written the
 * library there, loads it from /proc/self/fd/N, which means the same file in every mount namespace,
 * and calls gpuprof_attach.  Then it closes the file, unmaps the memory and ends.
 */
#include <attach/attach.h>
#include <attach/facts.h>
#include <attach/inject.h>
#include <attach/remote.h>
#include <attach/seize.h>
#include <attach/stub.h>
#include <attach/unwind.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>

#include <base/clock.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define GP_INJECT_CODE     4096u /* first the code, then the data, then the stack of the borrowed thread */
#define GP_INJECT_REGION   (256u << 10)
#define GP_INJECT_THREADS  4096
#define GP_INJECT_BUSY_NS  300000000ull /* from then on a running thread may be taken too */
#define GP_INJECT_CALL_NS  10000000000ull
#define GP_INJECT_CLEAN_NS 2000000000ull
#define GP_INJECT_STOP_NS  1000000000ull /* longer than the look for a thread, which may end in between */
#define GP_INJECT_SPIN_NS  200000000ull  /* how long the borrowed thread waits to be taken back */
#if defined(__x86_64__)
#define GP_INJECT_RELAX() __builtin_ia32_pause()
#else
#define GP_INJECT_RELAX()
#endif
#define GP_INJECT_SYMBOL "gpuprof_attach"
#define GP_INJECT_FILE   "gpuprof/libgpuprof.so" /* stacks and owners know the library by its last part */

enum {
    INJECT_PTHREAD_CREATE,
    INJECT_PTHREAD_DETACH,
    INJECT_ERRNO,
    INJECT_DLOPEN,
    INJECT_DLSYM,
    INJECT_DLERROR,
    INJECT_MUNMAP,
    INJECT_SYMBOLS
};

static const char *const inject_names[INJECT_SYMBOLS] = {
    "pthread_create", "pthread_detach", "__errno_location", "dlopen", "dlsym", "dlerror", "munmap"};

/* syscall; ret */
static const uint8_t inject_enter[] = {0x0f, 0x05, 0xc3};
/* mov $15, %rax; syscall: what debuggers know as the end of a signal handler. */
static const uint8_t inject_back[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};

struct inject {
    struct gp_attach *attach;
    const struct gp_facts *facts;
    struct gp_unwind *unwind;
    struct gp_stacks *stacks;
    int pidfd; /* -1: this kernel has none */
    uint64_t symbols[INJECT_SYMBOLS], entry;
    struct gp_seize_code code;
    uint32_t spins;           /* rounds of the borrowed thread's wait */
    uint64_t region;          /* in the process; 0 none */
    char last[GP_ATTACH_WHY]; /* why the last thread was not taken */
};

static void inject_pause(long microseconds)
{
    const struct timespec pause = {0, microseconds * 1000};
    nanosleep(&pause, NULL);
}

/* ---- preparation ------------------------------------------------------------------------------------------------- */

static enum gp_attach_outcome inject_symbols(struct inject *inject)
{
    const struct gp_facts *facts = inject->facts;
    pid_t pid = facts->pid;
    gp_remote_symbols(pid, &facts->libc, inject_names, inject->symbols, INJECT_SYMBOLS);
    gp_remote_symbols(pid, &facts->libpthread, inject_names, inject->symbols, INJECT_SYMBOLS);
    gp_remote_symbols(pid, &facts->libdl, inject_names, inject->symbols, INJECT_SYMBOLS);
    for (int i = 0; i < INJECT_SYMBOLS; i++) {
        if (inject->symbols[i])
            continue;
        gp_attach_why(inject->attach, "start it with 'gpuprof run'",
                      "its C library (%.200s) has no %s that can be called", facts->libc.path, inject_names[i]);
        return GP_ATTACH_REFUSED;
    }
    const char *entry = GP_INJECT_SYMBOL;
    if (facts->profiler.path[0] &&
        (gp_remote_symbols(pid, &facts->profiler, &entry, &inject->entry, 1) != 0 || !inject->entry)) {
        gp_attach_why(inject->attach, "start it with 'gpuprof run'",
                      "an older libgpuprof.so is loaded there (%.200s), which cannot be attached",
                      facts->profiler.path);
        return GP_ATTACH_REFUSED;
    }
    inject->code = (struct gp_seize_code){
        .enter = gp_remote_code(pid, &facts->libc, inject_enter, sizeof(inject_enter)),
        .back = gp_remote_code(pid, &facts->libc, inject_back, sizeof(inject_back)),
        .stacks = inject->stacks,
    };
    if (inject->code.enter && inject->code.back)
        return GP_ATTACH_DONE;
    gp_attach_why(inject->attach, "", "its C library (%.200s) is not one that is understood", facts->libc.path);
    return GP_ATTACH_REFUSED;
}

static enum gp_attach_outcome inject_gone(struct inject *inject)
{
    gp_attach_why(inject->attach, "", "it ended, or began to run another program");
    return GP_ATTACH_GONE;
}

static bool inject_is_there(const struct inject *inject)
{
    uint8_t byte;
    return gp_remote_read(inject->attach->pid, &byte, 1, inject->facts->libc.start) == 0;
}

/* How many rounds of the loop in stub.c take GP_INJECT_SPIN_NS on this machine. */
static uint32_t inject_spins(void)
{
    uint64_t begin = gp_clock_ns(), took = 0, spins = 0;
    while (took < 200000) {
        for (int i = 0; i < 200; i++)
            GP_INJECT_RELAX();
        spins += 200;
        took = gp_clock_ns() - begin;
    }
    return (uint32_t)(spins * (GP_INJECT_SPIN_NS / took + 1));
}

static enum gp_attach_outcome inject_prepare(struct inject *inject)
{
    char path[80], folder[GP_PROC_FOLDER];
#if !defined(__x86_64__)
    gp_attach_why(inject->attach, "start the program with 'gpuprof run'",
                  "attaching by ptrace is not implemented on this processor, only on x86-64");
    return GP_ATTACH_IMPOSSIBLE;
#endif
    snprintf(path, sizeof(path), "%s/root/proc/self", gp_proc_folder(inject->facts->pid, folder));
    struct stat status;
    if (!inject->facts->profiler.path[0] && lstat(path, &status) != 0) {
        gp_attach_why(inject->attach, "mount one there", "there is no /proc in its file system");
        return GP_ATTACH_REFUSED;
    }
    inject->stacks = gp_unwind_stacks_new(inject->facts->pid);
    enum gp_attach_outcome outcome = inject_symbols(inject);
    if (outcome != GP_ATTACH_DONE)
        return inject_is_there(inject) ? outcome : inject_gone(inject);
    inject->spins = inject_spins();
    inject->unwind = gp_unwind_new(inject->facts->pid);
    if (inject->unwind && inject->stacks)
        return GP_ATTACH_DONE;
    gp_attach_why(inject->attach, "", "the stacks of its threads cannot be read");
    return GP_ATTACH_REFUSED;
}

/* ---- the choice of a thread -------------------------------------------------------------------------------------- */

enum inject_rank {
    INJECT_SLEEPS,  /* in a call that the kernel starts again as if nothing had been */
    INJECT_WAITS,   /* in one that is made again by us, and has no timeout */
    INJECT_TIMEOUT, /* in one that is made again with its whole timeout */
    INJECT_RUNS,
    INJECT_NEVER,
};

/* For how many bytes a read of this socket or terminal waits: it returns for a stop with what it
 * has. Another descriptor for the same file is the only way to ask. */
static int inject_least(const struct inject *inject, int fd, bool is_socket)
{
    struct termios terminal;
    int least = 2, mine = inject->pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, inject->pidfd, fd, 0);
    socklen_t bytes = sizeof(least);
    if (mine < 0)
        return least; /* unknown */
    if (is_socket)
        getsockopt(mine, SOL_SOCKET, SO_RCVLOWAT, &least, &bytes);
    else if (tcgetattr(mine, &terminal) != 0 || terminal.c_lflag & ICANON)
        least = 1;
    else
        least = terminal.c_cc[VMIN];
    close(mine);
    return least;
}

static enum inject_rank inject_rank_read(const struct inject *inject, int fd)
{
    struct statx about;
    char path[64], folder[GP_PROC_FOLDER];
    snprintf(path, sizeof(path), "%s/fd/%d", gp_proc_folder(inject->attach->pid, folder), fd);
    /* Asks no server of a file system, which could keep this command waiting. */
    if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE, &about) != 0)
        return INJECT_NEVER;
    bool is_socket = S_ISSOCK(about.stx_mode);
    if (!is_socket && !S_ISCHR(about.stx_mode))
        return INJECT_SLEEPS;
    return inject_least(inject, fd, is_socket) > 1 ? INJECT_NEVER : INJECT_SLEEPS;
}

static enum inject_rank inject_rank_of(const struct inject *inject, long number, const unsigned long long *arguments)
{
    switch (number) {
#if defined(__x86_64__)
    case SYS_read:
        return inject_rank_read(inject, (int)arguments[0]);
    case SYS_recvfrom:
        return arguments[3] & MSG_WAITALL ? INJECT_NEVER : inject_rank_read(inject, (int)arguments[0]);
    case SYS_recvmsg:
        return arguments[2] & MSG_WAITALL ? INJECT_NEVER : inject_rank_read(inject, (int)arguments[0]);
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_pause:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_accept:
    case SYS_accept4:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_futex:
    case SYS_rt_sigsuspend:
    case SYS_restart_syscall: /* one of these, after an earlier stop */
        return INJECT_SLEEPS;
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
        return (int)arguments[3] < 0 ? INJECT_WAITS : INJECT_TIMEOUT;
    case SYS_rt_sigtimedwait:
        return !arguments[2] ? INJECT_WAITS : INJECT_TIMEOUT;
    case SYS_msgrcv:
    case SYS_semop:
        return INJECT_WAITS;
#endif
    default:
        (void)inject, (void)arguments;
        return INJECT_NEVER;
    }
}

static enum inject_rank inject_look(const struct inject *inject, pid_t tid)
{
    char path[64], text[256];
    unsigned long long arguments[6] = {0};
    long number;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)inject->attach->pid, (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    if (strncmp(text, "running", 7) == 0)
        return INJECT_RUNS;
    if (sscanf(text, "%ld %llx %llx %llx %llx %llx %llx", &number, &arguments[0], &arguments[1], &arguments[2],
               &arguments[3], &arguments[4], &arguments[5]) != 7)
        return INJECT_NEVER;
    return inject_rank_of(inject, number, arguments);
}

/* How many; 0: the process has ended; -errno. */
static int inject_threads(pid_t pid, pid_t *tids)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    if (!folder)
        return errno == ENOENT || errno == ESRCH ? 0 : -errno;
    for (const struct dirent *entry; count < GP_INJECT_THREADS && (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            tids[count++] = (pid_t)atoi(entry->d_name);
    closedir(folder);
    return count;
}

/* A thread inside setuid or one of its kin holds a lock that the start of a thread needs, until all
 * threads have handled its signal.  The thread that has not; 0: none. */
static pid_t inject_setxid(pid_t pid, const pid_t *tids, int count)
{
    char path[64], text[4096];
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tids[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (fd >= 0)
            close(fd);
        text[got > 0 ? got : 0] = '\0';
        if (gp_facts_number(text, "SigPnd", 16, 0) >> (GP_SETXID_SIGNAL - 1) & 1)
            return tids[i];
    }
    return 0;
}

/* ---- in the borrowed thread -------------------------------------------------------------------------------------- */

static int inject_fill(struct inject *inject, struct gp_seized *seized)
{
    const uint64_t *symbols = inject->symbols, data_at = inject->region + GP_INJECT_CODE;
    size_t code_bytes = (size_t)(gp_stub_end - gp_stub_begin);
    struct gp_stub_data *data = calloc(1, sizeof(*data));
    if (!data)
        return -ENOMEM;
    *data = (struct gp_stub_data){.pthread_create = symbols[INJECT_PTHREAD_CREATE],
                                  .pthread_detach = symbols[INJECT_PTHREAD_DETACH],
                                  .errno_location = symbols[INJECT_ERRNO],
                                  .dlopen = symbols[INJECT_DLOPEN],
                                  .dlsym = symbols[INJECT_DLSYM],
                                  .dlerror = symbols[INJECT_DLERROR],
                                  .munmap = symbols[INJECT_MUNMAP],
                                  .region = inject->region,
                                  .region_bytes = GP_INJECT_REGION,
                                  .entry = inject->entry,
                                  .created = GP_STUB_PENDING,
                                  .fd = -1,
                                  .worker = inject->region + (uint64_t)(gp_stub_worker - gp_stub_begin),
                                  .symbol = GP_INJECT_SYMBOL,
                                  .comm = "gpuprof-attach",
                                  .file = GP_INJECT_FILE,
                                  .frame = gp_seized_frame(seized),
                                  .spins = inject->spins};
    snprintf(data->settings, sizeof(data->settings), "%s", inject->attach->settings);
    int rc = gp_remote_write(inject->facts->pid, gp_stub_begin, code_bytes, inject->region);
    if (!rc)
        rc = gp_remote_write(inject->facts->pid, data, sizeof(*data), data_at);
    free(data);
    return rc;
}

static void inject_unmap(struct inject *inject, struct gp_seized *seized)
{
    const uint64_t arguments[6] = {inject->region, GP_INJECT_REGION};
    gp_seized_call(seized, SYS_munmap, arguments);
    inject->region = 0;
}

/* The thread has been saved.  0: our thread runs; -errno; -ETIMEDOUT: the thread could not be put
 * back yet. */
static int inject_start(struct inject *inject, struct gp_seized *seized)
{
    /* Memory that may be written and run: a change of the protection would be one more stop. */
    const uint64_t map[6] = {
        0, GP_INJECT_REGION, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, ~0ull, 0};
    long at = gp_seized_call(seized, SYS_mmap, map);
    if (at < 0 && at > -4096)
        return (int)at;
    inject->region = (uint64_t)at;
    int rc = inject_fill(inject, seized);
    if (!rc) {
        uint64_t data = inject->region + GP_INJECT_CODE;
        uint64_t stack = inject->region + GP_INJECT_REGION - 64;
        rc = gp_seized_run(seized, inject->region, GP_INJECT_REGION, stack, data, gp_clock_ns() + GP_INJECT_CALL_NS);
        if (rc == -ETIMEDOUT || rc == -ESRCH)
            return rc;
        if (rc)
            gp_seized_halt(seized);
    }
    if (rc)
        inject_unmap(inject, seized);
    return rc;
}

static const char *inject_failed(int rc)
{
    return rc == -EPERM || rc == -EACCES ? " (seccomp or a security module forbids it)" : "";
}

/* Whether the thread that was stopped is one of the program that was looked at: after an exec its memory
 * cannot be read any more, and numbers are used again. */
static bool inject_is_same(const struct inject *inject, pid_t tid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)inject->attach->pid, (int)tid);
    return access(path, F_OK) == 0 && inject_is_there(inject);
}

/* On a loaded machine this command would wait for a processor after each stop, and the thread with it.
 * Without the right to it nothing changes. */
static void inject_hurry(bool now)
{
    const struct sched_param parameter = {.sched_priority = now ? 1 : 0};
    int have = sched_getscheduler(0), want = now ? SCHED_RR | SCHED_RESET_ON_FORK : SCHED_OTHER;
    if (have == (now ? SCHED_OTHER : SCHED_RR | SCHED_RESET_ON_FORK))
        sched_setscheduler(0, want, &parameter);
}

/* Tries one thread.  True: that is the end of the search, with *outcome. */
static bool inject_try(struct inject *inject, pid_t tid, uint64_t deadline_ns, enum gp_attach_outcome *outcome)
{
    struct gp_attach *attach = inject->attach;
    struct gp_seized *seized;
    *outcome = GP_ATTACH_DONE;
    int rc = gp_seize(&seized, attach->pid, tid, deadline_ns + GP_INJECT_STOP_NS);
    attach->stops++;
    if (rc == -EPERM) {
        gp_facts_denied(inject->facts, attach, EPERM);
        *outcome = GP_ATTACH_REFUSED;
        return true;
    }
    if (rc == -ETIMEDOUT) {
        gp_attach_why(attach, "", "thread %d does not stop", (int)tid);
        *outcome = GP_ATTACH_REFUSED;
        return true;
    }
    if (rc)
        return snprintf(inject->last, sizeof(inject->last), "thread %d: %s", (int)tid, strerror(-rc)) < 0;
    if (!inject_is_same(inject, tid)) {
        gp_seized_release(seized);
        *outcome = inject_gone(inject);
        return true;
    }
    if (!gp_facts_filter_allows(inject->facts, tid, attach)) {
        gp_seized_release(seized);
        *outcome = GP_ATTACH_REFUSED;
        return true;
    }
    char why[160];
    bool may = gp_seized_may_leave(seized);
    if (!may)
        snprintf(why, sizeof(why), "it is in code that may not be interrupted");
    if (!may || !gp_unwind_allows(inject->unwind, tid, why, sizeof(why))) {
        snprintf(inject->last, sizeof(inject->last), "thread %d: %s", (int)tid, why);
        gp_seized_release(seized);
        return false;
    }
    rc = gp_seized_save(seized, &inject->code);
    if (rc == -ENOSPC || rc == -EXDEV) {
        snprintf(inject->last, sizeof(inject->last), "thread %d: %s", (int)tid,
                 rc == -ENOSPC ? "its stack has no room"
                               : "it runs on the stack of a fibre, or on one without a guard page");
        gp_seized_release(seized);
        return false;
    }
    if (!rc)
        rc = inject_start(inject, seized);
    if (rc == -ETIMEDOUT) {
        gp_seized_leave(seized);
        gp_attach_why(attach, "",
                      "thread %d waits for a lock to start a thread, and goes back by itself once it has it", (int)tid);
        *outcome = GP_ATTACH_LATE;
        return true;
    }
    attach->thread = tid;
    attach->pause_ns = gp_seized_release(seized);
    if (rc) {
        *outcome = rc == -ESRCH ? GP_ATTACH_GONE : GP_ATTACH_FAILED;
        gp_attach_why(attach, "", rc == -ESRCH ? "it ended" : "it could not start a thread: %s%s", strerror(-rc),
                      inject_failed(rc));
    }
    return true;
}

static enum gp_attach_outcome inject_find(struct inject *inject)
{
    struct gp_attach *attach = inject->attach;
    uint64_t begin = gp_clock_ns(), deadline = begin + attach->find_ns;
    pid_t *tids = calloc(GP_INJECT_THREADS, sizeof(*tids));
    enum gp_attach_outcome outcome = GP_ATTACH_FAILED;
    snprintf(inject->last, sizeof(inject->last), "no thread sleeps in a system call that can be started again");
    for (int round = 0; tids; round++) {
        int count = inject_threads(attach->pid, tids);
        enum inject_rank most = round < INJECT_RUNS                         ? (enum inject_rank)round
                                : gp_clock_ns() - begin > GP_INJECT_BUSY_NS ? INJECT_RUNS
                                                                            : INJECT_TIMEOUT;
        for (int i = 0; i < count; i++) {
            enum inject_rank rank = inject_look(inject, tids[i]);
            if (rank > most || (round <= (int)INJECT_TIMEOUT && rank < most))
                continue; /* not yet, or tried already */
            pid_t busy = inject_setxid(attach->pid, tids, count);
            if (busy) {
                snprintf(inject->last, sizeof(inject->last),
                         "a thread is inside setuid() or the like, and waits for thread %d", (int)busy);
                break;
            }
            gp_unwind_stacks_look(inject->stacks);
            inject_hurry(true);
            bool end = inject_try(inject, tids[i], deadline, &outcome);
            inject_hurry(false);
            if (end) {
                free(tids);
                return outcome;
            }
        }
        if (count < 0)
            snprintf(inject->last, sizeof(inject->last), "its threads cannot be listed: %s", strerror(-count));
        if (count <= 0 || gp_clock_ns() >= deadline) {
            gp_attach_why(attach, count ? "try again later" : "",
                          count ? "no thread could be borrowed: %s" : "it ended%.0s", inject->last);
            free(tids);
            return count ? GP_ATTACH_REFUSED : GP_ATTACH_GONE;
        }
        if (round > (int)INJECT_TIMEOUT)
            inject_pause(5000);
    }
    gp_attach_why(attach, "", "out of memory");
    return GP_ATTACH_REFUSED;
}

/* ---- our thread -------------------------------------------------------------------------------------------------- */

static int inject_order(struct inject *inject, uint32_t order)
{
    return gp_remote_write(inject->attach->pid, &order, sizeof(order),
                           inject->region + GP_INJECT_CODE + offsetof(struct gp_stub_data, order));
}

/* Waits until the worker has left `before`. */
static int inject_wait(struct inject *inject, struct gp_stub_data *data, uint32_t before, uint64_t deadline_ns)
{
    for (;;) {
        int rc = gp_remote_read(inject->attach->pid, data, sizeof(*data), inject->region + GP_INJECT_CODE);
        if (rc)
            return rc;
        if (data->state > before)
            return 0;
        if (gp_clock_ns() >= deadline_ns)
            return -ETIMEDOUT;
        inject_pause(200);
    }
}

/* The user that the worker makes files as: that of the thread which started it. */
static int inject_owner(int proc, pid_t thread, uid_t *owner)
{
    char name[48], text[4096];
    snprintf(name, sizeof(name), "task/%d/status", (int)thread);
    ssize_t n = gp_proc_read(proc, name, text, sizeof(text));
    if (n < 0) /* it has ended */
        n = gp_proc_read(proc, "status", text, sizeof(text));
    const char *uids = n > 0 ? strstr(text, "\nUid:\t") : NULL;
    return n < 0 ? (int)n : uids && sscanf(uids, "\nUid: %*u %*u %*u %u", owner) == 1 ? 0 : -EPROTO;
}

/* Writes the library into the worker's memory file. */
static int inject_library(struct inject *inject, const struct gp_stub_data *data)
{
    char name[48];
    uid_t owner = 0;
    uint64_t path_at = inject->region + GP_INJECT_CODE + offsetof(struct gp_stub_data, path);
    if (data->fd < 0)
        return data->fd;
    char folder[GP_PROC_FOLDER];
    int proc = open(gp_proc_folder(inject->attach->pid, folder), O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = proc < 0 ? -errno : inject_owner(proc, inject->attach->thread, &owner);
    if (!fd)
        fd = gp_attach_memory(proc, data->fd, GP_INJECT_FILE, owner);
    int rc = fd < 0 ? fd : gp_attach_copy(inject->attach->library, fd);
    if (!rc)
        rc = gp_attach_seal(fd);
    /* The entry of a main thread that has ended is empty. */
    bool has_main = gp_proc_thread(inject->attach->pid) == inject->attach->pid;
    snprintf(name, sizeof(name), "/proc/%s/fd/%d", has_main ? "self" : "thread-self", data->fd);
    if (!rc)
        rc = gp_remote_write(inject->attach->pid, name, sizeof(name), path_at);
    if (fd >= 0)
        close(fd);
    if (proc >= 0)
        close(proc);
    return rc ? rc : inject_order(inject, GP_STUB_LOAD);
}

/* Lets the worker go, and waits until it has unmapped its memory and ended. */
static void inject_leave(struct inject *inject, pid_t ns_tid)
{
    uint64_t deadline = gp_clock_ns() + GP_INJECT_CLEAN_NS;
    uint32_t state;
    (void)ns_tid;
    inject_order(inject, GP_STUB_LEAVE);
    while (gp_clock_ns() < deadline &&
           gp_remote_read(inject->attach->pid, &state, sizeof(state), inject->region + GP_INJECT_CODE) == 0)
        inject_pause(200);
}

static enum gp_attach_outcome inject_watch(struct inject *inject)
{
    struct gp_attach *attach = inject->attach;
    struct gp_stub_data data = {0};
    uint64_t deadline = gp_clock_ns() + attach->load_ns;
    attach->was_loaded = inject->entry != 0;
    int rc = inject_wait(inject, &data, GP_STUB_NONE, deadline);
    if (!rc && data.state == GP_STUB_ASKS) {
        rc = inject_library(inject, &data);
        if (rc && !inject_is_there(inject))
            return inject_gone(inject);
        if (rc) {
            inject_leave(inject, data.tid);
            gp_attach_why(attach, "", "the library cannot be put there: %s%s", strerror(-rc), inject_failed(rc));
            return GP_ATTACH_FAILED;
        }
    }
    if (!rc)
        rc = inject_wait(inject, &data, GP_STUB_CALLS, deadline);
    if (rc == -ETIMEDOUT) {
        if (data.state < GP_STUB_LOADS)
            inject_order(inject, GP_STUB_LEAVE);
        gp_attach_why(attach, "its own threads are not held up; 'gpuprof stat -p PID' shows when it is there",
                      data.state == GP_STUB_LOADS ? "the library is still being loaded: the program's loader is busy"
                                                  : "our thread there has not answered yet");
        return GP_ATTACH_LATE;
    }
    if (rc) {
        gp_attach_why(attach, "", "it ended while the library was loaded");
        return GP_ATTACH_GONE;
    }
    inject_leave(inject, data.tid);
    data.error[sizeof(data.error) - 1] = '\0';
    if (data.state == GP_STUB_DONE) {
        attach->returned = data.result;
        return GP_ATTACH_DONE;
    }
    gp_attach_why(attach, "", "its loader refused the library: %.300s", data.error);
    return GP_ATTACH_FAILED;
}

enum gp_attach_outcome gp_attach_inject(struct gp_attach *attach, const struct gp_facts *facts)
{
    struct inject inject = {.attach = attach, .facts = facts};
    inject.pidfd = (int)syscall(SYS_pidfd_open, attach->pid, 0);
    enum gp_attach_outcome outcome = inject_prepare(&inject);
    if (outcome == GP_ATTACH_DONE)
        outcome = inject_find(&inject);
    if (inject.pidfd >= 0)
        close(inject.pidfd);
    gp_unwind_free(inject.unwind);
    gp_unwind_stacks_free(inject.stacks);
    return outcome == GP_ATTACH_DONE ? inject_watch(&inject) : outcome;
}
