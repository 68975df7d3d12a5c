/* SPDX-License-Identifier: MIT
 *
 * seize.c: stops one thread of a process (ptrace), lets it run something else for a moment, and puts
 * it back as it was.  Called by inject.c.  All other threads keep running.
 *
 * A thread that sleeps in a system call leaves it for the stop with one of the kernel's restart codes,
 * and the number of the call in orig_rax.  If both are put back at a stop of the same kind, the kernel
 * starts the call again when the thread leaves the stop, and a sleep with a timeout continues with
 * what is left of it.  Some calls (epoll_wait, or recv on a socket with a timeout) return EINTR for
 * every stop.  They have done nothing then, so they are made again with the same arguments, unless a
 * signal for the program arrived too.
 *
 * If this process dies in between, the thread gets back by itself.  Below its stack, where the kernel
 * puts the frame of a signal handler, lies such a frame with what was saved, and all that the thread
 * is led to ends with a return to the frame: the system call's instruction in the C library, and the
 * code of stub.c.  The order in which registers and signal mask are set keeps this true at each step:
 * the registers lead away before the signals are blocked, and back after they are allowed again.
 */
#include <attach/remote.h>
#include <attach/seize.h>
#include <attach/stub.h>
#include <attach/unwind.h>

#include <base/clock.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)

#define GP_SEIZE_EXTENDED 16384 /* bytes of vector registers, AMX included */
#define GP_RESTART_FIRST  512   /* the kernel's ERESTARTSYS .. ERESTART_RESTARTBLOCK, which it shows to tracers only */
#define GP_RESTART_LAST   516
/* SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV and SIGSYS stay allowed: if the thread causes one itself, the
 * kernel would take the program's handler away if it were blocked. */
#define GP_SEIZE_BLOCKED (~0x400004d8ull)
/* In pthread_create it handles GP_SETXID_SIGNAL: setuid and its kin hold a lock that pthread_create needs until each
 * thread has.  glibc ignores one that another process sent, so it must not be taken away and sent again. */
#define GP_SEIZE_BLOCKED_RUN (GP_SEIZE_BLOCKED & ~(1ull << (GP_SETXID_SIGNAL - 1)))

struct gp_seized {
    pid_t pid, tid;
    uint64_t begin_ns;
    struct user_regs_struct at_stop, saved; /* saved: what the thread gets back */
    bool gone, runs;
    uint64_t later;   /* signals that another process or thread sent meanwhile; they are sent again */
    bool is_away;     /* its registers are ours */
    uint64_t blocked; /* and its signal mask; 0: that is its own */
    uint64_t mask, frame, enter;
    uint64_t region, region_end; /* where it runs on its own; 0 nowhere */
    size_t below_bytes;          /* what was at `frame`; 0: that is as it was */
    uint8_t below[GP_SEIZE_EXTENDED + 1024];
    size_t extended_bytes;
    uint8_t extended[GP_SEIZE_EXTENDED] __attribute__((aligned(64)));
};

/* ---- stops ------------------------------------------------------------------------------------------------------- */

/* Waits for a stop.  0, -ETIMEDOUT, -ESRCH. */
static int seize_wait(struct gp_seized *seized, int *status, uint64_t deadline_ns)
{
    sigset_t set;
    const struct timespec pause = {0, 1000000};
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (;;) {
        pid_t pid = waitpid(seized->tid, status, __WALL | WNOHANG);
        if (pid == seized->tid && WIFSTOPPED(*status))
            return 0;
        if (pid == seized->tid || (pid < 0 && errno == ECHILD)) {
            seized->gone = true;
            return -ESRCH;
        }
        if (gp_clock_ns() >= deadline_ns)
            return -ETIMEDOUT;
        sigtimedwait(&set, NULL, &pause);
    }
}

static int seize_event(int status)
{
    return status >> 16;
}

static bool seize_is_syscall(int status)
{
    return WSTOPSIG(status) == (SIGTRAP | 0x80);
}

static bool seize_is_stop(int signal)
{
    return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

/* Until the thread is in the stop of PTRACE_INTERRUPT.  Signals that come first are delivered. */
static int seize_settle(struct gp_seized *seized, uint64_t deadline_ns)
{
    int status, rc;
    while ((rc = seize_wait(seized, &status, deadline_ns)) == 0) {
        if (seize_event(status) == PTRACE_EVENT_STOP)
            return seize_is_stop(WSTOPSIG(status)) ? -EAGAIN : 0;
        int signal = seize_event(status) || seize_is_syscall(status) ? 0 : WSTOPSIG(status);
        if (ptrace(PTRACE_CONT, seized->tid, NULL, (void *)(uintptr_t)signal) != 0)
            return -ESRCH;
    }
    return rc;
}

static long seize_error(const struct user_regs_struct *regs)
{
    long value = (long)regs->rax;
    return value < 0 && value >= -4095 ? -value : 0;
}

/* Whether a signal that the program handles is waiting for the thread. */
static bool seize_has_signal(const struct gp_seized *seized)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)seized->pid, (int)seized->tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    const char *names[] = {"SigPnd", "ShdPnd", "SigBlk", "SigCgt"};
    unsigned long long sets[4];
    for (int i = 0; i < 4; i++) {
        const char *at = strstr(text, names[i]);
        sets[i] = at ? strtoull(at + 7, NULL, 16) : 0;
    }
    return (sets[0] | sets[1]) & ~sets[2] & sets[3];
}

/* A call that returned EINTR for the stop is made again, whatever becomes of the attach. */
static int seize_again(struct gp_seized *seized)
{
    struct user_regs_struct *regs = &seized->at_stop;
    if (ptrace(PTRACE_GETREGS, seized->tid, NULL, regs) != 0)
        return -errno;
    if ((long)regs->orig_rax < 0 || seize_error(regs) != EINTR || seize_has_signal(seized))
        return 0;
    regs->rip -= 2; /* from the instruction on */
    regs->rax = regs->orig_rax;
    regs->orig_rax = ~0ull;
    return ptrace(PTRACE_SETREGS, seized->tid, NULL, regs) == 0 ? 0 : -errno;
}

int gp_seize(struct gp_seized **out, pid_t pid, pid_t tid, uint64_t deadline_ns)
{
    struct gp_seized *seized = aligned_alloc(64, (sizeof(*seized) + 63) & ~63ull);
    *out = NULL;
    if (!seized)
        return -ENOMEM;
    memset(seized, 0, sizeof(*seized));
    seized->pid = pid;
    seized->tid = tid;
    seized->begin_ns = gp_clock_ns();
    int rc = 0;
    if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)(uintptr_t)PTRACE_O_TRACESYSGOOD) != 0 ||
        ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) != 0)
        rc = -errno;
    bool is_mine = !rc;
    if (!rc)
        rc = seize_settle(seized, deadline_ns);
    if (!rc)
        rc = seize_again(seized);
    if (rc) {
        if (is_mine && rc != -ESRCH)
            ptrace(PTRACE_DETACH, tid, NULL, NULL);
        free(seized);
        return rc;
    }
    *out = seized;
    return 0;
}

/* ---- what it was doing ------------------------------------------------------------------------------------------- */

bool gp_seized_may_leave(const struct gp_seized *seized)
{
    struct __ptrace_rseq_configuration config = {0};
    uint64_t section = 0;
    if (seized->at_stop.cs != 0x33) /* 32-bit code */
        return false;
    if ((long)seized->at_stop.orig_rax >= 0)
        return true;
    /* Between two instructions of the program: not in a restartable sequence, which the kernel would
     * have to break off when the thread comes back to it. */
    if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, seized->tid, (void *)sizeof(config), &config) <= 0 ||
        !config.rseq_abi_pointer)
        return true;
    return gp_remote_read(seized->pid, &section, sizeof(section), config.rseq_abi_pointer + 8) == 0 && section == 0;
}

/* What rt_sigreturn reads: struct rt_sigframe of the kernel.  Its first word is the address to which a
 * signal handler returns. */
struct seize_frame {
    uint64_t back, flags, link, stack[3];
    uint64_t r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
    uint16_t cs, gs, fs, ss;
    uint64_t err, trapno, oldmask, cr2, fpstate, reserved[8], mask;
};

static void seize_fill(const struct gp_seized *seized, const struct gp_seize_code *code, struct seize_frame *frame)
{
    const struct user_regs_struct *r = &seized->saved;
    *frame = (struct seize_frame){
        .back = code->back,
        .flags = 7,           /* UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS */
        .stack = {0, ~0u, 0}, /* flags that the kernel refuses: the alternate stack stays as it is */
        .r8 = r->r8,
        .r9 = r->r9,
        .r10 = r->r10,
        .r11 = r->r11,
        .r12 = r->r12,
        .r13 = r->r13,
        .r14 = r->r14,
        .r15 = r->r15,
        .rdi = r->rdi,
        .rsi = r->rsi,
        .rbp = r->rbp,
        .rbx = r->rbx,
        .rdx = r->rdx,
        .rax = r->rax,
        .rcx = r->rcx,
        .rsp = r->rsp,
        .rip = r->rip,
        .eflags = r->eflags,
        .cs = (uint16_t)r->cs,
        .ss = (uint16_t)r->ss,
        .mask = seized->mask};
    long error = seize_error(r);
    if ((long)r->orig_rax < 0 || error < GP_RESTART_FIRST || error > GP_RESTART_LAST)
        return;
    /* The kernel forgets the rest of a timeout in rt_sigreturn, so the call is made again with all of it.
     * A call that was interrupted before has become another one, of which nothing is left. */
    bool lost = r->orig_rax == SYS_restart_syscall;
    frame->rip = lost ? r->rip : r->rip - 2;
    frame->rax = lost ? (uint64_t)-EINTR : r->orig_rax;
}

/* Keeps the bytes that the frame overwrites.  Only a part of the thread's own stack is overwritten:
 * below the stack of a fibre may lie data that other threads use at this moment. */
static int seize_keep(struct gp_seized *seized, const struct gp_seize_code *code)
{
    uint64_t low = gp_unwind_stack_low(code->stacks, seized->tid, seized->saved.rsp, seized->saved.fs_base);
    size_t bytes = seized->saved.rsp - 128 - seized->frame;
    if (!low)
        return -EXDEV;
    if (seized->frame < low || bytes > sizeof(seized->below) ||
        gp_remote_read(seized->pid, seized->below, bytes, seized->frame) != 0)
        return -ENOSPC;
    seized->below_bytes = bytes;
    return 0;
}

static int seize_frame(struct gp_seized *seized, const struct gp_seize_code *code)
{
    struct { /* the last words of the part that FXSAVE leaves to software */
        uint32_t magic, bytes;
        uint64_t features;
        uint32_t state_bytes, padding[7];
    } words = {0x46505853, (uint32_t)seized->extended_bytes + 4, 0, (uint32_t)seized->extended_bytes, {0}};
    uint8_t area[GP_SEIZE_EXTENDED + 64];
    const uint32_t magic = 0x46505845;
    struct seize_frame frame;
    if (seized->extended_bytes < 576 || seized->extended_bytes > GP_SEIZE_EXTENDED)
        return -EFAULT;
    seize_fill(seized, code, &frame);
    memcpy(&words.features, seized->extended + 464, 8); /* the mask of the features, as ptrace shows it */
    memcpy(area, seized->extended, seized->extended_bytes);
    memcpy(area + 464, &words, sizeof(words));
    memcpy(area + seized->extended_bytes, &magic, sizeof(magic));
    /* Behind the 128 bytes that a function may use below its stack. */
    frame.fpstate = (seized->saved.rsp - 128 - seized->extended_bytes - 4) & ~63ull;
    /* What the frame's return leaves is aligned as behind a call. */
    seized->frame = ((frame.fpstate - sizeof(frame)) & ~15ull) - 8;
    int rc = seize_keep(seized, code);
    if (!rc)
        rc = gp_remote_write(seized->pid, &frame, sizeof(frame), seized->frame);
    return rc ? rc : gp_remote_write(seized->pid, area, seized->extended_bytes + 4, frame.fpstate);
}

int gp_seized_save(struct gp_seized *seized, const struct gp_seize_code *code)
{
    struct iovec vector = {seized->extended, sizeof(seized->extended)};
    if (ptrace(PTRACE_GETREGSET, seized->tid, (void *)(uintptr_t)NT_X86_XSTATE, &vector) != 0 ||
        ptrace(PTRACE_GETSIGMASK, seized->tid, (void *)sizeof(seized->mask), &seized->mask) != 0)
        return -errno;
    seized->extended_bytes = vector.iov_len;
    seized->saved = seized->at_stop;
    seized->enter = code->enter;
    return seize_frame(seized, code);
}

uint64_t gp_seized_frame(const struct gp_seized *seized)
{
    return seized->frame;
}

/* ---- something else ---------------------------------------------------------------------------------------------- */

/* A signal has come that is not blocked.  False: the thread has caused it itself.  Else it is a stop signal,
 * or another process sent it: it is sent again at the end. */
static bool seize_postpone(struct gp_seized *seized, int signal)
{
    siginfo_t info = {0};
    ptrace(PTRACE_GETSIGINFO, seized->tid, NULL, &info);
    if (info.si_code > 0 && !seize_is_stop(signal))
        return false;
    seized->later |= 1ull << signal;
    return true;
}

/* Runs until the next entry to or exit from a system call. */
static int seize_next(struct gp_seized *seized, uint64_t deadline_ns)
{
    int status, rc;
    for (;;) {
        if (ptrace(PTRACE_SYSCALL, seized->tid, NULL, NULL) != 0)
            return -errno;
        while ((rc = seize_wait(seized, &status, deadline_ns)) == -ETIMEDOUT && deadline_ns == UINT64_MAX) {
        }
        if (rc || seize_is_syscall(status))
            return rc;
        if (seize_event(status))
            continue;
        if (!seize_postpone(seized, WSTOPSIG(status)))
            return -EFAULT;
    }
}

/* Leads the thread away.  Its signals are blocked next, so that none is handled on our stack. */
static int seize_lead(struct gp_seized *seized, const struct user_regs_struct *regs, uint64_t blocked)
{
    if (ptrace(PTRACE_SETREGS, seized->tid, NULL, regs) != 0)
        return -errno;
    seized->is_away = true;
    if (seized->blocked != blocked && ptrace(PTRACE_SETSIGMASK, seized->tid, (void *)sizeof(blocked), &blocked) != 0)
        return -errno;
    seized->blocked = blocked;
    return 0;
}

long gp_seized_call(struct gp_seized *seized, long number, const uint64_t arguments[6])
{
    struct user_regs_struct regs = seized->saved;
    uint64_t deadline = gp_clock_ns() + 5000000000ull;
    if (seized->region && !seized->is_away)
        return -ECANCELED; /* it has gone back by itself */
    seized->region = 0;
    regs.rip = seized->enter;
    regs.rsp = seized->frame;
    regs.rax = (unsigned long long)number;
    regs.orig_rax = ~0ull;
    regs.rdi = arguments[0];
    regs.rsi = arguments[1];
    regs.rdx = arguments[2];
    regs.r10 = arguments[3];
    regs.r8 = arguments[4];
    regs.r9 = arguments[5];
    int rc = seize_lead(seized, &regs, GP_SEIZE_BLOCKED);
    if (!rc)
        rc = seize_next(seized, deadline);
    if (!rc)
        rc = seize_next(seized, deadline);
    if (!rc && ptrace(PTRACE_GETREGS, seized->tid, NULL, &regs) != 0)
        rc = -errno;
    return rc ? rc : (long)regs.rax;
}

/* A look at a thread that runs.  0: it does; -ESRCH, -EFAULT. */
static int seize_glance(struct gp_seized *seized)
{
    int status;
    pid_t pid = waitpid(seized->tid, &status, __WALL | WNOHANG);
    if (pid == 0)
        return 0;
    if (pid < 0 || !WIFSTOPPED(status)) {
        seized->gone = true;
        return -ESRCH;
    }
    seized->runs = false;
    uintptr_t signal = seize_event(status) ? 0 : (uintptr_t)WSTOPSIG(status);
    if (signal && signal != GP_SETXID_SIGNAL && !seize_postpone(seized, (int)signal))
        return -EFAULT;
    signal = signal == GP_SETXID_SIGNAL ? signal : 0;
    seized->runs = ptrace(PTRACE_CONT, seized->tid, NULL, (void *)signal) == 0;
    return seized->runs ? 0 : -ESRCH;
}

int gp_seized_run(struct gp_seized *seized, uint64_t region, uint64_t region_bytes, uint64_t stack, uint64_t data,
                  uint64_t deadline_ns)
{
    const struct timespec pause = {0, 20000};
    struct user_regs_struct regs = seized->saved;
    int32_t created = GP_STUB_PENDING;
    seized->region = region;
    seized->region_end = region + region_bytes;
    regs.rip = region;
    regs.rsp = stack;
    regs.rbp = 0;
    regs.rbx = data;
    regs.rax = 0;
    regs.orig_rax = ~0ull;
    regs.eflags &= ~0x400ull; /* the direction flag is clear in a function call */
    int lead = seize_lead(seized, &regs, GP_SEIZE_BLOCKED_RUN);
    if (lead)
        return lead;
    if (ptrace(PTRACE_CONT, seized->tid, NULL, NULL) != 0)
        return -errno;
    seized->runs = true;
    for (;;) {
        int rc = seize_glance(seized);
        if (!rc)
            rc = gp_remote_read(seized->pid, &created, sizeof(created), data + offsetof(struct gp_stub_data, created));
        if (rc || created != GP_STUB_PENDING)
            return rc ? rc : -created;
        if (gp_clock_ns() >= deadline_ns)
            return -ETIMEDOUT;
        nanosleep(&pause, NULL);
    }
}

/* ---- back -------------------------------------------------------------------------------------------------------- */

/* Whether it did not wait for us, since we were too slow: then its registers and its signals are its
 * own again. */
static bool seize_is_back(const struct gp_seized *seized)
{
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GETREGS, seized->tid, NULL, &regs) != 0)
        return true;
    return (regs.rsp < seized->region || regs.rsp > seized->region_end) &&
           (regs.rip < seized->region || regs.rip > seized->region_end);
}

int gp_seized_halt(struct gp_seized *seized)
{
    int status, rc = 0;
    if (!seized->runs)
        return 0;
    if (ptrace(PTRACE_INTERRUPT, seized->tid, NULL, NULL) != 0)
        return -errno;
    while ((rc = seize_wait(seized, &status, gp_clock_ns() + 5000000000ull)) == 0 &&
           seize_event(status) != PTRACE_EVENT_STOP) {
        if (!seize_event(status))
            seize_postpone(seized, WSTOPSIG(status));
        ptrace(PTRACE_CONT, seized->tid, NULL, NULL);
    }
    seized->runs = rc != 0;
    if (!rc && seized->region && seize_is_back(seized)) {
        seized->is_away = false;
        seized->below_bytes = 0; /* it may use them again */
    }
    return rc;
}

/* The kernel starts a system call again only on the way out of a stop for a signal, so the thread is
 * taken from the stop at a system call to one by PTRACE_INTERRUPT. */
static int seize_restore(struct gp_seized *seized)
{
    struct iovec vector = {seized->extended, seized->extended_bytes};
    int rc = 0;
    if (!seized->runs) {
        /* First the order to stop: it must not run one instruction. */
        if (ptrace(PTRACE_INTERRUPT, seized->tid, NULL, NULL) != 0 || ptrace(PTRACE_CONT, seized->tid, NULL, NULL) != 0)
            return -errno;
        seized->runs = true;
    }
    rc = gp_seized_halt(seized);
    if (rc)
        return rc;
    if (!seized->is_away)
        return 0;
    if (ptrace(PTRACE_SETREGSET, seized->tid, (void *)(uintptr_t)NT_X86_XSTATE, &vector) != 0 ||
        ptrace(PTRACE_SETSIGMASK, seized->tid, (void *)sizeof(seized->mask), &seized->mask) != 0 ||
        ptrace(PTRACE_SETREGS, seized->tid, NULL, &seized->saved) != 0)
        rc = -errno;
    return rc;
}

static void seize_send_later(const struct gp_seized *seized)
{
    for (int signal = 1; seized->later >> signal; signal++)
        if (seized->later >> signal & 1)
            syscall(SYS_tgkill, seized->pid, seized->tid, signal);
}

uint64_t gp_seized_release(struct gp_seized *seized)
{
    int rc = !seized->gone && seized->is_away ? seize_restore(seized) : 0;
    if (!seized->gone && !rc && seized->below_bytes) /* last: until then the thread may need the frame */
        gp_remote_write(seized->pid, seized->below, seized->below_bytes, seized->frame);
    if (!seized->gone)
        ptrace(PTRACE_DETACH, seized->tid, NULL, NULL);
    seize_send_later(seized);
    uint64_t pause = gp_clock_ns() - seized->begin_ns;
    free(seized);
    return pause;
}

void gp_seized_leave(struct gp_seized *seized)
{
    if (gp_seized_halt(seized) == 0)
        ptrace(PTRACE_DETACH, seized->tid, NULL, NULL);
    seize_send_later(seized);
    free(seized);
}

#else

int gp_seized_halt(struct gp_seized *seized)
{
    (void)seized;
    return -ENOSYS;
}

int gp_seize(struct gp_seized **seized, pid_t pid, pid_t tid, uint64_t deadline_ns)
{
    (void)pid, (void)tid, (void)deadline_ns;
    *seized = NULL;
    return -ENOSYS;
}

bool gp_seized_may_leave(const struct gp_seized *seized)
{
    (void)seized;
    return false;
}

int gp_seized_save(struct gp_seized *seized, const struct gp_seize_code *code)
{
    (void)seized, (void)code;
    return -ENOSYS;
}

uint64_t gp_seized_frame(const struct gp_seized *seized)
{
    (void)seized;
    return 0;
}

long gp_seized_call(struct gp_seized *seized, long number, const uint64_t arguments[6])
{
    (void)seized, (void)number, (void)arguments;
    return -ENOSYS;
}

int gp_seized_run(struct gp_seized *seized, uint64_t region, uint64_t region_bytes, uint64_t stack, uint64_t data,
                  uint64_t deadline_ns)
{
    (void)seized, (void)region, (void)region_bytes, (void)stack, (void)data, (void)deadline_ns;
    return -ENOSYS;
}

uint64_t gp_seized_release(struct gp_seized *seized)
{
    (void)seized;
    return 0;
}

void gp_seized_leave(struct gp_seized *seized)
{
    (void)seized;
}

#endif
