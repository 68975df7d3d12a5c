/* SPDX-License-Identifier: MIT
 *
 * full.h: how much of a long sweep runs.  `make check-all` sets GPUPROF_TEST_FULL and runs every point; `make check` runs
 * a fixed part, which the test chooses by numbers, never by time.
 */
#ifndef GP_TEST_LIB_FULL_H
#define GP_TEST_LIB_FULL_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool test_is_full(void)
{
    const char *full = getenv("GPUPROF_TEST_FULL");
    return full != NULL && *full != '\0';
}

#endif
