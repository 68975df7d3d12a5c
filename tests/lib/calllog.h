/* SPDX-License-Identifier: MIT
 *
 * calllog.h: writes down each call that reaches the fake driver (fakedriver.h), with its arguments, and makes calls fail
 * by name.  Functions that the fake driver lacks do nothing.  A test defines gpuprof_preload_next as
 * calllog_function.  One thread.
 *
 * A call is `name(argument, ...)`, and calls are separated by "; ".  A call of the program that was passed on begins with
 * "pass ".  Sizes are in MiB ("2M") where they are whole MiB.  Addresses count from the first one of the fake driver:
 * "@2M".  A pointer to the caller's own data is "&".
 */
#ifndef GP_TEST_LIB_CALLLOG_H
#define GP_TEST_LIB_CALLLOG_H

#include <stdint.h>

struct calllog {
    const char *fails; /* the call of this name ... */
    unsigned number;   /* ... with this number from calllog_clear on (0: every call) ... */
    uint32_t code;     /* ... returns this and does nothing */
    uint32_t result;   /* of functions that the fake driver lacks ... */
    const char *stubs; /* ... and of those whose names begin so: they do nothing; NULL: none */
    const char *lacks; /* the driver has no function of this name */
    const char *skips; /* calls whose names begin so are made but not written down; NULL: none */
    unsigned failed;   /* calls that failed since calllog_clear */
};
extern struct calllog calllog;

void *calllog_function(const char *name);
/* The calls since calllog_clear, which this clears. */
const char *calllog_take(void);
void calllog_clear(void);

#endif
