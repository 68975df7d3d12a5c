/* SPDX-License-Identifier: MIT
 *
 * Ends at once when it has a context, and allocates nothing.
 */
#include <cuda.h>

int main(void)
{
    CUcontext context;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0);
}
