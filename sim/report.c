/* SPDX-License-Identifier: MIT
 * See report.h. */
#define _GNU_SOURCE
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIM_REPORT_ITEMS 1024 /* a library has some hundred functions */

/* True the first time; a process that asks for more than the table holds gets no more lines. */
static bool sim_report_new(const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t seen[SIM_REPORT_ITEMS];
    static int count;
    static pid_t owner;
    uint64_t hash = UINT64_C(14695981039346656037);
    bool fresh;

    for (const char *at = text; *at; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
    pthread_mutex_lock(&lock);
    if (owner != getpid()) /* a forked child is a process of its own */
        count = 0;
    owner = getpid();
    int i = 0;
    while (i < count && seen[i] != hash)
        i++;
    fresh = i == count && count < SIM_REPORT_ITEMS;
    if (fresh)
        seen[count++] = hash;
    pthread_mutex_unlock(&lock);
    return fresh;
}

void sim_report(const char *library, const char *kind, const char *format, ...)
{
    const char *path = secure_getenv("GPUPROF_STANDIN_REPORT");
    char text[512], line[600];
    va_list list;
    int before = errno;

    if (!path || !*path)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    int length = snprintf(line, sizeof line, "%d\t%s\t%s\t%s\n", (int)getpid(), library, kind, text);
    if (length > 0 && (size_t)length < sizeof line && sim_report_new(strchr(line, '\t'))) {
        int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        /* One write: lines of several processes do not mix. */
        if (fd >= 0 && write(fd, line, (size_t)length) != length)
            fprintf(stderr, "gpuprof: sim: %s: cannot be written: %s\n", path, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    errno = before;
}
