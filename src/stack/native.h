/* SPDX-License-Identifier: MIT
 * native.h: call gp_native_start once, before the first gp_stack_native (stack.h). */
#ifndef GP_STACK_NATIVE_H
#define GP_STACK_NATIVE_H

#include <stdbool.h>

int gp_native_start(void); /* 0 or -errno */

/* Whether the calling thread is inside a function of the loader: in a constructor or destructor that it
 * runs, and so holds its lock. Before gp_native_start, on the thread that starts the library. */
bool gp_native_is_in_loader(void);

#endif
