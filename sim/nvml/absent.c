/* SPDX-License-Identifier: MIT
 * The functions of NVML that the stand-in has no answer to: each exists and says NOT_SUPPORTED, as the
 * real one says of what a GPU cannot do.  Arguments are not read. */
#include "nvml.h"

#define SIM_ABSENT(_name)                                                                                              \
    NVML_API _name(void);                                                                                              \
    NVML_API _name(void)                                                                                               \
    {                                                                                                                  \
        return sim_nvml_absent(#_name);                                                                                \
    }
#include "absent.def"
