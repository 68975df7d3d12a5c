/* SPDX-License-Identifier: MIT
 *
 * pause.h: how to wait for a thread that holds something for nanoseconds.
 */
#ifndef GP_BASE_PAUSE_H
#define GP_BASE_PAUSE_H

#include "base/compiler.h"
#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* round: 0, 1, 2 ... of one wait. It spins first: the holder needs some 100 ns unless it was
 * preempted. Then it yields the CPU to the holder. A yield does not help if the waiter has a
 * higher real-time priority, so it finally sleeps 20 us. The sleep is a raw system call, because
 * libc's is a cancellation point, and unwinding from here would go through the driver's frames.
 * Keeps errno. */
static inline void gp_pause(unsigned round)
{
    if (GP_LIKELY(round < 128)) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb" ::: "memory");
#endif
        return;
    }
    int saved = errno;
    if (round < 144)
        sched_yield();
    else
        syscall(SYS_nanosleep, &(struct timespec){0, 20000}, NULL);
    errno = saved;
}

#endif
