/* SPDX-License-Identifier: MIT
 *
 * test_finder.c: tests that the search for libraries runs beside the agent's loop, and that a
 * process whose memory cannot be read does not stall it. It uses private pid and mount namespaces,
 * as test_discover.c.
 * Run: alone
 */
#include "agent/find/find.h"
#include "lib/inside.h"
#include "lib/paths.h"
#include "read/common/agentlog.h"
#include <agent/kernel/bpf.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct gp_bpf *bpf;
static char why[512];
#define top inside_top()

static void finish(void)
{
    gp_bpf_close(bpf);
}

static void bpf_start(void)
{
    gp_agent_log_open(getenv("GPUPROF_TEST_VERBOSE") ? GP_AGENTLOG_DEBUG : GP_AGENTLOG_ERROR);
    int error = gp_bpf_open(&bpf, NULL, why, sizeof(why));
    if (error == -EPERM || error == -ENOTSUP) {
        inside_say("%s", why);
        _exit(INSIDE_SKIP);
    }
    NEED(error == 0, "%s", why);
}

/* Starts a process that maps the file with this name. */
static pid_t mapper_start(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", top, name);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED || raise(SIGSTOP))
            _exit(1);
        for (;;)
            pause();
    }
    int status;
    NEED(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static uint64_t slow_ns;

static struct gp_finder *finder_start(void)
{
    struct gp_finder *finder;
    struct gp_finder_options options = {.bpf = bpf, .hangs_ns = 300000000, .slow_ns = slow_ns};
    NEED(gp_finder_open(&finder, &options, why, sizeof(why)) == 0, "%s", why);
    return finder;
}

static bool finder_has(struct gp_finder *finder, unsigned armed)
{
    for (int i = 0; i < 1000 && gp_finder_count(finder).libraries.armed != armed; i++)
        usleep(10000);
    return gp_finder_count(finder).libraries.armed == armed;
}

/* ---- processes that unmapped the file -------------------------------------------------------------------------- */

static void *sleeper(void *unused)
{
    sleep(600);
    return unused;
}

enum then { THEN_EXECS, THEN_LEADER_ENDS };

/* Starts a process that maps the file and does the rest at SIGCONT. */
static pid_t changer_start(const char *name, enum then then)
{
    char path[PATH_MAX];
    pthread_t thread;
    snprintf(path, sizeof(path), "%s/%s", top, name);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED ||
            (then == THEN_LEADER_ENDS && pthread_create(&thread, NULL, sleeper, NULL)) || raise(SIGSTOP))
            _exit(1);
        if (then == THEN_LEADER_ENDS)
            syscall(SYS_exit, 0);
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(1);
    }
    int status;
    NEED(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    return pid;
}

/* No file is idle, no record lost, no sweep requested: the regular sweep runs. */
static void slow_body(void)
{
    slow_ns = 300000000;
    bpf_start();
    inside_shell("cp %s libgpuprof.so", path_library());
    pid_t pid = changer_start("libgpuprof.so", THEN_EXECS);
    struct gp_finder *finder = finder_start();
    NEED(finder_has(finder, 1));
    NEED(kill(pid, SIGCONT) == 0);
    NEED(finder_has(finder, 0), "a process that maps another program keeps the file armed");
    end(pid);
    NEED(gp_finder_close(finder));
}

Test(finder, a_regular_sweep_finds_a_process_that_unmapped_it, .timeout = 60)
{
    INSIDE(slow_body, finish);
}

static void wait_for_zombie(pid_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    for (int i = 0; i < 1000 && !strstr(text, ") Z "); i++) {
        FILE *file = fopen(path, "re");
        NEED(file && fgets(text, sizeof(text), file));
        fclose(file);
        usleep(10000);
    }
    NEED(strstr(text, ") Z "), "%s", text);
}

/* The first thread ends and another runs on: /proc then hides the mappings, which still exist. */
static void leader_body(void)
{
    slow_ns = 100000000;
    bpf_start();
    inside_shell("cp %s libgpuprof.so", path_library());
    pid_t pid = changer_start("libgpuprof.so", THEN_LEADER_ENDS);
    struct gp_finder *finder = finder_start();
    NEED(finder_has(finder, 1));
    NEED(kill(pid, SIGCONT) == 0);
    wait_for_zombie(pid);
    uint64_t sweeps = gp_finder_count(finder).discover.sweeps;
    for (int i = 0; i < 1000 && gp_finder_count(finder).discover.sweeps < sweeps + 3; i++)
        usleep(10000);
    struct gp_finder_count count = gp_finder_count(finder);
    NEED(count.discover.sweeps >= sweeps + 3);
    NEED(count.libraries.mappers == 1 && count.libraries.armed == 1, "the mapping of its other thread was dropped");
    end(pid);
    NEED(finder_has(finder, 0));
    NEED(gp_finder_close(finder));
}

Test(finder, a_process_whose_first_thread_ended_still_maps_it, .timeout = 60)
{
    INSIDE(leader_body, finish);
}

/* ---- processes that stall the search --------------------------------------------------------------------------- */

static int flushes[2]; /* one byte per waiter */

/* A file system that answers every request except a flush. */
static void fuse_serve(int fd)
{
    static _Alignas(8) char in[1 << 17];
    for (;;) {
        struct {
            struct fuse_out_header head;
            union {
                struct fuse_init_out init;
                struct fuse_attr_out attr;
                struct fuse_entry_out entry;
                struct fuse_open_out open;
            };
        } out = {.head = {.error = 0}};
        const struct fuse_in_header *head = (const void *)in;
        size_t more = 0;
        if (read(fd, in, sizeof(in)) < 0) {
            if (errno == ENODEV)
                _exit(0);
            continue;
        }
        struct fuse_attr attr = {
            .ino = head->nodeid, .mode = head->nodeid == 1 ? S_IFDIR | 0755 : S_IFREG | 0644, .nlink = 1};
        switch (head->opcode) {
        case FUSE_FLUSH:
            if (write(flushes[1], "x", 1) < 0)
                _exit(1);
            continue;
        case FUSE_FORGET:
        case FUSE_INTERRUPT:
            continue;
        case FUSE_INIT:
            out.init = (struct fuse_init_out){.major = 7, .minor = 31, .max_write = 4096, .max_readahead = 4096};
            more = sizeof(out.init);
            break;
        case FUSE_GETATTR:
            out.attr.attr = attr;
            more = sizeof(out.attr);
            break;
        case FUSE_LOOKUP:
            out.entry = (struct fuse_entry_out){.nodeid = 2, .attr = attr};
            out.entry.attr.ino = 2;
            out.entry.attr.mode = S_IFREG | 0644;
            more = sizeof(out.entry);
            break;
        case FUSE_OPEN:
            out.open.fh = 1;
            more = sizeof(out.open);
            break;
        default:
            out.head.error = -ENOSYS;
        }
        out.head.unique = head->unique;
        out.head.len = (uint32_t)(sizeof(out.head) + more);
        if (write(fd, &out, out.head.len) < 0)
            continue;
    }
}

/* Starts the process that serves it. No other process may keep the descriptor: waiters continue
 * when the last one closes. */
static pid_t fuse_start(void)
{
    char options[96], path[PATH_MAX];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    inside_shell("mkdir fuse");
    snprintf(path, sizeof(path), "%s/fuse", top);
    if (fd < 0 || mount("none", path, "fuse", MS_NODEV | MS_NOSUID, options)) {
        inside_say("cannot mount a FUSE file system: %s", strerror(errno));
        _exit(INSIDE_SKIP);
    }
    NEED(pipe2(flushes, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0)
        fuse_serve(fd);
    close(fd);
    return pid;
}

/* Starts a process that execs while it has a file there open: until the flush is answered, its
 * mappings cannot be read. */
static pid_t holder_start(void)
{
    char path[PATH_MAX];
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(path, sizeof(path), "%s/fuse/file", top);
        if (open(path, O_RDONLY | O_CLOEXEC) < 0)
            _exit(1);
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(1);
    }
    char byte;
    NEED(read(flushes[0], &byte, 1) == 1);
    return pid;
}

/* Waits until an open was given up. */
static bool finder_gave_up(struct gp_finder *finder)
{
    for (int i = 0; i < 1000 && !gp_finder_count(finder).discover.stalls; i++)
        usleep(10000);
    return gp_finder_count(finder).discover.stalls > 0;
}

/* While nobody can read the holder's mappings, others are found: by their records, and by a sweep. */
static void holder_body(void)
{
    bpf_start();
    slow_ns = 1000000000;
    inside_shell("cp %s libgpuprof.so; cp %s libgpuprof-2.so", path_library(), path_library());
    pid_t server = fuse_start(), holder = holder_start(), first = mapper_start("libgpuprof.so");
    struct gp_finder *finder = finder_start();
    NEED(finder_gave_up(finder), "the holder does not stall");
    NEED(finder_has(finder, 1), "a process after the holder is not found");
    pid_t second = mapper_start("libgpuprof-2.so");
    NEED(finder_has(finder, 2), "the search does not continue");
    uint64_t sweeps = gp_finder_count(finder).discover.sweeps;
    for (int i = 0; i < 1000 && gp_finder_count(finder).discover.sweeps < sweeps + 3; i++)
        usleep(10000);
    NEED(gp_finder_count(finder).discover.sweeps >= sweeps + 3, "the sweeps have ended");
    NEED(gp_finder_count(finder).libraries.armed == 2);
    end(second);
    end(first);
    NEED(finder_has(finder, 0), "files of ended processes stay armed");
    end(server);
    end(holder);
    NEED(gp_finder_close(finder));
}

Test(finder, a_process_that_cannot_be_read_stalls_nothing, .timeout = 60)
{
    INSIDE(holder_body, finish);
}

static void held_close_body(void)
{
    bpf_start();
    pid_t server = fuse_start(), holder = holder_start();
    struct gp_finder *finder = finder_start();
    NEED(finder_gave_up(finder));
    NEED(gp_finder_close(finder), "the search does not end");
    end(server);
    end(holder);
}

Test(finder, an_agent_ends_beside_a_process_that_cannot_be_read, .timeout = 60)
{
    INSIDE(held_close_body, finish);
}
