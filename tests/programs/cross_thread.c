/* SPDX-License-Identifier: MIT
 *
 * Memory allocated on one thread and freed on another, in turns, so that the peak is known: 100,
 * then 60 freed elsewhere, then 80 more is a peak of 120 (of 64 KiB units), though no thread ever
 * allocated more than 100. Leaves 60 units live.
 */
#include <cuda.h>

#include "finish.h"
#include "threads.h"

#define UNIT (64 * KIB)
static CUdeviceptr units[180];

static void thread_free_sixty(unsigned number)
{
    unsigned i;
    (void)number;
    for (i = 0; i < 60; i++)
        CHECK(cuMemFree(units[i]));
}

static void thread_add_eighty(unsigned number)
{
    unsigned i;
    (void)number;
    for (i = 100; i < 180; i++)
        units[i] = program_alloc(UNIT);
}

int main(void)
{
    struct thread_arg thread;
    unsigned i;
    program_start();
    for (i = 0; i < 100; i++)
        units[i] = program_alloc(UNIT);
    threads_start(&thread, 1, thread_free_sixty);
    threads_join(&thread, 1);
    threads_start(&thread, 1, thread_add_eighty);
    threads_join(&thread, 1);
    for (i = 100; i < 160; i++)
        CHECK(cuMemFree(units[i]));
    return finish();
}
