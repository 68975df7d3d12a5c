/* SPDX-License-Identifier: MIT
 *
 * bench_batch.c: what it costs a process that the kernel hears of its memory, beside what probes on the driver's own
 * functions cost it, in one run and with the same sums kept.
 *
 *   batch_event_*          ns of the program's thread for one event (half of a free and an allocation through the
 *                          accounts, below the peak): nobody listens; somebody does
 *   batch_extra_*          what listening adds: to the thread; to the whole process, drain thread and BPF program too
 *   batch_look             the look at the semaphore alone
 *   batch_path_*           events offered and carried per second, lost, and neither of both, at several rates
 *   uprobe_extra           what a probe at cuMemAlloc_v2 and cuMemFree_v2 adds to one call
 *   uprobe_over_batch_*    how many times as much that is
 *
 * TSV: name, threads, value.
 */
#include "account/feed.h"
#include "account/tap.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "ds/ring.h"
#include "export/batch.h"
#include "export/session.h"
#include "lib/listen.h"
#include "lib/paths.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define BURST  2000u /* events between two looks at the clock */
#define BURSTS 500u
#define ROUNDS 5u

static struct gp_session session;
static struct gp_ring ring;

static bool poll_nothing(uint64_t timeout_ns)
{
    (void)timeout_ns;
    return true;
}

static int start(void)
{
    static const struct gp_session_size size;
    const struct gp_session_hooks hooks = {.poll_now = poll_nothing, .event = gp_feed_event};
    int error = gp_life_start();
    if (!error)
        error = gp_session_open(&session, &size);
    if (!error)
        error = gp_ring_init(&ring, session.chunks, session.chunk_count, &session.header->lost[GP_LOST_RING]);
    if (!error)
        error = gp_feed_start(&(struct gp_feed_setup){.ring = &ring,
                                                      .lost = session.header->lost,
                                                      .failures = session.failures,
                                                      .map_limit = 1u << 20,
                                                      .armed = &gpuprof_batch_semaphore,
                                                      .coming = gp_batch_coming,
                                                      .heard = gp_batch_heard});
    return error ? error : gp_drain_start(&session, &hooks);
}

static uint64_t cpu_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

/* ---- the program --------------------------------------------------------------------------------------------------
 */

static void allocate(uint64_t address, uint64_t bytes)
{
    const struct gp_block block = {
        .space = GP_SPACE_DEVICE, .kind = GP_KIND_LINEAR, .address = address, .bytes = bytes, .requested_bytes = bytes};
    if (gp_thread_enter()) {
        gp_feed_alloc(&block);
        gp_thread_leave();
    }
}

static void release(uint64_t address)
{
    if (gp_thread_enter()) {
        gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, address), true, 0);
        gp_thread_leave();
    }
}

struct program { /* one thread of it */
    uint64_t base, seed;
    double thread_ns; /* an event */
};

#define LIVE 64u

/* Frees one of its live blocks at random and takes another of another size: what is live wanders, below the peak. */
static void burst(struct program *program)
{
    for (uint32_t i = 0; i < BURST / 2; i++) {
        program->seed = program->seed * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t address = program->base + (program->seed >> 33) % LIVE * 65536;
        release(address);
        allocate(address, 512 + (program->seed >> 40) % 64 * 512);
    }
}

static void sleep_until(uint64_t ns)
{
    struct timespec at = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

struct cost {
    double thread, process; /* ns an event */
};

/* A million events a second, as far as sleeping is that exact. */
static void *program_main(void *arg)
{
    struct program *program = arg;
    uint64_t next = gp_clock_ns(), spent = 0;
    for (uint32_t i = 0; i < BURSTS; i++) {
        uint64_t before = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
        burst(program);
        spent += cpu_ns(CLOCK_THREAD_CPUTIME_ID) - before;
        sleep_until(next += BURST * 1000ull);
    }
    program->thread_ns = (double)spent / BURST / BURSTS;
    return NULL;
}

static struct program running[2];

static struct cost measure(unsigned threads)
{
    pthread_t ids[2];
    uint64_t process = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    struct cost cost = {0};
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, program_main, &running[i]);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        cost.thread += running[i].thread_ns / threads;
    }
    cost.process = (double)(cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - process) / BURST / BURSTS / threads;
    return cost;
}

/* What is live at first, and a peak well above all that it will come to. */
static void prepare(void)
{
    for (unsigned i = 0; i < 2; i++) {
        running[i] = (struct program){.base = 0x700000000000ull + ((uint64_t)i << 36), .seed = 881726454ull + i};
        for (unsigned b = 0; b < LIVE; b++)
            allocate(running[i].base + b * 65536, 16384);
    }
    for (unsigned b = 0; b < 1024; b++)
        allocate(0x720000000000ull + b * 65536, 65536);
    for (unsigned b = 0; b < 1024; b++)
        release(0x720000000000ull + b * 65536);
}

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
    *thread_extra = median(extra, ROUNDS);
    *process_extra = median(all, ROUNDS);
    printf("batch_event_unarmed\t%u\t%.1f\nbatch_event_armed\t%u\t%.1f\n", threads, median(off, ROUNDS), threads,
           median(on, ROUNDS));
    printf("batch_extra_thread\t%u\t%.2f\nbatch_extra_process\t%u\t%.2f\n", threads, *thread_extra, threads,
           *process_extra);
}

/* ---- the semaphore alone ------------------------------------------------------------------------------------------
 */

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
    const uint32_t loops = 100000000;
    double ns[2];
    for (int which = 0; which < 2; which++) {
        uint64_t begin = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
        for (uint32_t i = 0; i < loops; i++)
            which ? look() : look_not();
        ns[which] = (double)(cpu_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / loops;
    }
    printf("batch_look\t1\t%.2f\n", ns[1] - ns[0]);
}

/* ---- the whole path -----------------------------------------------------------------------------------------------
 */

struct offer {
    uint64_t base, rate, seconds;
};

/* A millisecond's events, then a sleep: whoever misses his time makes it up, so the rate is kept. */
static void *offer_main(void *arg)
{
    const struct offer *offer = arg;
    uint64_t begin = gp_clock_ns(), made = 0;
    for (uint64_t ms = 1; ms <= offer->seconds * 1000; ms++) {
        for (; made < offer->rate * ms / 1000; made += 2) {
            uint64_t address = offer->base + (made / 2 % 64) * 4096;
            allocate(address, 4096);
            release(address);
        }
        if (gp_clock_ns() < begin + ms * 1000000)
            sleep_until(begin + ms * 1000000);
    }
    return NULL;
}

static void measure_path(struct listen *listen, unsigned threads, uint64_t rate)
{
    pthread_t ids[2];
    struct offer offers[2];
    if (listen_arm(listen, "/proc/self/exe") != 0)
        return;
    struct count before = listen_count(listen, getpid());
    uint64_t made = gp_tap_events(), begin = gp_clock_ns();
    for (unsigned i = 0; i < threads; i++) {
        offers[i] = (struct offer){0x730000000000ull + ((uint64_t)i << 36), rate / threads, 2};
        pthread_create(&ids[i], NULL, offer_main, &offers[i]);
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    double seconds = (double)(gp_clock_ns() - begin) / 1e9;
    usleep(400000); /* the round after the silence */
    struct count after = listen_count(listen, getpid());
    made = gp_tap_events() - made;
    uint64_t carried = after.events - before.events, lost = after.lost - before.lost;
    char name[64];
    snprintf(name, sizeof(name), "batch_path_%luk", (unsigned long)(rate / 1000));
    printf("%s_offered_per_s\t%u\t%.0f\n", name, threads, (double)made / seconds);
    printf("%s_carried_per_s\t%u\t%.0f\n", name, threads, (double)carried / seconds);
    printf("%s_batches\t%u\t%lu\n", name, threads, (unsigned long)(after.batches - before.batches));
    printf("%s_lost\t%u\t%lu\n", name, threads, (unsigned long)lost);
    printf("%s_unaccounted\t%u\t%ld\n", name, threads, (long)(made - carried - lost));
    listen_disarm(listen);
    usleep(200000);
}

/* ---- probes on the driver -----------------------------------------------------------------------------------------
 */

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
    measure_armed(&listen, 2, &thread_extra, &process_extra);
    measure_armed(&listen, 1, &thread_extra, &process_extra);
    for (uint64_t rate = 1000000; rate <= 8000000; rate *= 2)
        for (unsigned threads = 1; threads <= 2; threads++)
            measure_path(&listen, threads, rate);
    uprobe = measure_driver(&listen);
    if (uprobe > 0 && thread_extra > 0)
        printf("uprobe_over_batch_thread\t1\t%.0f\nuprobe_over_batch_process\t1\t%.0f\n", uprobe / thread_extra,
               uprobe / process_extra);
    listen_close(&listen);
    return 0;
}
