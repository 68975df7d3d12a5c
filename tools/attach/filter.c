/* SPDX-License-Identifier: MIT
 *
 * filter.c: whether the seccomp filters of a thread let it load the library.  Called by inject.c.
 *
 * A program that has entered a sandbox may end for the first system call that it does not make itself, or have a
 * handler that ends it. The kernel shows the filters of a stopped thread to who has CAP_SYS_ADMIN; they are run
 * here for each call of an attach, before one is made. Without that right their number must tell.
 */
#include <attach/internal.h>

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#ifndef PTRACE_SECCOMP_GET_FILTER
#define PTRACE_SECCOMP_GET_FILTER 0x420c
#endif

#define FILTERS_MOST  64u /* of one thread; Linux allows 32768 instructions in all */
#define FILTER_WORDS  BPF_MEMWORDS
#define FILTER_THREAD (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS)
#define RW            (PROT_READ | PROT_WRITE)
#define ANONYMOUS     (MAP_PRIVATE | MAP_ANONYMOUS)

/* What the borrowed thread, the loader and the library call, and in which forms. Arguments that are not here may be
 * anything in an attach, and are looked at as 0. tests/programs/hostile.h forbids the rest. */
static const struct filter_call {
    const char *name;
    int number;
    uint64_t arguments[6];
} filter_calls[] = {
#define CALL(_name, ...)                                                                                               \
    {                                                                                                                  \
#_name, SYS_##_name,                                                                                           \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
    CALL(mmap, 0, 262144, RW | PROT_EXEC, ANONYMOUS, ~0u),
    CALL(mmap, 0, 4096, RW, ANONYMOUS, ~0u),
    CALL(mmap, 0, 4096, RW, ANONYMOUS | MAP_NORESERVE, ~0u),
    CALL(mmap, 0, 4096, RW, ANONYMOUS | MAP_FIXED, ~0u),
    CALL(mmap, 0, 4096, PROT_NONE, ANONYMOUS | MAP_STACK, ~0u),
    CALL(mmap, 0, 4096, PROT_NONE, ANONYMOUS | MAP_NORESERVE, ~0u),
    CALL(mmap, 0, 4096, PROT_NONE, MAP_SHARED, 7),
    CALL(mmap, 0, 4096, PROT_READ, MAP_PRIVATE | MAP_DENYWRITE, 7),
    CALL(mmap, 0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_DENYWRITE | MAP_FIXED, 7),
    CALL(mmap, 0, 4096, RW, MAP_PRIVATE | MAP_DENYWRITE | MAP_FIXED, 7),
    CALL(mprotect, 0, 4096, PROT_READ),
    CALL(mprotect, 0, 4096, RW),
    CALL(munmap, 0, 4096),
    CALL(madvise, 0, 4096, MADV_DONTNEED),
    CALL(madvise, 0, 4096, MADV_DONTFORK),
    CALL(madvise, 0, 4096, MADV_WIPEONFORK),
    CALL(mincore, 0, 4096),
    CALL(clone3),
    CALL(clone, FILTER_THREAD | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID),
    CALL(set_robust_list),
    CALL(rseq),
    CALL(prctl, PR_SET_NAME),
    CALL(rt_sigprocmask),
    CALL(rt_sigaction),
    CALL(rt_sigreturn),
    CALL(futex, 0, FUTEX_WAIT | FUTEX_PRIVATE_FLAG),
    CALL(futex, 0, FUTEX_WAKE | FUTEX_PRIVATE_FLAG),
    CALL(futex, 0, FUTEX_WAIT),
    CALL(futex, 0, FUTEX_WAKE),
    CALL(exit),
    CALL(gettid),
    CALL(getpid),
    CALL(getrandom),
    CALL(getrusage),
    CALL(prlimit64, 0, 1),
    CALL(prlimit64, 0, 7),
    CALL(memfd_create, 0, 3),
    CALL(ftruncate),
    CALL(fcntl, 7, 1030), /* F_DUPFD_CLOEXEC */
    CALL(fcntl, 7, 1033), /* F_ADD_SEALS */
    CALL(openat, 0xffffff9c),
    CALL(read, 7),
    CALL(pread64, 7),
    CALL(close, 7),
    CALL(fstat, 7),
    CALL(newfstatat, 0xffffff9c),
    CALL(nanosleep),
    CALL(restart_syscall),
#ifdef SYS_access /* not on other architectures, where there is no attach */
    CALL(access),
    CALL(readlink),
    CALL(poll),
#endif
#undef CALL
};

/* ---- one filter -------------------------------------------------------------------------------------------------- */

struct filter_machine {
    uint32_t a, x, memory[FILTER_WORDS];
};

static uint32_t filter_alu(uint16_t code, uint32_t a, uint32_t b)
{
    switch (BPF_OP(code)) {
    case BPF_ADD:
        return a + b;
    case BPF_SUB:
        return a - b;
    case BPF_MUL:
        return a * b;
    case BPF_DIV:
        return b ? a / b : 0;
    case BPF_OR:
        return a | b;
    case BPF_AND:
        return a & b;
    case BPF_XOR:
        return a ^ b;
    case BPF_LSH:
        return b < 32 ? a << b : 0;
    case BPF_RSH:
        return b < 32 ? a >> b : 0;
    default:
        return -a;
    }
}

static bool filter_jumps(uint16_t code, uint32_t a, uint32_t b)
{
    switch (BPF_OP(code)) {
    case BPF_JEQ:
        return a == b;
    case BPF_JGT:
        return a > b;
    case BPF_JGE:
        return a >= b;
    default:
        return (a & b) != 0;
    }
}

static uint32_t filter_load(const struct filter_machine *machine, const struct sock_filter *at,
                            const struct seccomp_data *data)
{
    uint32_t word;
    switch (BPF_MODE(at->code)) {
    case BPF_ABS:
        if (at->k > sizeof(*data) - sizeof(word))
            return 0;
        memcpy(&word, (const char *)data + at->k, sizeof(word));
        return word;
    case BPF_LEN:
        return sizeof(*data);
    case BPF_MEM:
        return machine->memory[at->k % FILTER_WORDS];
    default:
        return at->k;
    }
}

/* The kernel has checked the program: it jumps forward alone, and returns. */
static uint32_t filter_run(const struct sock_filter *code, uint32_t count, const struct seccomp_data *data)
{
    struct filter_machine machine = {0};
    for (uint32_t pc = 0; pc < count; pc++) {
        const struct sock_filter *at = &code[pc];
        uint32_t operand = BPF_SRC(at->code) == BPF_X ? machine.x : at->k;
        switch (BPF_CLASS(at->code)) {
        case BPF_LD:
            machine.a = filter_load(&machine, at, data);
            break;
        case BPF_LDX:
            machine.x = filter_load(&machine, at, data);
            break;
        case BPF_ST:
            machine.memory[at->k % FILTER_WORDS] = machine.a;
            break;
        case BPF_STX:
            machine.memory[at->k % FILTER_WORDS] = machine.x;
            break;
        case BPF_ALU:
            machine.a = filter_alu(at->code, machine.a, operand);
            break;
        case BPF_JMP:
            if (BPF_OP(at->code) == BPF_JA)
                pc += at->k;
            else
                pc += filter_jumps(at->code, machine.a, operand) ? at->jt : at->jf;
            break;
        case BPF_RET:
            return BPF_RVAL(at->code) == BPF_A ? machine.a : at->k;
        default:
            if (BPF_MISCOP(at->code) == BPF_TAX)
                machine.x = machine.a;
            else
                machine.a = machine.x;
        }
    }
    return SECCOMP_RET_KILL_PROCESS;
}

/* The call that the filter answers with a signal; NULL: none. */
static const char *filter_forbids(const struct sock_filter *code, uint32_t count)
{
    for (size_t i = 0; i < sizeof(filter_calls) / sizeof(filter_calls[0]); i++) {
        const struct filter_call *call = &filter_calls[i];
        struct seccomp_data data = {.nr = call->number, .arch = AUDIT_ARCH_X86_64};
        for (int k = 0; k < 6; k++)
            data.args[k] = call->arguments[k];
        uint32_t action = filter_run(code, count, &data) & SECCOMP_RET_ACTION_FULL;
        if (action == SECCOMP_RET_KILL_PROCESS || action == SECCOMP_RET_KILL_THREAD || action == SECCOMP_RET_TRAP)
            return call->name;
    }
    return NULL;
}

/* ---- the filters of a thread ------------------------------------------------------------------------------------- */

/* How many instructions the thread's filter with that number has; -ENOENT: it has no more. */
static long filter_get(pid_t tid, uint32_t number, struct sock_filter *code)
{
    long count = ptrace((enum __ptrace_request)PTRACE_SECCOMP_GET_FILTER, tid, (void *)(uintptr_t)number, code);
    return count < 0 ? -errno : count;
}

bool gp_filter_allows(const struct gp_facts *facts, pid_t tid, struct gp_attach *attach)
{
    static const char hint[] = "start it with 'gpuprof run', which loads the library before it enters its sandbox";
    const char *forbidden = NULL;
    long count = 0;
    if (facts->seccomp != SECCOMP_MODE_FILTER)
        return true;
    for (uint32_t i = 0; !forbidden && i < FILTERS_MOST && (count = filter_get(tid, i, NULL)) > 0; i++) {
        struct sock_filter code[BPF_MAXINSNS];
        count = count <= BPF_MAXINSNS ? filter_get(tid, i, code) : -E2BIG;
        if (count > 0)
            forbidden = filter_forbids(code, (uint32_t)count);
        else if (count < 0)
            break;
    }
    if (forbidden)
        gp_attach_why(attach, hint,
                      "its sandbox (seccomp) ends it, or calls a handler of it, for the system call %s, "
                      "which an attach needs",
                      forbidden);
    else if (count != -ENOENT && facts->filters > gp_facts_filters(0))
        gp_attach_why(attach, "run as root (CAP_SYS_ADMIN), who may read them",
                      "it has filters of system calls (seccomp) that this command has not, and may end for those of an "
                      "attach");
    else
        return true;
    return false;
}
