/* SPDX-License-Identifier: MIT
 * A library whose constructor calls cuInit, as that of UCX does, and with it each MPI that knows of CUDA. */
#include <cuda.h>

__attribute__((constructor)) static void first_ctor(void)
{
    cuInit(0);
}
