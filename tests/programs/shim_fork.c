/* SPDX-License-Identifier: MIT
 *
 * A process that holds live and freed blocks forks, also while another thread is inside an
 * allocation.  The driver is of no use in the children: their calls fail with its code, and they
 * end.  The parent's memory is untouched. Leaves 4 KiB + 3 MiB linear.
 */
#include <cuda.h>
#include <sys/wait.h>

#include "finish.h"
#include "pattern.h"
#include "threads.h"

static int stop;

static void thread_busy(unsigned number)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        CHECK(cuMemFree(program_alloc((number + 1) * 64 * KIB)));
}

static void child_main(CUdeviceptr theirs)
{
    CUdeviceptr own = 0;
    size_t left = 0, total = 0;
    REPORT("child: alloc", cuMemAlloc(&own, 4 * KIB));
    REPORT("child: large alloc", cuMemAlloc(&own, 8 * MIB));
    REPORT("child: free of the parent's", cuMemFree(theirs));
    REPORT("child: free of an unknown address", cuMemFree(0x1234000));
    REPORT("child: info", cuMemGetInfo(&left, &total));
    fflush(stdout);
    _exit(3);
}

/* A child that hangs is the failure that is looked for: the harness's deadline finds it. */
static void fork_once(CUdeviceptr theirs)
{
    int status = 0;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0)
        child_main(theirs);
    printf("child: %d\n", child > 0 && waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : -1);
}

int main(void)
{
    struct thread_arg threads[2];
    CUdeviceptr small, large;
    unsigned i;
    program_start();
    small = program_alloc(4 * KIB);
    large = program_alloc(3 * MIB);
    pattern_fill(small, 4 * KIB, 8, NULL);
    pattern_fill(large, 3 * MIB, 9, NULL);
    for (i = 0; i < 8; i++)
        CHECK(cuMemFree(program_alloc(4 * KIB << i)));
    fork_once(small);
    threads_start(threads, 2, thread_busy);
    for (i = 0; i < 8; i++)
        fork_once(i % 2 == 0 ? small : large);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    threads_join(threads, 2);
    printf("parent: %zu wrong\n", pattern_wrong(small, 4 * KIB, 8, NULL) + pattern_wrong(large, 3 * MIB, 9, NULL));
    return finish();
}
