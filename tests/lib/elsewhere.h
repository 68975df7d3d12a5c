/* SPDX-License-Identifier: MIT
 *
 * elsewhere.h: what runs on this machine beside the tests.
 */
#ifndef TESTS_LIB_ELSEWHERE_H
#define TESTS_LIB_ELSEWHERE_H

#include <sys/types.h>

/* The pid of an agent that somebody else runs on this machine and that looks for copies of the library: it arms those
 * of the tests too, and holds their mounts.  0: there is none. */
pid_t elsewhere_agent(void);

#endif
