/* SPDX-License-Identifier: MIT
 *
 * The process ends with live blocks, freed blocks, and work in flight, by exit() from a thread
 * while another one goes on allocating; a handler and a destructor of the program free blocks after
 * main is over. Leaves 2 MiB + 8 KiB linear. Exit code 6.
 */
#include <cuda.h>

#include "finish.h"
#include "pattern.h"
#include "threads.h"

static CUdeviceptr for_handler, for_destructor;

static void handler(void)
{
    CUdeviceptr late = 0;
    REPORT("handler: free", cuMemFree(for_handler));
    REPORT("handler: alloc", cuMemAlloc(&late, 8 * KIB));
    fflush(stdout);
}

/* The driver may be gone by now, so its answer is not printed: the call must only return. */
__attribute__((destructor)) static void destructor(void)
{
    if (for_destructor != 0)
        (void)cuMemFree(for_destructor);
}

/* Which part of the program it is: [phase] release and acquire, either way. */
enum { WARM, PAUSE, PAUSED, LAST };
static int phase;

static void phase_await(int wanted)
{
    while (__atomic_load_n(&phase, __ATOMIC_ACQUIRE) != wanted)
        usleep(100);
}

static void thread_busy(unsigned number)
{
    CUdeviceptr late;
    (void)number;
    while (__atomic_load_n(&phase, __ATOMIC_ACQUIRE) == WARM)
        CHECK(cuMemFree(program_alloc(256 * KIB)));
    __atomic_store_n(&phase, PAUSED, __ATOMIC_RELEASE);
    phase_await(LAST);
    for (;;) { /* until the process ends; the results of these calls do not matter */
        if (cuMemAlloc(&late, 256 * KIB) == CUDA_SUCCESS)
            (void)cuMemFree(late);
        usleep(10);
    }
}

static void thread_exit(unsigned number)
{
    int failed;
    (void)number;
    for_handler = program_alloc(MIB);
    for_destructor = program_alloc(MIB);
    pattern_fill(program_alloc(8 * KIB), 8 * KIB, 1, CU_STREAM_PER_THREAD);
    CHECK(cuMemFree(program_alloc(5 * MIB)));
    __atomic_store_n(&phase, PAUSE, __ATOMIC_RELEASE);
    phase_await(PAUSED);
    failed = finish();
    __atomic_store_n(&phase, LAST, __ATOMIC_RELEASE);
    exit(failed ? 1 : 6);
}

int main(void)
{
    struct thread_arg threads[2];
    program_start();
    atexit(handler);
    threads_start(&threads[0], 1, thread_busy);
    threads_start(&threads[1], 1, thread_exit);
    threads_join(threads, 2);
    return 1; /* not reached */
}
