/* SPDX-License-Identifier: MIT
 *
 * cudaMalloc and cudaFree by the shared runtime.  See runtime.h.
 */
#include <cuda_runtime_api.h>

#include "finish.h"
#include "runtime.h"

int main(void)
{
    return runtime_main();
}
