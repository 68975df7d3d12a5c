/* SPDX-License-Identifier: MIT
 *
 * Threads whose stacks have 16 KiB, the least that POSIX threads may have, allocate memory of several kinds,
 * and fail once. Before them one thread with a large stack, which is painted, does the same and reports how
 * much of it was used below its own frame. Leaves 8 x 1 MiB linear.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

#include "finish.h"

#define THREADS 8
#define SMALL   (16 * KIB)
#define LARGE   (256 * KIB)
#define PAINT   0xa5a5a5a5a5a5a5a5ull

static CUcontext context;
static uintptr_t large_frame; /* of the thread with the large stack */

static void *small_calls(void *arg)
{
    CUdeviceptr pointer = 0;
    void *host = NULL;
    int i;
    if (arg == NULL)
        large_frame = (uintptr_t)__builtin_frame_address(0);
    CHECK(cuCtxSetCurrent(context));
    for (i = 0; i < 20; i++) {
        CHECK(cuMemAlloc(&pointer, MIB));
        CHECK(cuMemFree(pointer));
        CHECK(cuMemAllocManaged(&pointer, MIB, CU_MEM_ATTACH_GLOBAL));
        CHECK(cuMemFree(pointer));
        CHECK(cuMemAllocHost(&host, 4 * KIB));
        CHECK(cuMemFreeHost(host));
        CHECK(cuMemAllocAsync(&pointer, MIB, NULL));
        CHECK(cuMemFreeAsync(pointer, NULL));
    }
    if (arg != NULL)
        program_alloc(MIB);
    if (cuMemAlloc(&pointer, 1ull << 50) != CUDA_ERROR_OUT_OF_MEMORY) {
        printf("failed: 1 PiB was allocated\n");
        program_failures++;
    }
    return NULL;
}

static void small_depth(void)
{
    uint64_t *stack = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    size_t i, words = LARGE / sizeof(*stack);
    pthread_attr_t attr;
    pthread_t thread;

    if (stack == MAP_FAILED)
        return;
    for (i = 0; i < words; i++)
        stack[i] = PAINT;
    pthread_attr_init(&attr);
    CHECK(pthread_attr_setstack(&attr, stack, LARGE));
    if (CHECK(pthread_create(&thread, &attr, small_calls, NULL)) == 0)
        CHECK(pthread_join(thread, NULL));
    for (i = 0; i < words && stack[i] == PAINT; i++) {
    }
    printf("used %zu\n", (size_t)(large_frame - (uintptr_t)&stack[i]));
    munmap(stack, LARGE);
}

int main(void)
{
    static char counts;
    pthread_t threads[THREADS];
    pthread_attr_t attr;
    int i;

    program_start();
    CHECK(cuCtxGetCurrent(&context));
    small_depth();
    pthread_attr_init(&attr);
    CHECK(pthread_attr_setstacksize(&attr, SMALL));
    for (i = 0; i < THREADS; i++)
        if (CHECK(pthread_create(&threads[i], &attr, small_calls, &counts)) == 0)
            CHECK(pthread_join(threads[i], NULL)); /* one at a time: the last waits for no lock */
    return finish();
}
