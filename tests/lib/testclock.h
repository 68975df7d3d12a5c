/* SPDX-License-Identifier: MIT
 *
 * testclock.h: the clock of the product is the test's.
 */
#ifndef GP_TEST_LIB_TESTCLOCK_H
#define GP_TEST_LIB_TESTCLOCK_H

#include "lib/standin.h"
#include <stdint.h>
#include <time.h>

#ifndef TEST_WALL
#define TEST_WALL 0 /* what CLOCK_REALTIME is ahead */
#endif

static uint64_t test_now; /* ns; 0: the real clock */

STANDIN(int, clock_gettime, clockid_t clock, struct timespec *out)
{
    uint64_t ns = clock == CLOCK_REALTIME ? TEST_WALL + test_now : test_now;
    if (!test_now)
        return __real_clock_gettime(clock, out);
    *out = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    return 0;
}

#endif
