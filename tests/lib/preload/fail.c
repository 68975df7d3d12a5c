/* SPDX-License-Identifier: MIT
 *
 * fail.c: a preloaded library that makes the Nth call fail which one library makes of one libc function.
 *
 *   GPUPROF_TEST_FAIL=FUNCTION:N[+]:SUBSTRING   the Nth (N+: and every later) call of FUNCTION from a library whose
 * path contains SUBSTRING fails with the function's usual error GPUPROF_TEST_FAIL_COUNT=FILE                at exit,
 * how many such calls there were
 *
 * The host's own calls are never touched, so what the host then does must be what it always does.  Built by the tests
 * with cc; loaded into test programs alone.
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
#include <sys/mman.h>
#include <unistd.h>

static char fail_function[32], fail_library[64];
static long fail_number;
static int fail_onwards;
static long fail_calls;
static __thread int fail_busy __attribute__((tls_model("initial-exec"))); /* dladdr may call back into us */

__attribute__((constructor)) static void fail_init(void)
{
    const char *setting = getenv("GPUPROF_TEST_FAIL");
    char number[24] = "";

    if (setting != NULL && sscanf(setting, "%31[^:]:%23[^:]:%63s", fail_function, number, fail_library) == 3) {
        fail_number = atol(number);
        fail_onwards = strchr(number, '+') != NULL;
    }
}

__attribute__((destructor)) static void fail_fini(void)
{
    const char *path = getenv("GPUPROF_TEST_FAIL_COUNT");
    int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;

    if (fd >= 0) {
        dprintf(fd, "%ld\n", __atomic_load_n(&fail_calls, __ATOMIC_RELAXED));
        close(fd);
    }
}

static int fail_now(const char *function, const void *caller)
{
    Dl_info where;
    long call;
    int found;

    if (fail_number == 0 || fail_busy || strcmp(function, fail_function) != 0) {
        return 0;
    }
    fail_busy = 1;
    found = dladdr(caller, &where) != 0 && where.dli_fname != NULL && strstr(where.dli_fname, fail_library) != NULL;
    fail_busy = 0;
    if (!found) {
        return 0;
    }
    call = __atomic_add_fetch(&fail_calls, 1, __ATOMIC_RELAXED);
    return call == fail_number || (fail_onwards && call > fail_number);
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
        if (real == NULL) {                                                                                            \
            *(void **)&real = dlsym(RTLD_NEXT, #_name);                                                                \
        }                                                                                                              \
        return real _args;                                                                                             \
    }

FAIL(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, EMFILE)
FAIL(int, ftruncate, (int fd, off_t len), (fd, len), -1, ENOSPC)
FAIL(int, ftruncate64, (int fd, off64_t len), (fd, len), -1, ENOSPC)
FAIL(int, posix_fallocate, (int fd, off_t off, off_t len), (fd, off, len), ENOSPC, 0)
FAIL(int, fallocate, (int fd, int mode, off_t off, off_t len), (fd, mode, off, len), -1, ENOSPC)
FAIL(void *, mmap, (void *a, size_t n, int p, int f, int fd, off_t o), (a, n, p, f, fd, o), MAP_FAILED, ENOMEM)
FAIL(void *, mmap64, (void *a, size_t n, int p, int f, int fd, off64_t o), (a, n, p, f, fd, o), MAP_FAILED, ENOMEM)
FAIL(int, mprotect, (void *a, size_t n, int p), (a, n, p), -1, ENOMEM)
FAIL(int, madvise, (void *a, size_t n, int advice), (a, n, advice), -1, EINVAL)
FAIL(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *arg), (t, a, f, arg),
     EAGAIN, 0)
FAIL(int, pthread_atfork, (void (*a)(void), void (*b)(void), void (*c)(void)), (a, b, c), ENOMEM, 0)
FAIL(int, pthread_key_create, (pthread_key_t * key, void (*f)(void *)), (key, f), EAGAIN, 0)
FAIL(int, pthread_setname_np, (pthread_t t, const char *name), (t, name), ERANGE, 0)
FAIL(void *, dlopen, (const char *name, int flags), (name, flags), NULL, 0)
FAIL(ssize_t, readlink, (const char *path, char *buffer, size_t n), (path, buffer, n), -1, EACCES)
FAIL(ssize_t, getrandom, (void *buffer, size_t n, unsigned flags), (buffer, n, flags), -1, ENOSYS)
FAIL(ssize_t, pread, (int fd, void *buffer, size_t n, off_t off), (fd, buffer, n, off), -1, EIO)
FAIL(ssize_t, read, (int fd, void *buffer, size_t n), (fd, buffer, n), -1, EIO)
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
        if (real == NULL) {                                                                                            \
            *(void **)&real = dlsym(RTLD_NEXT, #_name);                                                                \
        }                                                                                                              \
        return real _pass;                                                                                             \
    }
FAIL_VARIADIC(open, (const char *path, int flags, ...), flags, (path, flags, extra), EMFILE)
FAIL_VARIADIC(open64, (const char *path, int flags, ...), flags, (path, flags, extra), EMFILE)
FAIL_VARIADIC(fcntl, (int fd, int command, ...), command, (fd, command, extra), EBADF)
FAIL_VARIADIC(fcntl64, (int fd, int command, ...), command, (fd, command, extra), EBADF)

/* The C library's own entry: dlsym would call calloc for its error text. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    if (fail_now("malloc", __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes)
{
    if (fail_now("calloc", __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_calloc(count, bytes);
}
