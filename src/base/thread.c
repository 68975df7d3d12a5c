/* SPDX-License-Identifier: MIT
 *
 * thread.c: the per-thread record, and whether the library is active in this process.
 */
#include "base/thread.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct gp_thread gp_thread __attribute__((tls_model("initial-exec")));
uint64_t *gp_thread_nested;

/* A private page that the kernel clears in every child, however it was made (fork, clone, raw
 * system call): 0 means that the process is not ours, 2 that the library has ended in it. The check costs one load; getpid() costs a
 * system call, and pthread_atfork misses raw forks. */
static uint32_t *x_alive;
#define GP_LIFE_ON    1u
#define GP_LIFE_ENDED 2u
static uint32_t x_thread_count;

int gp_life_start(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return -errno;
    if (madvise(page, 4096, MADV_WIPEONFORK) != 0) {
        int error = errno;
        munmap(page, 4096);
        return -error;
    }
    __atomic_store_n((uint32_t *)page, GP_LIFE_ON, __ATOMIC_RELAXED);
    /* [life.R] release: everything that start prepared; pairs with [life.A]. */
    __atomic_store_n(&x_alive, page, __ATOMIC_RELEASE);
    return 0;
}

void gp_life_end(void)
{
    uint32_t *page = __atomic_load_n(&x_alive, __ATOMIC_ACQUIRE);
    if (page)
        __atomic_store_n(page, GP_LIFE_ENDED, __ATOMIC_RELEASE);
}

bool gp_life_on(void)
{
    /* [life.A] acquire: pairs with [life.R]. */
    uint32_t *page = __atomic_load_n(&x_alive, __ATOMIC_ACQUIRE);
    return page && __atomic_load_n(page, __ATOMIC_RELAXED) == GP_LIFE_ON;
}

bool gp_life_ours(void)
{
    uint32_t *page = __atomic_load_n(&x_alive, __ATOMIC_ACQUIRE); /* [life.A] */
    return page && __atomic_load_n(page, __ATOMIC_RELAXED) != 0;
}

static GP_COLD void thread_first(struct gp_thread *me)
{
    me->number = __atomic_add_fetch(&x_thread_count, 1, __ATOMIC_RELAXED); /* a number, publishes nothing */
    me->tid = (uint32_t)syscall(SYS_gettid);
}

static inline bool thread_claim(struct gp_thread *me)
{
    if (GP_UNLIKELY(me->inside)) {
        if (gp_thread_nested)
            __atomic_fetch_add(gp_thread_nested, 1, __ATOMIC_RELAXED); /* a count */
        return false;
    }
    me->inside = 1;
    /* The compiler must not move our work before the guard, because a signal handler on this
     * thread reads it. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (GP_UNLIKELY(me->number == 0))
        thread_first(me);
    return true;
}

bool gp_thread_enter(void)
{
    struct gp_thread *me = &gp_thread;
    return GP_LIKELY(gp_life_on() && !me->ignored) && thread_claim(me);
}

bool gp_thread_enter_late(void)
{
    struct gp_thread *me = &gp_thread;
    return GP_LIKELY(gp_life_ours() && !me->ignored) && thread_claim(me);
}

void gp_thread_leave(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    gp_thread.inside = 0;
}
