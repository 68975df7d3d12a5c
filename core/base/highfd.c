/* SPDX-License-Identifier: MIT
 * highfd.c: moves descriptors of ours to high numbers. */
#include "base/highfd.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define GP_FD_HIGH 800

int gp_high_fd(int fd)
{
    struct rlimit limit;
    int floor = GP_FD_HIGH;
    if (fd < 0)
        return fd;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= GP_FD_HIGH + 64)
        floor = (int)limit.rlim_cur / 2;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, floor), error = errno;
    close(fd);
    errno = error;
    return high; /* no descriptor is better than the program's next number */
}
