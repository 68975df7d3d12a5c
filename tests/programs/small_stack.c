/* SPDX-License-Identifier: MIT
 *
 * Threads whose stacks have 16 KiB, the least that POSIX threads may have, allocate memory of several kinds,
 * and fail once. Before them one thread with a large stack, which is painted, does the same at each depth of
 * more than a page, and reports how much of the stack the calls used. Each time objects were
 * loaded and unloaded before, and what gpuprof knows for a millisecond is old. Leaves 8 x 1 MiB linear.
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
/* A walk of the stack from 256 bytes deeper is the first that comes to a page, at one of these depths. */
#define STEP  256
#define STEPS 24
#define OWN   1024 /* no frame of this program has so much */

static CUcontext context;

/* Returns its frame. */
static __attribute__((noinline)) uintptr_t small_calls(void)
{
    CUdeviceptr pointer = 0;
    void *host = NULL;
    int i;
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
    if (cuMemAlloc(&pointer, 1ull << 50) != CUDA_ERROR_OUT_OF_MEMORY) {
        printf("failed: 1 PiB was allocated\n");
        program_failures++;
    }
    return (uintptr_t)__builtin_frame_address(0);
}

static void *small_thread(void *arg)
{
    small_calls();
    program_alloc(MIB);
    return arg;
}

/* Loads and unloads a library that nothing else needs. */
static void small_load(void)
{
    void *library = dlopen("libresolv.so.2", RTLD_NOW);
    if (library == NULL || dlclose(library) != 0) {
        printf("failed: %s\n", dlerror());
        program_failures++;
    }
}

/* How much the calls use of the stack that begins at `stack`, at the deepest of so many steps. */
static __attribute__((noinline)) size_t small_depth(volatile uint64_t *stack, int steps)
{
    volatile char step[STEP];
    size_t words = ((uintptr_t)__builtin_frame_address(0) - OWN - (uintptr_t)stack) / sizeof(*stack), i, used, deeper;
    uintptr_t frame;

    small_load();
    usleep(2000);
    for (i = 0; i < words; i++)
        stack[i] = PAINT;
    frame = small_calls();
    for (i = 0; i < words && stack[i] == PAINT; i++) {
    }
    used = frame - (uintptr_t)&stack[i];
    step[0] = 0;
    deeper = steps > 1 ? small_depth(stack, steps - 1) : (size_t)step[0];
    return deeper > used ? deeper : used;
}

static void *small_measure(void *stack)
{
    printf("used %zu\n", small_depth(stack, STEPS));
    return NULL;
}

static void small_large(void)
{
    void *stack = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    pthread_attr_t attr;
    pthread_t thread;

    if (stack == MAP_FAILED)
        return;
    pthread_attr_init(&attr);
    CHECK(pthread_attr_setstack(&attr, stack, LARGE));
    if (CHECK(pthread_create(&thread, &attr, small_measure, stack)) == 0)
        CHECK(pthread_join(thread, NULL));
    munmap(stack, LARGE);
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_attr_t attr;
    int i;

    program_start();
    CHECK(cuCtxGetCurrent(&context));
    small_large();
    pthread_attr_init(&attr);
    CHECK(pthread_attr_setstacksize(&attr, SMALL));
    for (i = 0; i < THREADS; i++)
        if (CHECK(pthread_create(&threads[i], &attr, small_thread, NULL)) == 0)
            CHECK(pthread_join(threads[i], NULL)); /* one at a time: the last waits for no lock */
    return finish();
}
