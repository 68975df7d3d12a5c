/* SPDX-License-Identifier: MIT
 *
 * Is linked with a library that has variables with the names of driver calls
 * (tests/lib/preload/variables.c). Leaves 24 MiB linear.
 */
#include "finish.h"

int variables_take(size_t bytes);

int main(void)
{
    REPORT("taken", variables_take(24 * MIB));
    return finish();
}
