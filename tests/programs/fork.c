/* SPDX-License-Identifier: MIT
 *
 * fork while CUDA is in use, by libc and by the raw system call, with a thread allocating
 * meanwhile.  The children use no CUDA (the driver forbids it) and leave at once. Leaves 1 MiB + 3
 * x 64 KiB linear.
 */
#include <cuda.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "finish.h"
#include "threads.h"

static int stop;

static void thread_busy(unsigned number)
{
    CUdeviceptr pointer;
    (void)number;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        pointer = program_alloc(MIB / 2);
        CHECK(cuMemFree(pointer));
    }
}

static pid_t raw_fork(void)
{
    return (pid_t)syscall(
        SYS_clone, 17 /* only SIGCHLD: the same as fork, also on machines without a fork system call */, 0, 0, 0, 0);
}

static void child_run(pid_t child, int code)
{
    int status = 0;
    if (child == 0)
        _exit(code);
    printf("child: %d\n", child > 0 && waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : -1);
}

int main(void)
{
    struct thread_arg busy;
    unsigned i;
    program_start();
    program_alloc(MIB);
    threads_start(&busy, 1, thread_busy);
    for (i = 0; i < 3; i++) {
        fflush(stdout);
        child_run(fork(), 3);
        child_run(raw_fork(), 4);
        program_alloc(64 * KIB);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    threads_join(&busy, 1);
    return finish();
}
