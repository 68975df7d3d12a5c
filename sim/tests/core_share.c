/* SPDX-License-Identifier: MIT
 * Selftest: devices that processes share.  Each sees the others' memory, also that of one that is killed, which is free
 * then; together they never have more than the device. */
#define _GNU_SOURCE
#include "core_check.h"

#include <signal.h>
#include <sys/wait.h>

#define GIB (1ull << 30)
#define MIB (1ull << 20)

static char shared_name[64];

struct child {
    pid_t pid;
    int line;
};

/* A process of its own: body talks with the test over the line and returns, or waits to be killed. */
static struct child start(const char *spec, const char *visible, void (*body)(int line))
{
    struct child child;
    int lines[2];
    char text[160];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lines) == 0);
    fflush(NULL);
    child.pid = fork();
    child.line = lines[0];
    if (child.pid == 0) {
        close(lines[0]);
        check_passed = check_failed = 0;
        snprintf(text, sizeof text, "%s%s%s", spec, *spec ? "," : "", shared_name);
        setenv("GPUPROF_SIM", strstr(spec, "private") ? "memory=2GiB" : text, 1);
        if (visible)
            setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        body(lines[1]);
        exit(check_failed || !check_passed); /* with destructors: the last one removes the file */
    }
    close(lines[1]);
    return child;
}

static void end(struct child child)
{
    int status = -1;
    CHECK(waitpid(child.pid, &status, 0) == child.pid);
    CHECK_EQ(status, 0);
    close(child.line);
}

static size_t left(void)
{
    size_t bytes = 0, total = 0;
    CHECK_OK(cuMemGetInfo(&bytes, &total));
    CHECK_EQ(total, 2 * GIB);
    return bytes;
}

static CUresult allocate(size_t size)
{
    CUdeviceptr p;
    return cuMemAlloc(&p, size);
}

/* Has 1 GiB, and a child that outlives it. */
static void holder(int line)
{
    check_begin(0);
    CHECK_OK(allocate(GIB));
    if (fork() == 0) {
        char byte;
        _exit(write(line, "c", 1) != 1 || read(line, &byte, 1) != 0); /* until the test hangs up */
    }
    check_tell(line);
    for (;;)
        pause();
}

static void neighbour(int line)
{
    int (*processes)(int, int *, unsigned long long *, int) =
        (int (*)(int, int *, unsigned long long *, int))dlsym(RTLD_DEFAULT, "sim_share_processes");
    int pids[4];
    unsigned long long bytes[4];
    check_begin(0);
    size_t before = left();
    CHECK(before < GIB);
    CHECK_EQ(allocate(GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_OK(allocate(256 * MIB));
    CHECK_EQ(before - left(), 256 * MIB);
    CHECK(processes && processes(0, pids, bytes, 4) == 2);
    CHECK(processes && processes(0, pids, bytes, 1) == 2);
    CHECK(bytes[0] >= GIB);
    check_tell(line);
    check_wait(line); /* the other one is killed now */
    CHECK(left() > before - 256 * MIB + GIB);
    CHECK_OK(allocate(GIB));
    CHECK(processes && processes(0, pids, bytes, 4) == 1);
    CHECK_EQ(pids[0], getpid());
}

static void alone(int line)
{
    (void)line;
    check_begin(0);
    CHECK(left() > GIB);
    CHECK_OK(allocate(GIB));
}

/* Its device 0 is the second one of the machine. */
static void second(int line)
{
    check_begin(0);
    CHECK_OK(allocate(GIB));
    check_tell(line);
    check_wait(line);
}

static void both(int line)
{
    check_begin(0);
    CHECK(left() > GIB);
    check_begin(1);
    CHECK(left() < GIB);
    check_tell(line);
}

/* Takes what it gets, beside others that do the same. */
static void greedy(int line)
{
    uint32_t pieces = 0;
    check_begin(0);
    check_tell(line);
    check_wait(line);
    while (allocate(2 * MIB) == CUDA_SUCCESS)
        pieces++;
    CHECK(left() < 2 * MIB);
    CHECK(write(line, &pieces, sizeof pieces) == sizeof pieces);
    check_wait(line);
}

static void race(void)
{
    enum { PROCESSES = 4 };
    struct child children[PROCESSES];
    uint32_t sum = 0, pieces;
    for (int i = 0; i < PROCESSES; i++)
        children[i] = start("memory=2GiB", NULL, greedy);
    for (int i = 0; i < PROCESSES; i++)
        check_wait(children[i].line);
    for (int i = 0; i < PROCESSES; i++)
        check_tell(children[i].line);
    for (int i = 0; i < PROCESSES; i++) {
        CHECK(read(children[i].line, &pieces, sizeof pieces) == sizeof pieces);
        sum += pieces;
    }
    CHECK(sum * 2ull * MIB <= 2 * GIB && sum > 100);
    for (int i = 0; i < PROCESSES; i++)
        check_tell(children[i].line);
    for (int i = 0; i < PROCESSES; i++)
        end(children[i]);
}

/* A group whose processes were killed leaves its file, which is in the way of none, until a process shares devices again;
 * a group that lives keeps its own. */
static void leftover(const char *path)
{
    char other_path[160];
    void (*sweep)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "sim_share_sweep");
    CHECK(access(path, F_OK) == 0 && sweep != NULL);
    strcat(shared_name, "b");
    snprintf(other_path, sizeof other_path, "%sb", path);
    struct child other = start("memory=2GiB", NULL, holder);
    check_wait(other.line);
    CHECK(access(path, F_OK) != 0);
    CHECK(access(other_path, F_OK) == 0);
    sweep();
    CHECK(access(other_path, F_OK) == 0);
    CHECK(kill(other.pid, SIGKILL) == 0 && waitpid(other.pid, NULL, 0) == other.pid);
    close(other.line);
    for (int i = 0; i < 200 && access(other_path, F_OK) == 0; i++) { /* its child ends soon */
        sweep();
        usleep(10000);
    }
    CHECK(access(other_path, F_OK) != 0);
}

int main(void)
{
    char path[128], byte;
    int status;
    struct child first, other;
    snprintf(shared_name, sizeof shared_name, "shared=selftest-%d", (int)getpid());
    snprintf(path, sizeof path, "/dev/shm/gpuprof-sim-%u-%s", (unsigned)geteuid(), shared_name + 7);

    first = start("memory=2GiB", NULL, holder);
    check_wait(first.line);
    check_wait(first.line); /* its child, too */
    other = start("memory=2GiB", NULL, neighbour);
    check_wait(other.line);
    end(start("private", NULL, alone));
    CHECK(kill(first.pid, SIGKILL) == 0);
    CHECK(waitpid(first.pid, &status, 0) == first.pid);
    check_tell(other.line);
    end(other);
    CHECK(access(path, F_OK) != 0); /* the last one of them removed it */
    /* The killed one's child still has the line, so it has outlived the check. */
    CHECK(recv(first.line, &byte, 1, MSG_DONTWAIT) == -1);
    close(first.line);

    first = start("memory=2GiB,devices=2", "1", second);
    check_wait(first.line);
    end(start("memory=2GiB,devices=2", NULL, both));
    check_tell(first.line);
    end(first);
    race();

    first = start("memory=2GiB", NULL, holder);
    check_wait(first.line);
    check_wait(first.line);
    CHECK(kill(first.pid, SIGKILL) == 0 && waitpid(first.pid, &status, 0) == first.pid);
    close(first.line);
    leftover(path);
    CHECK(access(path, F_OK) != 0);
    return check_done();
}
