/* SPDX-License-Identifier: MIT
 * The functions of NCCL that the stand-in does not do: for kernels that communicate themselves, for one-sided
 * access, for parameters, and for jobs that grow or sleep.  Each says so once and fails.  Arguments are not read. */
#include "nccl.h"
#include "report.h"

#include <stdio.h>

static enum nccl_result nccl_absent(const char *function)
{
    sim_report(NCCL_LIBRARY, "unsupported", "%s", function);
    return nccl_error(NCCL_INVALID_USAGE, "%s: the stand-in for NCCL does not do this", function);
}

#define NCCL_ABSENT(_name)                                                                                             \
    NCCL_API(enum nccl_result, _name, void)                                                                            \
    {                                                                                                                  \
        return nccl_absent(#_name);                                                                                    \
    }
#include "absent.def"

/* Deprecated, and without effect: the environment is read when it is needed. */
NCCL_API(void, ncclResetDebugInit, void)
{
}
