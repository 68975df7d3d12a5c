/* SPDX-License-Identifier: MIT
 *
 * glibc.h: binds the simulator to symbols that glibc 2.17 has, so that programs of an old
 * distribution can run on it.  The compiler reads this file in front of each of the simulator's
 * files (-include in the Makefile).  The Makefile names the libraries in which a glibc before 2.34
 * has these functions.
 */
#ifndef SIM_GLIBC_H
#define SIM_GLIBC_H

/* From glibc 2.38 on, _GNU_SOURCE lets strtoul and sscanf read 0b..., under names that older ones lack. */
#include <features.h>
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define SIM_GLIBC_FIRST "2.2.5"
#elif defined(__aarch64__)
#define SIM_GLIBC_FIRST "2.17"
#endif

#if defined(__GLIBC__) && defined(SIM_GLIBC_FIRST)
#define SIM_GLIBC(_name) __asm__(".symver " #_name ", " #_name "@GLIBC_" SIM_GLIBC_FIRST);
SIM_GLIBC(dladdr)
SIM_GLIBC(dlclose)
SIM_GLIBC(dlerror)
SIM_GLIBC(dlopen)
SIM_GLIBC(dlsym)
SIM_GLIBC(pthread_create)
SIM_GLIBC(pthread_detach)
SIM_GLIBC(pthread_join)
SIM_GLIBC(pthread_mutex_trylock)
SIM_GLIBC(pthread_mutexattr_init)
SIM_GLIBC(pthread_mutexattr_settype)
SIM_GLIBC(pthread_once)
SIM_GLIBC(pthread_sigmask)
/* struct stat is the kernel's here. */
#define fstat(_fd, _status)         ((int)syscall(SYS_fstat, _fd, _status))
#define gettid()                    ((pid_t)syscall(SYS_gettid))
#define memfd_create(_name, _flags) ((int)syscall(SYS_memfd_create, _name, _flags))
#endif

#endif
