/* SPDX-License-Identifier: MIT
 *
 * Memory from functions with known names, with frame pointers and without, below a library's
 * callback, on two threads:
 *
 *      weights        on main, below qsort's callback      4 MiB, stays
 *      activations    on main, ten deep                    8 blocks of 1 MiB, gone at the end
 *      scratch        on a thread of its own               2 MiB, gone before the peak; 1 MiB, stays
 *
 * The peak is 12 MiB: weights and activations.
 */
#include <cuda.h>

#include "finish.h"
#include <pthread.h>

#ifdef __clang__
#define BARE   __attribute__((noinline))
#define FRAMED __attribute__((noinline))
#else
#define BARE   __attribute__((noinline, noclone, optimize("omit-frame-pointer", "no-optimize-sibling-calls")))
#define FRAMED __attribute__((noinline, noclone, optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")))
#endif

static volatile int sink;
static CUcontext context;
static CUdeviceptr layers[8];

FRAMED static void weights(void)
{
    program_alloc(4 * MIB);
    sink++;
}

static int order(const void *a, const void *b)
{
    static int done;
    if (!done++)
        weights();
    return *(const int *)a - *(const int *)b;
}

BARE static void activations(unsigned depth)
{
    volatile char room[100];
    room[0] = 1;
    if (depth > 0)
        activations(depth - 1);
    else
        for (unsigned i = 0; i < 8; i++)
            layers[i] = program_alloc(MIB);
    sink += room[0];
}

BARE static void scratch(size_t bytes, int keep)
{
    CUdeviceptr pointer = program_alloc(bytes);
    if (!keep)
        CHECK(cuMemFree(pointer));
    sink++;
}

static void *scratch_main(void *keep)
{
    /* Volatile: one loop with one call. */
    volatile int rounds = keep ? 1 : 3;
    volatile size_t bytes = keep ? MIB : 2 * MIB;
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < rounds; i++)
        scratch(bytes, keep != NULL);
    return NULL;
}

static void on_a_thread(void *keep)
{
    pthread_t thread;
    pthread_create(&thread, NULL, scratch_main, keep);
    pthread_join(thread, NULL);
}

int main(void)
{
    int numbers[] = {2, 1};
    program_start();
    CHECK(cuCtxGetCurrent(&context));
    on_a_thread(NULL);
    qsort(numbers, 2, sizeof(numbers[0]), order);
    activations(9);
    for (unsigned i = 0; i < 8; i++)
        CHECK(cuMemFree(layers[i]));
    on_a_thread(&context);
    printf("stacks done\n");
    return finish();
}
