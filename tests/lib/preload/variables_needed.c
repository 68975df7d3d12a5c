/* SPDX-License-Identifier: MIT
 *
 * variables_needed.c: a library that needs one with variables (variables.c).
 */
#include <stddef.h>

int variables_take(size_t bytes);
int variables_needed(size_t bytes);

int variables_needed(size_t bytes)
{
    return variables_take(bytes);
}
