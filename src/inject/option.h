/* SPDX-License-Identifier: MIT
 * option.h: settings from the environment. */
#ifndef GP_INJECT_OPTION_H
#define GP_INJECT_OPTION_H

#include <stddef.h>

/* Reads every row of option.def with secure_getenv.  What could not be used is described in complaint ("" if nothing).
 */
void gp_options_read(char *complaint, size_t complaint_bytes);

#endif
