/* SPDX-License-Identifier: MIT
 *
 * clock.h: the one clock for events and deadlines (vDSO: no system call).
 */
#ifndef GP_BASE_CLOCK_H
#define GP_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t gp_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

#endif
