/* SPDX-License-Identifier: MIT
 *
 * Memory of the program itself and of libraries. Commands on standard input, one a line: "pid"; "own MIB"; "LIBRARY
 * MIB" loads a library (takes.c) and has it take memory; each is answered by a number.
 */
#include <cuda.h>

#include "finish.h"

static long long owners_take(const char *path, size_t bytes)
{
    CUdeviceptr (*take)(size_t) = NULL;
    CUdeviceptr pointer = 0;
    void *library = NULL;
    if (strcmp(path, "own") == 0)
        return CHECK(cuMemAlloc(&pointer, bytes));
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL)
        *(void **)&take = dlsym(library, "takes_memory");
    return take != NULL && take(bytes) != 0 ? 0 : -2;
}

int main(void)
{
    char line[600], path[512];
    unsigned long mib;
    program_start();
    printf("0\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strcmp(line, "pid\n") == 0)
            printf("%d\n", (int)getpid());
        else if (sscanf(line, "%511s %lu", path, &mib) == 2)
            printf("%lld\n", owners_take(path, mib * MIB));
        else
            printf("-3\n");
        fflush(stdout);
    }
    return 0;
}
