/* SPDX-License-Identifier: MIT
 *
 * lockcheck.c: ends a test in which the code under test gives back a lock that no thread holds, or waits for one that the
 * same thread holds. It is linked into every unit test, where its functions come before the C library's. They are weak, for a
 * test that has its own.
 *
 * Only mutexes among the program's own variables are looked at. A normal mutex of glibc has the thread that holds it in
 * __owner; the check reads it before it is given back.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

extern char __data_start[], _end[]; /* by the linker */

typedef int mutex_fn(pthread_mutex_t *mutex);

static bool is_watched(const pthread_mutex_t *mutex)
{
    const char *at = (const char *)mutex;
    return at >= __data_start && at < _end && mutex->__data.__kind == PTHREAD_MUTEX_NORMAL;
}

static void say(const char *text, size_t length)
{
    if (write(STDERR_FILENO, text, length) < 0)
        abort();
}
#define SAY(_text) say(_text, sizeof(_text) - 1)

__attribute__((weak)) int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static mutex_fn *next;
    if (!next)
        next = (mutex_fn *)(uintptr_t)dlsym(RTLD_NEXT, "pthread_mutex_lock");
    if (is_watched(mutex) && mutex->__data.__owner == (int)syscall(SYS_gettid)) {
        SAY("a thread waits for a lock that it holds\n");
        abort();
    }
    return next(mutex);
}

__attribute__((weak)) int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static mutex_fn *next;
    if (!next)
        next = (mutex_fn *)(uintptr_t)dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    if (is_watched(mutex) && mutex->__data.__owner == 0) {
        SAY("a lock is given back that no thread holds\n");
        abort();
    }
    return next(mutex);
}

#endif
