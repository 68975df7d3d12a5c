/* SPDX-License-Identifier: MIT
 * The version that programs are told: that of the NCCL whose place the stand-in takes, else the one whose memory
 * it takes (memory.c). */
#include "nccl.h"
#include "standin/standin.h"

int nccl_version(void)
{
    static const int newest[3] = {2, 30, 7};
    int major = standin_version(0, newest), minor = standin_version(1, newest), patch = standin_version(2, newest);
    /* Up to 2.8 the numbers were coded with less room. */
    return major <= 2 && minor <= 8 ? major * 1000 + minor * 100 + patch : major * 10000 + minor * 100 + patch;
}

NCCL_API(enum nccl_result, ncclGetVersion, int *version)
{
    if (!version)
        return nccl_error(NCCL_INVALID_ARGUMENT, "ncclGetVersion: no pointer");
    *version = nccl_version();
    return NCCL_SUCCESS;
}
