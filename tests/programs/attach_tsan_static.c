/* SPDX-License-Identifier: MIT
 * attach_target, built with -fsanitize=thread, the runtime in the program itself. */
#include "attach_target.c"
