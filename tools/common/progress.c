/* SPDX-License-Identifier: MIT
 * progress.c: draws the progress bar on stderr; see progress.h.  Called by the commands that
 * read or write recordings. */
#include <common/progress.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GP_PROGRESS_QUIET_NS 500000000ull /* shorter work needs no bar */
#define GP_PROGRESS_EVERY_NS 100000000ull /* ten times a second is as often as a person can read */
#define GP_PROGRESS_WIDTH    30

static struct {
    char what[40];
    uint64_t begin_ns, last_ns;
    bool able, shown;
} progress;

static uint64_t progress_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static bool progress_able(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

void gp_progress_begin(const char *what)
{
    gp_progress_end();
    progress.able = progress_able();
    progress.begin_ns = progress_now();
    progress.last_ns = 0;
    /* A path may contain control characters, which could move the cursor. */
    size_t at = 0;
    for (; what[at] && at < sizeof(progress.what) - 1; at++)
        progress.what[at] = (unsigned char)what[at] < 0x20 || what[at] == 0x7f ? '?' : what[at];
    progress.what[at] = '\0';
}

void gp_progress_step(unsigned parts)
{
    if (!progress.able)
        return;
    uint64_t now = progress_now();
    if (now - progress.begin_ns < GP_PROGRESS_QUIET_NS || now - progress.last_ns < GP_PROGRESS_EVERY_NS)
        return;
    parts = parts > 1000 ? 1000 : parts;
    unsigned full = parts * GP_PROGRESS_WIDTH / 1000;
    char bar[GP_PROGRESS_WIDTH + 1];
    memset(bar, '#', full);
    memset(bar + full, '.', GP_PROGRESS_WIDTH - full);
    bar[GP_PROGRESS_WIDTH] = '\0';
    fprintf(stderr, "\r%s [%s] %3u %%", progress.what, bar, parts / 10);
    fflush(stderr);
    progress.last_ns = now;
    progress.shown = true;
}

void gp_progress_end(void)
{
    if (progress.shown) { /* blanks instead of an escape sequence work on every terminal */
        fprintf(stderr, "\r%*s\r", (int)strlen(progress.what) + GP_PROGRESS_WIDTH + 9, "");
        fflush(stderr);
    }
    progress.able = progress.shown = false;
}

void gp_progress_listener(void *arg, unsigned parts)
{
    (void)arg;
    gp_progress_step(parts);
}
