/* SPDX-License-Identifier: MIT
 *
 * Holds 300 MiB, later 1000 MiB, and ends without exit handlers: "_exit", "abort", "term" or "exec" (which
 * starts this program once more, with "_exit"); "fork" does the same in a child that starts CUDA itself.
 */
#include <cuda.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "_exit";
    CUcontext context;
    CUdeviceptr pointer;
    if (strcmp(how, "fork") == 0 && fork() > 0) {
        wait(NULL);
        return 0;
    }
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    cuMemAlloc(&pointer, 300u << 20);
    usleep(300000);
    cuMemAlloc(&pointer, 700u << 20);
    usleep(300000);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "term") == 0)
        raise(SIGTERM);
    if (strcmp(how, "exec") == 0)
        execl(argv[0], argv[0], argc > 2 ? argv[2] : "_exit", (char *)NULL);
    _exit(0);
}
