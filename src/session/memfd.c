/* SPDX-License-Identifier: MIT
 * memfd.c: see memfd.h. */
#include "session/memfd.h"
#include "base/highfd.h"
#include <errno.h>
#include <sys/mman.h>

int gp_session_memfd(const char *name)
{
    int fd = gp_high_fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    return fd < 0 ? -errno : fd;
}
