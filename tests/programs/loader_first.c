/* SPDX-License-Identifier: MIT
 *
 * The first cuInit is called in the constructor of a library that is being opened, as UCX's CUDA module does.
 * Leaves 1 MiB linear.
 */
#include <cuda.h>
#include <stdint.h>

#include "finish.h"

static void first_constructed(void)
{
    REPORT("constructor: cuInit", cuInit(0));
}

int main(void)
{
    char path[4096], call[32];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 64);
    path[length > 0 ? length : 0] = '\0';
    if (strrchr(path, '/') != NULL)
        strcpy(strrchr(path, '/'), "/../preload/constructor.so");
    snprintf(call, sizeof(call), "%llx", (unsigned long long)(uintptr_t)first_constructed);
    setenv("CONSTRUCTOR_CALL", call, 1);
    printf("library: %d\n", dlopen(path, RTLD_NOW) != NULL);
    program_start();
    program_alloc(MIB);
    return finish();
}
