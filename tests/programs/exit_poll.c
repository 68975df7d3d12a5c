/* SPDX-License-Identifier: MIT
 *
 * exit() while gpuprof asks the driver about many pools, each question slow: with
 * GPUPROF_SIM_FAULTS="cuMemPoolGetAttribute 1+ delay 10ms".  Once exit handlers run, no question may
 * begin.  Exit code 0; 9 if one did; 8 if none was asked at all (without gpuprof).
 */
#include <cuda.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>

#include "make.h"

#define POOLS 60

static volatile unsigned poll_questions;

/* In front of libc's: the simulated driver calls it for each delay. */
int nanosleep(const struct timespec *time, struct timespec *rest)
{
    __atomic_fetch_add(&poll_questions, 1, __ATOMIC_SEQ_CST);
    return (int)syscall(SYS_nanosleep, time, rest);
}

static void poll_wait(unsigned milliseconds)
{
    struct timeval time = {milliseconds / 1000, (suseconds_t)(milliseconds % 1000) * 1000};
    select(0, NULL, NULL, NULL, &time);
}

static void poll_judge(void)
{
    unsigned before = poll_questions;
    poll_wait(200);
    if (poll_questions != before) {
        fflush(stdout);
        _exit(9);
    }
}

int main(void)
{
    CUdeviceptr pointer = 0;
    CUmemoryPool pool = NULL;
    CUdevice device;
    unsigned i;
    atexit(poll_judge); /* before gpuprof's own, so after it */
    device = program_start();
    for (i = 0; i < POOLS; i++) {
        pool = pool_make(device);
        CHECK(cuMemAllocFromPoolAsync(&pointer, MIB, pool, NULL));
    }
    for (i = 0; i < 200 && poll_questions < 10; i++)
        poll_wait(10);
    exit(poll_questions < 10 ? 8 : 0);
}
