/* SPDX-License-Identifier: MIT
 *
 * A thousand threads that live for one allocation each; every second one's memory is freed by the
 * main thread. Leaves 500 x 8 KiB live.
 */
#include <cuda.h>

#include "finish.h"
#include "threads.h"

#define THREADS 1000
#define BATCH   10
static CUdeviceptr pointers[THREADS];

static unsigned base;

static void thread_once(unsigned number)
{
    pointers[base + number] = program_alloc(8 * KIB);
}

int main(void)
{
    struct thread_arg threads[BATCH];
    unsigned i;
    program_start();
    for (base = 0; base < THREADS; base += BATCH) {
        threads_start(threads, BATCH, thread_once);
        threads_join(threads, BATCH);
    }
    for (i = 0; i < THREADS; i += 2)
        CHECK(cuMemFree(pointers[i]));
    return finish();
}
