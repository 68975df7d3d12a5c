/* SPDX-License-Identifier: MIT
 *
 * memory.c: the memory file of a worker, which is filled with the library and sealed; see internal.h.
 * Called by inject.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* seals */
#endif
#include <attach/inject.h>
#include <read/collect/peer.h>

#include <base/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SEAL_NS     3000000000ull
#define SEAL_NOEXEC 0x20 /* F_SEAL_EXEC, which vm.memfd_noexec sets */

int gp_attach_copy(const char *from, int to)
{
    char *block = malloc(1u << 20);
    int fd = block ? open(from, O_RDONLY | O_CLOEXEC) : -1, rc = fd < 0 ? -errno : 0;
    for (ssize_t got; !rc && (got = read(fd, block, 1u << 20)) != 0;) {
        if (got < 0)
            rc = -errno;
        for (ssize_t done = 0, one; !rc && done < got; done += one)
            if ((one = write(to, block + done, (size_t)(got - done))) < 0)
                rc = -errno, one = 0;
    }
    if (fd >= 0)
        close(fd);
    free(block);
    return rc;
}

int gp_attach_seal(int fd)
{
    const struct timespec pause = {0, 10000000};
    const int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
    for (uint64_t begin = gp_clock_ns();;) {
        if (fcntl(fd, F_ADD_SEALS, seals) == 0)
            return 0;
        if (errno != EBUSY || gp_clock_ns() - begin > SEAL_NS)
            return -errno;
        nanosleep(&pause, NULL); /* a mapping that can be written is refused at once */
    }
}

int gp_attach_memory(int proc, int number, const char *file, uid_t owner)
{
    char name[32], link[80], want[80];
    struct stat status;
    snprintf(name, sizeof(name), "%d", number);
    int fd = gp_peer_memory(proc, name);
    if (fd < 0)
        return fd;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, link, sizeof(link) - 1);
    link[length > 0 ? length : 0] = '\0';
    snprintf(want, sizeof(want), "/memfd:%s (deleted)", file);
    if (fstat(fd, &status) == 0 && status.st_size == 0 && status.st_blocks == 0 && status.st_uid == owner &&
        (fcntl(fd, F_GET_SEALS) | SEAL_NOEXEC) == SEAL_NOEXEC && strcmp(link, want) == 0)
        return fd;
    close(fd);
    return -EPERM;
}
