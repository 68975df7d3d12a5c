/* SPDX-License-Identifier: MIT
 *
 * Leaves driver calls that do not return in time (a fault script delays them): by siglongjmp out of a signal handler,
 * and by the end of the thread. Then the same thread, from other depths of its stack, and a new one allocate 120 MiB.
 * Prints what gpuprof has counted: those, without the block whose free was left.
 */
#include <cuda.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "api.h"

static sigjmp_buf out;

static void late(int number)
{
    (void)number;
    siglongjmp(out, 1);
}

static void end_thread(int number)
{
    (void)number;
    pthread_exit(NULL);
}

static void soon(void)
{
    const struct itimerval in = {{0, 0}, {0, 50000}};
    signal(SIGALRM, late);
    setitimer(ITIMER_REAL, &in, NULL);
}

static void __attribute__((noinline)) deep(unsigned levels)
{
    volatile char room[512];
    room[0] = (char)levels;
    if (levels > 0)
        deep(levels - 1);
    else
        program_alloc(50 * MIB);
    room[1] = room[0];
}

static CUcontext context;

static void *never_back(void *slow)
{
    CUdeviceptr block;
    CHECK(cuCtxSetCurrent(context));
    if (slow != NULL)
        cuMemAllocManaged(&block, MIB, CU_MEM_ATTACH_GLOBAL);
    else
        program_alloc(20 * MIB);
    return NULL;
}

int main(void)
{
    CUdeviceptr block = 0, kept;
    pthread_t thread;
    program_start();
    CHECK(cuCtxGetCurrent(&context));
    kept = program_alloc(MIB);
    soon();
    if (sigsetjmp(out, 1) == 0)
        cuMemAlloc(&block, MIB); /* the second call of cuMemAlloc_v2 */
    else
        deep(20);
    soon();
    if (sigsetjmp(out, 1) == 0)
        cuMemFree(kept);
    else
        program_alloc(50 * MIB);
    signal(SIGUSR1, end_thread);
    CHECK(pthread_create(&thread, NULL, never_back, out));
    usleep(100000);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, NULL);
    CHECK(pthread_create(&thread, NULL, never_back, NULL));
    pthread_join(thread, NULL);
    if (!api_load())
        return 3;
    printf("allocated %lld MiB\n", (long long)(api_gpuprof_memory_allocated(0) / (int64_t)MIB));
    return 0;
}
