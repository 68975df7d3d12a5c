/* SPDX-License-Identifier: MIT
 * memfd.c: see memfd.h. */
#include "session/memfd.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Low descriptor numbers belong to the program: some programs print them or rely on the next one. */
#define GP_FD_HIGH 800

int gp_session_memfd(const char *name)
{
    struct rlimit limit;
    int low = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (low < 0)
        return -errno;
    int floor = GP_FD_HIGH;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= GP_FD_HIGH + 64)
        floor = (int)limit.rlim_cur / 2;
    int fd = fcntl(low, F_DUPFD_CLOEXEC, floor), moved = errno;
    close(low);
    return fd < 0 ? -moved : fd; /* no session is better than the program's next number */
}
