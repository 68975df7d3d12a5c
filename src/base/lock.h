/* SPDX-License-Identifier: MIT
 *
 * lock.h: locks with ranks.  A thread takes locks in rising rank only; debug builds check it.  All of them are leaves
 * of the host's locks: nothing is called under them that could call back into the host (no CUDA, no CUPTI, no malloc).
 */
#ifndef GP_BASE_LOCK_H
#define GP_BASE_LOCK_H

#include "base/compiler.h"
#include <pthread.h>

enum gp_lock_rank {
    GP_RANK_GROW = 1, /* cache: who asks the driver for memory, or gives some back; the backend runs inside */
    GP_RANK_PUBLISH,  /* export: one publisher at a time; takes account's locks inside */
    GP_RANK_ACCOUNT,  /* account: device identities, polled parts */
    GP_RANK_CACHE,    /* cache: blocks and indexes; the counters' mutex is taken inside */
    GP_RANK_SITE,     /* site: new call sites and names; nothing inside */
};

struct gp_lock {
    pthread_mutex_t mutex;
    enum gp_lock_rank rank;
};

#define GP_LOCK_INIT(_rank)                                                                                            \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, (_rank)                                                                             \
    }

#ifdef GP_DEBUG
extern __thread unsigned gp_lock_held; /* bit per rank; debug builds only, so outside the 64-byte budget */
#endif

static inline void gp_lock_take(struct gp_lock *lock)
{
#ifdef GP_DEBUG
    GP_ASSERT((gp_lock_held >> lock->rank) == 0);
    gp_lock_held |= 1u << lock->rank;
#endif
    pthread_mutex_lock(&lock->mutex);
}

static inline void gp_lock_give(struct gp_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
#ifdef GP_DEBUG
    gp_lock_held &= ~(1u << lock->rank);
#endif
}

#endif
