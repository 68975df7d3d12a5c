/* SPDX-License-Identifier: MIT
 *
 * pause.c: stops the thread that starts gpuprof at a call of libc, so that another thread can load a
 * library meanwhile (loader_cross.c). GPUPROF_TEST_PAUSE is the call: memfd_create, before the
 * library looks at the loader, worker, between the session and its tables of call sites, or
 * pthread_sigmask, between that and CUPTI.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int pause_reached, pause_over;

/* The third call of pthread_sigmask: the first two are around the start of the thread that looks at
 * the loader. */
static void pause_at(const char *call, int wanted)
{
    static int seen;
    const char *name = getenv("GPUPROF_TEST_PAUSE");
    int i;

    if (name == NULL || strcmp(name, call) != 0 || ++seen != wanted) {
        return;
    }
    __atomic_store_n(&pause_reached, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < 2000 && !__atomic_load_n(&pause_over, __ATOMIC_SEQ_CST); i++) {
        usleep(1000);
    }
}

static long (*pause_syscall)(long number, ...);
static int (*pause_sigmask)(int how, const sigset_t *set, sigset_t *old);

/* Not later: dlsym takes the loader's lock. */
__attribute__((constructor)) static void pause_prepare(void)
{
    *(void **)&pause_syscall = dlsym(RTLD_NEXT, "syscall");
    *(void **)&pause_sigmask = dlsym(RTLD_NEXT, "pthread_sigmask");
}

/* The library makes newer calls than those of glibc 2.17 by their numbers. */
long syscall(long number, ...)
{
    long a[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_memfd_create) {
        pause_at("memfd_create", 1);
    }
    return pause_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    pause_at("worker", 1);
    pause_at("pthread_sigmask", 3);
    return pause_sigmask(how, set, old);
}
