/* SPDX-License-Identifier: MIT
 *
 * lock.h: locks with ranks. A thread takes locks only in rising rank; debug builds check it. All of
 * them are leaves of the host's locks: code that holds one calls nothing that could call back into
 * the host (no CUDA, no CUPTI, no malloc) or that waits for the loader (base/loader.h).
 */
#ifndef GP_BASE_LOCK_H
#define GP_BASE_LOCK_H

#include "base/compiler.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ==== a pause ===================================================================================================== */
/* How to wait for a thread that holds something for nanoseconds. */

/* round: 0, 1, 2 ... of one wait. It spins first: the holder needs some 100 ns unless it was
 * preempted. Then it yields the CPU to the holder. A yield does not help if the waiter has a
 * higher real-time priority, so it finally sleeps 20 us. The sleep is a raw system call, because
 * libc's is a cancellation point, and unwinding from here would go through the driver's frames.
 * Keeps errno. */
static inline void gp_pause(unsigned round)
{
    if (GP_LIKELY(round < 128)) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb" ::: "memory");
#endif
        return;
    }
    int saved = errno;
    if (round < 144)
        sched_yield();
    else
        syscall(SYS_nanosleep, &(struct timespec){0, 20000}, NULL);
    errno = saved;
}

/* ==== locks ======================================================================================================= */

enum gp_lock_rank {
    GP_RANK_GROW = 1,  /* cache: driver memory requested or released; the backend runs inside */
    GP_RANK_PUBLISH,   /* export: one publisher at a time; takes account's locks inside */
    GP_RANK_BATCH,     /* export: one batch at a time; takes account's locks inside */
    GP_RANK_GROUND,    /* account: memory by its addresses; takes account's and site's locks inside */
    GP_RANK_ACCOUNT,   /* account: device identities, polled parts */
    GP_RANK_CACHE,     /* cache: blocks and indexes; the counters' mutex is taken inside */
    GP_RANK_SITE,      /* site: new call sites and names; nothing inside */
    GP_RANK_FRAMEWORK, /* framework: replaced slots; takes owner's lock inside */
    GP_RANK_OWNER,     /* owner: the list of objects; nothing inside */
    GP_RANK_RECORD,    /* record: the result of the recording; nothing inside */
};

struct gp_lock {
    pthread_mutex_t mutex;
    uint8_t rank;       /* enum gp_lock_rank */
    bool alone;         /* one thread has all that it guards, so it stays free */
    uint32_t x_waiting; /* threads that found the lock held */
};

#define GP_LOCK_INIT(_rank)                                                                                            \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, (_rank), false, 0                                                                   \
    }

#ifdef GP_DEBUG
extern __thread unsigned gp_lock_held; /* a bit per rank; debug builds only, so outside the 64-byte budget */
#endif

/* For gp_lock_take, when the lock was found held. Keeps errno. */
void gp_lock_wait(struct gp_lock *lock);

static inline void gp_lock_take(struct gp_lock *lock)
{
#ifdef GP_DEBUG
    GP_ASSERT((gp_lock_held >> lock->rank) == 0);
    gp_lock_held |= 1u << lock->rank;
#endif
    if (!lock->alone && GP_UNLIKELY(pthread_mutex_trylock(&lock->mutex) != 0))
        gp_lock_wait(lock);
}

/* False: another thread holds it, and may hold it for long. */
static inline bool gp_lock_try(struct gp_lock *lock)
{
    if (!lock->alone && pthread_mutex_trylock(&lock->mutex) != 0)
        return false;
#ifdef GP_DEBUG
    GP_ASSERT((gp_lock_held >> lock->rank) == 0);
    gp_lock_held |= 1u << lock->rank;
#endif
    return true;
}

static inline void gp_lock_give(struct gp_lock *lock)
{
    if (!lock->alone)
        pthread_mutex_unlock(&lock->mutex);
#ifdef GP_DEBUG
    gp_lock_held &= ~(1u << lock->rank);
#endif
}

/* Call this between repeated acquisitions, so that waiters get a turn: a mutex is unfair, and
 * its holder can take it again before the thread that it woke runs. Under heavy use some thread
 * always waits, so the wait ends after about a millisecond. */
static inline void gp_lock_pass(struct gp_lock *lock)
{
    for (unsigned round = 0; round < 160 && __atomic_load_n(&lock->x_waiting, __ATOMIC_RELAXED); round++)
        gp_pause(round);
}

#endif
