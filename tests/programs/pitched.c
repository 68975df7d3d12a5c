/* SPDX-License-Identifier: MIT
 *
 * Pitched memory: what counts is pitch x height as the driver granted it, never width x height.
 * Leaves the second (1000 B x 300) and the third (1 B x 1) live.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    static const struct {
        size_t width, height;
        unsigned element;
    } shapes[] = {{513, 1000, 4}, {1000, 300, 8}, {1, 1, 16}, {8192, 64, 4}};
    CUdeviceptr pointers[4] = {0};
    size_t pitch = 0;
    unsigned i;

    program_start();
    for (i = 0; i < 4; i++) {
        pitch = 0;
        CHECK(cuMemAllocPitch(&pointers[i], &pitch, shapes[i].width, shapes[i].height, shapes[i].element));
        printf("pitch covers width: %d\n", pitch >= shapes[i].width);
    }
    CHECK(cuMemFree(pointers[0]));
    CHECK(cuMemFree(pointers[3]));
    REPORT("height 0", cuMemAllocPitch(&pointers[0], &pitch, 512, 0, 4));
    REPORT("element 3", cuMemAllocPitch(&pointers[0], &pitch, 512, 4, 3));
    return finish();
}
