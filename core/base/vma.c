/* SPDX-License-Identifier: MIT
 * vma.c: reads the lines of /proc/PID/maps. */
#include "base/vma.h"
#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static bool vma_number(const char **at, unsigned base, char end, uint64_t *out)
{
    uint64_t value = 0;
    const char *start = *at;
    for (;; (*at)++) {
        char c = **at;
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 99;
        if (digit >= base)
            break;
        value = value * base + digit;
    }
    if (*at == start || (**at != end && !(end == ' ' && **at == '\0')))
        return false;
    *at += **at != '\0';
    *out = value;
    return true;
}

/* Takes apart one line without its newline; the path points into it. False: it is no such line.
 * "start-end rights offset major:minor inode path" */
static bool vma_parse(const char *line, struct gp_vma *out)
{
    uint64_t major, minor;
    if (!vma_number(&line, 16, '-', &out->start) || !vma_number(&line, 16, ' ', &out->end) || out->end <= out->start ||
        strnlen(line, 5) < 5 || line[4] != ' ')
        return false;
    memcpy(out->rights, line, 4);
    out->rights[4] = '\0';
    line += 5;
    if (!vma_number(&line, 16, ' ', &out->offset) || !vma_number(&line, 16, ':', &major) ||
        !vma_number(&line, 16, ' ', &minor) || !vma_number(&line, 10, ' ', &out->inode))
        return false;
    out->device = makedev((unsigned)major, (unsigned)minor);
    out->path = line + strspn(line, " ");
    return true;
}

int gp_vma_walk(int fd, char *buffer, size_t bytes, size_t most, gp_vma_each *each, void *context)
{
    struct gp_vma mapping;
    size_t used = 0, all = 0;
    for (;;) {
        ssize_t got = read(fd, buffer + used, bytes - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : 0;
        char *line = buffer, *end;
        used += (size_t)got;
        all += (size_t)got;
        for (; (end = memchr(line, '\n', used - (size_t)(line - buffer))); line = end + 1) {
            *end = '\0';
            if (vma_parse(line, &mapping) && !each(context, &mapping))
                return -ECANCELED;
        }
        used -= (size_t)(line - buffer);
        memmove(buffer, line, used);
        if (used == bytes)
            return -E2BIG;
        if (all >= most)
            return -EFBIG;
    }
}
