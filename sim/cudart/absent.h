/* SPDX-License-Identifier: MIT
 * Exports of the runtime without behaviour.  Each reports its call once on standard error and answers
 * cudaErrorNotSupported.  Arguments are not read.  Included by absent.c here and in cudart12. */
#ifndef SIM_CUDART_ABSENT_H
#define SIM_CUDART_ABSENT_H

#include "cudart/runtime.h"

cudaError_t rt_absent(uint32_t cbid, const char *name, bool *reported);

#define RT_ABSENT(cbid, name)                                                                                          \
    RT_EXPORT cudaError_t name(void);                                                                                  \
    RT_EXPORT cudaError_t name(void)                                                                                   \
    {                                                                                                                  \
        static bool reported;                                                                                          \
                                                                                                                       \
        return rt_absent(cbid, #name, &reported);                                                                      \
    }

#endif
