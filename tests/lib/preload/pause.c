/* SPDX-License-Identifier: MIT
 *
 * pause.c: stops the thread that starts gpuprof at a call of libc, so that another thread can load a
 * library meanwhile (loader_cross.c). GPUPROF_TEST_PAUSE is the call: memfd_create, before the
 * library looks at the loader, worker, between the session and its tables of call sites, or
 * pthread_sigmask, between that and CUPTI. Or it is the name of a thread of the library's, which then begins
 * with half a second in which the kernel does not let it run.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
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
    if (name == NULL || strcmp(name, call) != 0 || ++seen != wanted)
        return;
    __atomic_store_n(&pause_reached, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < 2000 && !__atomic_load_n(&pause_over, __ATOMIC_SEQ_CST); i++)
        usleep(1000);
}

static long (*pause_syscall)(long number, ...);
static int (*pause_sigmask)(int how, const sigset_t *set, sigset_t *old);
static int (*pause_setname)(pthread_t thread, const char *name);

/* Not later: dlsym takes the loader's lock. */
__attribute__((constructor)) static void pause_prepare(void)
{
    *(void **)&pause_syscall = dlsym(RTLD_NEXT, "syscall");
    *(void **)&pause_sigmask = dlsym(RTLD_NEXT, "pthread_sigmask");
    *(void **)&pause_setname = dlsym(RTLD_NEXT, "pthread_setname_np");
}

/* The library makes some system calls itself (base/glibc.h), with at most six arguments. */
long syscall(long number, ...)
{
    long a, b, c, d, e, f;
    va_list list;
    va_start(list, number);
    a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (number == SYS_memfd_create)
        pause_at("memfd_create", 1);
    return pause_syscall(number, a, b, c, d, e, f);
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    pause_at("worker", 1);
    pause_at("pthread_sigmask", 3);
    return pause_sigmask(how, set, old);
}

/* In vfork a thread waits as one does for a disk. */
int pthread_setname_np(pthread_t thread, const char *name)
{
    const char *wanted = getenv("GPUPROF_TEST_PAUSE");
    if (wanted != NULL && strcmp(wanted, name) == 0 && vfork() == 0) {
        usleep(500000);
        _exit(0);
    }
    return pause_setname(thread, name);
}
