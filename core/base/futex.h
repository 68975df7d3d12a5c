/* SPDX-License-Identifier: MIT
 *
 * futex.h: wait and wake on a word that two processes share (so never FUTEX_PRIVATE_FLAG).
 */
#ifndef GP_BASE_FUTEX_H
#define GP_BASE_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps while *word == seen, for at most timeout_ns (UINT64_MAX: without limit). It may return
 * spuriously: the caller must read the word again. */
static inline void gp_futex_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec ts = {(time_t)(timeout_ns / 1000000000ull), (long)(timeout_ns % 1000000000ull)};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, timeout_ns == UINT64_MAX ? NULL : &ts, NULL, 0);
}

static inline void gp_futex_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
