/* SPDX-License-Identifier: MIT
 * The memory of a handle of cuBLAS, which handles of cuSOLVER have too. */
#include "standin.h"

#include <stdlib.h>

size_t standin_blas_recommended(void)
{
    int major = standin_capability() / 10;
    return (major == 9 || major == 10 ? 32u : major == 12 ? 12u : 4u) << 20;
}

/* CUBLAS_WORKSPACE_CONFIG is a list of ":SIZE:COUNT" in KiB. */
static size_t workspace(bool hopper)
{
    const char *text = getenv("CUBLAS_WORKSPACE_CONFIG");
    size_t sum = 0;
    if (text && *text == ':') {
        while (*text == ':') {
            char *end;
            size_t kib = strtoul(text + 1, &end, 10), count = *end == ':' ? strtoul(end + 1, &end, 10) : 1;
            sum += kib * count * 1024;
            text = end;
        }
        standin_assumed("workspace of a handle: as CUBLAS_WORKSPACE_CONFIG says");
        return sum;
    }
    if (hopper)
        return 64u << 20;
    standin_assumed("workspace of a handle: 32 MiB for capability 9 and 10, 12 MiB for 12, else 4 MiB");
    return standin_blas_recommended();
}

/* cuBLAS 13 on capability 9.0: a GPU showed these three, in this order. */
bool standin_take_blas(struct standin_object *object, int cublas_major)
{
    bool hopper = cublas_major >= 13 && standin_capability() == 90;
    size_t bytes = workspace(hopper);
    if (hopper && !(standin_take(object, 1024, false) && standin_take(object, 131072, false)))
        return false;
    return !bytes || standin_take(object, bytes, false);
}
