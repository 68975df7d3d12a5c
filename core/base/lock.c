/* SPDX-License-Identifier: MIT
 * lock.c: the wait for a lock, and the debug build's record of held ranks. */
#include "base/lock.h"

#ifdef GP_DEBUG
__thread unsigned gp_lock_held __attribute__((tls_model("initial-exec")));
#endif

/* Most locks are held for less than a microsecond, while a sleep and the wake cost several on both
 * sides. So it spins for about two first. The poll is a locked instruction: not at every pause. */
#define LOCK_SPINS 128
#define LOCK_POLL  4

GP_COLD void gp_lock_wait(struct gp_lock *lock)
{
    bool taken = false;
    __atomic_fetch_add(&lock->x_waiting, 1, __ATOMIC_RELAXED);
    for (unsigned round = 0; !taken && round < LOCK_SPINS; round++) {
        gp_pause(round);
        taken = round % LOCK_POLL == LOCK_POLL - 1 && pthread_mutex_trylock(&lock->mutex) == 0;
    }
    if (!taken)
        pthread_mutex_lock(&lock->mutex);
    __atomic_fetch_sub(&lock->x_waiting, 1, __ATOMIC_RELAXED);
}
