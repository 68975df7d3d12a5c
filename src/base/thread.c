/* SPDX-License-Identifier: MIT
 *
 * thread.c: the per-thread record, and whether the library is active in this process.
 */
#include "base/thread.h"
#include "base/clock.h"
#include "base/kept.h"
#include "base/pause.h"
#include "base/testpoint.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct gp_thread gp_thread __attribute__((tls_model("initial-exec")));
uint64_t *gp_thread_nested;

/* A private page that the kernel clears in every child, however it was made (fork, clone, raw
 * system call): 0 means that the process is not ours, 2 that the process is about to end, 3 that the
 * library has been detached. The check costs two loads; getpid() costs a system call, and
 * pthread_atfork misses raw forks. */
static uint32_t *x_alive;
GP_KEEP(x_alive);
#define GP_LIFE_ON    1u
#define GP_LIFE_ENDED 2u
#define GP_LIFE_LEFT  3u
static uint32_t x_life; /* its number, 16 bits without 0; changes only while the library is off */
GP_KEEP(x_life);
static uint32_t x_thread_count; /* where the next new thread looks for a place */
GP_KEEP(x_thread_count);

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Where a thread shows that it is inside our code. It keeps its place as long as it lives, and then
 * another thread may have it. A program with more threads at once than this is not known; those
 * without a place share the last one, and detach cannot know when they are out. */
#define GP_THREAD_PLACES 65536u

struct gp_thread_place { /* a line of its own: it is written at each entry */
    uint32_t x_inside;
    uint32_t x_tid; /* 0: free */
} __attribute__((aligned(64)));

static struct gp_thread_place *x_places; /* GP_THREAD_PLACES + 1 */
GP_KEEP(x_places);
static uint32_t x_places_used; /* no place from this one on was ever taken */
GP_KEEP(x_places_used);
static uint32_t x_crowded; /* a thread has no place */
GP_KEEP(x_crowded);

static int places_start(bool is_child)
{
    size_t bytes = (GP_THREAD_PLACES + 1) * sizeof(*x_places);
    if (x_places && !is_child)
        return 0;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    x_places_used = x_crowded = 0;
    x_places = at;
    return 0;
}

static bool place_is_dead(uint32_t tid)
{
    int saved_errno = errno;
    bool dead = syscall(SYS_tgkill, getpid(), tid, 0) != 0 && errno == ESRCH;
    errno = saved_errno;
    return dead;
}

static bool place_claim(struct gp_thread_place *place, uint32_t tid)
{
    uint32_t owner = __atomic_load_n(&place->x_tid, __ATOMIC_RELAXED);
    if (owner && owner != tid && !place_is_dead(owner))
        return false;
    if (!__atomic_compare_exchange_n(&place->x_tid, &owner, tid, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return false;
    __atomic_store_n(&place->x_inside, 0, __ATOMIC_RELAXED);
    return true;
}

/* The number of the place. */
static uint32_t place_take(uint32_t tid, uint32_t first)
{
    const uint32_t tries = 64; /* each a system call once every place was taken */
    for (uint32_t i = 0; i < tries; i++) {
        uint32_t at = (first + i) % GP_THREAD_PLACES, used = __atomic_load_n(&x_places_used, __ATOMIC_RELAXED);
        if (!place_claim(&x_places[at], tid))
            continue;
        while (used <= at &&
               !__atomic_compare_exchange_n(&x_places_used, &used, at + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            ;
        return at;
    }
    __atomic_store_n(&x_crowded, 1, __ATOMIC_SEQ_CST);
    return GP_THREAD_PLACES;
}

/* How long a store of another thread may take to be seen; microseconds in fact. The alternatives are a
 * full barrier in every call, or a membarrier, for which a seccomp filter may kill the program. */
#define GP_THREAD_SETTLE_NS 2000000ull

bool gp_thread_all_out(uint64_t deadline_ns)
{
    for (uint64_t settled = gp_clock_ns() + GP_THREAD_SETTLE_NS; gp_clock_ns() < settled;)
        gp_pause(1000);
    for (uint32_t i = 0; i < __atomic_load_n(&x_places_used, __ATOMIC_SEQ_CST); i++) {
        struct gp_thread_place *place = &x_places[i];
        /* [out.A] acquire: what the thread did inside; pairs with [out.R]. */
        for (unsigned round = 0; __atomic_load_n(&place->x_inside, __ATOMIC_ACQUIRE); round++) {
            if (place_is_dead(__atomic_load_n(&place->x_tid, __ATOMIC_RELAXED)))
                break; /* cancelled in the middle, or its place has a new owner */
            if (gp_clock_ns() >= deadline_ns)
                return false;
            gp_pause(round);
        }
    }
    return !__atomic_load_n(&x_crowded, __ATOMIC_SEQ_CST);
}

/* ---- lives ------------------------------------------------------------------------------------------------------- */

static uint32_t life_word(void)
{
    /* [life.A] acquire: pairs with [life.R]. */
    uint32_t *page = __atomic_load_n(&x_alive, __ATOMIC_ACQUIRE);
    return page ? __atomic_load_n(page, __ATOMIC_ACQUIRE) : 0;
}

int gp_life_start(void)
{
    bool is_first = !x_alive;
    void *page = is_first ? mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : x_alive;
    if (page == MAP_FAILED)
        return -errno;
    int error = madvise(page, 4096, MADV_WIPEONFORK) != 0 ? -errno : places_start(!is_first && life_word() == 0);
    if (error) {
        if (is_first)
            munmap(page, 4096);
        return error;
    }
    __atomic_store_n(&x_life, x_life % UINT16_MAX + 1, __ATOMIC_RELAXED);
    __atomic_store_n((uint32_t *)page, GP_LIFE_ON, __ATOMIC_RELEASE); /* [life.R], as below */
    /* [life.R] release: everything that start prepared; pairs with [life.A]. */
    __atomic_store_n(&x_alive, page, __ATOMIC_RELEASE);
    return 0;
}

static void life_set(uint32_t word)
{
    uint32_t *page = __atomic_load_n(&x_alive, __ATOMIC_ACQUIRE);
    if (page)
        __atomic_store_n(page, word, __ATOMIC_RELEASE);
}

void gp_life_end(void)
{
    life_set(GP_LIFE_ENDED);
}

void gp_life_leave(void)
{
    life_set(GP_LIFE_LEFT);
}

bool gp_life_on(void)
{
    return life_word() == GP_LIFE_ON;
}

bool gp_life_ours(void)
{
    uint32_t word = life_word();
    return word == GP_LIFE_ON || word == GP_LIFE_ENDED;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static struct gp_thread_place *thread_place(const struct gp_thread *me)
{
    return &x_places[me->number - 1];
}

/* What the thread keeps belongs to another life, or there is nothing yet. */
static GP_COLD void thread_first(struct gp_thread *me, uint16_t life)
{
    uint32_t tid = (uint32_t)syscall(SYS_gettid);
    if (!me->life || __atomic_load_n(&thread_place(me)->x_tid, __ATOMIC_RELAXED) != tid)
        me->number = place_take(tid, __atomic_fetch_add(&x_thread_count, 1, __ATOMIC_RELAXED)) + 1;
    me->tid = tid;
    me->node_type = 0;
    me->range = 0;
    me->node = me->graph = me->chunk_turn = 0;
    me->chunk_used = 0;
    me->cost = 0;
    me->prompt = 0;
    me->call_ns = 0;
    me->life = life;
}

void gp_thread_enrol(void)
{
    uint16_t life = (uint16_t)__atomic_load_n(&x_life, __ATOMIC_RELAXED);
    if (life && gp_thread.life != life)
        thread_first(&gp_thread, life);
}

static void thread_out(struct gp_thread *me)
{
    /* [out.R] release: what this thread did; pairs with [out.A]. */
    __atomic_store_n(&thread_place(me)->x_inside, 0, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    me->inside = 0;
}

/* least: GP_LIFE_ON, or GP_LIFE_ENDED if that will do too. */
static inline bool thread_claim(struct gp_thread *me, uint32_t least)
{
    if (GP_UNLIKELY(me->inside)) {
        /* The session is there: the code that was interrupted is inside. */
        if (gp_thread_nested)
            __atomic_fetch_add(gp_thread_nested, 1, __ATOMIC_RELAXED); /* a count */
        return false;
    }
    GP_TESTPOINT("thread.begun");
    me->inside = 1;
    /* The compiler must not move our work before the guard, because a signal handler on this
     * thread reads it. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    uint16_t life = (uint16_t)__atomic_load_n(&x_life, __ATOMIC_RELAXED);
    if (GP_UNLIKELY(me->life != life))
        thread_first(me, life);
    __atomic_store_n(&thread_place(me)->x_inside, 1, __ATOMIC_RELAXED);
    GP_TESTPOINT("thread.claimed");
    /* First shown, then looked again: gp_thread_all_out sees this thread, or this thread sees the end
     * (GP_THREAD_SETTLE_NS). The number of the life cannot have changed before the look either. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#ifdef GP_THREAD_MUTANT_LOOK /* tests/torture/attach_mutant.c */
    return true;
#endif
    uint32_t word = life_word();
    if (GP_LIKELY(word && word <= least && life == (uint16_t)__atomic_load_n(&x_life, __ATOMIC_RELAXED)))
        return true;
    thread_out(me);
    return false;
}

bool gp_thread_enter(void)
{
    struct gp_thread *me = &gp_thread;
    return GP_LIKELY(gp_life_on() && !me->ignored) && thread_claim(me, GP_LIFE_ON);
}

bool gp_thread_enter_late(void)
{
    struct gp_thread *me = &gp_thread;
    return GP_LIKELY(gp_life_ours() && !me->ignored) && thread_claim(me, GP_LIFE_ENDED);
}

void gp_thread_leave(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    thread_out(&gp_thread);
}
