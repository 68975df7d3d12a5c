/* SPDX-License-Identifier: MIT
 *
 * elsewhere.h: what runs on this machine beside the tests.
 */
#ifndef GP_TEST_LIB_ELSEWHERE_H
#define GP_TEST_LIB_ELSEWHERE_H

#include <stdint.h>
#include <sys/types.h>

/* The pid of an agent that somebody else runs on this machine and that looks for copies of the library: it arms those
 * of the tests too, and holds their mounts.  0: there is none. */
pid_t elsewhere_agent(void);
/* For a Criterion test: what such an agent has armed is armed already, for whoever looks as well as for itself. */
#define ELSEWHERE_SKIP()                                                                                               \
    do {                                                                                                               \
        pid_t _other = elsewhere_agent();                                                                              \
        if (_other)                                                                                                    \
            cr_skip_test("an agent runs here (pid %d), which finds the same copies", (int)_other);                     \
    } while (0)

/* When a process began, as the library in it would say: some time in the clock tick that /proc shows.  0: there is
 * none. */
uint64_t elsewhere_start_ns(pid_t pid);

#endif
