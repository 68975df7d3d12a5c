/* SPDX-License-Identifier: MIT
 *
 * exec in a profiled process: the old image's memory is gone, and the new image is profiled again
 * under the same pid. Leaves, after one exec, 2 MiB linear.
 */
#include <cuda.h>

#include "finish.h"

int main(int argc, char **argv)
{
    char *again[] = {argv[0], "again", NULL};
    program_start();
    if (argc < 2) {
        program_alloc(64 * MIB);
        printf("first\n");
        fflush(stdout);
        execv("/proc/self/exe", again);
        return 1;
    }
    program_alloc(2 * MIB);
    printf("second\n");
    return finish();
}
