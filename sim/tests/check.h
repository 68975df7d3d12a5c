/* SPDX-License-Identifier: MIT
 * Counting checks of the simulator's own tests: each failure is named with its line, the last line is "N passed,
 * N failed", and the exit status says whether any failed. */
#ifndef GP_TEST_SIM_CHECK_H
#define GP_TEST_SIM_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_passed, check_failed;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (condition)                                                                                                 \
            check_passed++;                                                                                            \
        else                                                                                                           \
            check_failed++, fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                            \
    } while (0)
#define CHECK_EQ(actual, expected)                                                                                     \
    do {                                                                                                               \
        long long actual_ = (long long)(actual), expected_ = (long long)(expected);                                    \
        if (actual_ == expected_)                                                                                      \
            check_passed++;                                                                                            \
        else                                                                                                           \
            check_failed++,                                                                                            \
                fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #actual, actual_, expected_);     \
    } while (0)
static inline int check_done(void)
{
    printf("%d passed, %d failed\n", check_passed, check_failed);
    return check_failed != 0;
}

#endif
