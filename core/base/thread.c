/* SPDX-License-Identifier: MIT
 *
 * thread.c: the per-thread record, and whether the library is active in this process.
 */
#include "base/thread.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/kept.h"
#include "base/lock.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct gp_thread gp_thread __attribute__((tls_model("initial-exec")));
uint64_t *gp_thread_nested;

#define GP_LIFE_ON    1u
#define GP_LIFE_ENDED 2u
#define GP_LIFE_LEFT  3u

/* The parts of gp_thread.entry. */
#define GP_ENTRY_INSIDE    1u
#define GP_ENTRY_OF(_life) ((uint32_t)(_life) << 16)
_Static_assert(offsetof(struct gp_thread, life) == offsetof(struct gp_thread, entry) + 2 &&
                   __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the parts of the word");

struct gp_thread_lives gp_thread_lives __attribute__((aligned(64))) = {.x_entry = GP_ENTRY_INSIDE};
GP_KEEP(gp_thread_lives);
static uint32_t x_thread_count; /* where the next new thread looks for a place */
GP_KEEP(x_thread_count);

/* ---- places ------------------------------------------------------------------------------------------------------ */

static uint32_t x_places_used; /* no place from this one on was ever taken */
GP_KEEP(x_places_used);
static uint32_t x_crowded; /* a thread has no place */
GP_KEEP(x_crowded);

static int places_start(bool is_child)
{
    size_t bytes = (GP_THREAD_PLACES + 1) * sizeof(*gp_thread_lives.x_places);
    if (gp_thread_lives.x_places && !is_child)
        return 0;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    x_places_used = x_crowded = 0;
    gp_thread_lives.x_places = at;
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
    /* [out.B] acquire and release: what the owner before did inside; pairs with [out.R] and
     * [out.A], which sees that owner's leave or ours. An exchange, because a store would end what
     * [out.R] of that owner releases. */
    __atomic_exchange_n(&place->x_inside, 0, __ATOMIC_ACQ_REL);
    return true;
}

/* The number of the place. */
static uint32_t place_take(uint32_t tid, uint32_t first)
{
    const uint32_t tries = 64; /* each a system call once every place was taken */
    for (uint32_t i = 0; i < tries; i++) {
        uint32_t at = (first + i) % GP_THREAD_PLACES, used = __atomic_load_n(&x_places_used, __ATOMIC_RELAXED);
        if (!place_claim(&gp_thread_lives.x_places[at], tid))
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
        struct gp_thread_place *place = &gp_thread_lives.x_places[i];
        /* [out.A] acquire: what the thread did inside; pairs with [out.R], and with [out.B] of a new owner. */
        for (unsigned round = 0; __atomic_load_n(&place->x_inside, __ATOMIC_ACQUIRE); round++) {
            GP_TESTPOINT("thread.seen");
            if (place_is_dead(__atomic_load_n(&place->x_tid, __ATOMIC_RELAXED))) {
                /* Cancelled in the middle, or it has left and ended since; or its place has a new
                 * owner. [out.A] again. */
                (void)__atomic_load_n(&place->x_inside, __ATOMIC_ACQUIRE);
                break;
            }
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
    uint32_t *page = __atomic_load_n(&gp_thread_lives.x_alive, __ATOMIC_ACQUIRE);
    return page ? __atomic_load_n(page, __ATOMIC_ACQUIRE) : 0;
}

int gp_thread_life_start(void)
{
    bool is_first = !gp_thread_lives.x_alive;
    void *page = is_first ? mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                          : gp_thread_lives.x_alive;
    if (page == MAP_FAILED)
        return -errno;
    int error = madvise(page, 4096, MADV_WIPEONFORK) != 0 ? -errno : places_start(!is_first && life_word() == 0);
    if (error) {
        if (is_first)
            munmap(page, 4096);
        return error;
    }
    __atomic_store_n(&gp_thread_lives.x_number, gp_thread_lives.x_number % UINT16_MAX + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&gp_thread_lives.x_entry, GP_ENTRY_OF(gp_thread_lives.x_number), __ATOMIC_RELAXED);
    __atomic_store_n((uint32_t *)page, GP_LIFE_ON, __ATOMIC_RELEASE); /* [life.R], as below */
    /* [life.R] release: everything that start prepared; pairs with [life.A]. */
    __atomic_store_n(&gp_thread_lives.x_alive, page, __ATOMIC_RELEASE);
    return 0;
}

static void life_set(uint32_t word)
{
    uint32_t *page = __atomic_load_n(&gp_thread_lives.x_alive, __ATOMIC_ACQUIRE);
    if (page)
        __atomic_store_n(page, word, __ATOMIC_RELEASE);
}

void gp_thread_life_end(void)
{
    life_set(GP_LIFE_ENDED);
}

void gp_thread_life_leave(void)
{
    life_set(GP_LIFE_LEFT);
    /* Entries ask first now, and do not show themselves. */
    __atomic_store_n(&gp_thread_lives.x_entry, GP_ENTRY_INSIDE, __ATOMIC_RELAXED);
}

bool gp_thread_life_on(void)
{
    return life_word() == GP_LIFE_ON;
}

bool gp_thread_life_ours(void)
{
    uint32_t word = life_word();
    return word == GP_LIFE_ON || word == GP_LIFE_ENDED;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static struct gp_thread_place *thread_place(const struct gp_thread *me)
{
    return &gp_thread_lives.x_places[me->number - 1];
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
    me->green_ends = 0;
    me->call_ns = 0;
    me->life = life;
}

void gp_thread_enrol(void)
{
    uint16_t life = (uint16_t)__atomic_load_n(&gp_thread_lives.x_number, __ATOMIC_RELAXED);
    if (life && gp_thread.life != life)
        thread_first(&gp_thread, life);
}

static inline void thread_out(struct gp_thread *me)
{
    /* [out.R] release: what this thread did; pairs with [out.A] and [out.B]. */
    __atomic_store_n(&thread_place(me)->x_inside, 0, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    me->entry &= ~GP_ENTRY_INSIDE; /* the whole word: the next entry reads it, and waits for a store of a part */
}

/* A thread that has shown itself looks again, because gp_thread_all_out sees this thread, or this
 * thread sees the end (GP_THREAD_SETTLE_NS). The number of the life cannot have changed before the
 * look either. least: GP_LIFE_ON, or GP_LIFE_ENDED if that will do too. */
static inline bool thread_shown(struct gp_thread *me, uint32_t entry, uint32_t least)
{
    /* The compiler must not move our work before the guard, because a signal handler on this
     * thread reads it. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&thread_place(me)->x_inside, 1, __ATOMIC_RELAXED);
    GP_TESTPOINT("thread.claimed");
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#ifdef GP_THREAD_MUTANT_LOOK /* tests/torture/attach_mutant.c */
    return true;
#endif
    /* 0 is far above `least` once 1 is subtracted. */
    if (GP_LIKELY(life_word() - 1 < least && entry == __atomic_load_n(&gp_thread_lives.x_entry, __ATOMIC_RELAXED)))
        return true;
    thread_out(me);
    return false;
}

/* The thread is new in this life, ignored or inside, or there is no life. */
static GP_COLD bool thread_enter_slow(struct gp_thread *me, uint32_t least)
{
    if (life_word() - 1 >= least || me->ignored)
        return false;
    if (me->inside) {
        /* The session is there: the code that was interrupted is inside. */
        if (gp_thread_nested)
            __atomic_fetch_add(gp_thread_nested, 1, __ATOMIC_RELAXED); /* a count */
        return false;
    }
    GP_TESTPOINT("thread.begun");
    me->inside = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* as in thread_shown */
    uint16_t life = (uint16_t)__atomic_load_n(&gp_thread_lives.x_number, __ATOMIC_RELAXED);
    if (me->life != life)
        thread_first(me, life);
    return thread_shown(me, GP_ENTRY_OF(life), least);
}

/* A thread that knows the life has a place in it, so whether the library is on is asked once, after
 * the thread has shown itself. */
static inline bool thread_enter(uint32_t least)
{
    struct gp_thread *me = &gp_thread;
    uint32_t entry = me->entry;
    if (GP_UNLIKELY(entry != __atomic_load_n(&gp_thread_lives.x_entry, __ATOMIC_RELAXED)))
        return thread_enter_slow(me, least);
    GP_TESTPOINT("thread.begun");
    me->entry = entry | GP_ENTRY_INSIDE;
    return thread_shown(me, entry, least);
}

bool gp_thread_enter(void)
{
    return thread_enter(GP_LIFE_ON);
}

bool gp_thread_enter_late(void)
{
    return thread_enter(GP_LIFE_ENDED);
}

void gp_thread_leave(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    thread_out(&gp_thread);
}
