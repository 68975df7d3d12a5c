/* SPDX-License-Identifier: MIT
 *
 * bench_site.c: the cost of reading a stack, beside glibc's backtrace(3) and libunwind's
 * unw_backtrace where that is installed, all at the same place of the same stack.  stdout: TSV
 * `name<TAB>threads<TAB>ns`, the median over repetitions, interleaved; names end in the number of
 * frames.  Usage: bench_site [repetitions]
 *
 *   bare, framed   code without and with frame pointers
 *   stack          reading it;  site: and finding its number;  event: and an allocation and a free under it
 *   off            gp_site_here when stacks are off
 *   first          the first read after the rules were dropped (a library was loaded or unloaded), per frame
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "bench/count.h"
#include "stack/internal.h"
#include "stack/stack.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { CALLS = BENCH_COUNT(20000, 100), REPS_MAX = 99, THREADS_MAX = 64, FRAMES = 20 };

#define BARE   __attribute__((noinline, noclone, optimize("omit-frame-pointer", "no-optimize-sibling-calls")))
#define FRAMED __attribute__((noinline, noclone, optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")))

typedef int unw_fn(void **, int);
static unw_fn *unw;
static volatile int sink;
static unsigned frames_there;

/* ---- what is measured -------------------------------------------------------------------------------------------- */

static void do_stack(void)
{
    uint64_t pcs[GP_SITE_FRAMES];
    bool more;
    frames_there = gp_stack_native(pcs, GP_SITE_FRAMES, &more);
}

static void do_site(void)
{
    sink = (int)gp_site_here(0, GP_KIND_LINEAR, true);
}

static void do_event(void)
{
    uint32_t id = gp_site_here(0, GP_KIND_LINEAR, true);
    gp_site_alloc(id, 512);
    gp_site_free(id, 512);
}

static void do_glibc(void)
{
    void *pcs[GP_SITE_FRAMES];
    sink = backtrace(pcs, GP_SITE_FRAMES);
}

static void do_unw(void)
{
    void *pcs[GP_SITE_FRAMES];
    sink = unw(pcs, GP_SITE_FRAMES);
}

/* ---- where ------------------------------------------------------------------------------------------------------- */

struct job {
    void (*what)(void);
    unsigned calls;
    double ns;
};

FRAMED static void run_job(struct job *job)
{
    job->what();
    uint64_t begin = gp_clock_ns();
    for (unsigned i = 0; i < job->calls; i++)
        job->what();
    job->ns = (double)(gp_clock_ns() - begin) / job->calls;
}

BARE static void bare(unsigned depth, struct job *job)
{
    volatile char room[56];
    room[0] = (char)depth;
    if (depth)
        bare(depth - 1, job);
    else
        run_job(job);
    sink += room[0];
}

FRAMED static void framed(unsigned depth, struct job *job)
{
    volatile char room[56];
    room[0] = (char)depth;
    if (depth)
        framed(depth - 1, job);
    else
        run_job(job);
    sink += room[0];
}

static unsigned depth_bare, depth_framed;

/* Deep enough that the stack has FRAMES frames, with those below main and above run_job. */
static void find_depths(void)
{
    struct job job = {do_stack, 1, 0};
    bare(2, &job);
    depth_bare = 2 + FRAMES - frames_there;
    framed(2, &job);
    depth_framed = 2 + FRAMES - frames_there;
}

static void *thread_main(void *argument)
{
    bare(depth_bare, argument);
    return NULL;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

struct row {
    const char *name;
    void (*what)(void);
    unsigned threads, calls;
    bool framed;
    double ns[REPS_MAX];
};

static void run_row(struct row *row, unsigned rep)
{
    struct job jobs[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    row->ns[rep] = 0;
    for (unsigned t = 0; t < row->threads; t++)
        jobs[t] = (struct job){row->what, row->calls, 0};
    if (row->threads == 1) {
        (row->framed ? framed : bare)(row->framed ? depth_framed : depth_bare, &jobs[0]);
    } else {
        for (unsigned t = 0; t < row->threads; t++)
            pthread_create(&threads[t], NULL, thread_main, &jobs[t]);
        for (unsigned t = 0; t < row->threads; t++)
            pthread_join(threads[t], NULL);
    }
    for (unsigned t = 0; t < row->threads; t++)
        row->ns[rep] += jobs[t].ns / row->threads;
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void start(void)
{
    uint64_t bytes = gp_site_bytes();
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || gp_site_start(memory, bytes, GP_SITES_NATIVE) != 0)
        exit(1);
}

/* A library that comes and goes makes every rule unknown. */
static void print_first(const char *library)
{
    double sum = 0;
    unsigned turns = 50;
    for (unsigned i = 0; i < turns; i++) {
        struct job job = {do_stack, 1, 0};
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        if (!handle)
            return;
        dlclose(handle);
        uint64_t begin = gp_clock_ns();
        do_stack();
        sum += (double)(gp_clock_ns() - begin) / frames_there;
        (void)job;
    }
    printf("first\t1\t%.1f\n", sum / turns);
}

int main(int argc, char **argv)
{
    static struct row rows[] = {
        {.name = "off", .what = do_site, .threads = 1, .calls = CALLS},
        {.name = "bare stack 20", .what = do_stack, .threads = 1, .calls = CALLS},
        {.name = "bare unw_backtrace 20", .what = do_unw, .threads = 1, .calls = CALLS},
        {.name = "bare glibc backtrace 20", .what = do_glibc, .threads = 1, .calls = CALLS / 20},
        {.name = "framed stack 20", .what = do_stack, .threads = 1, .calls = CALLS, .framed = true},
        {.name = "framed unw_backtrace 20", .what = do_unw, .threads = 1, .calls = CALLS, .framed = true},
        {.name = "framed glibc backtrace 20", .what = do_glibc, .threads = 1, .calls = CALLS / 20, .framed = true},
        {.name = "bare site 20", .what = do_site, .threads = 1, .calls = CALLS},
        {.name = "bare event 20", .what = do_event, .threads = 1, .calls = CALLS},
        {.name = "bare site 20", .what = do_site, .threads = 2, .calls = CALLS},
        {.name = "bare event 20", .what = do_event, .threads = 2, .calls = CALLS},
        {.name = "bare unw_backtrace 20", .what = do_unw, .threads = 2, .calls = CALLS},
        {.name = "bare glibc backtrace 20", .what = do_glibc, .threads = 2, .calls = CALLS / 20},
    };
    unsigned reps = argc > 1 ? (unsigned)atoi(argv[1]) : 21;
    reps = reps < 1 ? 1 : reps > REPS_MAX ? REPS_MAX : reps;
    /* Loaded by hand: linked, it would put its own backtrace in front of glibc's. */
    void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    if (library)
        *(void **)&unw = dlsym(library, "unw_backtrace");
    else
        printf("# missing: libunwind8\n");
    for (unsigned rep = 0; rep < reps; rep++)
        run_row(&rows[0], rep);
    start();
    find_depths();
    for (unsigned rep = 0; rep < reps; rep++)
        for (unsigned i = 1; i < GP_COUNT(rows); i++)
            if (rows[i].what != do_unw || unw)
                run_row(&rows[i], rep);
    for (unsigned i = 0; i < GP_COUNT(rows); i++) {
        qsort(rows[i].ns, reps, sizeof rows[i].ns[0], order);
        if (rows[i].what != do_unw || unw)
            printf("%s\t%u\t%.1f\n", rows[i].name, rows[i].threads, rows[i].ns[reps / 2]);
    }
    print_first("libanl.so.1");
    return 0;
}
