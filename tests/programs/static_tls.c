/* SPDX-License-Identifier: MIT
 *
 * Static thread-local storage is used up by other libraries (named on the command line, opened
 * until one does not fit) before CUDA, and with it the profiler, is loaded. Leaves 1 MiB linear.
 */
#include <cuda.h>

#include "finish.h"

int main(int argc, char **argv)
{
    int i, opened = 0;
    for (i = 1; i < argc; i++)
        opened += dlopen(argv[i], RTLD_NOW | RTLD_LOCAL) != NULL;
    printf("opened %d\n", opened);
    program_start();
    program_alloc(MIB);
    return finish();
}
