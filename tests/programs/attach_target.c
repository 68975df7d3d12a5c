/* SPDX-License-Identifier: MIT
 *
 * Does one thing again and again and checks each result, while a harness attaches to it:
 *
 *   attach_target WHAT FOLDER
 *
 * Makes the file `ready` in FOLDER, then runs until there is a file `stop` in it, for 100 s at most.
 * Each blocking call must return what it would return without the harness: never EINTR, never too
 * early, and errno stays as it was. Leaves 1 MiB linear.
 */
#include <cuda.h>

#include "finish.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <ucontext.h>

#define TARGET_MS    20
#define TARGET_ERRNO 77

static char target_stop[512];
static int target_fds[2], target_epoll, target_listener, target_folder;
static sem_t target_never;
static const char *target_library;

static uint64_t target_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void target_expect(int is_right, const char *what, long got)
{
    int error = errno;
    if (is_right)
        return;
    printf("wrong: %s: %ld, errno %d\n", what, got, error);
    __atomic_add_fetch(&program_failures, 1, __ATOMIC_RELAXED);
}

/* A call that waits for TARGET_MS and returns `wanted`. */
#define TARGET_WAIT(_wanted, _call)                                                                                    \
    do {                                                                                                               \
        uint64_t begin_ = target_now();                                                                                \
        errno = TARGET_ERRNO;                                                                                          \
        long got_ = (long)(_call);                                                                                     \
        target_expect(got_ == (_wanted) && (got_ < 0 || errno == TARGET_ERRNO), #_call, got_);                         \
        target_expect(target_now() - begin_ >= TARGET_MS * 1000000ull, "time of " #_call,                              \
                      (long)(target_now() - begin_));                                                                  \
    } while (0)

static void do_nanosleep(void)
{
    struct timespec time = {0, TARGET_MS * 1000000};
    TARGET_WAIT(0, nanosleep(&time, NULL));
}

static void do_clock_nanosleep(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_nsec += TARGET_MS * 1000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_nsec -= 1000000000;
        time.tv_sec++;
    }
    TARGET_WAIT(0, clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL));
}

static void do_poll(void)
{
    TARGET_WAIT(0, poll(NULL, 0, TARGET_MS));
}

/* Sleeps until there is a file `stop`: a second attach finds it in restart_syscall. */
static void do_long(void)
{
    struct pollfd file = {target_folder, POLLIN, 0};
    char events[4096];
    int got = poll(&file, 1, -1);
    target_expect(got == 1 && read(target_folder, events, sizeof(events)) > 0, "long poll", got);
}

static void do_ppoll(void)
{
    struct timespec time = {0, TARGET_MS * 1000000};
    sigset_t set;
    sigfillset(&set);
    TARGET_WAIT(0, ppoll(NULL, 0, &time, &set));
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    target_expect(!sigismember(&set, SIGUSR1), "signal mask", 0);
}

static void do_select(void)
{
    struct timeval time = {0, TARGET_MS * 1000};
    TARGET_WAIT(0, select(0, NULL, NULL, NULL, &time));
}

static void do_epoll_timed(void)
{
    struct epoll_event event;
    TARGET_WAIT(0, epoll_wait(target_epoll, &event, 1, TARGET_MS));
}

static void do_futex(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += TARGET_MS * 1000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_nsec -= 1000000000;
        time.tv_sec++;
    }
    errno = 0;
    target_expect(sem_timedwait(&target_never, &time) == -1 && errno == ETIMEDOUT, "sem_timedwait", -1);
}

static void do_sigtimedwait(void)
{
    struct timespec time = {0, TARGET_MS * 1000000};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    errno = 0;
    target_expect(sigtimedwait(&set, NULL, &time) == -1 && errno == EAGAIN, "sigtimedwait", -1);
}

/* ---- another process writes -------------------------------------------------------------------------------------- */

/* Goes on after the stop, since the program may wait for it, and ends with the program. */
static int target_child(void)
{
    if (fork() != 0)
        return 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return 1;
}

static void target_writer(void)
{
    unsigned char next = 0;
    if (!target_child())
        return;
    for (;;) {
        usleep(5000);
        if (write(target_fds[1], &next, 1) != 1)
            break;
        next++;
    }
    _exit(0);
}

static void target_take(unsigned char byte)
{
    static unsigned char next;
    target_expect(byte == next, "byte", byte);
    next = (unsigned char)(byte + 1);
}

static void do_read(void)
{
    unsigned char byte = 0;
    errno = TARGET_ERRNO;
    ssize_t got = read(target_fds[0], &byte, 1);
    target_expect(got == 1 && errno == TARGET_ERRNO, "read", got);
    target_take(byte);
}

static void do_recv(void)
{
    unsigned char byte = 0;
    errno = TARGET_ERRNO;
    ssize_t got = recv(target_fds[0], &byte, 1, 0);
    target_expect(got == 1 && errno == TARGET_ERRNO, "recv", got);
    target_take(byte);
}

static void do_epoll(void)
{
    struct epoll_event event = {0};
    int got = epoll_wait(target_epoll, &event, 1, -1);
    target_expect(got == 1, "epoll_wait", got);
    do_read();
}

static void do_accept(void)
{
    int fd = accept(target_listener, NULL, NULL);
    target_expect(fd >= 0, "accept", fd);
    if (fd >= 0)
        close(fd);
}

static void target_connect(const struct sockaddr_un *address)
{
    if (!target_child())
        return;
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        usleep(5000);
        if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0)
            break;
        close(fd);
    }
    _exit(0);
}

static void do_wait(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        usleep(TARGET_MS * 1000);
        _exit(5);
    }
    pid_t got = waitpid(child, &status, 0);
    target_expect(got == child && WIFEXITED(status) && WEXITSTATUS(status) == 5, "waitpid", got);
}

/* ---- busy -------------------------------------------------------------------------------------------------------- */

static void do_malloc(void)
{
    unsigned char *blocks[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = malloc((size_t)(i + 1) * 97);
        memset(blocks[i], i, (size_t)(i + 1) * 97);
    }
    for (int i = 0; i < 64; i++) {
        target_expect(blocks[i][i * 97] == i, "byte of a block", blocks[i][i * 97]);
        free(blocks[i]);
    }
}

static void do_dlopen(void)
{
    void *handle = dlopen(target_library, RTLD_NOW | RTLD_LOCAL);
    target_expect(handle != NULL, "dlopen", 0);
    if (handle != NULL)
        dlclose(handle);
}

static void do_cuda(void)
{
    CUdeviceptr pointer = program_alloc(64 * KIB);
    CHECK(cuMemFree(pointer));
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static CUstream target_stream;
static CUgraphExec target_graph;

/* A graph that allocates and frees.  The strictest mode: a call of another thread that a capture forbids
 * would break it. */
static CUgraphExec target_capture(void)
{
    CUgraph graph = NULL;
    CUgraphExec run = NULL;
    CUdeviceptr pointer = 0;
    CHECK(cuStreamBeginCapture(target_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemAllocAsync(&pointer, 2 * MIB, target_stream));
    do_nanosleep();
    CHECK(cuMemFreeAsync(pointer, target_stream));
    CHECK(cuStreamEndCapture(target_stream, &graph));
    CHECK(cuGraphInstantiate(&run, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return run;
}

/* Captured before the attach. */
static void do_graph(void)
{
    CHECK(cuGraphLaunch(target_graph, target_stream));
    CHECK(cuStreamSynchronize(target_stream));
    usleep(1000);
}

static void do_capture(void)
{
    CUgraphExec run = target_capture();
    CHECK(cuGraphLaunch(run, target_stream));
    CHECK(cuStreamSynchronize(target_stream));
    CHECK(cuGraphExecDestroy(run));
}

static void do_compute(void)
{
    volatile double sum = 0;
    for (int i = 1; i <= 100000; i++)
        sum += 1.0 / ((double)i * i);
    target_expect(sum > 1.6449240668 && sum < 1.6449240669, "sum", (long)(sum * 1e9));
}

static void target_handle(int signal)
{
    struct timespec time = {0, 500000};
    int error = errno;
    volatile double sum = 0;
    (void)signal;
    for (int i = 1; i < 20000; i++)
        sum += 1.0 / i;
    target_expect(nanosleep(&time, NULL) == 0, "nanosleep in a handler", -1);
    errno = error;
}

static void target_timer(void)
{
    struct sigaction action = {.sa_handler = target_handle, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 2000}, {0, 2000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
}

/* ---- a sandbox: the program answers some system calls itself ----------------------------------------------------- */

static void target_answer(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
#if defined(__x86_64__)
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
#else
    (void)context;
#endif
}

#define TARGET_ARGUMENT(_n) (uint32_t) offsetof(struct seccomp_data, args[_n])

static void target_forbid(int number, int argument, uint32_t value)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, TARGET_ARGUMENT(argument)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    struct sigaction action = {.sa_sigaction = target_answer, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void do_trap_map(void)
{
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    target_expect(at == MAP_FAILED && errno == ENOSYS, "mmap", (long)at);
    do_nanosleep();
}

static void do_trap_file(void)
{
    int fd = (int)syscall(SYS_memfd_create, "x", 3);
    target_expect(fd == -1 && errno == ENOSYS, "memfd_create", fd);
    do_nanosleep();
}

/* ---- another program --------------------------------------------------------------------------------------------- */

static char **target_arguments;

static void do_exec(void)
{
    do_nanosleep();
    if (access(target_stop, F_OK) != 0) {
        execv("/proc/self/exe", target_arguments);
        target_expect(0, "execv", -1);
    }
}

static void do_fork(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        free(malloc(1000));
        _exit(7);
    }
    pid_t got = waitpid(child, &status, 0);
    target_expect(got == child && WIFEXITED(status) && WEXITSTATUS(status) == 7, "waitpid", got);
}

static void *target_thread(void *arg)
{
    static void (*const kinds[])(void) = {do_nanosleep, do_poll, do_futex, do_select, do_malloc};
    void (*kind)(void) = kinds[(uintptr_t)arg % 5];
    while (access(target_stop, F_OK) != 0) {
        kind();
        if (kind == do_malloc)
            usleep(1000);
    }
    return NULL;
}

static void target_threads(void)
{
    pthread_t threads[64];
    for (uintptr_t i = 0; i < 64; i++)
        pthread_create(&threads[i], NULL, target_thread, (void *)i);
    for (int i = 0; i < 64; i++)
        pthread_join(threads[i], NULL);
}

#include "hostile.h"

/* ---- the program ------------------------------------------------------------------------------------------------- */

static const struct target_kind {
    const char *name;
    void (*once)(void);
} target_kinds[] = {
    {"nanosleep", do_nanosleep}, {"clock_nanosleep", do_clock_nanosleep},
    {"poll", do_poll},           {"ppoll", do_ppoll},
    {"select", do_select},       {"epoll_timed", do_epoll_timed},
    {"futex", do_futex},         {"sigtimedwait", do_sigtimedwait},
    {"read", do_read},           {"recv", do_recv},
    {"epoll", do_epoll},         {"accept", do_accept},
    {"wait", do_wait},           {"malloc", do_malloc},
    {"dlopen", do_dlopen},       {"cuda", do_cuda},
    {"compute", do_compute},     {"signals", do_compute},
    {"fork", do_fork},           {"threads", NULL},
    {"leader", do_cuda},         {"short", do_nanosleep},
    {"long", do_long},           {"trap_map", do_trap_map},
    {"trap_file", do_trap_file}, {"kill_map", do_poll},
    {"kill_file", do_poll},      {"kill_thread", do_poll},
    {"kill_rest", do_poll},      {"exec", do_exec},
    {"graph", do_graph},         {"capture", do_capture},
    {"setxid", do_setxid},       {"setxid_often", do_setxid_often},
    {"fibre", do_fibre},         {"fibres", do_fibre},
    {"advised", do_fibre},       {"below", do_below},
    {"vfork", do_vfork},         {"vfork_often", do_vfork_often},
    {"forked", do_forked},       {"forked_early", do_poll},
    {"waitall", do_waitall},     {"lowat", do_many},
    {"terminal", do_many},
};

static void target_prepare(const char *name, const char *folder)
{
    static const char *const libraries[] = {"libBrokenLocale.so.1", "libmvec.so.1", "libthread_db.so.1", "libanl.so.1"};
    struct timeval patience = {50, 0};
    struct epoll_event event = {.events = EPOLLIN};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    sigset_t set;
    sem_init(&target_never, 0, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 4 && target_library == NULL; i++) {
        void *handle = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
        if (handle != NULL) {
            target_library = libraries[i];
            dlclose(handle);
        }
    }
    target_epoll = epoll_create1(EPOLL_CLOEXEC);
    if (strcmp(name, "recv") == 0) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, target_fds));
        CHECK(setsockopt(target_fds[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
    } else {
        CHECK(pipe(target_fds));
    }
    epoll_ctl(target_epoll, EPOLL_CTL_ADD, target_fds[0], &event);
    if (strcmp(name, "read") == 0 || strcmp(name, "recv") == 0 || strcmp(name, "epoll") == 0)
        target_writer();
    if (strcmp(name, "accept") == 0) {
        snprintf(address.sun_path, sizeof(address.sun_path), "%.80s/socket", folder);
        target_listener = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(bind(target_listener, (const struct sockaddr *)&address, sizeof(address)));
        CHECK(listen(target_listener, 5));
        target_connect(&address);
    }
    if (strcmp(name, "long") == 0) {
        target_folder = inotify_init1(IN_CLOEXEC);
        inotify_add_watch(target_folder, folder, IN_CREATE);
    }
    if (strcmp(name, "signals") == 0)
        target_timer();
    if (strcmp(name, "graph") == 0 || strcmp(name, "capture") == 0) {
        CHECK(cuStreamCreate(&target_stream, CU_STREAM_NON_BLOCKING));
        target_graph = target_capture();
    }
    if (strcmp(name, "trap_map") == 0)
        target_forbid(SYS_mmap, 2, PROT_READ | PROT_WRITE | PROT_EXEC);
    if (strcmp(name, "trap_file") == 0)
        target_forbid(SYS_memfd_create, 1, 3);
}

/* Until the file `stop` is there. */
static int target_run(const struct target_kind *kind)
{
    uint64_t end = target_now() + (strcmp(kind->name, "short") == 0 ? 30000000ull : 100000000000ull);
    if (kind->once == NULL)
        target_threads();
    while (access(target_stop, F_OK) != 0 && target_now() < end)
        kind->once();
    if (strcmp(kind->name, "signals") == 0) {
        struct itimerval never = {{0, 0}, {0, 0}};
        setitimer(ITIMER_REAL, &never, NULL);
    }
    return finish();
}

/* The main thread has ended, and this thread is the last one. */
static void *target_leader(void *kind)
{
    usleep(20000);
    program_start();
    exit(target_run(kind));
}

int main(int argc, char **argv)
{
    const struct target_kind *kind = NULL;
    char ready[512];
    for (unsigned i = 0; argc > 2 && i < sizeof(target_kinds) / sizeof(target_kinds[0]); i++)
        if (strcmp(target_kinds[i].name, argv[1]) == 0)
            kind = &target_kinds[i];
    if (kind == NULL) {
        fprintf(stderr, "usage: attach_target WHAT FOLDER\n");
        return 2;
    }
    target_arguments = argv;
    snprintf(target_stop, sizeof(target_stop), "%s/stop", argv[2]);
    if (strcmp(kind->name, "forked_early") == 0)
        hostile_fork_early();
    program_start();
    program_alloc(MIB);
    snprintf(ready, sizeof(ready), "%s/ready", argv[2]);
    target_prepare(kind->name, argv[2]);
    hostile_prepare(kind->name);
    /* Without a descriptor: the test that waits for the file compares the descriptors before and after an attach. */
    if (mknod(ready, S_IFREG | 0600, 0) != 0 && errno != EEXIST) {
        fprintf(stderr, "%s: %s\n", ready, strerror(errno));
        return 1;
    }
    hostile_sandbox(kind->name);
    pthread_t last;
    if (strcmp(kind->name, "leader") == 0 && pthread_create(&last, NULL, target_leader, (void *)kind) == 0)
        pthread_exit(NULL);
    return target_run(kind);
}
