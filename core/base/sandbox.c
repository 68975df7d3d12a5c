/* SPDX-License-Identifier: MIT
 * sandbox.c: asks /proc whether a seccomp filter came after the start. */
#include "base/sandbox.h"
#include "base/highfd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The file has some 1500 bytes, and these lines are in the last third. A thread of the program may
 * have no room for all of it on its stack, so it is read in pieces. Each read makes the whole text
 * again, with other numbers: the two lines count where one piece has both, so pieces overlap. */
#define SANDBOX_BYTES 4096u
#define SANDBOX_PIECE 448u
#define SANDBOX_STEP  320u
/* Reading it takes 7 us, so a thread that asks all the time loses less than 1 % of its time. */
#define SANDBOX_OLD_NS 1000000ull

static uint64_t sandbox_number(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* The mode, and the number of filters from Linux 5.9 on, if this piece of the file has them. A system
 * call, because libc's pread is a cancellation point (base/lock.h). */
static bool sandbox_piece(int fd, uint32_t at, uint64_t *seccomp)
{
    char text[SANDBOX_PIECE];
    long got = syscall(SYS_pread64, fd, text, sizeof(text) - 1, (off_t)at);
    text[got > 0 ? got : 0] = '\0';
    const char *line = strstr(text, "\nSeccomp:\t");
    if (!line || line - text >= SANDBOX_STEP)
        return false;
    *seccomp = sandbox_number(line, "\nSeccomp:\t") << 32 | sandbox_number(line, "\nSeccomp_filters:\t");
    return true;
}

/* Both, or UINT64_MAX: unknown. The program may have closed the descriptor and reused its number. */
static uint64_t sandbox_read(int fd)
{
    static uint32_t x_at; /* where they were last */
    uint32_t at = __atomic_load_n(&x_at, __ATOMIC_RELAXED);
    uint64_t seccomp;
    if (fd < 0)
        return UINT64_MAX;
    if (sandbox_piece(fd, at, &seccomp))
        return seccomp;
    for (at = 0; at < SANDBOX_BYTES; at += SANDBOX_STEP)
        if (sandbox_piece(fd, at, &seccomp)) {
            __atomic_store_n(&x_at, at, __ATOMIC_RELAXED);
            return seccomp;
        }
    return UINT64_MAX;
}

void gp_sandbox_open(struct gp_sandbox *sandbox)
{
    sandbox->fd = gp_high_fd(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
    sandbox->start = sandbox_read(sandbox->fd);
}

void gp_sandbox_close(struct gp_sandbox *sandbox)
{
    if (sandbox_read(sandbox->fd) != UINT64_MAX)
        close(sandbox->fd);
    sandbox->fd = -1;
}

bool gp_sandbox_entered(const struct gp_sandbox *sandbox)
{
    int saved = errno;
    uint64_t now = sandbox_read(sandbox->fd);
    /* Without /proc, or with the descriptor closed: a mode of 0 means that nothing is forbidden. */
    bool entered = now == UINT64_MAX ? prctl(PR_GET_SECCOMP) != 0 : now != sandbox->start;
    errno = saved;
    return entered;
}

/* ---- for the program's threads ----------------------------------------------------------------------------------- */

static struct gp_sandbox sandbox_mine = {.fd = -1};
static uint32_t x_started, x_entered;
static uint64_t x_asked_ns;

void gp_sandbox_start(void)
{
    gp_sandbox_open(&sandbox_mine);
    /* [box.R] release: the descriptor; pairs with [box.A]. */
    __atomic_store_n(&x_started, 1, __ATOMIC_RELEASE);
}

void gp_sandbox_stop(void)
{
    __atomic_store_n(&x_started, 0, __ATOMIC_RELAXED);
    gp_sandbox_close(&sandbox_mine);
}

bool gp_sandboxed_now(void)
{
    /* [box.A] acquire: the descriptor; pairs with [box.R]. */
    return __atomic_load_n(&x_started, __ATOMIC_ACQUIRE) && gp_sandbox_entered(&sandbox_mine);
}

bool gp_sandboxed(void)
{
    struct timespec time;
    if (!__atomic_load_n(&x_started, __ATOMIC_RELAXED))
        return false;
    if (__atomic_load_n(&x_entered, __ATOMIC_RELAXED))
        return true;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t now = (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
    if (now - __atomic_load_n(&x_asked_ns, __ATOMIC_RELAXED) < SANDBOX_OLD_NS)
        return false;
    bool entered = gp_sandboxed_now();
    __atomic_store_n(&x_asked_ns, now, __ATOMIC_RELAXED);
    if (entered)
        __atomic_store_n(&x_entered, 1, __ATOMIC_RELAXED);
    return entered;
}
