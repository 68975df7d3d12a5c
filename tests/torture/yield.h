/* SPDX-License-Identifier: MIT
 *
 * yield.h: how threads of the tortures give the processor away.
 */
#ifndef GP_TEST_TORTURE_YIELD_H
#define GP_TEST_TORTURE_YIELD_H

#include <sched.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"

/* Beside programs that compute, a thread that yields waits for a whole time slice of each of them, and a torture of a
 * second takes minutes. A thread that sleeps does not: it comes before them when it wakes. So a thread whose yield took
 * more than 1 ms, which a yield to the torture's own threads does not take, sleeps instead for a second. Threads: any. */
static inline void torture_yield(void)
{
    static __thread uint64_t sleeps_until;
    uint64_t begin = gp_clock_ns();
    if (begin < sleeps_until) {
        nanosleep(&(struct timespec){0, 20000}, NULL);
        return;
    }
    sched_yield();
    uint64_t end = gp_clock_ns();
    if (end - begin > 1000000)
        sleeps_until = end + 1000000000;
}

#endif
