/* SPDX-License-Identifier: MIT
 *
 * Locks all its memory, "before" the first CUDA call or "after" it; with "limited" as a user whose limit
 * (RLIMIT_MEMLOCK) is 64 MiB, below what a driver reserves. The last line of its output is its memory in KiB.
 */
#include <cuda.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "finish.h"

static void locked_lock(void)
{
    printf("mlockall: %s\n", mlockall(MCL_CURRENT | MCL_FUTURE) != 0 ? strerror(errno) : "done");
}

static long locked_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        sscanf(line, "VmRSS: %ld", &kib);
    return kib;
}

int main(int argc, char **argv)
{
    const struct rlimit limit = {64 * MIB, 64 * MIB};
    int before = argc > 1 && strcmp(argv[1], "before") == 0;
    CUdeviceptr pointer = 0;
    CUcontext context;
    if (argc > 2 && strcmp(argv[2], "limited") == 0) {
        CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) != 0);
        CHECK(geteuid() == 0 && setresuid(65534, 65534, 65534) != 0);
    }
    if (before)
        locked_lock();
    REPORT("cuInit", cuInit(0));
    if (cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS) {
        CHECK(cuCtxSetCurrent(context));
        CHECK(cuMemAlloc(&pointer, MIB));
    }
    if (!before)
        locked_lock();
    printf("in KiB: %ld\n", locked_kib());
    fflush(stdout);
    _exit(program_failures != 0);
}
