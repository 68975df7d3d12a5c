/* SPDX-License-Identifier: MIT
 *
 * Four threads that allocate and free without end, to be killed in the midst of it.  Holds first,
 * then runs until it is killed, for 30 s at most.
 */
#include <cuda.h>

#include "finish.h"
#include "threads.h"

static void thread_spin(unsigned number)
{
    CUdeviceptr pointer;
    for (;;) {
        pointer = program_alloc((number + 1) * 64 * KIB);
        CHECK(cuMemFree(pointer));
    }
}

int main(void)
{
    struct thread_arg threads[4];
    program_start();
    program_alloc(MIB);
    threads_start(threads, 4, thread_spin);
    program_hold();
    sleep(30);
    return 0;
}
