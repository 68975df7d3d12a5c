/* SPDX-License-Identifier: MIT
 *
 * bench_batch.c: the cost for a process when the kernel follows its memory, compared in one run
 * with probes on the driver's own functions that keep the same sums.  bench_agent.c measures the
 * path beyond the probe.
 *
 *   batch_event_*         ns of the program's thread per event (half of a free and an allocation through
 *                         the accounts, below the peak), without and with a listener
 *   batch_extra_*         the cost added by a listener: to the thread, and to the whole process with
 *                         drain thread and BPF program
 *   *_steady              the same with blocks of one size: without the new maxima that a varying total
 *                         has after each batch, and without the cost of the next exact peak
 *   batch_look            only the check of the semaphore
 *   uprobe_extra          the cost that a probe at cuMemAlloc_v2 and cuMemFree_v2 adds to one call
 *   uprobe_over_batch_*   uprobe_extra divided by batch_extra_*
 *
 * TSV: name, threads, value.
 */
#include "bench/batch_load.h"
#include "bench/count.h"
#include "lib/listen.h"
#include "lib/paths.h"
#include "session/batch.h"
#include <dlfcn.h>

static void measure_armed(struct listen *listen, unsigned threads, double *thread_extra, double *process_extra)
{
    double off[ROUNDS], on[ROUNDS], extra[ROUNDS], all[ROUNDS];
    measure(threads); /* first uses */
    for (unsigned r = 0; r < ROUNDS; r++) {
        struct cost unarmed = measure(threads);
        if (listen_arm(listen, "/proc/self/exe") != 0)
            return;
        struct cost armed = measure(threads);
        listen_disarm(listen);
        off[r] = unarmed.thread;
        on[r] = armed.thread;
        extra[r] = armed.thread - unarmed.thread;
        all[r] = armed.process - unarmed.process;
        usleep(200000);
    }
    const char *load = steady ? "_steady" : "";
    *thread_extra = median(extra, ROUNDS);
    *process_extra = median(all, ROUNDS);
    printf("batch_event_unarmed%s\t%u\t%.1f\nbatch_event_armed%s\t%u\t%.1f\n", load, threads, median(off, ROUNDS), load,
           threads, median(on, ROUNDS));
    printf("batch_extra_thread%s\t%u\t%.2f\nbatch_extra_process%s\t%u\t%.2f\n", load, threads, *thread_extra, load,
           threads, *process_extra);
}

/* ---- the semaphore alone ----------------------------------------------------------------------------------------- */

static __attribute__((noinline)) void look(void)
{
    __asm__ volatile("" ::: "memory");
    if (GP_UNLIKELY(__atomic_load_n(&gpuprof_batch_semaphore, __ATOMIC_RELAXED)))
        gp_batch_heard();
}

static __attribute__((noinline)) void look_not(void)
{
    __asm__ volatile("" ::: "memory");
}

static void measure_look(void)
{
    const uint32_t loops = BENCH_COUNT(100000000, 1000);
    double ns[2];
    for (int which = 0; which < 2; which++) {
        uint64_t begin = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
        for (uint32_t i = 0; i < loops; i++)
            which ? look() : look_not();
        ns[which] = (double)(cpu_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / loops;
    }
    printf("batch_look\t1\t%.2f\n", ns[1] - ns[0]);
}

/* ---- probes on the driver ---------------------------------------------------------------------------------------- */

struct driver {
    int (*init)(unsigned), (*retain)(void **, int), (*current)(void *);
    int (*alloc)(unsigned long long *, size_t), (*release)(unsigned long long);
};

static double driver_round(const struct driver *driver, uint32_t calls)
{
    uint64_t begin = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    for (uint32_t i = 0; i < calls / 2; i++) {
        unsigned long long address = 0;
        driver->alloc(&address, 4096);
        driver->release(address);
    }
    return (double)(cpu_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / calls;
}

static bool driver_open(struct driver *driver, const char *path)
{
    void *context = NULL, *library = dlopen(path, RTLD_NOW);
    const char *const names[] = {"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2",
                                 "cuMemFree_v2"};
    void *found[GP_COUNT(names)];
    for (unsigned i = 0; library && i < GP_COUNT(names); i++)
        if (!(found[i] = dlsym(library, names[i])))
            return false;
    if (!library)
        return false;
    memcpy(driver, found, sizeof(*driver));
    return driver->init(0) == 0 && driver->retain(&context, 0) == 0 && driver->current(context) == 0;
}

static double measure_driver(struct listen *listen)
{
    static const char *const programs[] = {"on_alloc", "on_free"}, *const functions[] = {"cuMemAlloc_v2",
                                                                                         "cuMemFree_v2"};
    struct driver driver;
    double extra[ROUNDS], plain[ROUNDS];
    char path[4096];
    snprintf(path, sizeof(path), "%s/libcuda.so.1", path_sim());
    unsetenv("CUDA_INJECTION64_PATH");
    setenv("GPUPROF_SIM", "devices=1,memory=1GiB,latency=zero", 1);
    if (!driver_open(&driver, path))
        return -1;
    driver_round(&driver, 20000);
    for (unsigned r = 0; r < ROUNDS; r++) {
        plain[r] = driver_round(&driver, 20000);
        for (unsigned i = 0; i < 2; i++) {
            LIBBPF_OPTS(bpf_uprobe_opts, options, .func_name = functions[i]);
            listen->link[i] = bpf_program__attach_uprobe_opts(
                bpf_object__find_program_by_name(listen->object, programs[i]), getpid(), path, 0, &options);
            if (!listen->link[i])
                return -1;
        }
        extra[r] = driver_round(&driver, 20000) - plain[r];
        listen_disarm(listen);
    }
    struct peer peer = {0};
    uint32_t key = (uint32_t)getpid();
    bpf_map_lookup_elem(listen_map(listen, "peers"), &key, &peer);
    if (peer.calls + peer.frees != ROUNDS * 20000)
        printf("uprobe_missed\t1\t%ld\n", (long)(ROUNDS * 20000 - peer.calls - peer.frees));
    printf("uprobe_plain\t1\t%.1f\nuprobe_extra\t1\t%.1f\n", median(plain, ROUNDS), median(extra, ROUNDS));
    return median(extra, ROUNDS);
}

int main(void)
{
    struct listen listen;
    double thread_extra = 0, process_extra = 0, uprobe;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int error = listen_open(&listen, NULL, NULL);
    if (error || start() != 0) {
        printf("batch_skipped\t1\tno BPF here: %s\n", strerror(-error));
        return 0;
    }
    prepare();
    measure_look();
    for (int which = 1; which >= 0; which--) { /* the wandering load last, one thread last: what the ratio is of */
        steady = which;
        measure_armed(&listen, 2, &thread_extra, &process_extra);
        measure_armed(&listen, 1, &thread_extra, &process_extra);
    }
    uprobe = measure_driver(&listen);
    if (uprobe > 0 && thread_extra > 0)
        printf("uprobe_over_batch_thread\t1\t%.0f\nuprobe_over_batch_process\t1\t%.0f\n", uprobe / thread_extra,
               uprobe / process_extra);
    listen_close(&listen);
    return 0;
}
