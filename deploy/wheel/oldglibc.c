/* SPDX-License-Identifier: MIT
 *
 * oldglibc.c: binds the wheel's `gpuprof` command to symbols that glibc 2.28 has.  Only the link of that
 * command contains it (deploy/package.mk).
 *
 * The command and the static libraries in it were compiled for the C library of the build machine.
 * core/base/glibc.h cannot reach the libraries, so the linker sends each function that is defined here as
 * __wrap_NAME to it (--wrap=NAME, which the makefile derives from this file).
 *
 *  - A function that glibc moved or changed in name only (2.29 to 2.34) is bound to its first version.
 *  - A function that is newer is replaced by its system call or an older function.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* _x86_64 is the version on that processor; glibc's first version for AArch64 is 2.17. */
#if defined(__x86_64__)
#define OLD_VERSION(_x86_64) "@GLIBC_" _x86_64
#define OLD_JUMP(_name)      "jmp old_" _name "@PLT"
#elif defined(__aarch64__)
#define OLD_VERSION(_x86_64) "@GLIBC_2.17"
#define OLD_JUMP(_name)      "b old_" _name
#else
#error "this processor needs its versions of glibc's symbols"
#endif
#define OLD_SYMBOL(_name, _x86_64) __asm__(".symver old_" _name ", " _name OLD_VERSION(_x86_64));
/* A jump, because the functions have many signatures. */
#define OLD_NAMED(_name, _old, _x86_64)                                                                                \
    OLD_SYMBOL(#_old, _x86_64)                                                                                         \
    __asm__(".text\n.globl __wrap_" #_name "\n.hidden __wrap_" #_name "\n.type __wrap_" #_name                         \
            ", %function\n__wrap_" #_name ": " OLD_JUMP(#_old) "\n.size __wrap_" #_name ", .-__wrap_" #_name);
#define OLD(_name, _x86_64) OLD_NAMED(_name, _name, _x86_64)

OLD(dlclose, "2.2.5")
OLD(dlerror, "2.2.5")
OLD(dlopen, "2.2.5")
OLD(dlsym, "2.2.5")
OLD(exp, "2.2.5")
OLD(fmod, "2.2.5")
OLD(log, "2.2.5")
OLD(log2, "2.2.5")
OLD(pow, "2.2.5")
OLD(pthread_attr_setstacksize, "2.2.5")
OLD(pthread_condattr_setclock, "2.3.3")
OLD(pthread_create, "2.2.5")
OLD(pthread_join, "2.2.5")
OLD(pthread_mutex_trylock, "2.2.5")
OLD(pthread_mutexattr_destroy, "2.2.5")
OLD(pthread_mutexattr_init, "2.2.5")
OLD(pthread_mutexattr_settype, "2.2.5")
OLD(pthread_once, "2.2.5")
OLD(pthread_rwlock_destroy, "2.2.5")
OLD(pthread_rwlock_init, "2.2.5")
OLD(pthread_rwlock_rdlock, "2.2.5")
OLD(pthread_rwlock_tryrdlock, "2.2.5")
OLD(pthread_rwlock_unlock, "2.2.5")
OLD(pthread_rwlock_wrlock, "2.2.5")
OLD(pthread_setname_np, "2.12")
OLD(pthread_sigmask, "2.2.5")
OLD(pthread_timedjoin_np, "2.3.3")

/* What the headers of glibc 2.38 call instead; these also read binary numbers. */
OLD_NAMED(__isoc23_fscanf, __isoc99_fscanf, "2.7")
OLD_NAMED(__isoc23_sscanf, __isoc99_sscanf, "2.7")
OLD_NAMED(__isoc23_strtol, strtol, "2.2.5")
OLD_NAMED(__isoc23_strtoll, strtoll, "2.2.5")
OLD_NAMED(__isoc23_strtoul, strtoul, "2.2.5")
OLD_NAMED(__isoc23_strtoull, strtoull, "2.2.5")

/* On both processors glibc's struct stat is the kernel's. */
#define OLD_STAT(_name, _directory, _path, _flags, ...)                                                                \
    int __wrap_##_name(__VA_ARGS__, struct stat *status);                                                              \
    int __wrap_##_name(__VA_ARGS__, struct stat *status)                                                               \
    {                                                                                                                  \
        return (int)syscall(SYS_newfstatat, _directory, _path, status, _flags);                                        \
    }

OLD_STAT(stat, AT_FDCWD, path, 0, const char *path)
OLD_STAT(stat64, AT_FDCWD, path, 0, const char *path)
OLD_STAT(lstat, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, const char *path)
OLD_STAT(lstat64, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, const char *path)
OLD_STAT(fstat, fd, "", AT_EMPTY_PATH, int fd)
OLD_STAT(fstat64, fd, "", AT_EMPTY_PATH, int fd)
OLD_STAT(fstatat, directory, path, flags, int directory, const char *path, int flags)
OLD_STAT(fstatat64, directory, path, flags, int directory, const char *path, int flags)

/* Before glibc 2.31 a join waits by the clock that people set. */
int __wrap_pthread_clockjoin_np(pthread_t thread, void **result, clockid_t clock, const struct timespec *until);
int __wrap_pthread_clockjoin_np(pthread_t thread, void **result, clockid_t clock, const struct timespec *until)
{
    struct timespec now, real;
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &real);
    int64_t left = (until->tv_sec - now.tv_sec) * INT64_C(1000000000) + until->tv_nsec - now.tv_nsec;
    if (left > 0) {
        real.tv_nsec += left % 1000000000;
        real.tv_sec += left / 1000000000 + real.tv_nsec / 1000000000;
        real.tv_nsec %= 1000000000;
    }
    return pthread_timedjoin_np(thread, result, &real); /* bound above, as every other reference is */
}

/* Before glibc 2.34 a program passes the function that runs its constructors, and the C library runs them
 * itself only if the program passes none and asks for a newer version. */
typedef void old_constructor(int argc, char **argv, char **env);
extern old_constructor *const __init_array_start[] __attribute__((visibility("hidden")));
extern old_constructor *const __init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void);
typedef int old_main(int argc, char **argv, char **env);

static void old_init(int argc, char **argv, char **env)
{
    _init();
    for (old_constructor *const *at = __init_array_start; at < __init_array_end; at++)
        (*at)(argc, argv, env);
}

__asm__(".symver old_start_main, __libc_start_main" OLD_VERSION("2.2.5"));
extern int old_start_main(old_main *main, int argc, char **argv, old_constructor *init, void (*fini)(void),
                          void (*loader_fini)(void), void *stack_end);
int __wrap___libc_start_main(old_main *main, int argc, char **argv, old_constructor *init, void (*fini)(void),
                             void (*loader_fini)(void), void *stack_end);
int __wrap___libc_start_main(old_main *main, int argc, char **argv, old_constructor *init, void (*fini)(void),
                             void (*loader_fini)(void), void *stack_end)
{
    return old_start_main(main, argc, argv, init ? init : old_init, fini, loader_fini, stack_end);
}
