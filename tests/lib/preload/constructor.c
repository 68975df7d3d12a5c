/* SPDX-License-Identifier: MIT
 *
 * constructor.c: a library whose constructor runs the function at the address in CONSTRUCTOR_CALL
 * (loader_cross.c).
 */
#include <stdint.h>
#include <stdlib.h>

__attribute__((constructor)) static void constructor_begin(void)
{
    const char *call = getenv("CONSTRUCTOR_CALL");
    if (call != NULL)
        ((void (*)(void))(uintptr_t)strtoull(call, NULL, 16))();
}
