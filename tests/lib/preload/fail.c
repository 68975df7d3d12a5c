/* SPDX-License-Identifier: MIT
 *
 * fail.c: a preloaded library that makes the Nth call of a libc function by one library fail.
 *
 *   GPUPROF_TEST_FAIL=FUNCTION:N[+]:SUBSTRING[,FUNCTION:N[+]:SUBSTRING]
 *      The Nth (N+: and every later) call of FUNCTION from a library whose path contains SUBSTRING fails with the
 *      function's usual error.  A second rule makes another function fail too, for example one whose failure leads to
 *      the first call.
 *   GPUPROF_TEST_FAIL_COUNT=FILE
 *      Holds, as a long, the number of calls that matched the first rule, in this process and its descendants.
 *      The counter is in the file itself: the library still works after our destructor, and a process may end
 *      without running it.
 *
 * The program's own calls never fail, so the program must behave as it always does. The tests build this file
 * with cc and load it only into test programs.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FAIL_RULES 2

static struct {
    char function[32], library[64];
    long number;
    int onwards;
} fail_rules[FAIL_RULES];
static long fail_own[FAIL_RULES], *fail_calls = fail_own;
static __thread int fail_busy __attribute__((tls_model("initial-exec"))); /* dladdr may call back into us */

static void fail_share(const char *path)
{
    int fd = path != NULL ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    void *at = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(fail_own)) == 0)
        at = mmap(NULL, sizeof(fail_own), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        fail_calls = at;
    if (fd >= 0)
        close(fd);
}

__attribute__((constructor)) static void fail_init(void)
{
    const char *setting = getenv("GPUPROF_TEST_FAIL");
    char number[24] = "";
    int i;
    fail_share(getenv("GPUPROF_TEST_FAIL_COUNT"));
    for (i = 0; i < FAIL_RULES && setting != NULL; i++) {
        if (sscanf(setting, "%31[^:]:%23[^:]:%63[^,]", fail_rules[i].function, number, fail_rules[i].library) == 3) {
            fail_rules[i].number = atol(number);
            fail_rules[i].onwards = strchr(number, '+') != NULL;
        }
        setting = strchr(setting, ',');
        setting += setting != NULL;
    }
}

/* Index of the rule that counts this call, or -1. */
static int fail_rule(const char *function, const void *caller)
{
    Dl_info where;
    int i, found = 0;

    for (i = 0; i < FAIL_RULES && !found && !fail_busy; i++) {
        if (fail_rules[i].number != 0 && strcmp(function, fail_rules[i].function) == 0) {
            fail_busy = 1;
            found = dladdr(caller, &where) != 0 && where.dli_fname != NULL &&
                    strstr(where.dli_fname, fail_rules[i].library) != NULL;
            fail_busy = 0;
        }
    }
    return found ? i - 1 : -1;
}

static int fail_is_hit(int rule, long call)
{
    return call == fail_rules[rule].number || (fail_rules[rule].onwards && call > fail_rules[rule].number);
}

static int fail_now(const char *function, const void *caller)
{
    int rule = fail_rule(function, caller);
    return rule >= 0 && fail_is_hit(rule, __atomic_add_fetch(&fail_calls[rule], 1, __ATOMIC_RELAXED));
}

/* Counts distinct names instead of calls, because lookups of one name must all have the same result. Not
 * inlined: a wrapper that jumps must have no stack frame. */
__attribute__((noinline)) static int fail_name(const char *function, const char *name, const void *caller)
{
    static char names[64][48];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int rule = fail_rule(function, caller), i;
    if (rule < 0)
        return 0;
    pthread_mutex_lock(&lock);
    for (i = 0; i < 63 && names[i][0] != '\0' && strncmp(names[i], name, 47) != 0; i++) {
    }
    strncpy(names[i], name, 47);
    if (i + 1 > fail_calls[rule])
        fail_calls[rule] = i + 1;
    pthread_mutex_unlock(&lock);
    return fail_is_hit(rule, i + 1);
}

/* The next definition of the function. Uses libc's dlsym, because ours precedes it, and its result depends on
 * the library that calls it. */
__attribute__((noinline)) static void *fail_next(const char *name)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    static void *(*lookup)(void *, const char *);
    size_t i;
    for (i = 0; i < sizeof(versions) / sizeof(versions[0]) && lookup == NULL; i++)
        *(void **)&lookup = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return lookup(RTLD_NEXT, name);
}

/* One wrapper: FAIL(result type, name, parameters, arguments, value on failure, errno on failure). */
#define FAIL(_type, _name, _params, _args, _value, _errno)                                                             \
    __attribute__((visibility("default"))) _type _name _params                                                         \
    {                                                                                                                  \
        static _type(*real) _params;                                                                                   \
        if (fail_now(#_name, __builtin_return_address(0))) {                                                           \
            errno = _errno;                                                                                            \
            return _value;                                                                                             \
        }                                                                                                              \
        if (real == NULL)                                                                                              \
            *(void **)&real = fail_next(#_name);                                                                       \
        return real _args;                                                                                             \
    }

FAIL(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, EMFILE)
FAIL(int, ftruncate, (int fd, off_t len), (fd, len), -1, ENOSPC)
FAIL(int, fallocate, (int fd, int mode, off_t off, off_t len), (fd, mode, off, len), -1, ENOSPC)
FAIL(void *, mmap, (void *a, size_t n, int p, int f, int fd, off_t o), (a, n, p, f, fd, o), MAP_FAILED, ENOMEM)
FAIL(int, madvise, (void *a, size_t n, int advice), (a, n, advice), -1, EINVAL)
FAIL(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *arg), (t, a, f, arg),
     EAGAIN, 0)
/* pthread_atfork calls this in the library that uses it; no header declares it. */
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
FAIL(int, __register_atfork, (void (*a)(void), void (*b)(void), void (*c)(void), void *dso), (a, b, c, dso), ENOMEM, 0)
FAIL(int, pthread_setname_np, (pthread_t t, const char *name), (t, name), ERANGE, 0)
FAIL(void *, dlopen, (const char *name, int flags), (name, flags), NULL, 0)
FAIL(ssize_t, getrandom, (void *buffer, size_t n, unsigned flags), (buffer, n, flags), -1, ENOSYS)
FAIL(ssize_t, pread, (int fd, void *buffer, size_t n, off_t off), (fd, buffer, n, off), -1, EIO)
FAIL(ssize_t, read, (int fd, void *buffer, size_t n), (fd, buffer, n), -1, EIO)
FAIL(int, flock, (int fd, int operation), (fd, operation), -1, EWOULDBLOCK)
FAIL(int, fstat, (int fd, struct stat *status), (fd, status), -1, EIO)
FAIL(int, lstat, (const char *path, struct stat *status), (path, status), -1, EACCES)
FAIL(int, uname, (struct utsname * name), (name), -1, EFAULT)
FAIL(int, getrlimit, (__rlimit_resource_t which, struct rlimit *limit), (which, limit), -1, EPERM)
FAIL(int, unshare, (int what), (what), -1, EPERM)
FAIL(ssize_t, write, (int fd, const void *buffer, size_t n), (fd, buffer, n), -1, ENOSPC)

/* The variadic ones pass on the one optional argument. */
#define FAIL_VARIADIC(_name, _params, _last, _pass, _error)                                                            \
    __attribute__((visibility("default"))) int _name _params                                                           \
    {                                                                                                                  \
        static int(*real) _params;                                                                                     \
        va_list more;                                                                                                  \
        void *extra;                                                                                                   \
        va_start(more, _last);                                                                                         \
        extra = va_arg(more, void *);                                                                                  \
        va_end(more);                                                                                                  \
        if (fail_now(#_name, __builtin_return_address(0))) {                                                           \
            errno = _error;                                                                                            \
            return -1;                                                                                                 \
        }                                                                                                              \
        if (real == NULL)                                                                                              \
            *(void **)&real = fail_next(#_name);                                                                       \
        return real _pass;                                                                                             \
    }
FAIL_VARIADIC(open, (const char *path, int flags, ...), flags, (path, flags, extra), EMFILE)
FAIL_VARIADIC(fcntl, (int fd, int command, ...), command, (fd, command, extra), EBADF)

/* The descriptor is closed nevertheless, as after every error but EBADF. */
__attribute__((visibility("default"))) int close(int fd)
{
    static int (*real)(int);
    int fails = fail_now("close", __builtin_return_address(0)), error;
    if (real == NULL)
        *(void **)&real = fail_next("close");
    error = real(fd);
    if (fails && error == 0) {
        errno = EIO;
        return -1;
    }
    return error;
}

/* The function that the product calls as a system call, so that it loads on an old glibc too (core/base/glibc.h), or "syscall": calls
 * that old kernels lack and that filters refuse.  NULL for calls that every program needs. */
static const char *fail_syscall(long number)
{
    switch (number) {
    case SYS_memfd_create:
        return "memfd_create";
    case SYS_getrandom:
        return "getrandom";
    case SYS_fstat:
        return "fstat";
    case SYS_newfstatat:
        return "lstat";
    case SYS_gettid:
    case SYS_getpid:
    case SYS_futex:
    case SYS_nanosleep:
        return NULL;
    default:
        return "syscall";
    }
}

static int fail_errno(long number)
{
    switch (number) {
    case SYS_memfd_create:
        return EMFILE;
    case SYS_fstat:
        return EIO;
    case SYS_newfstatat:
        return EACCES;
    default:
        return ENOSYS;
    }
}

__attribute__((visibility("default"))) long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list more;
    int i;
    va_start(more, number);
    for (i = 0; i < 6; i++)
        a[i] = va_arg(more, long);
    va_end(more);
    if (fail_syscall(number) && fail_now(fail_syscall(number), __builtin_return_address(0))) {
        errno = fail_errno(number);
        return -1;
    }
    if (real == NULL)
        *(void **)&real = fail_next("syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* RTLD_NEXT and RTLD_DEFAULT depend on the return address. This wrapper leaves by a jump, so that libc sees the
 * original caller. */
__attribute__((visibility("default"), optimize("O2"))) void *dlsym(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);
    if (fail_name("dlsym", name, __builtin_return_address(0)))
        return NULL;
    if (real == NULL)
        *(void **)&real = fail_next("dlsym");
    return real(handle, name);
}
