/* SPDX-License-Identifier: MIT
 *
 * A program that enters a seccomp sandbox after its start, as browsers' GPU processes do: what it
 * does not need ends it, or with "trap" is printed by its handler of SIGSYS. Then it allocates,
 * also on a coroutine's stack, on a new depth of its own and on a thread that allocated nothing
 * before. Holds with 100 MiB linear, in the sandbox, and ends in it.
 */
#include <cuda.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

#include "finish.h"

#define BLOCKS 100

static const int forbidden[] = {
#ifdef SYS_open
    SYS_open,
#endif
    SYS_openat,    SYS_memfd_create, SYS_process_vm_readv, SYS_ptrace, SYS_socket,     SYS_connect,    SYS_execve,
    SYS_clone,     SYS_clone3,       SYS_ftruncate,        SYS_statx,  SYS_membarrier, SYS_readlinkat, SYS_newfstatat,
    SYS_prlimit64, SYS_mincore,      SYS_getdents64,       SYS_uname,  SYS_fcntl,      SYS_unlinkat,   SYS_flock,
    SYS_prctl,
};
#define FORBIDDEN (sizeof(forbidden) / sizeof(forbidden[0]))

static void sandbox_trapped(int signal, siginfo_t *info, void *context)
{
    char line[64];
    (void)signal;
    (void)context;
    snprintf(line, sizeof(line), "call %d on thread %d\n", info->si_syscall, (int)syscall(SYS_gettid));
    program_failures += write(1, line, strlen(line)) < 0;
}

static int sandbox_enter(unsigned refusal)
{
    struct sock_filter rules[FORBIDDEN + 3];
    struct sock_fprog program = {FORBIDDEN + 3, rules};
    size_t i;
    rules[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (i = 0; i < FORBIDDEN; i++) {
        rules[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)forbidden[i],
                                                    (unsigned char)(FORBIDDEN - i), 0);
    }
    rules[FORBIDDEN + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    rules[FORBIDDEN + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, refusal);
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0;
}

static void sandbox_fill(CUdeviceptr *pointers)
{
    int i;
    for (i = 0; i < BLOCKS; i++)
        pointers[i] = program_alloc(MIB);
}

static CUdeviceptr fibre_pointer;
static ucontext_t fibre, back;

static void sandbox_fibre(void)
{
    fibre_pointer = program_alloc(MIB);
}

static void __attribute__((noinline)) sandbox_deep(int depth)
{
    volatile char room[4096];
    room[0] = (char)depth;
    if (depth > 0)
        sandbox_deep(depth - 1);
    else
        CHECK(cuMemFree(program_alloc(MIB)));
    room[1] = room[0];
}

static pthread_barrier_t entered;
static CUcontext context;

static void *sandbox_thread(void *arg)
{
    pthread_barrier_wait(&entered);
    CHECK(cuCtxSetCurrent(context));
    sandbox_deep(20);
    pthread_barrier_wait(&entered);
    return arg;
}

int main(int argc, char **argv)
{
    const struct sigaction trapped = {.sa_sigaction = sandbox_trapped, .sa_flags = SA_SIGINFO};
    const int is_trap = argc > 1 && strcmp(argv[1], "trap") == 0;
    struct timespec pause = {0, 50000000};
    pthread_t thread;
    CUdeviceptr pointers[BLOCKS] = {0};
    char *stack = malloc(256 * KIB);
    int i, round;
    setvbuf(stdout, malloc(4096), _IOFBF, 4096);
    program_start();
    CHECK(cuMemFree(program_alloc(MIB))); /* what the simulated driver opens itself */
    getcontext(&fibre);
    fibre.uc_stack.ss_sp = stack;
    fibre.uc_stack.ss_size = 256 * KIB;
    fibre.uc_link = &back;
    makecontext(&fibre, sandbox_fibre, 0);
    CHECK(cuCtxGetCurrent(&context));
    pthread_barrier_init(&entered, NULL, 2);
    pthread_create(&thread, NULL, sandbox_thread, NULL);
    sigaction(SIGSYS, &trapped, NULL);
    if (sandbox_enter(is_trap ? SECCOMP_RET_TRAP : SECCOMP_RET_KILL_PROCESS)) {
        printf("no sandbox\n");
        fflush(stdout);
    }
    for (round = 0; round < 3; round++) {
        sandbox_fill(pointers);
        nanosleep(&pause, NULL);
        for (i = 0; i < BLOCKS; i++)
            CHECK(cuMemFree(pointers[i]));
    }
    swapcontext(&back, &fibre);
    CHECK(cuMemFree(fibre_pointer));
    sandbox_deep(20);
    pthread_barrier_wait(&entered);
    pthread_barrier_wait(&entered);
    sandbox_fill(pointers);
    fflush(stdout);
    program_hold();
    return program_failures != 0;
}
