/* SPDX-License-Identifier: MIT
 *
 * A plug-in's life: libcuda opened by name, used through dlsym, closed, and opened again.
 * Leaves 3 x 1 MiB linear.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    CUdeviceptr pointer = 0;
    unsigned i;
    program_start();
    for (i = 0; i < 3; i++) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            printf("no library\n");
            return finish() + 1;
        }
        *(void **)&alloc = dlsym(library, "cuMemAlloc_v2");
        CHECK(alloc(&pointer, MIB));
        CHECK(dlclose(library));
    }
    return finish();
}
