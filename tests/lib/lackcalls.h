/* SPDX-License-Identifier: MIT
 *
 * lackcalls.h: system calls of one test program, which includes this file in one source: the N-th one of the thread that
 * asks for it fails.  It counts only calls that our own code makes through the C library's functions below.
 */
#ifndef GP_TEST_LIB_LACKCALLS_H
#define GP_TEST_LIB_LACKCALLS_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static _Thread_local unsigned call_fails;     /* so many calls from now one fails; 0: none */
static _Thread_local int call_error;          /* with this errno; 0: reads give nothing, other calls fail with EIO */
static _Thread_local const char *call_failed; /* its function; NULL: none has failed */

static bool call_lacks(const char *name)
{
    if (call_fails == 0 || --call_fails != 0)
        return false;
    call_failed = name;
    errno = call_error ? call_error : EIO;
    return true;
}

#define CALL_REAL(_type, _name, ...)                                                                                   \
    static _type (*real)(__VA_ARGS__);                                                                                 \
    if (!real)                                                                                                         \
    real = (_type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #_name)

int open(const char *path, int flags, ...)
{
    CALL_REAL(int, open, const char *, int, ...);
    va_list list;
    va_start(list, flags);
    unsigned mode = flags & O_CREAT ? va_arg(list, unsigned) : 0;
    va_end(list);
    return call_lacks("open") ? -1 : real(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    CALL_REAL(int, openat, int, const char *, int, ...);
    va_list list;
    va_start(list, flags);
    unsigned mode = flags & O_CREAT ? va_arg(list, unsigned) : 0;
    va_end(list);
    return call_lacks("openat") ? -1 : real(folder, path, flags, mode);
}

ssize_t read(int fd, void *into, size_t bytes)
{
    CALL_REAL(ssize_t, read, int, void *, size_t);
    return call_lacks("read") ? (call_error ? -1 : 0) : real(fd, into, bytes);
}

ssize_t pread(int fd, void *into, size_t bytes, off_t offset)
{
    CALL_REAL(ssize_t, pread, int, void *, size_t, off_t);
    return call_lacks("pread") ? (call_error ? -1 : 0) : real(fd, into, bytes, offset);
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    CALL_REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    return call_lacks("pwrite") ? (call_error ? -1 : 0) : real(fd, from, bytes, offset);
}

ssize_t readlinkat(int folder, const char *restrict path, char *restrict into, size_t bytes)
{
    CALL_REAL(ssize_t, readlinkat, int, const char *, char *, size_t);
    return call_lacks("readlinkat") ? -1 : real(folder, path, into, bytes);
}

int fstat(int fd, struct stat *status)
{
    CALL_REAL(int, fstat, int, struct stat *);
    return call_lacks("fstat") ? -1 : real(fd, status);
}

int fstatfs(int fd, struct statfs *status)
{
    CALL_REAL(int, fstatfs, int, struct statfs *);
    return call_lacks("fstatfs") ? -1 : real(fd, status);
}

int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict status)
{
    CALL_REAL(int, statx, int, const char *, int, unsigned, struct statx *);
    return call_lacks("statx") ? -1 : real(folder, path, flags, mask, status);
}

int fcntl(int fd, int command, ...)
{
    CALL_REAL(int, fcntl, int, int, ...);
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return call_lacks("fcntl") ? -1 : real(fd, command, argument);
}

void *mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset)
{
    CALL_REAL(void *, mmap, void *, size_t, int, int, int, off_t);
    return call_lacks("mmap") ? MAP_FAILED : real(at, bytes, access, flags, fd, offset);
}

int memfd_create(const char *name, unsigned flags)
{
    CALL_REAL(int, memfd_create, const char *, unsigned);
    return call_lacks("memfd_create") ? -1 : real(name, flags);
}

DIR *fdopendir(int fd)
{
    CALL_REAL(DIR *, fdopendir, int);
    return call_lacks("fdopendir") ? NULL : real(fd);
}

ssize_t getrandom(void *into, size_t bytes, unsigned flags)
{
    CALL_REAL(ssize_t, getrandom, void *, size_t, unsigned);
    return call_lacks("getrandom") ? -1 : real(into, bytes, flags);
}

/* Descriptors (of the first 64) and mappings of memfds that this process has. */
static inline unsigned call_held(void)
{
    unsigned count = 0;
    char line[512];
    for (int fd = 0; fd < 64; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof(line), maps))
        count += strstr(line, "/memfd:") != NULL;
    if (maps)
        fclose(maps);
    return count;
}

#endif
