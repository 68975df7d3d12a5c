/* SPDX-License-Identifier: MIT
 *
 * elsewhere.h: finds an agent that runs on this machine outside the tests, and reads start times.
 */
#ifndef GP_TEST_LIB_ELSEWHERE_H
#define GP_TEST_LIB_ELSEWHERE_H

#include <stdint.h>
#include <sys/types.h>

/* The pid of an agent that runs on this machine outside the tests and searches for copies of the library.
 * It arms the tests' copies too, and keeps their mounts busy. 0: no such agent. */
pid_t elsewhere_agent(void);
/* Skips a Criterion test if such an agent runs: the copies that it armed are armed for every process. */
#define ELSEWHERE_SKIP()                                                                                               \
    do {                                                                                                               \
        pid_t _other = elsewhere_agent();                                                                              \
        if (_other)                                                                                                    \
            cr_skip_test("an agent runs here (pid %d), which finds the same copies", (int)_other);                     \
    } while (0)

/* Start time of a process on the library's clock: a time within the clock tick that /proc shows. 0: no such
 * process. */
uint64_t elsewhere_start_ns(pid_t pid);

#endif
