/* SPDX-License-Identifier: MIT
 * attach_target, built with -fsanitize=thread. */
#include "attach_target.c"
