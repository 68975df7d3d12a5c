/* SPDX-License-Identifier: MIT
 * destructor_too.c: the same library once more, so that one process can load it at two times. */
#include "destructor.c"
