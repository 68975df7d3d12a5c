/* SPDX-License-Identifier: MIT
 *
 * lockfree.h: whether a lock was given back exactly as often as it was taken.  A mutex that is given once too often counts
 * a negative number of users in the C library, so its bytes tell.
 */
#ifndef GP_TEST_LIB_LOCKFREE_H
#define GP_TEST_LIB_LOCKFREE_H

#include "base/lock.h"
#include <stdbool.h>
#include <string.h>

/* While no other thread uses the lock. */
static inline bool lock_is_as_new(const struct gp_lock *lock)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    return memcmp(&lock->mutex, &fresh, sizeof(fresh)) == 0 && lock->x_waiting == 0;
}

#endif
