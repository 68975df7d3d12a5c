/* SPDX-License-Identifier: MIT
 *
 * A training loop of 20 steps with 48 layers, one branch of which keeps its blocks: about 100 MiB,
 * in two of three steps.  Arguments: "fixed": the branch frees it; "unmarked": no marks are set;
 * "slow": 100 ms a step.
 */
#include <cuda.h>

#include "api.h"
#include "finish.h"
#include <time.h>

#define LAYERS 48
#define LAYER(_n)                                                                                                      \
    static __attribute__((noinline)) CUdeviceptr layer_##_n(size_t bytes)                                              \
    {                                                                                                                  \
        CUdeviceptr pointer = 0;                                                                                       \
        CHECK(cuMemAlloc(&pointer, bytes));                                                                            \
        return pointer;                                                                                                \
    }
/* clang-format off */
#define EIGHT(_n) LAYER(_n##0) LAYER(_n##1) LAYER(_n##2) LAYER(_n##3) LAYER(_n##4) LAYER(_n##5) LAYER(_n##6) LAYER(_n##7)
EIGHT(1) EIGHT(2) EIGHT(3) EIGHT(4) EIGHT(5) EIGHT(6)
#define NAMES(_n) layer_##_n##0, layer_##_n##1, layer_##_n##2, layer_##_n##3, layer_##_n##4, layer_##_n##5, layer_##_n##6, \
    layer_##_n##7
    /* clang-format on */

    static CUdeviceptr kept[64];
static unsigned kept_count;

static __attribute__((noinline)) CUdeviceptr inner_branch(unsigned step)
{
    CUdeviceptr pointer = 0;
    CHECK(cuMemAlloc(&pointer, 90 * MIB + step * 512 * KIB));
    return pointer;
}

static void train(unsigned step, int fixed)
{
    static CUdeviceptr (*const layers[LAYERS])(size_t) = {NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5), NAMES(6)};
    CUdeviceptr outputs[LAYERS];
    unsigned i;
    for (i = 0; i < LAYERS; i++)
        outputs[i] = layers[i]((1 + (step * 7 + i * 13) % 5) * MIB);
    if (step % 3 != 0) {
        CUdeviceptr pointer = inner_branch(step);
        if (fixed)
            CHECK(cuMemFree(pointer));
        else
            kept[kept_count++] = pointer;
    }
    while (i-- > 0)
        CHECK(cuMemFree(outputs[i]));
}

int main(int argc, char **argv)
{
    int fixed = 0, unmarked = 0, slow = 0, i;
    unsigned step;
    for (i = 1; i < argc; i++) {
        fixed |= strcmp(argv[i], "fixed") == 0;
        unmarked |= strcmp(argv[i], "unmarked") == 0;
        slow |= strcmp(argv[i], "slow") == 0;
    }
    program_start();
    unmarked |= !api_load();
    for (step = 0; step < 20; step++) {
        char name[32];
        struct timespec pause = {0, slow ? 100000000 : 2000000};
        snprintf(name, sizeof(name), "step %u", step);
        if (!unmarked)
            api_gpuprof_mark(name);
        train(step, fixed);
        nanosleep(&pause, NULL);
    }
    if (!unmarked)
        api_gpuprof_mark("step 20");
    printf("leak_branch done\n");
    return finish();
}
