/* SPDX-License-Identifier: MIT
 *
 * bench_budget.c: the instructions of one event, and how many of them are locked, counted by single steps of a child: they
 * do not depend on what else the machine does. TSV: name, threads, instructions per event; name_least, of the least of the
 * rounds; name_locked.
 *
 * budget_hooks_* and budget_cupti_* are of a program of its own with the library in it, over a driver whose calls do nothing
 * (peer/idle_driver.c): what the hooks add to an allocation and its free, and what the handlers of CUPTI's callbacks add
 * where a callback that only counts is the measure.
 *
 * Of some events the number is limited: with more it ends with 1.
 *
 * With an argument, the events run without steps between stores to budget_mark, so that a tool that lists memory
 * accesses (valgrind --tool=lackey --trace-mem=yes) can tell them apart: bench_budget_lines.sh counts cache lines that way.
 */
#include "account/feed/context.h"
#include "account/feed/framework.h"
#include "account/feed/start.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/ring.h"
#include "base/thread.h"
#include "bench/cache_own.h"
#include "bench/count.h"
#include "source/internal.h"
#include <dlfcn.h>
#include <gpuprof/wire.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(__x86_64__)
int main(void)
{
    return 0; /* the locked instructions are those of x86-64 */
}
#else

enum {
    ROUNDS = 10,
    CHUNKS = 512,
    ABOVE = BENCH_COUNT(1000, 200)
}; /* a step takes two changes of the processor's thread */

static char name_now[64]; /* of the path; "": the end */
volatile uint64_t budget_mark;
static bool traced;
static uint64_t live = BENCH_COUNT(1000000, 1000);

/* 1: an event begins; the parent reads its name where rax points. 2: it has ended. */
static inline __attribute__((always_inline)) void mark(uint64_t value)
{
    budget_mark = value;
    if (traced && value == 1)
        __asm__ volatile("int3" ::"a"(name_now) : "memory");
    else if (traced)
        __asm__ volatile("int3" ::: "memory");
}

/* Counts the event that ends with this. */
#define COUNTED(_event)                                                                                                \
    do {                                                                                                               \
        mark(1);                                                                                                       \
        _event;                                                                                                        \
        mark(2);                                                                                                       \
    } while (0)

static void path(const char *name)
{
    snprintf(name_now, sizeof(name_now), "%s", name);
    if (!traced)
        printf("# %s mark %p\n", name, (void *)&budget_mark), fflush(stdout);
}

/* ---- the counters ------------------------------------------------------------------------------------------------ */

static void counters(void)
{
    struct gp_counter *set;
    struct gp_delta deltas[20];
    if (gp_counter_new(&set, 20, 64))
        abort();
    gp_counter_bundle(set, 0, 0x0f);
    gp_counter_bundle(set, 1, 0xf0);
    gp_counter_bundle(set, 2, 0xf00);
    for (unsigned g = 0; g < 20; g++)
        deltas[g] = (struct gp_delta){.gauge = g, .amount = 512};
    for (unsigned i = 0; i < 512; i++)
        gp_counter_apply(set, 0, i < 300 ? GP_ADD : GP_SUB, deltas, 20);
    static const unsigned gauges[] = {1, 12};
    for (unsigned way = 0; way < 2; way++) {
        path(way ? "budget_counter_12" : "budget_counter_1");
        for (unsigned i = 0; i < ROUNDS; i++)
            COUNTED(gp_counter_apply(set, 0, i % 2 ? GP_SUB : GP_ADD, deltas, gauges[way]));
    }
    path("budget_counter_12_in_3_bundles");
    for (unsigned i = 0; i < ROUNDS; i++) {
        const int64_t amounts[GP_BUNDLES] = {1, 512, 500};
        struct gp_gate *gate = gp_counter_gate(set, 0);
        mark(1);
        if (gp_gate_hold(gate)) {
            if (i % 2)
                gp_gate_sub(gate, amounts);
            else
                gp_gate_add(set, gate, amounts);
            gp_gate_release(gate);
        }
        mark(2);
    }
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct gp_gauge_value values[12];
    path("budget_mutex_12");
    for (unsigned i = 0; i < ROUNDS; i++) {
        int64_t amount = i % 2 ? -512 : 512;
        mark(1);
        pthread_mutex_lock(&mutex);
        for (unsigned g = 0; g < 12; g++) {
            values[g].current += amount;
            *(amount < 0 ? &values[g].freed : &values[g].allocated) += amount < 0 ? -amount : amount;
            values[g].peak = values[g].current > values[g].peak ? values[g].current : values[g].peak;
        }
        pthread_mutex_unlock(&mutex);
        mark(2);
    }
    gp_counter_free(set);
}

/* ---- events of the driver ---------------------------------------------------------------------------------------- */

static void call_driver(const struct gp_hook *hook, const void *params)
{
    uint64_t slot;
    struct gp_call call = {.hook = hook, .params = params, .ctx = 1, .slot = &slot};
    if (gp_thread_enter()) {
        gp_dispatch_enter(&call);
        gp_thread_leave();
    }
    if (gp_thread_enter()) {
        gp_dispatch_exit(&call);
        gp_thread_leave();
    }
}

static void driver_alloc(uint64_t address)
{
    static const struct gp_hook *hook;
    hook = hook ? hook : gp_dispatch_find(243);
    call_driver(hook, &(struct gp_params_cuMemAlloc_v2){.dptr = &address, .bytesize = 2048});
}

static void driver_free(uint64_t address)
{
    static const struct gp_hook *hook;
    hook = hook ? hook : gp_dispatch_find(245);
    call_driver(hook, &(struct gp_params_cuMemFree_v2){.dptr = address});
}

static uint64_t address_of(uint64_t block)
{
    return 0x700000000000ull + block * 512;
}

static void driver(void)
{
    uint64_t next = 0;
    for (; next < live; next++)
        driver_alloc(address_of(next));
    for (unsigned peak = 0; peak < 2; peak++) {
        for (unsigned i = 0; i < ABOVE && !peak; i++, next++) /* room below the peak */
            driver_alloc(address_of(next));
        for (unsigned i = 0; i < ABOVE && !peak; i++)
            driver_free(address_of(--next));
        for (unsigned i = 0; i < 100; i++) /* the set opens */
            driver_free(address_of(--next)), driver_alloc(address_of(next)), next++;
        path(peak ? "budget_driver_alloc_at_a_new_peak" : "budget_driver_alloc");
        for (unsigned i = 0; i < ROUNDS; i++, next++)
            COUNTED(driver_alloc(address_of(next)));
        path(peak ? "budget_driver_free_after_the_peak" : "budget_driver_free");
        for (unsigned i = 0; i < ROUNDS; i++)
            COUNTED(driver_free(address_of(--next)));
        for (unsigned i = 0; i < 4 * ABOVE && !peak; i++, next++) /* from here on each is a new peak */
            driver_alloc(address_of(next));
    }
}

/* ---- blocks of a framework ---------------------------------------------------------------------------------------- */

static uint32_t listened;

static void report(uint64_t block, int64_t bytes)
{
    static int64_t allocated;
    if (!gp_thread_enter())
        return;
    allocated += bytes;
    gp_feed_framework_block(&(struct gp_framework_event){.device = 1,
                                                         .address = address_of(block) + (1ull << 40),
                                                         .bytes = bytes,
                                                         .allocated_bytes = allocated,
                                                         .reserved_bytes = 0},
                            3);
    gp_thread_leave();
}

static void framework(void)
{
    for (uint64_t i = 0; i < live + ABOVE; i++)
        report(i, 512);
    for (uint64_t i = live; i < live + ABOVE; i++)
        report(i, -512);
    for (unsigned read = 0; read < 2; read++) {
        listened = read;
        for (unsigned i = 0; i < 100; i++)
            report(i, -512), report(i, 512);
        path(read ? "budget_block_alloc_read" : "budget_block_alloc");
        for (unsigned i = 0; i < ROUNDS; i++)
            COUNTED(report(live + i, 512));
        path(read ? "budget_block_free_read" : "budget_block_free");
        for (unsigned i = 0; i < ROUNDS; i++)
            COUNTED(report(live + i, -512));
    }
}

/* ---- the caching allocator ----------------------------------------------------------------------------------------- */

#define LARGE BENCH_COUNT(1024u, 64u)

static uint64_t large_size(uint64_t *random)
{
    return (1u << 20) + bench_cache_random(random) % (7u << 20);
}

static void cache(void)
{
    static uint64_t slots[BENCH_COUNT(4096, 64)], large[LARGE];
    struct bench_cache_api api = {"", caching_create, cache_destroy, cache_alloc, cache_free, cache_calls};
    struct bench_cache_hand hand = {.api = &api,
                                    .cache = api.create(),
                                    .slots = slots,
                                    .live = GP_COUNT(slots),
                                    .stream = 16,
                                    .random = 7,
                                    .uniform = 1};
    bench_cache_fill(&hand);
    bench_cache_pairs(&hand, traced ? BENCH_COUNT(100000, 1000) : 5000); /* a list of all accesses is long */
    path("budget_cache_100_pairs_uniform");
    for (unsigned i = 0; i < ROUNDS; i++)
        COUNTED(bench_cache_pairs(&hand, 100));
    /* Without a thread's cache: the other thread has none yet, and large blocks never have. */
    path("budget_cache_alloc_from_heap");
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t size = bench_cache_size(bench_cache_random(&hand.random), 1);
        COUNTED(cache_alloc(hand.cache, size, 16, 2));
    }
    for (unsigned i = 0; i < LARGE; i++)
        large[i] = cache_alloc(hand.cache, large_size(&hand.random), 16, 0);
    for (unsigned i = 0; i < 8 * LARGE; i++) {
        uint64_t *slot = &large[bench_cache_random(&hand.random) % LARGE];
        cache_free(hand.cache, *slot, 16, 0);
        *slot = cache_alloc(hand.cache, large_size(&hand.random), 16, 0);
    }
    path("budget_cache_free_to_heap");
    for (unsigned i = 0; i < ROUNDS; i++)
        COUNTED(cache_free(hand.cache, large[i], 16, 0));
    path("budget_cache_alloc_large");
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t size = large_size(&hand.random);
        COUNTED(cache_alloc(hand.cache, size, 16, 0));
    }
}

/* ---- calls of a program with the library in it ------------------------------------------------------------------- */

static volatile uint64_t callbacks;

static void count_callback(void *user, int domain, uint32_t id, const void *data)
{
    (void)user, (void)domain, (void)id, (void)data;
    callbacks++;
}

static struct {
    uint32_t (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *), (*stream_create)(void **, unsigned);
    uint32_t (*alloc)(uint64_t *, size_t), (*release)(uint64_t);
    uint32_t (*alloc_async)(uint64_t *, size_t, void *), (*free_async)(uint64_t, void *);
    int (*subscribe)(void **, gp_cupti_callback_fn, void *), (*enable)(uint32_t, void *, uint32_t, uint32_t);
} idle;

/* By name, as the CUDA runtime does. */
static void idle_open(bool counted)
{
    static const uint32_t ids[] = {243, 245, 598, 600};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *subscriber;
    const struct {
        const char *name;
        void *at;
    } names[] = {{"cuInit", &idle.init},
                 {"cuDevicePrimaryCtxRetain", &idle.retain},
                 {"cuCtxSetCurrent", &idle.set_current},
                 {"cuStreamCreate", &idle.stream_create},
                 {"cuMemAlloc_v2", &idle.alloc},
                 {"cuMemFree_v2", &idle.release},
                 {"cuMemAllocAsync", &idle.alloc_async},
                 {"cuMemFreeAsync", &idle.free_async},
                 {"cuptiSubscribe", &idle.subscribe},
                 {"cuptiEnableCallback", &idle.enable}};
    for (size_t i = 0; i < GP_COUNT(names); i++)
        if (!driver || !(*(void **)names[i].at = dlsym(driver, names[i].name))) {
            fprintf(stderr, "bench_budget: no %s in the idle driver\n", names[i].name);
            exit(1);
        }
    for (size_t i = 0; i < GP_COUNT(ids) && counted; i++)
        if (idle.subscribe(&subscriber, count_callback, NULL) || idle.enable(1, subscriber, 1, ids[i]))
            exit(1);
}

static void pair_linear(void)
{
    uint64_t address;
    idle.alloc(&address, 2048);
    idle.release(address);
}

static void *stream;

static void pair_async(void)
{
    uint64_t address;
    idle.alloc_async(&address, 2048, stream);
    idle.free_async(address, stream);
}

/* Below the peak: some blocks are there, and more were. */
static void pairs(bool counted)
{
    enum { LIVE = 1000, WARM = 3000 };
    static uint64_t blocks[2 * LIVE];
    void *context;
    idle_open(counted);
    if (idle.init(0) || idle.retain(&context, 0) || idle.set_current(context) || idle.stream_create(&stream, 0))
        exit(1);
    for (unsigned i = 0; i < LIVE; i++)
        idle.alloc(&blocks[i], 2048);
    for (unsigned i = LIVE; i < 2 * LIVE; i++)
        idle.alloc_async(&blocks[i], 2048, stream);
    for (unsigned i = 2 * LIVE; i-- > LIVE + LIVE / 2;)
        idle.free_async(blocks[i], stream);
    static void (*const kinds[])(void) = {pair_linear, pair_async};
    static const char *const names[] = {"pair_linear", "pair_async"};
    for (unsigned kind = 0; kind < 2; kind++) {
        for (unsigned i = 0; i < WARM; i++)
            kinds[kind]();
        path(names[kind]);
        for (unsigned i = 0; i < ROUNDS; i++)
            COUNTED(kinds[kind]());
    }
    path("");
    exit(0);
}

static struct gp_ring ring;
static uint64_t lost[GP_LOSTS];
static struct gp_wire_failure failures[GP_WIRE_FAILURES];

static void wake_nobody(void)
{
}

static void *rest(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void child(void)
{
    pthread_t thread; /* alone, glibc's mutex would have no locked instruction */
    if (pthread_create(&thread, NULL, rest, NULL) != 0)
        exit(1);
    void *chunks =
        mmap(NULL, CHUNKS * sizeof(struct gp_wire_chunk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (chunks == MAP_FAILED || gp_ring_init(&ring, chunks, CHUNKS, &lost[GP_LOST_RING]) != 0 ||
        gp_thread_life_start() != 0 ||
        gp_feed_start(&(struct gp_feed_setup){.ring = &ring,
                                              .lost = lost,
                                              .failures = failures,
                                              .wake_poller = wake_nobody,
                                              .listened = &listened,
                                              .map_limit = 1u << 24}) != 0)
        exit(1);
    gp_feed_context_created(1, 0);
    counters();
    driver();
    framework();
    cache();
    path("");
    exit(0);
}

/* ---- what an event may take -------------------------------------------------------------------------------------- */

/* 3 % above what gcc 12 makes of it in a release build, so that what was saved stays saved: of the mean of the rounds, and of
 * the least of them where they read the clock, since a step takes so long that the clock's own loop may go round again. 0:
 * not limited. With few live blocks, as in the tiny bench, a framework's block takes 14 more. */
static const struct limit {
    const char *name;
    unsigned mean, least, locked;
} limits[] = {
    {"budget_counter_1", 86, 0, 1},
    {"budget_counter_12", 301, 0, 1},
    {"budget_counter_12_in_3_bundles", 84, 0, 1},
    {"budget_driver_alloc", 0, 855, 3},
    {"budget_driver_free", 0, 743, 3},
    {"budget_driver_alloc_at_a_new_peak", 2770, 2144, 5},
    {"budget_driver_free_after_the_peak", 1474, 743, 3},
    {"budget_block_alloc", 500, 481, 2},
    {"budget_block_free", 442, 434, 2},
    {"budget_block_alloc_read", 0, 677, 3},
    {"budget_block_free_read", 0, 644, 3},
#ifndef BENCH_TINY /* a cache that was hardly used takes more */
    {"budget_cache_100_pairs_uniform", 53916, 0, 300},
    {"budget_cache_alloc_from_heap", 2623, 0, 4},
    {"budget_cache_free_to_heap", 1351, 0, 4},
    {"budget_cache_alloc_large", 1770, 0, 3},
#endif
    {"budget_hooks_pair_linear", 0, 2166, 6},
    {"budget_hooks_pair_async", 0, 2369, 8},
    {"budget_cupti_pair_linear", 0, 2055, 6},
    {"budget_cupti_pair_async", 0, 2220, 8},
};

/* mean: 0, not known. locked: of the least round. */
static bool above(const char *name, uint64_t mean, uint64_t least, uint64_t locked)
{
#if defined(__OPTIMIZE__) && defined(NDEBUG) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
    for (unsigned i = 0; i < GP_COUNT(limits); i++) {
        const struct limit *limit = &limits[i];
        if (strcmp(limit->name, name) != 0 || ((!limit->mean || mean <= limit->mean) &&
                                               (!limit->least || least <= limit->least) && locked <= limit->locked))
            continue;
        fprintf(
            stderr,
            "bench_budget: %s takes %llu instructions, at least %llu, %llu of them locked; it may take %u, %u and %u "
            "(0: any)\n",
            name, (unsigned long long)mean, (unsigned long long)least, (unsigned long long)locked, limit->mean,
            limit->least, limit->locked);
        return true;
    }
#else
    (void)name, (void)mean, (void)least, (void)locked, (void)limits;
#endif
    return false;
}

/* ---- the parent --------------------------------------------------------------------------------------------------- */

static bool is_locked(const uint8_t *code)
{
    while (*code == 0x66 || *code == 0xf2 || *code == 0xf3 || *code == 0x2e || *code == 0x3e || *code == 0x64 ||
           *code == 0x65)
        code++;
    if (*code == 0xf0)
        return true;
    code += (*code & 0xf0) == 0x40;
    return (*code == 0x86 || *code == 0x87) && code[1] < 0xc0; /* xchg with memory */
}

static bool stopped(pid_t pid)
{
    int status;
    return waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
}

static void peek(pid_t pid, uint64_t address, void *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(long)) {
        long word = ptrace(PTRACE_PEEKDATA, pid, address + i, NULL);
        memcpy((char *)to + i, &word, sizeof(word));
    }
}

/* Of one path. */
struct count {
    char name[64];
    uint64_t steps, locked, events;
    uint64_t least_steps, least_locked;
};

/* One event, which ends with a mark. False: the child is gone. */
static bool count_event(pid_t pid, struct count *count)
{
    struct user_regs_struct regs;
    uint64_t steps = 0, locked = 0;
    for (;; steps++) {
        uint8_t code[sizeof(long)];
        ptrace(PTRACE_GETREGS, pid, NULL, &regs);
        peek(pid, regs.rip, code, sizeof(code));
        if (*code == 0xcc)
            break;
        locked += is_locked(code);
        ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
        if (!stopped(pid))
            return false;
    }
    count->steps += steps;
    count->locked += locked;
    count->least_steps = steps < count->least_steps ? steps : count->least_steps;
    count->least_locked = locked < count->least_locked ? locked : count->least_locked;
    count->events++;
    ptrace(PTRACE_CONT, pid, NULL, NULL); /* over the end */
    return stopped(pid);
}

/* Calls `done` for each path of the child. False: it ended in the middle of one. */
static bool count_paths(pid_t pid, void (*done)(const struct count *count, void *arg), void *arg)
{
    struct count count = {.name = ""};
    while (stopped(pid)) { /* before an event */
        struct user_regs_struct regs;
        char name[sizeof(count.name)];
        ptrace(PTRACE_GETREGS, pid, NULL, &regs);
        peek(pid, regs.rax, name, sizeof(name));
        if (strcmp(count.name, name) != 0) {
            count = (struct count){.least_steps = UINT64_MAX, .least_locked = UINT64_MAX};
            strcpy(count.name, name);
        }
        if (!count_event(pid, &count))
            return false;
        if (count.events == ROUNDS)
            done(&count, arg);
        ptrace(PTRACE_CONT, pid, NULL, NULL);
    }
    return true;
}

static void print_count(const struct count *count, void *failed)
{
    printf("%s\t1\t%.1f\n%s_least\t1\t%llu\n%s_locked\t1\t%.2f\n", count->name, (double)count->steps / ROUNDS,
           count->name, (unsigned long long)count->least_steps, count->name, (double)count->locked / ROUNDS),
        fflush(stdout);
    *(bool *)failed |=
        above(count->name, (count->steps + ROUNDS - 1) / ROUNDS, count->least_steps, count->least_locked);
}

/* ---- ways into the library ----------------------------------------------------------------------------------------- */

enum { WAY_IDLE, WAY_COUNTED, WAY_HOOKS, WAY_CUPTI, WAYS };
enum { PAIR_KINDS = 2 };

struct way {
    unsigned found;
    struct count counts[PAIR_KINDS];
};

static void keep_count(const struct count *count, void *arg)
{
    struct way *way = arg;
    if (way->found < PAIR_KINDS)
        way->counts[way->found++] = *count;
}

/* Runs this program again, as one that the library is loaded into. */
static void way_exec(unsigned way)
{
    static char self[PATH_MAX], copy[PATH_MAX], words[4][PATH_MAX + 64];
    char *arguments[] = {self, "pairs", way == WAY_COUNTED ? "counted" : NULL, NULL};
    char *environment[] = {words[0], words[1], words[2], words[3], NULL};
    if (!realpath("/proc/self/exe", self))
        _exit(1);
    strcpy(copy, self);
    const char *build = dirname(dirname(dirname(copy)));
    snprintf(words[0], sizeof(words[0]), "LD_LIBRARY_PATH=%s/tests/bench/idle", build);
    snprintf(words[1], sizeof(words[1]), "GPUPROF_SOURCE=%s", way == WAY_HOOKS ? "hooks" : "cupti");
    if (way >= WAY_HOOKS)
        snprintf(words[2], sizeof(words[2]), "CUDA_INJECTION64_PATH=%s/lib/libgpuprof.so", build);
    if (way == WAY_HOOKS)
        snprintf(words[3], sizeof(words[3]), "LD_PRELOAD=%s/lib/libgpuprof-shim.so", build);
    for (unsigned i = 2; i < 4; i++)
        environment[i] = words[i][0] ? words[i] : NULL;
    execve(self, arguments, environment);
    _exit(1);
}

static bool way_count(unsigned number, struct way *way)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0)
            way_exec(number);
        _exit(1);
    }
    bool ran = stopped(pid) /* at the exec */ && ptrace(PTRACE_CONT, pid, NULL, NULL) == 0;
    return ran && count_paths(pid, keep_count, way) && way->found == PAIR_KINDS;
}

/* What `way` takes beyond `bare`: its least, since a poll of ours may be due in a round. */
static bool way_above(const char *what, const struct way *way, const struct way *bare)
{
    bool failed = false;
    for (unsigned i = 0; i < PAIR_KINDS; i++) {
        char name[64];
        uint64_t steps = way->counts[i].least_steps - bare->counts[i].least_steps;
        uint64_t locked = way->counts[i].least_locked - bare->counts[i].least_locked;
        snprintf(name, sizeof(name), "budget_%s_%s", what, way->counts[i].name);
        printf("%s\t1\t%llu\n%s_locked\t1\t%llu\n", name, (unsigned long long)steps, name, (unsigned long long)locked);
        failed |= above(name, 0, steps, locked);
    }
    return failed;
}

static bool ways_above(void)
{
    static struct way ways[WAYS];
    for (unsigned i = 0; i < WAYS; i++)
        if (!way_count(i, &ways[i])) {
            fprintf(stderr, "bench_budget: the program with the library in it did not reach its end\n");
            return true;
        }
    bool failed = way_above("hooks", &ways[WAY_HOOKS], &ways[WAY_IDLE]);
    return way_above("cupti", &ways[WAY_CUPTI], &ways[WAY_COUNTED]) || failed;
}

/* The tracer and the traced program take turns.  On two processors of an idle virtual machine each turn wakes one up, which may
 * take so long that the clock's loop, which begins again at each tick, does not end under single steps. */
static void one_processor(void)
{
    cpu_set_t set;
    int processor = sched_getcpu();
    CPU_ZERO(&set);
    if (processor >= 0) {
        CPU_SET(processor, &set);
        sched_setaffinity(0, sizeof(set), &set);
    }
}

int main(int argc, char **argv)
{
    bool failed = false;
    one_processor();
    if (argc > 1 && strcmp(argv[1], "pairs") == 0) {
        traced = !getenv("BENCH_UNTRACED");
        pairs(argc > 2);
    } else if (argc > 1) {
        live = strtoull(argv[1], NULL, 0);
        child();
    }
    pid_t pid = fork();
    if (pid == 0) {
        traced = true;
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0)
            child();
        _exit(0);
    }
    if (!count_paths(pid, print_count, &failed))
        return 1;
    return ways_above() || failed;
}
#endif
