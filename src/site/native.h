/* SPDX-License-Identifier: MIT
 * native.h: what native stacks need before the first one. */
#ifndef GP_SITE_NATIVE_H
#define GP_SITE_NATIVE_H

int gp_native_start(void); /* 0 or -errno */

#endif
