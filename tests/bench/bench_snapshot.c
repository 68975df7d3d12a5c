/* SPDX-License-Identifier: MIT
 *
 * bench_snapshot.c: a snapshot of 10^6 live allocations, of the program's own (raw) and from our
 * cache (cached): the time until the process has laid out its extents, until a viewer has them, and
 * until PyTorch's file is written; and the effect on a thread of the program that allocates and
 * frees all the time: its slowest pair and its 99.9th percentile, beside those of equally long
 * intervals without a snapshot, in turn.  The program runs itself as the profiled process on the
 * simulated GPU.
 *
 * TSV: name, live allocations, value (the unit is in the name).
 */
#include "base/clock.h"
#include "bench/count.h"
#include "convert/snapshot/snapshot.h"
#include "read/collect/collect.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIVE   BENCH_COUNT(1000000, 1000)
#define ROUNDS BENCH_COUNT(9, 1) /* odd: the median is one of them */

static char build[PATH_MAX], self[PATH_MAX];

/* ---- the child ------------------------------------------------------------------------------------------------- */

#define BUCKETS 4096 /* of 250 ns: up to a millisecond, then one for the rest */
static struct {
    uint64_t x_counts[BUCKETS + 1], x_max, x_pairs;
} seen; /* written by the loop, read and emptied by the main thread */

struct calls {
    int (*alloc)(unsigned long *, size_t);
    int (*free)(unsigned long);
    int (*cache_alloc)(void **, size_t, int, void *);
    int (*cache_free)(void *);
    int (*current)(void *);
    void *context;
    int cached;
};

static unsigned long get(const struct calls *calls, size_t bytes)
{
    unsigned long address = 0;
    void *pointer = NULL;
    if (!calls->cached)
        return calls->alloc(&address, bytes) == 0 ? address : 0;
    return calls->cache_alloc(&pointer, bytes, 0, NULL) == 0 ? (unsigned long)pointer : 0;
}

static _Noreturn void *loop(void *arg)
{
    const struct calls *calls = arg;
    calls->current(calls->context);
    for (;;) {
        uint64_t begin = gp_clock_ns();
        /* Of the cache, sizes for which it takes its lock: 3 MiB. */
        unsigned long address = get(calls, calls->cached ? 3 << 20 : 512);
        if (calls->cached)
            calls->cache_free((void *)address);
        else
            calls->free(address);
        uint64_t ns = gp_clock_ns() - begin, bucket = ns / 250;
        __atomic_fetch_add(&seen.x_counts[bucket < BUCKETS ? bucket : BUCKETS], 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&seen.x_pairs, 1, __ATOMIC_RELAXED);
        if (ns > __atomic_load_n(&seen.x_max, __ATOMIC_RELAXED))
            __atomic_store_n(&seen.x_max, ns, __ATOMIC_RELAXED);
    }
}

static void tell(void)
{
    uint64_t pairs = 0, below = 0, i = 0, counts[BUCKETS + 1];
    for (unsigned k = 0; k <= BUCKETS; k++)
        pairs += counts[k] = __atomic_exchange_n(&seen.x_counts[k], 0, __ATOMIC_RELAXED);
    while (i < BUCKETS && (below += counts[i]) < pairs - pairs / 1000)
        i++;
    printf("%llu %llu %llu\n", (unsigned long long)pairs, (unsigned long long)(i + 1) * 250,
           (unsigned long long)__atomic_exchange_n(&seen.x_max, 0, __ATOMIC_RELAXED));
    fflush(stdout);
}

static int child(int cached)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *library = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
    if (!driver || !library)
        return 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    static struct calls calls;
    calls.current = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    calls.alloc = (int (*)(unsigned long *, size_t))dlsym(driver, "cuMemAlloc_v2");
    calls.free = (int (*)(unsigned long))dlsym(driver, "cuMemFree_v2");
    calls.cache_alloc = (int (*)(void **, size_t, int, void *))dlsym(library, "gpuprof_alloc");
    calls.cache_free = (int (*)(void *))dlsym(library, "gpuprof_free");
    calls.cached = cached;
    pthread_t thread;
    if (init(0) != 0 || retain(&calls.context, 0) != 0 || calls.current(calls.context) != 0)
        return 1;
    for (int i = 0; i < LIVE; i++)
        if (!get(&calls, 512))
            return 1;
    if (pthread_create(&thread, NULL, loop, &calls) != 0)
        return 1;
    char byte;
    for (tell(); read(STDIN_FILENO, &byte, 1) == 1;)
        tell();
    return 0;
}

/* ---- the parent ------------------------------------------------------------------------------------------------ */

static pid_t pid;
static FILE *answers;
static int go;

static int start(const char *mode)
{
    int in[2], out[2];
    char path[2 * PATH_MAX];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        return 0;
    pid = fork();
    if (pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        snprintf(path, sizeof(path), "%s/lib/gpuprof/sim", build);
        setenv("LD_LIBRARY_PATH", path, 1);
        setenv("GPUPROF_SIM", "memory=16GiB", 1);
        snprintf(path, sizeof(path), "%s/lib/libgpuprof.so", build);
        setenv("CUDA_INJECTION64_PATH", path, 1);
        execl(self, self, "child", mode, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    go = in[1];
    answers = fdopen(out[0], "r");
    unsigned long long pairs, most, slowest;
    return answers && fscanf(answers, "%llu %llu %llu", &pairs, &most, &slowest) == 3;
}

struct stretch {
    double pairs, most_us, slowest_us;
};

static struct stretch since(void)
{
    unsigned long long pairs = 0, most = 0, slowest = 0;
    if (write(go, "a", 1) != 1 || fscanf(answers, "%llu %llu %llu", &pairs, &most, &slowest) != 3)
        pairs = 0;
    return (struct stretch){(double)pairs, (double)most / 1e3, (double)slowest / 1e3};
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(double), by_value);
    return values[ROUNDS / 2];
}

static void say(const char *mode, const char *what, double *values)
{
    double middle = median(values);
    printf("%s_%s\t%d\t%.3f\n%s_%s_worst\t%d\t%.3f\n", mode, what, LIVE, middle, mode, what, LIVE, values[ROUNDS - 1]);
}

/* CPU time of the answering thread, so other work of the machine does not count. */
static double drain_ms(void)
{
    char path[64], name[32] = "";
    double ns = 0;
    glob_t tasks;
    snprintf(path, sizeof(path), "/proc/%d/task/*", (int)pid);
    if (glob(path, 0, NULL, &tasks) != 0)
        return 0;
    for (size_t i = 0; i < tasks.gl_pathc; i++) {
        snprintf(path, sizeof(path), "%s/comm", tasks.gl_pathv[i]);
        FILE *file = fopen(path, "re");
        int drain = file && fgets(name, sizeof(name), file) && strcmp(name, "gpuprof-drain\n") == 0;
        if (file)
            fclose(file);
        snprintf(path, sizeof(path), "%s/schedstat", tasks.gl_pathv[i]);
        file = drain ? fopen(path, "re") : NULL;
        if (file && fscanf(file, "%lf", &ns) != 1)
            ns = 0;
        if (file)
            fclose(file);
    }
    globfree(&tasks);
    return ns / 1e6;
}

/* Of this thread, likewise. */
static double own_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static double file_ms(const struct gp_extents *pieces, const char *path)
{
    const struct gp_snapshot_live live = {.pieces = pieces, .allocator = "off", .split_limit = -1};
    const struct gp_snapshot_names names = {0};
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    uint64_t begin = gp_clock_ns();
    int rc = fd < 0 ? -1 : gp_snapshot_live(fd, &live, &names, NULL);
    close(fd);
    return rc ? -1 : (double)(gp_clock_ns() - begin) / 1e6;
}

static void bench(const char *mode)
{
    enum {
        BEFORE,
        WALK,
        CPU,
        AFTER,
        ANSWER,
        READ_CPU,
        FILE_MS,
        FILE_CPU,
        MOST,
        SLOWEST,
        QUIET_MOST,
        QUIET_SLOWEST,
        VALUES
    };
    static const char *const names[VALUES] = {
        "until_walk_ms", "walk_ms",     "drain_cpu_ms", "read_ms",     "taken_ms",           "read_cpu_ms",
        "file_ms",       "file_cpu_ms", "pair_p999_us", "pair_max_us", "pair_p999_us_quiet", "pair_max_us_quiet"};
    double values[VALUES][ROUNDS];
    char path[] = "/tmp/gpuprof-test-bench-XXXXXX";
    int made = mkstemp(path);
    if (made < 0 || !start(mode))
        return;
    for (int i = 0; i < ROUNDS; i++) {
        struct gp_extents pieces;
        since();
        double cpu = drain_ms();
        double own = own_ms();
        uint64_t begin = gp_clock_ns();
        int rc = gp_extents_take(pid, &pieces, 0, NULL, 0);
        uint64_t ns = gp_clock_ns() - begin;
        values[READ_CPU][i] = own_ms() - own;
        struct stretch with = since();
        usleep((useconds_t)(ns / 1000));
        struct stretch without = since();
        values[CPU][i] = drain_ms() - cpu;
        values[BEFORE][i] = rc ? -1 : (double)(pieces.begin_ns - begin) / 1e6;
        values[AFTER][i] = rc ? -1 : (double)(begin + ns - pieces.end_ns) / 1e6;
        values[WALK][i] = rc ? -1 : (double)(pieces.end_ns - pieces.begin_ns) / 1e6;
        values[ANSWER][i] = (double)ns / 1e6;
        values[MOST][i] = with.most_us;
        values[SLOWEST][i] = with.slowest_us;
        values[QUIET_MOST][i] = without.most_us;
        values[QUIET_SLOWEST][i] = without.slowest_us;
        own = own_ms();
        values[FILE_MS][i] = rc || pieces.count < LIVE ? -1 : file_ms(&pieces, path);
        values[FILE_CPU][i] = own_ms() - own;
        gp_extents_free(&pieces);
    }
    for (int k = 0; k < VALUES; k++)
        say(mode, names[k], values[k]);
    close(go);
    close(made);
    unlink(path);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "child") == 0)
        return child(strcmp(argv[2], "cached") == 0);
    if (!realpath("/proc/self/exe", self))
        return 1;
    snprintf(build, sizeof(build), "%.*s", (int)(strstr(self, "/tests/") - self), self);
    signal(SIGPIPE, SIG_IGN);
    bench("raw");
    bench("cached");
    return 0;
}
