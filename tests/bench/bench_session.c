/* SPDX-License-Identifier: MIT
 *
 * bench_session.c: what gpuprof costs a process and its viewers: start of the library inside
 * cuInit, touched session memory, a reset's round trip, and `gpuprof top --once` over 100 profiled
 * processes.  Runs itself as the profiled children, on the simulated GPU.
 *
 * TSV: name, threads or processes, value (the unit is in the name).
 */
#include "base/clock.h"
#include "bench/count.h"
#include "read/collect/collect.h"
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES BENCH_COUNT(100, 3)
#define STARTS    BENCH_COUNT(15, 1) /* odd: the median is one of them */
#define RESETS    BENCH_COUNT(2001, 3)

static char build[PATH_MAX], self[PATH_MAX];

/* ---- the child: prints how long cuInit took, allocates, sleeps until it is killed or told to go ------------------ */

static int child(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        return 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    int (*alloc)(unsigned long *, size_t) = (int (*)(unsigned long *, size_t))dlsym(driver, "cuMemAlloc_v2");
    void *context;
    unsigned long address;
    uint64_t begin = gp_clock_ns();
    if (init(0) != 0)
        return 1;
    uint64_t ns = gp_clock_ns() - begin;
    if (retain(&context, 0) != 0 || current(context) != 0)
        return 1;
    for (int i = 0; i < 100; i++)
        alloc(&address, 1 << 20);
    printf("%lu\n", (unsigned long)ns);
    fflush(stdout);
    char byte;
    return read(STDIN_FILENO, &byte, 1) < 0;
}

/* ---- the parent ------------------------------------------------------------------------------------------------ */

struct process {
    pid_t pid;
    int go; /* closing it lets the child end */
    double init_ms;
};

static bool start(struct process *process, bool injected)
{
    int in[2], out[2];
    char line[64] = "", path[2 * PATH_MAX];
    if (pipe(in) != 0 || pipe(out) != 0)
        return false;
    process->pid = fork();
    if (process->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        for (int fd = 3; fd < 512; fd++)
            close(fd);
        snprintf(path, sizeof(path), "%s/lib/gpuprof/sim", build);
        setenv("LD_LIBRARY_PATH", path, 1);
        setenv("GPUPROF_SIM", "memory=16GiB", 1);
        snprintf(path, sizeof(path), "%s/lib/libgpuprof.so", build);
        if (injected)
            setenv("CUDA_INJECTION64_PATH", path, 1);
        else
            unsetenv("CUDA_INJECTION64_PATH");
        execl(self, self, "child", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    process->go = in[1];
    ssize_t got = read(out[0], line, sizeof(line) - 1);
    close(out[0]);
    process->init_ms = got > 0 ? (double)strtoul(line, NULL, 10) / 1e6 : -1;
    return got > 0;
}

static void stop(struct process *process)
{
    close(process->go);
    waitpid(process->pid, NULL, 0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(double), by_value);
    return values[count / 2];
}

static void bench_start(void)
{
    double with[STARTS], without[STARTS];
    for (int i = 0; i < STARTS; i++) {
        struct process process;
        if (start(&process, false))
            stop(&process);
        without[i] = process.init_ms;
        if (start(&process, true))
            stop(&process);
        with[i] = process.init_ms;
    }
    double plain = median(without, STARTS), injected = median(with, STARTS);
    printf("cuInit_ms\t1\t%.3f\ncuInit_injected_ms\t1\t%.3f\nlibrary_start_ms\t1\t%.3f\n", plain, injected,
           injected - plain);
}

/* Touched bytes of the session mapping. */
static long session_kib(pid_t pid)
{
    char path[64], line[512];
    long kib = -1;
    bool ours = false;
    snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (strchr(line, '-') && strstr(line, " rw-s "))
            ours = strstr(line, "gpuprof-session") != NULL;
        else if (ours && sscanf(line, "Rss: %ld", &kib) == 1)
            break;
    }
    if (file)
        fclose(file);
    return kib;
}

static void bench_one(void)
{
    static double us[RESETS];
    struct process process;
    if (!start(&process, true))
        return;
    int failed = 0;
    for (int i = 0; i < RESETS; i++) {
        static struct gp_wire_slot slot;
        slot = (struct gp_wire_slot){.command = GP_COMMAND_RESET, .what = GP_RESET_PEAKS, .device = -1};
        uint64_t begin = gp_clock_ns();
        failed += gp_request(process.pid, &slot, 0) != 0;
        us[i] = (double)(gp_clock_ns() - begin) / 1e3;
    }
    printf("reset_round_trip_p50_us\t1\t%.1f\n", median(us, RESETS));
    printf("reset_round_trip_p99_us\t1\t%.1f\nreset_failed\t1\t%d\n", us[RESETS * 99 / 100], failed);
    printf("session_touched_kib\t1\t%ld\n", session_kib(process.pid));
    stop(&process);
}

static double top_once_ms(void)
{
    char command[PATH_MAX + 64];
    snprintf(command, sizeof(command), "%s/bin/gpuprof top --once >/dev/null", build);
    uint64_t begin = gp_clock_ns();
    int status = system(command);
    return status == 0 ? (double)(gp_clock_ns() - begin) / 1e6 : -1;
}

static void bench_many(void)
{
    static struct process processes[PROCESSES];
    double ms[9];
    int started = 0;
    while (started < PROCESSES && start(&processes[started], true))
        started++;
    for (int i = 0; i < 9; i++)
        ms[i] = top_once_ms();
    printf("top_once_ms\t%d\t%.1f\n", started, median(ms, 9));
    for (int i = 0; i < started; i++)
        stop(&processes[i]);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return child();
    if (!realpath("/proc/self/exe", self))
        return 1;
    snprintf(build, sizeof(build), "%.*s", (int)(strstr(self, "/tests/") - self), self);
    signal(SIGPIPE, SIG_IGN);
    bench_start();
    bench_one();
    bench_many();
    return 0;
}
