/* SPDX-License-Identifier: MIT
 *
 * Measures how long the program's threads wait for gpuprof, and not how long they take: a machine under load makes every call
 * long. It stands in front of libc for libgpuprof.so's sleeps (syscall) and its locks (pthread_mutex_lock). A sleep counts for as
 * long as it lasted, at most for as long as it was to last: what comes on top, the thread waited for a processor.
 *
 * waits_take gives what the calling thread has waited since the last time, in nanoseconds.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

struct waits {
    long long asleep_ns, locked_ns;
};

void waits_start(void);
struct waits waits_take(void);
long syscall(long number, ...);

static __thread struct waits waits_now;
static uintptr_t waits_begin, waits_end; /* libgpuprof.so */
static long (*waits_syscall)(long, ...);
static int (*waits_lock)(pthread_mutex_t *);

static long long clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static int waits_find(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    (void)bytes, (void)arg;
    if (strstr(info->dlpi_name, "/libgpuprof.so") == NULL)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && end > waits_end)
            waits_end = end;
    }
    waits_begin = info->dlpi_addr;
    return 1;
}

/* Called by the program once gpuprof is there, and for each of its calls. */
void waits_start(void)
{
    dl_iterate_phdr(waits_find, NULL);
}

struct waits waits_take(void)
{
    struct waits taken = waits_now;
    waits_now = (struct waits){0};
    return taken;
}

static int waits_is_ours(const void *caller)
{
    return (uintptr_t)caller >= waits_begin && (uintptr_t)caller < waits_end;
}

long syscall(long number, ...)
{
    long a[6], result;
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (waits_syscall == NULL)
        *(void **)&waits_syscall = dlsym(RTLD_NEXT, "syscall");
    if (number != SYS_futex || (a[1] & FUTEX_CMD_MASK) != FUTEX_WAIT || !waits_is_ours(__builtin_return_address(0)))
        return waits_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    const struct timespec *most = (const struct timespec *)a[3];
    long long begin = clock_ns(), most_ns = most != NULL ? most->tv_sec * 1000000000ll + most->tv_nsec : INT64_MAX,
              took;
    result = waits_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    took = clock_ns() - begin;
    waits_now.asleep_ns += took < most_ns ? took : most_ns;
    return result;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    long long begin;
    int result;
    if (waits_lock == NULL)
        *(void **)&waits_lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    if (!waits_is_ours(__builtin_return_address(0)))
        return waits_lock(mutex);
    begin = clock_ns();
    result = waits_lock(mutex);
    waits_now.locked_ns += clock_ns() - begin;
    return result;
}
