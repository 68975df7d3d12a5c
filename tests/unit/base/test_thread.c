/* SPDX-License-Identifier: MIT
 *
 * test_thread.c: lives of the library, and threads that enter and leave it (core/base/thread.c), with system calls that fail
 * and more threads than there are places; and its own threads (worker.c).
 */
#include "base/clock.h"
#include "base/thread.h"
#include "base/worker.h"
#include "lib/full.h"
#include "lib/mappings.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(thread, .timeout = 60);

static bool madvise_fails;

int madvise(void *at, size_t bytes, int advice)
{
    if (madvise_fails) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, at, bytes, advice);
}

/* ---- lives ------------------------------------------------------------------------------------------------------- */

static bool enters(void)
{
    bool in = gp_thread_enter();
    if (in)
        gp_thread_leave();
    return in;
}

static bool enters_late(void)
{
    bool in = gp_thread_enter_late();
    if (in)
        gp_thread_leave();
    return in;
}

#define EXPECT_LIFE(_on, _ours)                                                                                        \
    do {                                                                                                               \
        cr_expect_eq(gp_thread_life_on(), _on);                                                                        \
        cr_expect_eq(gp_thread_life_ours(), _ours);                                                                    \
        cr_expect_eq(enters(), _on);                                                                                   \
        cr_expect_eq(enters_late(), _ours);                                                                            \
        cr_expect_eq(gp_thread.inside, 0);                                                                             \
    } while (0)

Test(thread, lives_begin_and_end)
{
    EXPECT_LIFE(false, false);
    gp_thread_life_end(); /* nothing has begun */
    gp_thread_life_leave();
    gp_thread_enrol();
    cr_expect(gp_thread.number == 0 && gp_thread.life == 0);
    uint16_t last = 0;
    for (unsigned i = 0; i < 4; i++) {
        cr_assert_eq(gp_thread_life_start(), 0);
        EXPECT_LIFE(true, true);
        cr_expect_neq(gp_thread.life, last);
        last = gp_thread.life;
        if (i != 2)
            gp_thread_life_end();
        EXPECT_LIFE(i == 2, true);
        gp_thread_life_leave();
        EXPECT_LIFE(false, false);
    }
}

/* What a thread keeps of a life is gone in the next one, except its place. */
Test(thread, a_new_life_forgets)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    cr_assert(enters());
    const struct gp_thread first = gp_thread;
    cr_expect_eq(first.number, 1);
    cr_expect_eq(first.tid, (uint32_t)syscall(SYS_gettid));
    cr_expect_eq(first.life, 1);
    gp_thread.node = gp_thread.graph = gp_thread.chunk_turn = 5;
    gp_thread.range = gp_thread.call_ns = 6;
    gp_thread.chunk_used = gp_thread.node_type = gp_thread.cost = 7;
    gp_thread.prompt = 1;
    const struct gp_thread used = gp_thread;
    cr_assert(enters());
    cr_expect_eq(memcmp(&gp_thread, &used, sizeof(used)), 0, "the same life keeps it");
    gp_thread_life_leave();
    cr_assert_eq(gp_thread_life_start(), 0);
    cr_assert(enters());
    struct gp_thread want = first;
    want.life = 2;
    cr_expect_eq(memcmp(&gp_thread, &want, sizeof(want)), 0);
    for (unsigned i = 0; i < 65533; i++)
        cr_assert_eq(gp_thread_life_start(), 0);
    cr_assert(enters());
    cr_expect_eq(gp_thread.life, 65535);
    cr_assert_eq(gp_thread_life_start(), 0);
    cr_assert(enters());
    cr_expect_eq(gp_thread.life, 1, "not 0");
}

Test(thread, no_thread_enters_twice)
{
    uint64_t nested = 0;
    cr_assert_eq(gp_thread_life_start(), 0);
    for (unsigned i = 0; i < 3; i++) {
        gp_thread_nested = i ? &nested : NULL;
        cr_assert(gp_thread_enter());
        cr_expect(gp_thread.inside);
        cr_expect(!gp_thread_enter() && !gp_thread_enter_late());
        cr_expect(gp_thread.inside);
        gp_thread_leave();
        cr_expect_eq(nested, 2 * i);
        uint8_t before = gp_thread_ignore();
        cr_expect(!gp_thread_enter() && !gp_thread_enter_late());
        cr_expect_eq(gp_thread_ignore(), 1);
        gp_thread_heed(before);
        cr_expect_eq(nested, 2 * i, "ignored threads are not counted");
        cr_assert(enters());
    }
    cr_assert(gp_thread_enter());
    gp_thread_life_leave();
    cr_expect(!gp_thread_enter());
    cr_expect_eq(nested, 4, "the library is off");
    gp_thread_leave();
}

/* Without memory there is no life, and nothing stays of the attempt; the next one succeeds. */
Test(thread, a_life_that_cannot_begin)
{
    for (unsigned way = 0; way < 3; way++) {
        mappings.bytes = 0;
        mappings.fail = way < 2 ? way + 1 : 0;
        madvise_fails = way == 2;
        cr_expect_eq(gp_thread_life_start(), way < 2 ? -ENOMEM : -EINVAL, "%u", way);
        cr_expect_eq(mappings.bytes, 0, "%u", way);
        madvise_fails = false;
        EXPECT_LIFE(false, false);
    }
    cr_assert_eq(gp_thread_life_start(), 0);
    long long once = mappings.bytes;
    madvise_fails = true;
    cr_expect_eq(gp_thread_life_start(), -EINVAL);
    madvise_fails = false;
    EXPECT_LIFE(true, true); /* as it was */
    cr_assert_eq(gp_thread_life_start(), 0);
    cr_expect_eq(mappings.bytes, once, "another life needs nothing more");
    EXPECT_LIFE(true, true);
}

/* A bit for what is not as it should be. */
static int child_differs(void)
{
    int differs = gp_thread_life_on() | gp_thread_life_ours() << 1 | enters() << 2 | enters_late() << 3;
    long long before = mappings.bytes;
    if (gp_thread_life_start() != 0 || !gp_thread_life_on() || !enters())
        differs |= 16;
    if (mappings.bytes == before) /* places of its own */
        differs |= 32;
    if (gp_thread.tid != (uint32_t)syscall(SYS_gettid) || !gp_thread_all_out(0))
        differs |= 64;
    return differs;
}

Test(thread, a_forked_child_begins_without_a_life)
{
    int status = -1;
    cr_assert_eq(gp_thread_life_start(), 0);
    cr_assert(gp_thread_enter());
    pid_t child = (pid_t)syscall(SYS_fork);
    if (child == 0) {
        gp_thread_leave();
        _exit(child_differs());
    }
    gp_thread_leave();
    waitpid(child, &status, 0);
    cr_expect_eq(status, 0, "%x", status);
    EXPECT_LIFE(true, true);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static uint32_t x_step;

static void wait_step(uint32_t step)
{
    while (__atomic_load_n(&x_step, __ATOMIC_ACQUIRE) != step)
        sched_yield();
}

static void set_step(uint32_t step)
{
    __atomic_store_n(&x_step, step, __ATOMIC_RELEASE);
}

static void *stay_inside(void *arg)
{
    uint32_t *number = arg;
    cr_assert(gp_thread_enter());
    *number = gp_thread.number;
    set_step(1);
    wait_step(2);
    gp_thread_leave();
    set_step(3);
    wait_step(4);
    cr_assert(gp_thread_enter());
    return NULL; /* it ends inside */
}

/* The library is left when the last thread is out, or has ended; not before, and not for ever waited for. */
Test(thread, all_are_out)
{
    pthread_t thread;
    uint32_t number = 0;
    cr_assert_eq(gp_thread_life_start(), 0);
    cr_expect(gp_thread_all_out(0), "no thread has come yet");
    cr_assert(enters());
    cr_expect(gp_thread_all_out(0));
    cr_assert_eq(pthread_create(&thread, NULL, stay_inside, &number), 0);
    wait_step(1);
    cr_expect_eq(number, 2);
    errno = 77;
    uint64_t begin = gp_clock_ns();
    cr_expect(!gp_thread_all_out(begin + 5000000));
    cr_expect_geq(gp_clock_ns() - begin, 5000000);
    cr_expect_eq(errno, 77);
    set_step(2);
    wait_step(3);
    cr_expect(gp_thread_all_out(0));
    set_step(4);
    pthread_join(thread, NULL);
    cr_expect(gp_thread_all_out(gp_clock_ns() + 30000000000ull), "it has ended");
}

/* At least two milliseconds pass, in which the stores of other threads become visible. */
Test(thread, stores_of_others_are_waited_for)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    uint64_t begin = gp_clock_ns();
    cr_expect(gp_thread_all_out(0));
    cr_expect_geq(gp_clock_ns() - begin, 2000000);
}

static void *enter_once(void *arg)
{
    uint32_t *number = arg;
    cr_assert(enters());
    *number = gp_thread.number;
    return NULL;
}

static uint32_t number_of_new(void)
{
    pthread_t thread;
    uint32_t number = 0;
    cr_assert_eq(pthread_create(&thread, NULL, enter_once, &number), 0);
    pthread_join(thread, NULL);
    return number;
}

/* This thread, which does not end, takes the next places. */
static void take_places(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        gp_thread.life = 0;
        gp_thread_enrol();
    }
}

/* When every place was taken once, a thread looks at 64 of them for one whose thread has ended. */
Test(thread, places_of_threads_that_ended)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    take_places(63);
    cr_expect_eq(number_of_new(), 64);
    take_places(65536 - 64);
    cr_expect_eq(gp_thread.number, 65536);
    errno = 77;
    cr_expect_eq(number_of_new(), 64);
    cr_expect(gp_thread_all_out(0), "every thread has a place");
    cr_expect_eq(errno, 77);
}

/* A thread that finds none shares the last one, and from then on it is not known whether all are out. */
Test(thread, more_threads_than_places)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    take_places(64);
    cr_expect_eq(number_of_new(), 65);
    take_places(65536 - 65);
    cr_expect(gp_thread_all_out(0));
    cr_expect_eq(number_of_new(), 65537);
    cr_expect(!gp_thread_all_out(0));
    cr_expect_eq(number_of_new(), 65, "the next one looks further");
}

/* ---- threads of the library -------------------------------------------------------------------------------------- */

static int create_errors[2]; /* of the next calls */
static unsigned creates;
static size_t create_stack;
static int create_detached;
static bool create_blocked;

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    create_blocked = sigismember(&mask, SIGTERM) && sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGPROF) &&
                     !sigismember(&mask, SIGSYS);
    if (attr) {
        pthread_attr_getstacksize(attr, &create_stack);
        pthread_attr_getdetachstate(attr, &create_detached);
    }
    unsigned call = creates++;
    return call < 2 && create_errors[call] ? create_errors[call] : real(thread, attr, main, arg);
}

static char worker_name[32];
static struct gp_thread worker_thread;

static void *work(void *arg)
{
    cr_expect_null(arg);
    pthread_getname_np(pthread_self(), worker_name, sizeof(worker_name));
    worker_thread = gp_thread;
    cr_expect(!gp_thread_enter());
    cr_expect_eq(gp_worker_count(), 1);
    set_step(1);
    wait_step(2);
    return NULL;
}

static void no_worker(void)
{
    while (gp_worker_count())
        sched_yield();
}

static size_t taken_5000(const pthread_attr_t *attr)
{
    cr_expect_not_null(attr);
    return 5000;
}

static size_t usual_stack(void)
{
    pthread_attr_t attr;
    size_t bytes;
    pthread_attr_init(&attr);
    pthread_attr_getstacksize(&attr, &bytes);
    return bytes;
}

Test(thread, workers)
{
    static const size_t stacks[] = {0, 256 << 10, (256 << 10) + 8192};
    sigset_t before, after;
    cr_assert_eq(gp_thread_life_start(), 0);
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (unsigned way = 0; way < 3; way++) {
        if (way)
            gp_worker_sizes(way == 1 ? NULL : (void *)taken_5000);
        cr_expect_eq(gp_worker_count(), 0);
        set_step(0);
        cr_assert_eq(gp_worker_start(work, "gpuprof-test"), 0);
        wait_step(1);
        cr_expect_str_eq(worker_name, "gpuprof-test");
        cr_expect(worker_thread.ignored && worker_thread.life == 1 && worker_thread.number > 0);
        cr_expect(worker_thread.tid && worker_thread.tid != (uint32_t)syscall(SYS_gettid));
        cr_expect_eq(create_stack, way ? stacks[way] : usual_stack(), "%u: %zu", way, create_stack);
        cr_expect_eq(create_detached, PTHREAD_CREATE_DETACHED);
        cr_expect(create_blocked);
        pthread_sigmask(SIG_SETMASK, NULL, &after);
        cr_expect(sigismember(&after, SIGUSR2) && !sigismember(&after, SIGTERM));
        cr_expect_eq(gp_worker_count(), 1);
        set_step(2);
        no_worker();
    }
}

/* A thread that cannot be made is not counted; one whose stack is too small gets the usual one. */
Test(thread, workers_that_cannot_be_made)
{
    sigset_t after;
    cr_assert_eq(gp_thread_life_start(), 0);
    gp_worker_sizes(NULL);
    create_errors[0] = EAGAIN;
    creates = 0;
    cr_expect_eq(gp_worker_start(work, "gpuprof-test"), -EAGAIN);
    cr_expect_eq(creates, 1);
    cr_expect_eq(gp_worker_count(), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    cr_expect(!sigismember(&after, SIGTERM));
    create_errors[0] = EINVAL;
    create_errors[1] = EPERM;
    creates = 0;
    cr_expect_eq(gp_worker_start(work, "gpuprof-test"), -EPERM);
    cr_expect_eq(creates, 2);
    cr_expect_eq(gp_worker_count(), 0);
    create_errors[1] = 0;
    creates = 0;
    cr_expect_eq(gp_worker_start(work, "gpuprof-test"), 0);
    wait_step(1);
    cr_expect_eq(create_stack, usual_stack());
    cr_expect_eq(create_detached, PTHREAD_CREATE_DETACHED);
    cr_expect_eq(gp_worker_count(), 1);
    gp_worker_forget(); /* as in a forked child */
    cr_expect_eq(gp_worker_count(), 0);
    set_step(2);
    while (gp_worker_count() == 0)
        sched_yield();
}

/* ---- the program's last thread ----------------------------------------------------------------------------------- */

static void worker_ends(void)
{
    set_step(2);
    no_worker();
}

/* glibc, which adds a thread that it makes and subtracts one that ends, is not asked here. */
Test(thread, workers_are_not_in_the_count_of_threads)
{
    static const uint32_t layout[3] = {32, 1, 0}, other[3] = {64, 1, 0};
    static uint32_t count = 5;
    cr_assert_eq(gp_thread_life_start(), 0);
    gp_worker_counts(&count, other);
    gp_worker_counts(&count, NULL);
    gp_worker_counts(NULL, layout);
    cr_assert_eq(gp_worker_start(work, "gpuprof-test"), 0);
    wait_step(1);
    cr_expect_eq(__atomic_load_n(&count, __ATOMIC_RELAXED), 5);
    worker_ends();
    gp_worker_counts(&count, layout);
    set_step(0);
    cr_assert_eq(gp_worker_start(work, "gpuprof-test"), 0);
    wait_step(1);
    cr_expect_eq(__atomic_load_n(&count, __ATOMIC_RELAXED), 4);
    worker_ends();
    for (int i = 0; i < 5000 && __atomic_load_n(&count, __ATOMIC_RELAXED) != 5; i++)
        usleep(1000);
    cr_expect_eq(__atomic_load_n(&count, __ATOMIC_RELAXED), 5);
    /* The last thread that is counted: its end is the end of the process. */
    __atomic_store_n(&count, 1, __ATOMIC_RELAXED);
    set_step(0);
    cr_assert_eq(gp_worker_start(work, "gpuprof-test"), 0);
    wait_step(1);
    cr_expect_eq(__atomic_load_n(&count, __ATOMIC_RELAXED), 1);
    worker_ends();
}

/* ---- and glibc's own count: many processes whose last thread ends while workers come and go ---- */

static int exit_pipe;

static void exit_note(void)
{
    ssize_t written = write(exit_pipe, "x", 1);
    usleep(2000);                /* a second exit would come now */
    _exit(written == 1 ? 0 : 9); /* without the handlers of the test's own frame */
}

static void *work_shortly(void *arg)
{
    usleep((useconds_t)(gp_thread.tid * 7 % 400));
    return arg;
}

static void *work_for_ever(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void *program_thread(void *arg)
{
    for (int i = 0; i < 3; i++)
        gp_worker_start(work_shortly, "gpuprof-short");
    usleep((useconds_t)(uintptr_t)arg);
    return NULL;
}

static void process_without_main(unsigned number)
{
    pthread_t thread;
    atexit(exit_note);
    gp_worker_counts(dlsym(RTLD_DEFAULT, "__nptl_nthreads"), dlsym(RTLD_DEFAULT, "_thread_db___nptl_nthreads"));
    gp_worker_start(work_for_ever, "gpuprof-long");
    pthread_create(&thread, NULL, program_thread, (void *)(uintptr_t)(number * 37 % 600));
    pthread_exit(NULL);
}

Test(thread, a_process_ends_with_the_last_thread_of_the_program, .timeout = 60)
{
    if (!dlsym(RTLD_DEFAULT, "__nptl_nthreads"))
        cr_skip("this C library does not show its count");
    cr_assert_eq(gp_thread_life_start(), 0);
    for (unsigned i = 0; i < (test_is_full() ? 2000u : 200u); i++) {
        int fds[2], status = -1;
        char text[8];
        cr_assert_eq(pipe(fds), 0);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            exit_pipe = fds[1];
            process_without_main(i);
        }
        close(fds[1]);
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert_eq(status, 0, "process %u: %d", i, status);
        cr_assert_eq(read(fds[0], text, sizeof(text)), 1, "exit ran once");
        close(fds[0]);
    }
}
