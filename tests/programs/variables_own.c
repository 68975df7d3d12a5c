/* SPDX-License-Identifier: MIT
 *
 * Has variables with the names of driver calls itself, and its linker exports them (-rdynamic). Leaves
 * 24 MiB linear.
 */
#include "../lib/preload/variables.c"

#include "finish.h"

int main(void)
{
    REPORT("taken", variables_take(24 * MIB));
    return finish();
}
