/* SPDX-License-Identifier: MIT
 *
 * ownstack.h: the bounds of the calling thread's own stack. Called by native.c and python.c.
 */
#ifndef GP_STACK_OWNSTACK_H
#define GP_STACK_OWNSTACK_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

/* [low, high) was probed page by page once and stays mapped as long as the thread lives. Empty: not
 * probed yet. */
struct gp_own_stack {
    uint64_t low, high;
};
extern __thread struct gp_own_stack gp_own_stack_bounds __attribute__((tls_model("initial-exec")));

/* Call once, before the first stack is walked. */
void gp_own_stack_start(void);

/* Extends the bounds of the calling thread down to sp. false: sp lies on another stack (a
 * coroutine's, a signal's). */
GP_COLD bool gp_own_stack_widen(uint64_t sp);

/* A buffer through which a stack that is not the thread's own is read: the kernel copies, and fails
 * where no page is mapped. */
struct gp_peek {
    uint64_t at, bytes;
    uint64_t words[64];
};
/* One word at `address`; false: it is not mapped. */
bool gp_ownstack_word(struct gp_peek *peek, uint64_t address, uint64_t *word);

#endif
