/* SPDX-License-Identifier: MIT
 *
 * test_attach.c: attaches to running programs and leaves them.  The targets check each of their
 * system calls themselves (tests/programs/attach_target.c).
 * Run: first
 */
#include "attachcase.h"
#include <jansson.h>
#include <lib/full.h>
#include <lib/ledger.h>
#include <signal.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

/* A target that opens files all the time (short descriptors of a library or a socket) is not compared. */
static const char *const targets_idle[] = {"nanosleep", "clock_nanosleep", "poll", "ppoll", "select", "epoll_timed",
                                           "futex",     "sigtimedwait",    "read", "recv",  "epoll",  "wait"};
static const char *const targets_busy[] = {"accept",  "malloc", "dlopen",  "cuda",  "compute",
                                           "signals", "fork",   "threads", "graph", "capture"};

Test(attach, leaves_system_calls_alone, .timeout = 300)
{
    for (size_t i = 0; i < sizeof(targets_idle) / sizeof(targets_idle[0]); i++)
        cycles(targets_idle[i], test_is_full() ? 20 : 1, true);
}

Test(attach, finds_a_moment_in_busy_programs, .timeout = 300)
{
    for (size_t i = 0; i < sizeof(targets_busy) / sizeof(targets_busy[0]); i++)
        cycles(targets_busy[i], 2, false);
}

/* In parts, since a target runs for a minute at most. */
Test(attach, thousand_cycles, .timeout = 3600)
{
    if (!test_is_full())
        cr_skip("only in the whole sweep");
    for (size_t i = 0; i < 50 * sizeof(targets_busy) / sizeof(targets_busy[0]); i++)
        cycles(targets_busy[i / 50], 1, false);
    for (size_t i = 0; i < 3 * sizeof(targets_busy) / sizeof(targets_busy[0]); i++)
        cycles(targets_busy[i / 3], 25, false);
}

/* Its main thread has ended: the kernel shows its memory and files in those of its other threads. */
Test(attach, reads_a_process_without_its_main_thread, .timeout = 60)
{
    struct target target;
    struct spawn_result result;
    char text[1024], number[16];
    target_start(&target, "leader");
    usleep(50000);
    snprintf(number, sizeof(number), "%d", (int)target.spawn.pid);
    for (int round = 0; round < 3; round++) {
        cr_assert_eq(command("attach", target.spawn.pid, text, sizeof(text)), 0, "%s", text);
        spawn_command(&result, "stat", "--json", "-p", number, NULL);
        cr_expect(result.status == 0 && strstr(result.out, "\"cupti\""), "%s%s", result.out, result.err);
        spawn_result_free(&result);
        spawn_command(&result, "top", "--once", NULL);
        cr_expect(result.status == 0 && strstr(result.out, number), "%s%s", result.out, result.err);
        spawn_result_free(&result);
        cr_assert_eq(command("detach", target.spawn.pid, text, sizeof(text)), 0, "%s", text);
    }
    cr_assert_eq(command("attach", target.spawn.pid, text, sizeof(text)), 0, "%s", text);
    target_end(&target, "leader");
}

Test(attach, counts_what_is_allocated_afterwards, .timeout = 60)
{
    struct target target;
    struct spawn_result result;
    char text[1024], number[16];
    target_start(&target, "cuda");
    snprintf(number, sizeof(number), "%d", (int)target.spawn.pid);
    cr_assert_eq(command("attach", target.spawn.pid, text, sizeof(text)), 0, "%s", text);
    usleep(50000);
    spawn_command(&result, "stat", "--json", "-p", number, NULL);
    cr_expect_eq(result.status, 0, "%s", result.err);
    cr_expect(strstr(result.out, "\"cupti\""), "%s", result.out);
    spawn_result_free(&result);
    cr_expect_eq(command("attach", target.spawn.pid, text, sizeof(text)), 0);
    cr_expect(strstr(text, "is profiled already"), "%s", text);
    target_end(&target, "cuda");
}

/* The target had 1 MiB before, and does nothing with it. */
static void expect_before(const char *file)
{
    struct spawn_result result;
    spawn_command(&result, "report", "--json", file, NULL);
    json_t *report = json_loads(result.out, 0, NULL);
    cr_expect(report && json_is_true(json_object_get(json_object_get(report, "recording"), "attached")), "%s",
              result.err);
    cr_expect_eq(json_at(report, "devices/0/before_attach_bytes", -1), 1 << 20);
    cr_expect_eq(json_at(report, "devices/0/before_attach_first_bytes", -1), 1 << 20);
    json_t *device = json_array_get(json_object_get(report, "devices"), 0);
    const char *source = json_string_value(json_object_get(device, "before_attach_source"));
    cr_expect(source && strcmp(source, "driver") == 0, "%s", source ? source : "null");
    json_decref(report);
    spawn_result_free(&result);
    spawn_command(&result, "report", file, NULL);
    cr_expect(strstr(result.out, "before attach  1.000 MiB at the end, 1.000 MiB at the attach (source: driver)"), "%s",
              result.out);
    spawn_result_free(&result);
    spawn_command(&result, "reconcile", file, NULL);
    cr_expect(strstr(result.out, "1.000 MiB  before attach\n"), "%s", result.out);
    spawn_result_free(&result);
}

Test(attach, records_and_leaves, .timeout = 60)
{
    struct target target;
    struct spawn_result result;
    char number[16], option[96], file[64];
    target_start(&target, "cuda");
    snprintf(number, sizeof(number), "%d", (int)target.spawn.pid);
    snprintf(file, sizeof(file), "/tmp/gpuprof-test-attach-%d", (int)getpid());
    snprintf(option, sizeof(option), "--record=%s", file);
    spawn_command(&result, "attach", number, option, "--duration=1", "--stacks=native", NULL);
    cr_expect_eq(result.status, 0, "%s", result.err);
    cr_expect(strstr(result.err, "detached from"), "%s", result.err);
    spawn_result_free(&result);
    spawn_command(&result, "peak", file, NULL);
    cr_expect(result.status == 0 && strstr(result.out, "program_alloc"), "%s%s", result.out, result.err);
    spawn_result_free(&result);
    unlink(file);
    target_end(&target, "cuda");
}

Test(attach, a_recording_has_what_was_there_before, .timeout = 60)
{
    struct target target;
    struct spawn_result result;
    char number[16], option[96], file[64];
    target_start(&target, "nanosleep");
    snprintf(number, sizeof(number), "%d", (int)target.spawn.pid);
    snprintf(file, sizeof(file), "/tmp/gpuprof-test-attach-%d", (int)getpid());
    snprintf(option, sizeof(option), "--record=%s", file);
    spawn_command(&result, "attach", number, option, "--duration=1", NULL);
    cr_expect_eq(result.status, 0, "%s", result.err);
    spawn_result_free(&result);
    expect_before(file);
    unlink(file);
    target_end(&target, "nanosleep");
}

/* A program that ends at any moment of the attach ends as it would have, and the command says so. */
Test(attach, survives_the_end_of_the_program, .timeout = 120)
{
    for (int i = 0; i < 6; i++) {
        struct target target;
        char text[1024];
        target_start(&target, "short");
        int status = command("attach", target.spawn.pid, text, sizeof(text));
        cr_expect(status == 0 || status == 1 || status == 3, "%d: %s", status, text);
        target_end(&target, "short");
    }
}

static pid_t child_of(pid_t pid)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &child) != 1)
        child = 0;
    if (file)
        fclose(file);
    return child;
}

/* As in a container: its own mounts, pids and user, and /proc/PID of outside does not exist there. */
Test(attach, enters_namespaces, .timeout = 60)
{
    struct target target = {.folder = "/tmp/gpuprof-test-XXXXXX"};
    cr_assert(mkdtemp(target.folder));
    const char *argv[] = {"/usr/bin/unshare",
                          "--mount",
                          "--pid",
                          "--user",
                          "--map-root-user",
                          "--fork",
                          "--mount-proc",
                          path_program("attach_target"),
                          "poll",
                          target.folder,
                          NULL};
    const struct spawn_options options = {.argv = argv};
    char path[96], text[1024];
    cr_assert_eq(spawn_start(&target.spawn, &options), 0);
    target_file(path, sizeof(path), &target, "ready");
    for (int i = 0; access(path, F_OK) != 0; i++) {
        if (i > 500) {
            spawn_kill(&target.spawn, SIGKILL);
            cr_skip("this machine makes no such namespaces");
        }
        usleep(10000);
    }
    pid_t pid = child_of(target.spawn.pid);
    cr_expect_eq(command("attach", pid, text, sizeof(text)), 0, "%s", text);
    cr_expect_eq(command("detach", pid, text, sizeof(text)), 0, "%s", text);
    target_end(&target, "poll");
}

/* Root attaches to the program of a user with no rights. */
Test(attach, cycles_on_another_user, .timeout = 1200)
{
    struct target target = {.folder = "/tmp/gpuprof-test-XXXXXX"};
    char path[96], text[1024];
    cr_assert(mkdtemp(target.folder));
    cr_assert_eq(chmod(target.folder, 0777), 0);
    const char *argv[] = {"/usr/bin/setpriv",
                          "--reuid=65534",
                          "--clear-groups",
                          path_program("attach_target"),
                          "poll",
                          target.folder,
                          NULL};
    const struct spawn_options options = {.argv = argv, .seconds = 1000};
    cr_assert_eq(spawn_start(&target.spawn, &options), 0);
    target_file(path, sizeof(path), &target, "ready");
    for (int i = 0; access(path, F_OK) != 0; i++) {
        if (i > 500) {
            spawn_kill(&target.spawn, SIGKILL);
            cr_skip("this machine does not let the test run a program as another user");
        }
        usleep(10000);
    }
    for (int i = 0; i < (test_is_full() ? 150 : 2); i++) {
        cr_assert_eq(command("attach", target.spawn.pid, text, sizeof(text)), 0, "%d: %s", i, text);
        cr_assert_eq(command("detach", target.spawn.pid, text, sizeof(text)), 0, "%d: %s", i, text);
    }
    target_end(&target, "poll");
}

/* ---- the command dies -------------------------------------------------------------------------------------------- */

/* The calls by which the command changes the target. */
static bool changes(long number)
{
    return number == SYS_ptrace || number == SYS_pwrite64 || number == SYS_process_vm_writev;
}

/* The call by which it stops a thread. */
static bool interrupts(const struct user_regs_struct *regs)
{
    return regs->orig_rax == SYS_ptrace && regs->rdi == PTRACE_INTERRUPT;
}

/* Whether the thread is stopped, and its call may have returned EINTR, which the command has not mended yet (seize_again):
 * a kill shows then, as docs/attach.md says. */
static bool exposes(const struct user_regs_struct *regs, bool *is_stopped)
{
    unsigned long long request = regs->orig_rax == SYS_ptrace ? regs->rdi : ~0ull;
    bool is_exposed = *is_stopped && (request == PTRACE_CONT || request == PTRACE_GETREGS || request == PTRACE_SETREGS);
    *is_stopped = interrupts(regs) || (is_exposed && request != PTRACE_SETREGS);
    return is_exposed;
}

/* Runs the command and kills it before it makes the call number `last`, or the first one after it whose kill may not show.
 * If `last` is negative and counts stops of threads, the command is held there for a second.  Its exit status, -1 if it
 * was killed. */
static int killed_command(pid_t target, int last)
{
    char number[16];
    int status, calls = 0;
    struct user_regs_struct regs;
    snprintf(number, sizeof(number), "%d", (int)target);
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execl(path_command(), "gpuprof", "attach", "-q", number, (char *)NULL);
        _exit(99);
    }
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(uintptr_t)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
    for (bool inside = false, is_stopped = false; WIFSTOPPED(status);) {
        bool is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        inside = is_call && !inside;
        if (inside && ptrace(PTRACE_GETREGS, child, NULL, &regs) == 0) {
            bool is_counted = last < 0 ? interrupts(&regs) : changes((long)regs.orig_rax);
            bool may_die = is_counted && !exposes(&regs, &is_stopped);
            calls += is_counted;
            if (last > 0 && calls >= last && may_die)
                kill(child, SIGKILL);
            if (calls == -last && interrupts(&regs))
                usleep(1000000);
        }
        int signal = is_call || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        ptrace(PTRACE_SYSCALL, child, NULL, (void *)(uintptr_t)signal);
        waitpid(child, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static unsigned long long blocked_signals(pid_t pid)
{
    char path[64], line[256];
    unsigned long long set = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, "SigBlk:", 7) == 0)
            set = strtoull(line + 7, NULL, 16);
    if (file)
        fclose(file);
    return set;
}

/* Each time another target, so that nothing of the last time is there. */
static void killed_at_each_call(const char *what, int step)
{
    char text[1024];
    int status = -1;
    for (int last = 1; status == -1; last += step) {
        struct target target;
        target_start(&target, what);
        unsigned long long before = blocked_signals(target.spawn.pid), after = 0;
        cr_assert_lt(last, 200);
        status = killed_command(target.spawn.pid, last);
        cr_expect(status == -1 || status == 0, "%s, call %d: %d", what, last, status);
        for (int i = 0; i < 500 && (after = blocked_signals(target.spawn.pid)) != before; i++)
            usleep(10000);
        cr_expect_eq(after, before, "%s, call %d: signals %llx", what, last, after);
        int left = command("detach", target.spawn.pid, text, sizeof(text));
        cr_expect(left == 0 || status == -1, "%s, call %d: %s", what, last, text);
        target_end(&target, what);
    }
}

/* Wherever the command is killed, the thread that it had borrowed finds back by itself. */
Test(attach, may_be_killed_at_any_moment, .timeout = 1200)
{
    killed_at_each_call("poll", 1);
    killed_at_each_call("epoll", test_is_full() ? 1 : 3);
    for (size_t i = 0; test_is_full() && i < sizeof(targets_idle) / sizeof(targets_idle[0]); i++)
        killed_at_each_call(targets_idle[i], 1);
}

/* The thread waits for a fifth of a second, and is back in its program when the command goes on. */
Test(attach, may_be_slow, .timeout = 120)
{
    struct target target;
    char text[1024];
    target_start(&target, "read");
    cr_expect_eq(killed_command(target.spawn.pid, -2), 0);
    cr_expect_eq(command("detach", target.spawn.pid, text, sizeof(text)), 0, "%s", text);
    target_end(&target, "read");
}

/* How many copies of the library a process has mapped. */
static int copies_in(pid_t pid)
{
    char path[64], line[4200];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        count += strstr(line, " 00000000 ") && strstr(line, "gpuprof/libgpuprof.so");
    if (file)
        fclose(file);
    return count;
}

/* In a mount of /proc of its own, as in another container, where this machine allows it. */
static void attach_elsewhere(const char *number)
{
    char line[512];
    snprintf(line, sizeof(line), "mount -t proc proc /proc; exec %s attach -q %s", path_command(), number);
    execl("/usr/bin/unshare", "unshare", "--mount", "sh", "-c", line, (char *)NULL);
    _exit(99);
}

/* One of them attaches, and the others wait for it. */
Test(attach, may_be_called_twice_at_the_same_time, .timeout = 240)
{
    bool elsewhere = getuid() == 0 && system("unshare --mount mount -t proc proc /proc 2>/dev/null") == 0;
    for (int round = 0; round < (test_is_full() ? 30 : 4); round++) {
        struct target target;
        char number[16], text[1024];
        pid_t commands[3];
        target_start(&target, "read");
        snprintf(number, sizeof(number), "%d", (int)target.spawn.pid);
        for (int i = 0; i < 3; i++) {
            commands[i] = fork();
            if (commands[i] == 0) {
                if (elsewhere && i > 0)
                    attach_elsewhere(number);
                execl(path_command(), "gpuprof", "attach", "-q", number, (char *)NULL);
                _exit(99);
            }
        }
        for (int i = 0; i < 3; i++) {
            int status = -1;
            waitpid(commands[i], &status, 0);
            cr_expect_eq(status, 0, "%d, command %d: %x", round, i, status);
        }
        cr_expect_eq(copies_in(target.spawn.pid), 1, "round %d: %d copies", round, copies_in(target.spawn.pid));
        cr_expect_eq(command("detach", target.spawn.pid, text, sizeof(text)), 0, "%s", text);
        target_end(&target, "read");
    }
}

/* Locks the files of the process that the user may open, and says how many of these were its memory. */
static void lock_all(pid_t pid, int out)
{
    static const char *const names[] = {"status", "stat", "maps", "cmdline", "mem", ""};
    char path[64], memory = '0';
    if (setgid(65534) != 0 || setuid(65534) != 0)
        _exit(1);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, names[i]);
        int fd = open(path, O_RDONLY);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && strcmp(names[i], "mem") == 0)
            memory = '1';
    }
    if (write(out, &memory, 1) == 1)
        for (;;)
            pause();
    _exit(1);
}

Test(attach, cannot_be_blocked_by_another_user, .timeout = 60)
{
    struct target target;
    char text[1024], memory = '?';
    int ends[2];
    if (getuid() != 0)
        cr_skip("needs root");
    target_start(&target, "read");
    cr_assert_eq(pipe(ends), 0);
    pid_t other = fork();
    if (other == 0)
        lock_all(target.spawn.pid, ends[1]);
    cr_assert_eq(read(ends[0], &memory, 1), 1);
    cr_expect_eq(memory, '0', "another user could open its memory");
    int status = command("attach", target.spawn.pid, text, sizeof(text));
    cr_expect_eq(status, 0, "%d: %s", status, text);
    cr_expect_eq(command("detach", target.spawn.pid, text, sizeof(text)), 0, "%s", text);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    target_end(&target, "read");
}

/* Field 22 of its line in /proc. */
static unsigned long long started_at(pid_t pid)
{
    char path[64], line[1024] = "";
    unsigned long long start = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    const char *at = file && fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at)
        start = strtoull(at, NULL, 10);
    if (file)
        fclose(file);
    return start;
}

/* A script or an agent that chose a process by its number does not get another one that has it by now. */
Test(attach, knows_a_process_by_the_time_of_its_start, .timeout = 60)
{
    struct target target;
    char number[16], option[64];
    target_start(&target, "poll");
    unsigned long long start = started_at(target.spawn.pid);
    snprintf(number, sizeof(number), "%d", (int)target.spawn.pid);
    for (int late = 1; late >= 0; late--) {
        struct spawn_result result;
        snprintf(option, sizeof(option), "--started=%llu", start - (unsigned)late);
        spawn_command(&result, "attach", option, number, NULL);
        cr_expect_eq(WEXITSTATUS(result.status), late ? 3 : 0, "%s: %s%s", option, result.out, result.err);
        cr_expect(!late || strstr(result.err, "its number is another one's"), "%s", result.err);
        cr_expect_eq(copies_in(target.spawn.pid), !late);
        spawn_result_free(&result);
    }
    target_end(&target, "poll");
}

/* With so few descriptors for the command it fails, but does not say that the process has ended. */
Test(attach, tells_its_own_limits_from_the_end_of_the_process, .timeout = 120)
{
    struct target target;
    target_start(&target, "poll");
    for (int limit = 3; limit < 16; limit++) {
        char line[256];
        snprintf(line, sizeof(line), "exec prlimit --nofile=%d %s attach -q %d 3>&- 4>&- 5>&- 6>&- 2>/dev/null", limit,
                 path_command(), (int)target.spawn.pid);
        int status = system(line), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (code == 0)
            break;
        cr_expect(code == 1 || code == 127, "%d descriptors: %d", limit, code); /* 127: the loader of the command */
    }
    target_end(&target, "poll");
}

/* A first attach leaves a thread that sleeps for long in restart_syscall. */
Test(attach, borrows_a_long_sleep_again, .timeout = 120)
{
    cycles("long", 2, true);
}

/* A sandbox that answers system calls with a signal handler would get ours. */
Test(attach, leaves_handlers_of_a_sandbox_alone, .timeout = 120)
{
    static const char *const kinds[] = {"trap_map", "trap_file"}, *const calls[] = {"mmap", "memfd_create"};
    for (int i = 0; i < 2; i++) {
        struct target target;
        char why[64];
        snprintf(why, sizeof(why), "for the system call %s,", calls[i]);
        target_start(&target, kinds[i]);
        refused(target.spawn.pid, 1, why);
        target_end(&target, kinds[i]);
    }
}

/* Another program takes the process over at any moment. */
Test(attach, survives_an_exec, .timeout = 600)
{
    struct target target;
    char text[1024];
    target_start(&target, "exec");
    for (int i = 0; i < (test_is_full() ? 300 : 8); i++) {
        int status = command("attach", target.spawn.pid, text, sizeof(text));
        cr_expect(status == 0 || status == 1 || status == 3, "%d: %s", status, text);
    }
    target_end(&target, "exec");
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

Test(attach, refuses_a_stopped_program, .timeout = 60)
{
    struct target target;
    target_start(&target, "poll");
    cr_assert_eq(spawn_stop(target.spawn.pid), 0);
    refused(target.spawn.pid, 1, "it is stopped");
    kill(target.spawn.pid, SIGCONT);
    target_end(&target, "poll");
}

Test(attach, refuses_a_traced_program, .timeout = 60)
{
    struct target target;
    target_start(&target, "poll");
    if (ptrace(PTRACE_SEIZE, target.spawn.pid, NULL, NULL) != 0)
        cr_skip("this machine does not let the test trace");
    refused(target.spawn.pid, 1, "it is traced by test_attach");
    prctl(PR_SET_NAME, "\033[2J\033]0;x\007"); /* a name that a terminal would act on */
    refused(target.spawn.pid, 1, "it is traced by ?[2J?]0;x? (process");
    ptrace(PTRACE_INTERRUPT, target.spawn.pid, NULL, NULL);
    waitpid(target.spawn.pid, NULL, __WALL);
    ptrace(PTRACE_DETACH, target.spawn.pid, NULL, NULL);
    target_end(&target, "poll");
}

Test(attach, refuses_what_is_no_target, .timeout = 60)
{
    refused(getpid(), 1, "it does not use CUDA");
    refused(0x7ffffff, 3, "no such process");
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    usleep(50000);
    refused(child, 3, "a zombie");
    waitpid(child, NULL, 0);
}

/* A program of such a name inherits the variable, and has no session; attach refuses it, and doctor says why. */
static void spares(const char *name, const char *what)
{
    char folder[] = "/tmp/gpuprof-test-XXXXXX", path[96], copy[700], text[64 * 1024], sentence[160];
    const char *argv[] = {path, NULL};
    const struct spawn_options options = {.argv = argv, .want_library = true, .want_hold = true};
    struct spawn_result result = {0};
    struct spawn spawn;
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(copy, sizeof(copy), "cp %s %s", path_program("linear"), path);
    cr_assert_eq(system(copy), 0);
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    snprintf(sentence, sizeof(sentence), "gpuprof does not start in it: it is %s", what);
    refused(spawn.pid, 1, sentence);
    files_of(spawn.pid, text, sizeof(text));
    cr_expect_null(strstr(text, "gpuprof-session"), "%s", text);
    spawn_command(&result, "doctor", NULL);
    snprintf(sentence, sizeof(sentence), "not profiled: gpuprof does not start in %s", what);
    cr_expect(strstr(result.out, sentence), "%s", result.out);
    spawn_result_free(&result);
    spawn_finish(&spawn, &result);
    cr_expect_eq(result.status, 0, "%s\n%s", spawn_status_text(&result), result.err);
    spawn_result_free(&result);
    unlink(path);
    rmdir(folder);
}

Test(attach, spares_services_and_tools_of_the_driver, .timeout = 120)
{
    spares("nvidia-cuda-mps-server", "the MPS service");
    spares("nsys-launcher", "Nsight Systems");
}

Test(attach, refuses_another_user, .timeout = 60)
{
    struct target target;
    char number[16], text[1024] = "";
    int pipes[2], status = -1;
    if (getuid() != 0)
        cr_skip("needs root");
    target_start(&target, "poll");
    snprintf(number, sizeof(number), "%d", (int)target.spawn.pid);
    cr_assert_eq(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 2);
        if (setgid(65534) != 0 || setuid(65534) != 0)
            _exit(99);
        execl(path_command(), "gpuprof", "attach", number, (char *)NULL);
        _exit(77); /* the build may not be readable for others */
    }
    close(pipes[1]);
    for (ssize_t used = 0, got; (got = read(pipes[0], text + used, sizeof(text) - 1 - (size_t)used)) > 0;)
        used += got;
    waitpid(child, &status, 0);
    target_end(&target, "poll");
    if (WEXITSTATUS(status) == 77)
        cr_skip("another user may not run this build");
    cr_expect(WEXITSTATUS(status) == 1 && strstr(text, "it belongs to another user (root)"), "%d: %s", status, text);
}
