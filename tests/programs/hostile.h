/* SPDX-License-Identifier: MIT
 *
 * hostile.h: states of a program in which a thread must not be borrowed. Part of attach_target.c.
 *
 * A kind with a second thread, which sleeps in poll, can be attached to through that one.
 */
#ifndef GP_TEST_PROGRAMS_HOSTILE_H
#define GP_TEST_PROGRAMS_HOSTILE_H

#define HOSTILE_SETXID 33 /* glibc's signal for setuid and its kin */

static volatile int hostile_ready;

static int hostile_is_over(void)
{
    return access(target_stop, F_OK) == 0;
}

static void *hostile_idle(void *arg)
{
    (void)arg;
    while (!hostile_is_over())
        do_poll();
    return NULL;
}

static pthread_t hostile_start(void *(*function)(void *))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, NULL));
    return thread;
}

static void hostile_wait_for(volatile int *what)
{
    while (*what == 0)
        usleep(1000);
}

/* ---- setuid and its kin ------------------------------------------------------------------------------------------ */

static pthread_t hostile_deaf, hostile_setter;

/* Does not handle the signal until the end, so that setuid waits. */
static void *hostile_no_signal(void *arg)
{
    uint64_t set = 1ull << (HOSTILE_SETXID - 1);
    (void)arg;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, sizeof(set));
    hostile_ready = 1;
    while (!hostile_is_over())
        usleep(5000);
    syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &set, NULL, sizeof(set));
    return NULL;
}

static void *hostile_setuid(void *arg)
{
    (void)arg;
    CHECK(setuid(getuid()));
    return NULL;
}

static void hostile_setxid(void)
{
    hostile_deaf = hostile_start(hostile_no_signal);
    hostile_wait_for(&hostile_ready);
    hostile_setter = hostile_start(hostile_setuid);
    usleep(100000); /* the other threads have handled the signal */
}

static void do_setxid(void)
{
    do_poll();
    if (hostile_is_over()) {
        CHECK(pthread_join(hostile_deaf, NULL));
        CHECK(pthread_join(hostile_setter, NULL));
    }
}

/* Each call interrupts the other threads, which make theirs again. */
static void *hostile_pause(void *arg)
{
    struct timespec time = {0, 3000000};
    (void)arg;
    while (!hostile_is_over())
        clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    return NULL;
}

static void do_setxid_often(void)
{
    static pthread_t threads[4];
    for (int i = 0; threads[i] == 0 && i < 4; i++)
        threads[i] = hostile_start(hostile_pause);
    CHECK(setuid(getuid()));
    CHECK(setgid(getgid()));
    usleep(200);
    for (int i = 0; hostile_is_over() && threads[i] != 0 && i < 4; i++)
        CHECK(pthread_join(threads[i], NULL));
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

#define HOSTILE_DATA  16384 /* below the fibre's stack */
#define HOSTILE_STACK 8192
#define HOSTILE_LEFT  1200

static ucontext_t hostile_context, hostile_main;
static unsigned char *hostile_memory;

static void hostile_sleep(void)
{
    struct timespec time = {0, TARGET_MS * 1000000};
    syscall(SYS_nanosleep, &time, NULL);
}

static int hostile_is_intact(const volatile unsigned char *data, int bytes)
{
    for (int i = 0; i < bytes; i++)
        if (data[i] != (unsigned char)(i * 7))
            return 0;
    return 1;
}

static void hostile_fill(volatile unsigned char *data, int bytes)
{
    for (int i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 7);
}

/* Uses up the fibre's stack, and stays there until the end. */
static void hostile_fibre(void)
{
    volatile unsigned char here;
    volatile unsigned char used[HOSTILE_STACK - HOSTILE_LEFT - 256];
    int wrong = 0;
    used[0] = 0;
    (void)here;
    while (!hostile_is_over()) {
        hostile_sleep();
        wrong += !hostile_is_intact(hostile_memory, HOSTILE_DATA);
    }
    used[0] = (unsigned char)(wrong != 0);
    hostile_memory[HOSTILE_DATA] = used[0];
    setcontext(&hostile_main);
}

static void do_fibre(void)
{
    static volatile int is_back;
    hostile_memory =
        mmap(NULL, HOSTILE_DATA + HOSTILE_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    hostile_fill(hostile_memory, HOSTILE_DATA);
    /* The loader looks each function up at its first call, and would take more than is left. No sleep: the
     * thread could be borrowed from it, since it is still on its own stack. */
    syscall(SYS_nanosleep, &(struct timespec){0, 0}, NULL);
    getcontext(&hostile_main);
    if (is_back) {
        target_expect(hostile_memory[HOSTILE_DATA] == 0, "data below a fibre's stack", 0);
        return;
    }
    is_back = 1;
    getcontext(&hostile_context);
    hostile_context.uc_stack.ss_sp = hostile_memory + HOSTILE_DATA;
    hostile_context.uc_stack.ss_size = HOSTILE_STACK;
    makecontext(&hostile_context, hostile_fibre, 0);
    setcontext(&hostile_context);
}

/* A thread on a stack whose guard page is no mapping of its own, as newer C libraries make it. */
static void hostile_advised(void)
{
    const size_t page = 4096, bytes = 64 * page;
    pthread_attr_t attributes;
    pthread_t thread;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *guard = memory + 8 * page;

    if (madvise(guard, page, 102 /* MADV_GUARD_INSTALL */) != 0)
        CHECK(mprotect(guard, page, PROT_NONE));
    CHECK(pthread_attr_init(&attributes));
    CHECK(pthread_attr_setstack(&attributes, guard + page, bytes - 9 * page));
    CHECK(pthread_create(&thread, &attributes, hostile_idle, NULL));
}

/* Below the 128 bytes that a function may use, memory belongs to nothing, and yet it is as it was. */
static void do_below(void)
{
    unsigned char *sp = __builtin_frame_address(0);
    struct timespec time = {0, TARGET_MS * 1000000};
    const int bytes = 12288;

#if defined(__x86_64__)
    __asm__("mov %%rsp, %0" : "=r"(sp));
    hostile_fill(sp - 512 - bytes, bytes);
    long number = SYS_nanosleep;
    __asm__ volatile("syscall" : "+a"(number) : "D"(&time), "S"(0) : "rcx", "r11", "memory");
    target_expect(hostile_is_intact(sp - 512 - bytes, bytes), "bytes below the stack", 0);
#else
    (void)sp, (void)bytes;
    nanosleep(&time, NULL);
#endif
}

/* ---- vfork ------------------------------------------------------------------------------------------------------- */

static void hostile_file(char *path, size_t bytes, const char *name)
{
    snprintf(path, bytes, "%.*s/%s", (int)(strlen(target_stop) - strlen("/stop")), target_stop, name);
}

/* Of a child: writes its pid to the file `child`. */
static int hostile_write_pid(void)
{
    char path[600], number[16];
    hostile_file(path, sizeof(path), "child");
    int length = snprintf(number, sizeof(number), "%d\n", (int)getpid());
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ssize_t wrote = write(fd, number, (size_t)length);
    close(fd);
    return wrote > 0;
}

/* Stays until the end. */
static void hostile_child(void)
{
    int is_written = hostile_write_pid();
    while (is_written && !hostile_is_over())
        hostile_sleep();
    _exit(is_written ? 0 : 1);
}

/* Goes on in a child of a process that has not initialised CUDA, once there is a file `init`. */
static void hostile_fork_early(void)
{
    char path[600];
    int status = -1;
    pid_t child = fork();
    if (child != 0) {
        waitpid(child, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    hostile_write_pid();
    hostile_file(path, sizeof(path), "init");
    while (access(path, F_OK) != 0 && !hostile_is_over())
        usleep(20000);
}

/* As a worker of PyTorch's DataLoader: CUDA was initialised before. */
static void do_forked(void)
{
    int status = -1;
    if (hostile_is_over())
        return;
    pid_t child = fork();
    if (child == 0)
        hostile_child();
    target_expect(waitpid(child, &status, 0) == child && status == 0, "fork", status);
}

/* The child uses this process's memory until the end. */
static void do_vfork(void)
{
    if (hostile_is_over())
        return;
    pid_t child = vfork();
    if (child == 0)
        hostile_child();
    int status = -1;
    target_expect(waitpid(child, &status, 0) == child && status == 0, "vfork", status);
}

static void do_vfork_often(void)
{
    int status = -1;
    pid_t child = vfork();
    if (child == 0) {
        hostile_sleep();
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    target_expect(waitpid(child, &status, 0) == child && status == 0, "vfork", status);
}

/* ---- reads that wait for more than one byte ---------------------------------------------------------------------- */

#define HOSTILE_MANY 8

static void do_waitall(void)
{
    char bytes[HOSTILE_MANY];
    ssize_t got = recv(target_fds[0], bytes, sizeof(bytes), MSG_WAITALL);
    target_expect(got == HOSTILE_MANY, "recv with MSG_WAITALL", got);
}

static void do_many(void)
{
    char bytes[HOSTILE_MANY];
    ssize_t got = read(target_fds[0], bytes, sizeof(bytes));
    target_expect(got == HOSTILE_MANY, "read", got);
}

/* target_fds: what is read, and what another process writes a byte to now and then. */
static void hostile_reads(const char *name)
{
    int many = HOSTILE_MANY;
    struct termios raw;
    if (strcmp(name, "terminal") == 0) {
        target_fds[1] = posix_openpt(O_RDWR | O_NOCTTY);
        CHECK(grantpt(target_fds[1]) != 0 || unlockpt(target_fds[1]) != 0);
        target_fds[0] = open(ptsname(target_fds[1]), O_RDWR | O_NOCTTY);
        CHECK(tcgetattr(target_fds[0], &raw));
        cfmakeraw(&raw);
        raw.c_cc[VMIN] = HOSTILE_MANY;
        raw.c_cc[VTIME] = 0;
        CHECK(tcsetattr(target_fds[0], TCSANOW, &raw));
    } else {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, target_fds));
    }
    if (strcmp(name, "lowat") == 0)
        CHECK(setsockopt(target_fds[0], SOL_SOCKET, SO_RCVLOWAT, &many, sizeof(many)));
    target_writer();
}

/* ---- sandboxes that end the program ------------------------------------------------------------------------------ */

#if defined(__x86_64__)
/* The calls that are listed end the program, or all others do. */
static void hostile_enter(const int *calls, int count, int are_allowed)
{
    struct sock_filter filter[128] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, nr))};
    struct sock_fprog program = {(unsigned short)(count + 3), filter};
    for (int i = 0; i < count; i++) {
        filter[i + 1] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i], (unsigned char)(count - i), 0);
    }
    filter[count + 1] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, are_allowed ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ALLOW);
    filter[count + 2] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, are_allowed ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* What the command takes an attach to need, and what this program calls itself. */
static void hostile_allow_an_attach(void)
{
    static const int calls[] = {SYS_mmap,
                                SYS_mprotect,
                                SYS_munmap,
                                SYS_madvise,
                                SYS_mincore,
                                SYS_clone3,
                                SYS_clone,
                                SYS_set_robust_list,
                                SYS_rseq,
                                SYS_prctl,
                                SYS_rt_sigprocmask,
                                SYS_rt_sigaction,
                                SYS_rt_sigreturn,
                                SYS_futex,
                                SYS_exit,
                                SYS_gettid,
                                SYS_getpid,
                                SYS_getrandom,
                                SYS_getrusage,
                                SYS_prlimit64,
                                SYS_memfd_create,
                                SYS_ftruncate,
                                SYS_fcntl,
                                SYS_openat,
                                SYS_read,
                                SYS_pread64,
                                SYS_close,
                                SYS_fstat,
                                SYS_newfstatat,
                                SYS_access,
                                SYS_readlink,
                                SYS_poll,
                                SYS_nanosleep,
                                SYS_restart_syscall,
                                /* and of the program */ SYS_write,
                                SYS_exit_group};
    hostile_enter(calls, sizeof(calls) / sizeof(calls[0]), 1);
}

static void hostile_sandbox(const char *name)
{
    static const int map = SYS_mmap, file = SYS_memfd_create, thread[] = {SYS_clone, SYS_clone3};
    if (strcmp(name, "kill_map") == 0)
        hostile_enter(&map, 1, 0);
    else if (strcmp(name, "kill_file") == 0)
        hostile_enter(&file, 1, 0);
    else if (strcmp(name, "kill_thread") == 0)
        hostile_enter(thread, 2, 0);
    else if (strcmp(name, "kill_rest") == 0)
        hostile_allow_an_attach();
}
#else
static void hostile_sandbox(const char *name)
{
    (void)name;
}
#endif

static void hostile_prepare(const char *name)
{
    if (strcmp(name, "setxid") == 0)
        hostile_setxid();
    if (strcmp(name, "advised") == 0)
        hostile_advised();
    if (strcmp(name, "waitall") == 0 || strcmp(name, "lowat") == 0 || strcmp(name, "terminal") == 0) {
        hostile_reads(name);
        hostile_start(hostile_idle);
    }
    if (strcmp(name, "vfork") == 0 || strcmp(name, "vfork_often") == 0 || strcmp(name, "fibres") == 0)
        hostile_start(hostile_idle);
}

#endif
