/* SPDX-License-Identifier: MIT
 * Counting checks for the selftests of the simulated CUPTI and runtime: each failure is named with its line, the last
 * line is "N passed, N failed", the exit status says whether any failed. */
#ifndef GP_TEST_SIM_RUNTIME_CHECK_H
#define GP_TEST_SIM_RUNTIME_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_passed, check_failed;

static inline void check_one(int good, const char *what, const char *file, int line)
{
    if (good) {
        check_passed++;
        return;
    }
    check_failed++;
    printf("%s:%d: failed: %s\n", file, line, what);
}

#define CHECK(condition) check_one(!!(condition), #condition, __FILE__, __LINE__)
/* Equality of two integers, with both values in the report. */
#define CHECK_EQ(got, want)                                                                                            \
    do {                                                                                                               \
        long long check_got = (long long)(got), check_want = (long long)(want);                                        \
        char check_text[256];                                                                                          \
        snprintf(check_text, sizeof check_text, "%s == %s (%lld, %lld)", #got, #want, check_got, check_want);          \
        check_one(check_got == check_want, check_text, __FILE__, __LINE__);                                            \
    } while (0)

static inline int check_report(void)
{
    printf("%d passed, %d failed\n", check_passed, check_failed);
    return check_failed != 0;
}

#endif
