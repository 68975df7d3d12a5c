/* SPDX-License-Identifier: MIT
 *
 * glibc.h: chooses the versions of the C library's symbols that libgpuprof.so and libgpuprof-shim.so
 * need.  The compiler includes it before each of their files (-include in the Makefile).
 *
 * A build on a new distribution must load on an old one: a reference to a version that the old glibc
 * lacks keeps the library from being loaded, and a preloaded one then keeps every program from
 * starting.  The limit is 2.17; tests/lint/check-glibc checks it.
 *
 *  - A function that glibc moved or changed in name only (2.32, 2.34) is bound to its first version.
 *    Before 2.34 it is in libpthread.so.0 or libdl.so.2, so the Makefile names these two as needed.
 *  - A function that is newer than 2.17 is replaced by its system call.
 *  - A function that musl lacks is weak, because programs of a musl system inherit a preload too.
 *    Callers compare it with NULL.
 *
 * The simulator has a table of its own, sim/glibc.h.
 */
#ifndef GP_BASE_GLIBC_H
#define GP_BASE_GLIBC_H

/* From glibc 2.38 on, _GNU_SOURCE lets strtoul and sscanf read 0b..., under names that older ones lack. */
#include <features.h>
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A sanitizer interposes these functions without versions, in trees that are never installed. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define GP_GLIBC_TEXT_(_x) #_x
#define GP_GLIBC_TEXT(_x)  GP_GLIBC_TEXT_(_x)
/* _x86_64 is the version on that processor; glibc's first version for AArch64 is 2.17. */
#if defined(__x86_64__)
#define GP_GLIBC(_name, _x86_64) __asm__(".symver " #_name ", " #_name "@GLIBC_" GP_GLIBC_TEXT(_x86_64));
#elif defined(__aarch64__)
#define GP_GLIBC(_name, _x86_64) __asm__(".symver " #_name ", " #_name "@GLIBC_2.17");
#else
#define GP_GLIBC(_name, _x86_64)
#endif

GP_GLIBC(dladdr, 2.2.5)
GP_GLIBC(dladdr1, 2.3.3)
GP_GLIBC(dlclose, 2.2.5)
GP_GLIBC(dlerror, 2.2.5)
GP_GLIBC(dlinfo, 2.3.3)
#if !defined(GP_OWN_DLSYM) /* src/source/shim defines both */
GP_GLIBC(dlopen, 2.2.5)
GP_GLIBC(dlsym, 2.2.5)
#endif
GP_GLIBC(dlvsym, 2.2.5)
GP_GLIBC(pthread_attr_getstack, 2.2.5)
GP_GLIBC(pthread_attr_setstacksize, 2.2.5)
GP_GLIBC(pthread_create, 2.2.5)
GP_GLIBC(pthread_getattr_np, 2.2.5)
GP_GLIBC(pthread_join, 2.2.5)
GP_GLIBC(pthread_mutex_trylock, 2.2.5)
GP_GLIBC(pthread_mutexattr_destroy, 2.2.5)
GP_GLIBC(pthread_mutexattr_init, 2.2.5)
GP_GLIBC(pthread_mutexattr_settype, 2.2.5)
GP_GLIBC(pthread_once, 2.2.5)
GP_GLIBC(pthread_setname_np, 2.12)
GP_GLIBC(pthread_sigmask, 2.2.5)

/* On both processors glibc's struct stat is the kernel's. */
static inline int gp_glibc_fstat(int fd, struct stat *status)
{
    return (int)syscall(SYS_fstat, fd, status);
}

static inline int gp_glibc_lstat(const char *path, struct stat *status)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

static inline ssize_t gp_glibc_getrandom(void *buffer, size_t bytes, unsigned flags)
{
    return syscall(SYS_getrandom, buffer, bytes, flags);
}

static inline int gp_glibc_memfd_create(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}

#define fstat(_fd, _status)                gp_glibc_fstat(_fd, _status)
#define lstat(_path, _status)              gp_glibc_lstat(_path, _status)
#define getrandom(_buffer, _bytes, _flags) gp_glibc_getrandom(_buffer, _bytes, _flags)
#define memfd_create(_name, _flags)        gp_glibc_memfd_create(_name, _flags)

#endif

#pragma weak __register_atfork
#pragma weak dladdr1
#pragma weak dlvsym

#endif
