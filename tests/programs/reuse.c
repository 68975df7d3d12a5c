/* SPDX-License-Identifier: MIT
 *
 * Eight threads allocate and free the same few sizes as fast as they can, so that an address freed
 * by one is another's next one, at times before the first thread's free has returned. Leaves 8 x 64
 * KiB live.
 */
#include <cuda.h>

#include "finish.h"
#include "threads.h"

#define THREADS 8
#define ROUNDS  500

static void thread_churn(unsigned number)
{
    CUdeviceptr pointer;
    unsigned i;
    for (i = 0; i < ROUNDS; i++) {
        pointer = program_alloc(64 * KIB);
        CHECK(cuMemFree(pointer));
        pointer = program_alloc(i % 3 == number % 3 ? 2 * MIB : 64 * KIB);
        CHECK(cuMemFree(pointer));
    }
    program_alloc(64 * KIB);
}

int main(void)
{
    struct thread_arg threads[THREADS];
    program_start();
    threads_start(threads, THREADS, thread_churn);
    threads_join(threads, THREADS);
    return finish();
}
