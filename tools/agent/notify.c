/* SPDX-License-Identifier: MIT
 *
 * notify.c: messages to the service manager (internal.h).
 */
#include <agent/internal.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The socket's address: a path, or with '@' an abstract name. Returns the address's length; 0 if
 * there is none. */
static socklen_t notify_address(struct sockaddr_un *address)
{
    const char *name = getenv("NOTIFY_SOCKET");
    size_t length = name ? strlen(name) : 0;
    if (length < 2 || (name[0] != '/' && name[0] != '@') || length >= sizeof(address->sun_path))
        return 0;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, name, length);
    bool is_abstract = name[0] == '@';
    if (is_abstract)
        address->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + !is_abstract);
}

int gp_agent_notify(const char *format, ...)
{
    struct sockaddr_un address;
    socklen_t bytes = notify_address(&address);
    if (bytes == 0)
        return 0;
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(text))
        return -EMSGSIZE;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    ssize_t sent = sendto(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address, bytes);
    int error = sent < 0 ? -errno : 0;
    close(fd);
    return error;
}

uint64_t gp_agent_watchdog_ns(void)
{
    const char *every = getenv("WATCHDOG_USEC"), *whose = getenv("WATCHDOG_PID");
    char *end;
    if (!every || (whose && strtoull(whose, NULL, 10) != (unsigned long long)getpid()))
        return 0;
    errno = 0;
    unsigned long long us = strtoull(every, &end, 10);
    return errno || *end || us > UINT64_MAX / 1000 ? 0 : us * 1000 / 2;
}
