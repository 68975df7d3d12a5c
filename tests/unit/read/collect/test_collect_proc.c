/* SPDX-License-Identifier: MIT
 *
 * test_collect_proc.c: what /proc says of a process (tools/read/collect/procfs.c), with files that this test writes; why a
 * process cannot be read (collect.c); and how far a watch looks (watch.c).
 */
#include <base/compiler.h>
#include <base/vma.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <lib/build.h>
#include <lib/session.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>
#include <read/collect/watch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(collect_proc, .timeout = 120);

/* ---- files of /proc ---------------------------------------------------------------------------------------------- */

static char *folder;
static int dir;

static void folder_begin(void)
{
    folder = build_folder();
    cr_assert(folder);
    dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cr_assert_geq(dir, 0);
}

static void folder_end(void)
{
    close(dir);
    build_remove(folder);
}

static void put(const char *name, const char *text, size_t bytes)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_eq(write(fd, text, bytes), (ssize_t)bytes);
    close(fd);
}

Test(collect_proc, a_file_is_read_up_to_the_room)
{
    char text[16];
    folder_begin();
    for (size_t bytes = 0; bytes < 12; bytes++)
        for (size_t room = 1; room < 12; room++) {
            put("f", "abcdefghijkl", bytes);
            memset(text, 'x', sizeof(text));
            size_t wanted = bytes < room - 1 ? bytes : room - 1;
            cr_expect_eq(gp_proc_read(dir, "f", text, room), (ssize_t)wanted, "%zu in %zu", bytes, room);
            cr_expect(memcmp(text, "abcdefghijkl", wanted) == 0 && text[wanted] == '\0' && text[room] == 'x');
        }
    cr_expect_eq(gp_proc_read(dir, "g", text, 5), -ENOENT);
    cr_assert_eq(symlinkat("f", dir, "link"), 0);
    cr_expect_eq(gp_proc_read(dir, "link", text, 5), -ELOOP);
    cr_assert_eq(mkdirat(dir, "d", 0700), 0);
    cr_expect_eq(gp_proc_read(dir, "d", text, 5), -EISDIR);
    folder_end();
}

Test(collect_proc, the_line_of_stat)
{
    static const struct {
        const char *text;
        int rc;
        bool zombie;
        pid_t ppid;
        uint64_t start;
    } rows[] = {
        {"12 (a) R 7 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654321 1 2", 0, false, 7, 987654321},
        {"12 (a b) (c) Z 7 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 1 1 2", 0, true, 7, 1},
        {"12 (a) X 1 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 18446744073709551615", 0, true, 1, UINT64_MAX},
        {"12 (a) S 0 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0", -EIO, false, 0, 0},
        {"12 (a", -EIO, false, 0, 0},
        {"", -EIO, false, 0, 0},
    };
    folder_begin();
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        struct gp_proc proc = {.pid = 12};
        put("stat", rows[i].text, strlen(rows[i].text));
        cr_expect_eq(gp_proc_stat(dir, &proc), rows[i].rc, "%zu", i);
        if (!rows[i].rc)
            cr_expect(proc.zombie == rows[i].zombie && proc.ppid == rows[i].ppid && proc.start_time == rows[i].start,
                      "%zu", i);
        /* Alive: the same process, and not a zombie. */
        for (uint64_t other = 0; other < 2; other++) {
            struct gp_proc held = {.dir = dir, .process = dir, .start_time = rows[i].start + other};
            cr_expect_eq(gp_proc_alive(&held), rows[i].rc == 0 && !rows[i].zombie && !other, "%zu", i);
        }
    }
    unlinkat(dir, "stat", 0);
    cr_expect_eq(gp_proc_stat(dir, &(struct gp_proc){.pid = 1}), -ENOENT);
    folder_end();
}

Test(collect_proc, users_and_containers)
{
    static const char id[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    static const struct {
        const char *form, *container;
    } rows[] = {{"%s", "0123456789ab"},
                {"/%s", "0123456789ab"},
                {"-%s", "0123456789ab"},
                {":%s", "0123456789ab"},
                {"x%s", ""},
                {".%s", ""},
                {"/%s/", "0123456789ab"},
                {"/%s.", "0123456789ab"},
                {"/%s\n", "0123456789ab"},
                {"/%s-", ""},
                {"/%sx", ""},
                {"/%.63s/", ""},
                {"/%s0/", ""},
                {"0::/\n1:a:/%s\n", "0123456789ab"},
                {"/abc/%s", "0123456789ab"},
                {"/abc-%s", "0123456789ab"}};
    char text[300], container[72], user[64];
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        snprintf(text, sizeof(text), rows[i].form, id);
        memset(container, 'x', sizeof(container));
        gp_proc_container(text, container, sizeof(container));
        cr_expect_str_eq(container, rows[i].container, "%s", text);
    }
    gp_proc_user(0, user, sizeof(user));
    cr_expect_str_eq(user, "root");
    gp_proc_user(3999999999u, user, sizeof(user));
    cr_expect_str_eq(user, "3999999999");
}

static pid_t seen[70000];
static int seen_count;

static int see(pid_t pid, void *context)
{
    cr_assert_lt(seen_count, 70000);
    seen[seen_count++] = pid;
    return pid == getpid() ? *(int *)context : 0;
}

Test(collect_proc, each_process_once)
{
    int result = 0, whole;
    cr_assert_eq(gp_proc_each(see, &result), 0);
    whole = seen_count;
    bool self = false;
    for (int i = 0; i < whole; i++) {
        self |= seen[i] == getpid();
        cr_expect(seen[i] > 0 && (i == 0 || seen[i] > seen[i - 1]), "%d", (int)seen[i]);
    }
    cr_expect(self);
    seen_count = 0;
    result = -77;
    cr_expect_eq(gp_proc_each(see, &result), -77);
    cr_expect_eq(seen[seen_count - 1], getpid(), "it ends there");
}

Test(collect_proc, this_process)
{
    struct gp_proc proc;
    static struct gp_process process;
    char text[4096];
    prctl(PR_SET_NAME, "a\nname\x01");
    cr_assert_eq(gp_proc_open(&proc, getpid()), 0);
    cr_expect(proc.pid == getpid() && proc.ns_pid == getpid() && proc.ppid == getppid() && proc.uid == getuid() &&
              !proc.zombie);
    cr_expect_str_eq(proc.comm, "a");
    ssize_t bytes = gp_proc_read(proc.dir, "cmdline", text, sizeof(text));
    cr_assert_gt(bytes, 1);
    for (ssize_t i = 0; i < bytes - 1; i++)
        text[i] = text[i] ? text[i] : ' ';
    text[255] = '\0';
    gp_proc_describe(&proc, &process);
    cr_expect_str_eq(process.cmdline, text);
    cr_expect_str_eq(process.comm, "a");
    cr_expect(process.pid == getpid() && process.ppid == getppid() && process.uid == getuid() &&
              process.start_time == proc.start_time);
    cr_expect(gp_proc_alive(&proc));
    gp_proc_close(&proc);
    cr_expect_eq(proc.dir, -1);
    gp_proc_close(&proc);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    siginfo_t info;
    cr_assert_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    cr_expect_eq(gp_proc_open(&proc, child), -ESRCH, "a zombie");
    cr_expect_eq(proc.dir, -1);
    waitpid(child, NULL, 0);
    cr_expect_eq(gp_proc_open(&proc, child), -ESRCH);
}

static void expect_mapped(const char *proc, const struct gp_vma *file, bool found, const char *what)
{
    struct stat status;
    int before = dup(2);
    close(before);
    int fd = gp_proc_mapped_open(proc, file);
    cr_expect_eq(fd >= 0, found, "%s: %d", what, fd);
    if (fd >= 0) {
        cr_expect(fstat(fd, &status) == 0 && status.st_ino == file->inode, "%s", what);
        close(fd);
    }
    int after = dup(2);
    close(after);
    cr_expect_eq(after, before, "%s: a descriptor is left open", what);
}

/* A file that the kernel does not give by its mapping is opened by its path, if it is the same one. */
Test(collect_proc, files_that_are_mapped)
{
    char path[300];
    struct stat status;
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    cr_assert_gt(length, 0);
    path[length] = '\0';
    cr_assert_eq(stat(path, &status), 0);
    const struct gp_vma good = {
        .start = 4096, .end = 8192, .path = path, .inode = status.st_ino, .device = status.st_dev};
    for (int standard = 1; standard >= 0; standard--) { /* number 0 is a descriptor as any other */
        int kept = standard ? -1 : dup(0);
        if (!standard)
            close(0);
        struct gp_vma other = good;
        expect_mapped("/proc/self", &good, true, "below the root");
        expect_mapped("/nonexistent", &good, true, "by its path");
        other.device++;
        expect_mapped("/proc/self", &other, true, "layered file systems disagree about the device");
        expect_mapped("/nonexistent", &other, false, "another device");
        other = good, other.inode++;
        expect_mapped("/proc/self", &other, false, "another file");
        expect_mapped("/nonexistent", &other, false, "another file");
        other = good, other.path = "/nonexistent/file";
        expect_mapped("/proc/self", &other, false, "no file");
        if (kept >= 0) {
            dup2(kept, 0);
            close(kept);
        }
    }
}

/* ---- why a process cannot be read -------------------------------------------------------------------------------- */

/* A process that starts `count` profiled ones, `depth` processes below itself. */
static pid_t starter(int count, int depth)
{
    int ready[2];
    char byte;
    cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (; depth > 0; depth--) {
            if (fork() != 0) {
                close(ready[1]);
                for (;;)
                    pause();
            }
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        }
        for (int i = 0; i < count; i++)
            if (gp_test_process_start(&(struct gp_test_process_options){.no_drain = true}) < 0)
                _exit(1);
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

Test(collect_proc, a_launcher_is_told_from_its_program)
{
    char why[200], wanted[200];
    for (int count = 0; count < 3; count++)
        for (int depth = 0; depth < 4; depth++) {
            pid_t pid = starter(count, depth);
            cr_expect_eq(gp_collect_explain_pid(pid, why, sizeof(why)), GP_PID_NOT_PROFILED);
            if (count == 0 || depth == 3) { /* it looks at children, theirs, and theirs */
                snprintf(wanted, sizeof(wanted),
                         "not profiled: 'gpuprof attach %d' begins, if it uses CUDA; or start it with 'gpuprof run'",
                         (int)pid);
                cr_expect_str_eq(why, wanted, "%d, depth %d", count, depth);
            } else if (count == 2) {
                cr_expect_str_eq(why,
                                 "not profiled itself, but 2 processes that it started are: 'gpuprof stat' lists them",
                                 "depth %d", depth);
            } else {
                int child = 0, again = 0;
                cr_assert_eq(sscanf(why, "not profiled itself, but the process %d that it started is: use -p %d",
                                    &child, &again),
                             2, "%s", why);
                cr_expect_eq(child, again);
                cr_expect_eq(gp_collect_explain_pid(child, why, sizeof(why)), GP_PID_OK);
                cr_expect_str_eq(why, "");
            }
            stop(pid);
        }
    cr_expect_eq(gp_collect_explain_pid(0x3fffffff, why, sizeof(why)), GP_PID_DEAD);
    cr_expect_str_eq(why, "no such process");
}

/* ---- what a watch holds ------------------------------------------------------------------------------------------ */

/* Children of many threads of the search: 64 sessions at most, the others are counted. */
Test(collect_proc, a_watch_holds_64_sessions)
{
    static struct gp_watch watch;
    pid_t pid = starter(GP_WATCH_MOST + 2, 0);
    cr_expect_eq(gp_watch_look(&watch, pid, false), 0, "only the process itself");
    cr_expect_eq(gp_watch_look(&watch, pid, true), GP_WATCH_MOST);
    cr_expect(watch.count == GP_WATCH_MOST && watch.left_out == 2, "%d, %d", watch.count, watch.left_out);
    cr_expect_eq(gp_watch_look(&watch, pid, true), 0);
    cr_expect_eq(watch.left_out, 4);
    for (int i = 0; i < watch.count; i++)
        for (int k = 0; k < i; k++)
            cr_assert_neq(watch.watched[i]->process.pid, watch.watched[k]->process.pid);
    cr_assert_eq(gp_watch_read(watch.watched[5]), 0);
    const struct gp_process *p = &watch.watched[5]->process;
    cr_expect(p->state == GP_PROCESS_STALE && p->device_count == 2 && p->scope_count == 1 && p->failure_count == 1);
    cr_assert_eq(gp_watch_read(watch.watched[5]), 0);
    cr_expect(p->device_count == 2 && p->scope_count == 1 && p->failure_count == 1, "once, not once more");
    int fd = watch.watched[5]->session.fd;
    gp_watch_free(&watch);
    cr_expect(watch.count == 0 && fcntl(fd, F_GETFD) == -1);
    stop(pid);
}

/* It follows sixteen processes below the first. */
Test(collect_proc, a_watch_looks_down_sixteen_times)
{
    for (int depth = 14; depth < 18; depth++) {
        struct gp_watch watch = {.count = 0};
        pid_t pid = starter(1, depth);
        cr_expect_eq(gp_watch_look(&watch, pid, true), depth + 1 <= 16, "%d", depth + 1);
        gp_watch_free(&watch);
        stop(pid);
    }
}
