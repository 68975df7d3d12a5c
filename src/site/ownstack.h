/* SPDX-License-Identifier: MIT
 *
 * ownstack.h: which memory is the calling thread's own stack.
 */
#ifndef GP_SITE_OWNSTACK_H
#define GP_SITE_OWNSTACK_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

/* [low, high): looked at page by page once, and part of this thread's stack as long as it lives.  Empty: not yet. */
struct gp_own_stack {
    uint64_t low, high;
};
extern __thread struct gp_own_stack gp_window __attribute__((tls_model("initial-exec")));

/* Before the first stack. */
void gp_window_start(void);

/* Widens the window down to sp.  false: sp lies on another stack (a coroutine's, a signal's). */
GP_COLD bool gp_window_widen(uint64_t sp);

/* What a stack that is not the thread's own is read through: the kernel copies, and says no where nothing is. */
struct gp_peek {
    uint64_t at, bytes;
    uint64_t words[64];
};
bool gp_peek_word(struct gp_peek *peek, uint64_t address, uint64_t *word);

#endif
