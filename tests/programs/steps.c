/* SPDX-License-Identifier: MIT
 *
 * Stops between its steps, so that a harness can reset, scope and trace at known moments.
 *   step 1: 1 MiB stays.   step 2: 4 MiB comes and goes.   step 3: 2 MiB comes and goes.   step 4: 8 MiB comes and
 * goes. Leaves 1 MiB linear.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    static const size_t sizes[] = {4 * MIB, 2 * MIB, 8 * MIB};
    unsigned i;
    program_start();
    program_alloc(MIB);
    for (i = 0; i < 3; i++) {
        program_hold();
        CHECK(cuMemFree(program_alloc(sizes[i])));
    }
    return finish();
}
