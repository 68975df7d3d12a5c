/* SPDX-License-Identifier: MIT
 * lock.c: the debug build's record of held ranks. */
#include "base/lock.h"

#ifdef GP_DEBUG
__thread unsigned gp_lock_held __attribute__((tls_model("initial-exec")));
#endif
