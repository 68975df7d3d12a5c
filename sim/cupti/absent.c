/* SPDX-License-Identifier: MIT
 *
 * Exports of CUPTI that have no behaviour here: activity records, counters, profiling.  absent.def
 * lists them.  Each is there, so that libraries that bind all their symbols load; a call is
 * reported once on standard error and answers CUPTI_ERROR_NOT_SUPPORTED.  Arguments are not read. */
#include "cupti/cupti_sim.h"

#include <stdio.h>

static CUptiResult cupti_absent(const char *name, bool *reported)
{
    if (!__atomic_exchange_n(reported, true, __ATOMIC_RELAXED))
        fprintf(stderr, "gpuprof: sim: %s is not simulated: it answers CUPTI_ERROR_NOT_SUPPORTED\n", name);
    return cupti_result(CUPTI_ERROR_NOT_SUPPORTED);
}

#define CUPTI_ABSENT(name)                                                                                             \
    CUPTI_EXPORT CUptiResult name(void);                                                                               \
    CUPTI_EXPORT CUptiResult name(void)                                                                                \
    {                                                                                                                  \
        static bool reported;                                                                                          \
                                                                                                                       \
        return cupti_absent(#name, &reported);                                                                         \
    }

#include "cupti/absent.def"
