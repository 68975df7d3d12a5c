/* SPDX-License-Identifier: MIT
 * The driver's entry points that the simulator has no behaviour for: absent.def lists them.  Each is
 * there, so that libraries that bind all their symbols load; a call is reported once on standard
 * error and answers CUDA_ERROR_NOT_SUPPORTED.  Arguments are not read: the callee of none is safe
 * with any under the C calling conventions of x86-64 and AArch64. */
#include "cuda/sim.h"

#include <stdio.h>

static CUresult sim_absent(struct sim_entry *entry)
{
    struct sim_call call = {.caller = NULL};
    CUresult result = sim_call_begin(&call, entry, NULL);

    if (result == CUDA_SUCCESS) {
        if (!(entry->flags & SIM_ENTRY_REPORTED))
            fprintf(stderr, "gpuprof: sim: %s is not simulated: it answers CUDA_ERROR_NOT_SUPPORTED\n", entry->name);
        entry->flags |= SIM_ENTRY_REPORTED; /* under the lock */
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    return sim_call_end(&call, result);
}

#define SIM_ABSENT_AS(id_, since_, name_, flags_)                                                                      \
    SIM_EXPORT CUresult name_(void);                                                                                   \
    SIM_REGISTER(name_, #name_, name_, id_, since_, flags_);                                                           \
    CUresult name_(void)                                                                                               \
    {                                                                                                                  \
        return sim_absent(&sim_entry_##name_);                                                                         \
    }
#define SIM_ABSENT(id_, since_, name_)      SIM_ABSENT_AS(id_, since_, name_, 0)
#define SIM_ABSENT_TWIN(id_, since_, name_) SIM_ABSENT_AS(id_, since_, name_, SIM_ENTRY_TWIN)
#include "absent.def"
