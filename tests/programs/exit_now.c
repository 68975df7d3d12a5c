/* SPDX-License-Identifier: MIT
 *
 * _exit: no destructor, no atexit handler runs.
 * Leaves 2 MiB linear; exit code 7.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    program_start();
    program_alloc(2 * MIB);
    printf("leaving\n");
    finish();
    _exit(7);
}
