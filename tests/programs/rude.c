/* SPDX-License-Identifier: MIT
 *
 * Does everything that a program may do to a library that it does not know: closes every
 * descriptor, makes children by vfork that leave by _exit or exec, interrupts its own allocations
 * by a timer, and ends by exit() while threads allocate.  Leaves the memory that the threads hold
 * then.
 */
#include <cuda.h>

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "finish.h"
#include "threads.h"

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    (void)number;
    signals++;
}

static void thread_busy(unsigned number)
{
    (void)number;
    for (;;) {
        CUdeviceptr pointer = program_alloc(64 * KIB);
        if (pointer != 0)
            cuMemFree(pointer);
    }
}

static void child(int is_exec)
{
    int status;
    pid_t pid = vfork();
    if (pid == 0) {
        if (is_exec)
            execl("/bin/true", "true", (char *)NULL);
        _exit(0);
    }
    if (pid > 0)
        waitpid(pid, &status, 0);
}

int main(void)
{
    const struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    struct thread_arg threads[2];
    int i;
    program_start();
    program_alloc(MIB);
    signal(SIGALRM, on_signal);
    setitimer(ITIMER_REAL, &every, NULL);
    threads_start(threads, 2, thread_busy);
    for (i = 3; i < 4096; i++)
        close(i);
    for (i = 0; i < 20; i++) {
        child(0);
        child(1);
    }
    usleep(200000);
    setitimer(ITIMER_REAL, &never, NULL);
    program_alloc(2 * MIB);
    exit(signals > 0 ? 0 : 1);
}
