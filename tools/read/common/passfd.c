/* SPDX-License-Identifier: MIT
 * passfd.c: see passfd.h. */
#include <read/common/passfd.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

union passfd_control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

int gp_passfd_send(int socket, void *body, size_t bytes, int file)
{
    struct iovec part = {body, bytes};
    union passfd_control control = {{0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(head), &file, sizeof(file));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)bytes ? 0 : errno ? -errno : -EIO;
}

int gp_passfd_receive(int socket, void *body, size_t bytes, int *file)
{
    struct iovec part = {body, bytes};
    union passfd_control control = {{0}};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    *file = -1;
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)bytes)
        return -EIO;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(file, CMSG_DATA(head), sizeof(*file));
    return 0;
}

void gp_passfd_keep(int socket, int other)
{
    int high = fcntl(socket, F_DUPFD, 3), high_other = other < 0 ? -1 : fcntl(other, F_DUPFD, 3);
    if (dup2(high, STDIN_FILENO) < 0 || (other >= 0 && dup2(high_other, STDOUT_FILENO) < 0))
        _exit(1);
    int first = other < 0 ? 1 : 2;
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) != 0)
        for (int i = first, most = (int)sysconf(_SC_OPEN_MAX); i < most; i++)
            close(i);
}
