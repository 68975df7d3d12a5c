/* SPDX-License-Identifier: MIT
 *
 * facts.c: what /proc tells about a process, what its sandbox lets through, and the refusals that
 * follow.
 */
#include <attach/attach.h>
#include <attach/facts.h>
#include <attach/remote.h>
#include <base/spared.h>
#include <base/vma.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <read/collect/procfs.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ==== facts ======================================================================================================= */
/* What /proc tells about a process, and the refusals that follow from it.  Called by attach.c.
 * Everything here only reads; the process does not notice. */

void gp_attach_why(struct gp_attach *attach, const char *hint, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(attach->why, sizeof(attach->why), format, args);
    va_end(args);
    snprintf(attach->hint, sizeof(attach->hint), "%s", hint);
}

static ssize_t facts_text(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -errno : read(fd, text, bytes - 1);
    if (fd >= 0 && got < 0)
        got = -errno;
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got;
}

long long gp_facts_number(const char *text, const char *name, int base, long long otherwise)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            return strtoll(line + length + 1, NULL, base);
    return otherwise;
}

static const char *facts_user(unsigned uid)
{
    static char text[64];
    const struct passwd *entry = getpwuid(uid);
    if (entry)
        snprintf(text, sizeof(text), "%.40s", entry->pw_name);
    else
        snprintf(text, sizeof(text), "uid %u", uid);
    return text;
}

static void facts_comm(pid_t pid, char *comm, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    if (facts_text(path, comm, bytes) <= 0)
        snprintf(comm, bytes, "?");
    comm[strcspn(comm, "\n")] = '\0';
}

/* A file in /proc/PID could not be read: only these two errors mean that the process has ended. */
static enum gp_attach_outcome facts_unread(struct gp_attach *attach, int error)
{
    if (error == ENOENT || error == ESRCH) {
        gp_attach_why(attach, "", "no such process");
        return GP_ATTACH_GONE;
    }
    gp_attach_why(attach, error == EMFILE ? "raise 'ulimit -n'" : "", "/proc/%d cannot be read: %s", (int)attach->pid,
                  strerror(error));
    return GP_ATTACH_REFUSED;
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

/* The number of a process's filters of system calls, -1 unknown. 0: this process. */
static int facts_filters(pid_t pid)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), pid ? "/proc/%d/status" : "/proc/self/status", (int)pid);
    return facts_text(path, text, sizeof(text)) <= 0 ? -1 : (int)gp_facts_number(text, "Seccomp_filters", 10, -1);
}

/* Whether it is the first process of a container: its filters are the container's. */
static bool facts_is_first(const char *status)
{
    const char *at = strstr(status, "\nNSpid:\t"), *end = at ? strchr(at + 1, '\n') : NULL;
    return end && end[-1] == '1' && end[-2] == '\t';
}

static enum gp_attach_outcome facts_status(struct gp_facts *facts, struct gp_attach *attach)
{
    char path[64], folder[GP_PROC_FOLDER], text[4096];
    snprintf(path, sizeof(path), "%s/status", gp_proc_folder(facts->pid, folder));
    ssize_t got = facts_text(path, text, sizeof(text));
    if (got <= 0)
        return facts_unread(attach, got ? (int)-got : ESRCH);
    const char *state = strstr(text, "\nState:\t"), *uids = strstr(text, "\nUid:\t");
    facts->state = state ? state[8] : '?';
    if (!uids || sscanf(uids, "\nUid:\t%u\t%u\t%u", &facts->uid, &facts->euid, &facts->suid) != 3)
        facts->uid = facts->euid = facts->suid = 0;
    facts->tgid = (pid_t)gp_facts_number(text, "Tgid", 10, facts->pid);
    facts->tracer = (pid_t)gp_facts_number(text, "TracerPid", 10, 0);
    facts->threads = (pid_t)gp_facts_number(text, "Threads", 10, 1);
    facts->seccomp = (int)gp_facts_number(text, "Seccomp", 10, 0);
    facts->filters = (int)gp_facts_number(text, "Seccomp_filters", 10, -1);
    facts->own_filters = facts->seccomp == 2 && !facts_is_first(text) &&
                         facts->filters > facts_filters((pid_t)gp_facts_number(text, "PPid", 10, 0));
    bool kernel = gp_facts_number(text, "Kthread", 10, 0) == 1 || !strstr(text, "\nVmSize:");
    if (facts->state == 'Z' || facts->state == 'X') {
        gp_attach_why(attach, "", "it has ended, and waits for its parent (a zombie)");
        return GP_ATTACH_GONE;
    }
    if (facts->tgid != facts->pid)
        gp_attach_why(attach, "", "it is a thread of the process %d: name that", (int)facts->tgid);
    else if (facts->pid == getpid())
        gp_attach_why(attach, "", "it is this command itself");
    else if (kernel)
        gp_attach_why(attach, "", "it is a thread of the kernel");
    else
        return GP_ATTACH_DONE;
    return GP_ATTACH_REFUSED;
}

/* ---- rights ------------------------------------------------------------------------------------------------------ */

static bool facts_may_trace(void)
{
    char text[4096];
    facts_text("/proc/self/status", text, sizeof(text));
    return gp_facts_number(text, "CapEff", 16, 0) >> 19 & 1; /* CAP_SYS_PTRACE */
}

void gp_facts_denied(const struct gp_facts *facts, struct gp_attach *attach, int error)
{
    char scope[16];
    bool capable = facts_may_trace(),
         known = facts_text("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope)) > 0;
    int yama = known ? atoi(scope) : 0;
    bool mine = facts->uid == getuid() && facts->euid == getuid() && facts->suid == getuid();
    if (yama == 3)
        gp_attach_why(attach, "only a reboot changes it; start programs with 'gpuprof run' on this machine",
                      "the kernel forbids it to everybody (/proc/sys/kernel/yama/ptrace_scope is 3)");
    else if (!mine && !capable)
        gp_attach_why(attach, "run as that user, or as root (CAP_SYS_PTRACE)", "it belongs to another user (%s)",
                      facts_user(facts->uid));
    else if (yama == 2 && !capable)
        gp_attach_why(attach, "run as root", "it takes CAP_SYS_PTRACE (/proc/sys/kernel/yama/ptrace_scope is 2)");
    else if (yama == 1 && !capable)
        gp_attach_why(attach,
                      "run as root, or 'sudo sysctl kernel.yama.ptrace_scope=0', or in a container add CAP_SYS_PTRACE "
                      "(docker run --cap-add=SYS_PTRACE)",
                      "it is not a child of this command, and others take CAP_SYS_PTRACE "
                      "(/proc/sys/kernel/yama/ptrace_scope is 1)");
    else if (!capable)
        gp_attach_why(attach, "run as root (CAP_SYS_PTRACE)",
                      "the kernel refuses (%s): the program has more rights than you, or has made itself undumpable",
                      strerror(error));
    else
        gp_attach_why(attach, "run outside of the container, on the host",
                      "the kernel refuses (%s) in spite of CAP_SYS_PTRACE: it belongs to another user namespace, or "
                      "seccomp or a security module of this command forbids it",
                      strerror(error));
}

static enum gp_attach_outcome facts_rights(struct gp_facts *facts, struct gp_attach *attach)
{
    char path[64], folder[GP_PROC_FOLDER], comm[32];
    if (facts->tracer) {
        facts_comm(facts->tracer, comm, sizeof(comm));
        gp_attach_why(attach, "leave it there, and try again", "it is traced by %s (process %d)", comm,
                      (int)facts->tracer);
        return GP_ATTACH_REFUSED;
    }
    /* The kernel checks for this file what it checks for ptrace. */
    snprintf(path, sizeof(path), "%s/mem", gp_proc_folder(facts->pid, folder));
    int fd = open(path, O_RDONLY | O_CLOEXEC), error = errno;
    if (fd >= 0) {
        close(fd);
        return GP_ATTACH_DONE;
    }
    if (error != EACCES && error != EPERM)
        return facts_unread(attach, error);
    gp_facts_denied(facts, attach, error);
    return GP_ATTACH_REFUSED;
}

static enum gp_attach_outcome facts_spared(const struct gp_facts *facts, struct gp_attach *attach)
{
    char path[64], folder[GP_PROC_FOLDER], program[4096];
    snprintf(path, sizeof(path), "%s/exe", gp_proc_folder(facts->pid, folder));
    ssize_t got = readlink(path, program, sizeof(program) - 1);
    program[got > 0 ? got : 0] = '\0';
    const char *what = gp_spared(program);
    if (!what)
        return GP_ATTACH_DONE;
    gp_attach_why(attach, "name the program whose memory you want to see", "gpuprof does not start in it: it is %s",
                  what);
    return GP_ATTACH_REFUSED;
}

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

static bool facts_is(const char *base, const char *name, const char *old)
{
    return strcmp(base, name) == 0 || (old && strncmp(base, old, strlen(old)) == 0 && strstr(base, ".so"));
}

static void facts_keep(struct gp_attach_map *map, uint64_t start, const char *path)
{
    if (map->path[0] || strlen(path) >= sizeof(map->path))
        return;
    map->start = start;
    strcpy(map->path, path);
}

struct facts_maps {
    struct gp_facts *facts;
    char program[sizeof(((struct gp_facts *)NULL)->program.path)];
};

static void facts_map(struct gp_facts *facts, uint64_t start, const char *path, const char *program)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (strcmp(path, program) == 0)
        facts_keep(&facts->program, start, path);
    if (strncmp(base, "libtsan.so", 10) == 0 || strncmp(base, "libclang_rt.tsan", 16) == 0)
        facts_keep(&facts->sanitizer, start, path);
    if (strncmp(base, "ld-musl-", 8) == 0)
        facts_keep(&facts->musl, start, path);
    else if (strncmp(base, "ld-linux", 8) == 0 || facts_is(base, "ld.so.1", "ld-2."))
        facts_keep(&facts->loader, start, path);
    else if (facts_is(base, "libc.so.6", "libc-2."))
        facts_keep(&facts->libc, start, path);
    else if (facts_is(base, "libdl.so.2", "libdl-2."))
        facts_keep(&facts->libdl, start, path);
    else if (facts_is(base, "libpthread.so.0", "libpthread-2."))
        facts_keep(&facts->libpthread, start, path);
    else if (strncmp(base, "libcuda.so", 10) == 0)
        facts_keep(&facts->cuda, start, path);
    else if (strncmp(base, "libgpuprof.so", 13) == 0)
        facts_keep(&facts->profiler, start, path);
    else if (strncmp(base, "libpython3", 10) == 0)
        facts_keep(&facts->libpython, start, path);
    else if (strncmp(base, "python3", 7) == 0)
        facts_keep(&facts->python, start, path);
}

static bool facts_mapping(void *context, const struct gp_vma *mapping)
{
    struct facts_maps *maps = context;
    maps->facts->maps_bytes += mapping->end - mapping->start;
    if (mapping->path[0] == '/' && mapping->offset == 0)
        facts_map(maps->facts, mapping->start, mapping->path, maps->program);
    return true;
}

int gp_facts_maps(struct gp_facts *facts)
{
    struct facts_maps maps = {.facts = facts};
    char path[64], folder[GP_PROC_FOLDER];
    snprintf(path, sizeof(path), "%s/exe", gp_proc_folder(facts->pid, folder));
    ssize_t got = readlink(path, maps.program, sizeof(maps.program) - 1);
    maps.program[got > 0 ? got : 0] = '\0';
    return gp_proc_mapped_each(facts->pid, facts_mapping, &maps);
}

/* A runtime that replaces pthread_create keeps a record of each thread, and may crash in one that
 * it did not see start. */
static bool facts_own_threads(const struct gp_facts *facts)
{
    const char *name = "pthread_create";
    uint64_t at = 0;
    return facts->sanitizer.path[0] || (gp_remote_symbols(facts->pid, &facts->program, &name, &at, 1) == 0 && at);
}

/* Asks the loader in its memory: the program's file may be one that the process itself may not read. */
static bool facts_is_32_bit(const struct gp_facts *facts)
{
    unsigned char ident[EI_NIDENT];
    return facts->loader.path[0] && gp_remote_read(facts->pid, ident, sizeof(ident), facts->loader.start) == 0 &&
           memcmp(ident, ELFMAG, SELFMAG) == 0 && ident[EI_CLASS] != ELFCLASS64;
}

static enum gp_attach_outcome facts_program(struct gp_facts *facts, struct gp_attach *attach)
{
    int rc = gp_facts_maps(facts);
    if (rc)
        return facts_unread(attach, -rc);
    if (facts_is_32_bit(facts))
        gp_attach_why(attach, "", "it is a 32-bit program, and the library is for 64-bit ones");
    else if (facts->musl.path[0])
        gp_attach_why(attach, "", "its C library is musl, and libgpuprof.so needs glibc");
    else if (!facts->loader.path[0] || !facts->libc.path[0])
        gp_attach_why(attach, "start it with 'gpuprof run'",
                      "it is statically linked: it has no loader that could load a library");
    else if (!facts->cuda.path[0])
        gp_attach_why(attach, "", "it does not use CUDA: libcuda.so.1 is not loaded there");
    else if (facts_own_threads(facts))
        gp_attach_why(attach, "start it with 'gpuprof run'",
                      facts->sanitizer.path[0]
                          ? "it is built with -fsanitize=thread, and ThreadSanitizer ends a program "
                            "with a thread that it did not see start"
                          : "it has a pthread_create of its own (a sanitizer's, for example), and "
                            "may not survive a thread that it did not see start");
    else if (facts->seccomp == 1)
        gp_attach_why(attach, "", "seccomp's strict mode forbids it to load anything");
    else
        return GP_ATTACH_DONE;
    return GP_ATTACH_REFUSED;
}

/* A number is used again. Once the memory is held, a process that started then is the one whose memory that is. */
static enum gp_attach_outcome facts_started(struct gp_attach *attach)
{
    struct gp_proc proc;
    int rc = attach->started ? gp_proc_open(&proc, attach->pid) : 0;
    if (rc)
        return facts_unread(attach, -rc);
    if (!attach->started)
        return GP_ATTACH_DONE;
    gp_proc_close(&proc);
    if (proc.start_time == attach->started)
        return GP_ATTACH_DONE;
    gp_attach_why(attach, "", "the process that started at %" PRIu64 " has ended, and its number is another one's",
                  attach->started);
    return GP_ATTACH_GONE;
}

enum gp_attach_outcome gp_facts_read(struct gp_facts *facts, struct gp_attach *attach)
{
    *facts = (struct gp_facts){.pid = attach->pid};
    attach->why[0] = attach->hint[0] = '\0';
    enum gp_attach_outcome outcome = facts_status(facts, attach);
    if (outcome == GP_ATTACH_DONE)
        outcome = facts_rights(facts, attach);
    if (outcome == GP_ATTACH_DONE)
        outcome = facts_spared(facts, attach);
    if (outcome == GP_ATTACH_DONE && (facts->state == 'T' || facts->state == 't')) {
        gp_attach_why(attach, "continue it ('kill -CONT PID'), and try again", "it is stopped");
        outcome = GP_ATTACH_REFUSED;
    }
    pid_t parent;
    if (outcome == GP_ATTACH_DONE && gp_proc_is_borrower(attach->pid, &parent)) {
        gp_attach_why(attach, "try again once it runs a program of its own",
                      "it uses the memory of its parent, process %d (a child of vfork)", (int)parent);
        outcome = GP_ATTACH_REFUSED;
    }
    if (outcome != GP_ATTACH_DONE)
        return outcome;
    /* Not before: the memory of a child of vfork would be its parent's also after the child's exec. */
    gp_remote_hold(attach->pid);
    outcome = facts_started(attach);
    return outcome == GP_ATTACH_DONE ? facts_program(facts, attach) : outcome;
}

/* ==== filters of system calls ===================================================================================== */
/* Whether the seccomp filters of a thread let it load the library.  Called by inject.c.
 *
 * A program that has entered a sandbox may end for the first system call that it does not make
 * itself, or have a handler that ends it. The kernel shows the filters of a stopped thread to who
 * has CAP_SYS_ADMIN; they are run here for each call of an attach, before one is made. Without that
 * right their number must tell. */

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

bool gp_facts_filter_allows(const struct gp_facts *facts, pid_t tid, struct gp_attach *attach)
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
    else if (count != -ENOENT && facts->filters > facts_filters(0))
        gp_attach_why(attach, "run as root (CAP_SYS_ADMIN), who may read them",
                      "it has filters of system calls (seccomp) that this command has not, and may end for those of an "
                      "attach");
    else
        return true;
    return false;
}
