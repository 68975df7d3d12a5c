/* SPDX-License-Identifier: MIT
 *
 * agentlog.c: see agentlog.h.
 */
#include <base/text.h>
#include <read/common/agentlog.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_LOG_LINE 1024 /* below PIPE_BUF: a pipe takes the whole line or nothing */

static enum gp_agentlog_level log_level = GP_AGENTLOG_INFO;
static bool log_journal;
static uint64_t log_lost; /* any thread adds, the next writer takes; it orders nothing else, so relaxed */

/* The variable is DEVICE:INODE of the stream that the journal reads; stderr may have been
 * redirected since. */
static bool log_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat about;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &about) == 0 &&
           about.st_dev == device && about.st_ino == inode;
}

void gp_agent_log_open(enum gp_agentlog_level level)
{
    log_level = level;
    log_journal = log_is_journal();
}

/* If poll reports POLLOUT, a line has room and write does not wait. (O_NONBLOCK would apply to
 * every process that shares this stderr.) */
static bool log_put(const char *line, size_t length)
{
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) && write(STDERR_FILENO, line, length) >= 0;
}

static void log_write(const char *line, size_t length)
{
    uint64_t lost = __atomic_exchange_n(&log_lost, 0, __ATOMIC_RELAXED);
    char text[80];
    if (lost) {
        int n = snprintf(text, sizeof(text), "%s%" PRIu64 " log lines were dropped here: the pipe was full\n",
                         log_journal ? "<4>" : "gpuprof: agent: ", lost);
        if (!log_put(text, (size_t)n))
            __atomic_fetch_add(&log_lost, lost, __ATOMIC_RELAXED);
    }
    if (!log_put(line, length))
        __atomic_fetch_add(&log_lost, 1, __ATOMIC_RELAXED);
}

void gp_agent_log(enum gp_agentlog_level level, const char *format, ...)
{
    char line[GP_LOG_LINE], raw[GP_LOG_LINE];
    if (level > log_level)
        return;
    int keep = errno;
    int n = log_journal ? snprintf(line, sizeof(line), "<%d>", (int)level)
                        : snprintf(line, sizeof(line), "gpuprof: agent: ");
    va_list args;
    va_start(args, format);
    if (vsnprintf(raw, sizeof(raw), format, args) < 0)
        raw[0] = '\0';
    va_end(args);
    gp_text_clean(line + n, sizeof(line) - (size_t)n - 1, raw, sizeof(raw));
    size_t length = strlen(line);
    line[length++] = '\n';
    log_write(line, length);
    errno = keep;
}
