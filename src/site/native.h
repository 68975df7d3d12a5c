/* SPDX-License-Identifier: MIT
 * native.h: call gp_native_start once, before the first gp_stack_native (stack.h). */
#ifndef GP_SITE_NATIVE_H
#define GP_SITE_NATIVE_H

int gp_native_start(void); /* 0 or -errno */

#endif
