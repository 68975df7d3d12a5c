/* SPDX-License-Identifier: MIT
 *
 * exit() comes from a worker while the main thread waits and another thread sleeps.
 * Leaves 3 MiB linear; exit code 5 (6 after a failed call).
 */
#include <cuda.h>
#include <semaphore.h>

#include "finish.h"
#include "threads.h"

static sem_t asleep;

static void thread_sleep(unsigned number)
{
    (void)number;
    sem_post(&asleep);
    pause();
}

static void thread_exit(unsigned number)
{
    (void)number;
    program_alloc(2 * MIB);
    exit(5 + finish());
}

int main(void)
{
    struct thread_arg sleeper, leaver;
    program_start();
    program_alloc(MIB);
    sem_init(&asleep, 0, 0);
    threads_start(&sleeper, 1, thread_sleep);
    sem_wait(&asleep); /* the driver refuses a thread's first call after exit() */
    threads_start(&leaver, 1, thread_exit);
    threads_join(&leaver, 1);
    return 1;
}
