/* SPDX-License-Identifier: MIT
 *
 * Four threads allocate and free memory in phases, while a harness switches stacks.
 *
 *   stack_switch        after each phase, and quiet, prints how much of the memory of each phase is
 *                       live and how much of it is not mapped, and holds
 *   stack_switch load   one long phase without a hold, then frees everything
 *
 * A thread frees any of its own blocks, also those of earlier phases. Blocks have 512 bytes to 1 MiB,
 * sizes that a cache does not round. Leaves the blocks of the phases live.
 */
#include <cuda.h>

#include "finish.h"
#include "threads.h"
#include "vmm.h"
#include <time.h>

enum { THREADS = 4, PHASES = 6, BLOCKS = 64, OPERATIONS = 300 };

struct block {
    CUdeviceptr pointer;
    CUmemGenericAllocationHandle handle;
    size_t bytes; /* 0: none */
    unsigned phase;
};

static struct block blocks[THREADS][BLOCKS];
static pthread_barrier_t barrier;
static CUdevice device;
static int is_load;

static unsigned long long next_random(unsigned long long *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

static void give_back(struct block *block)
{
    if (block->handle != 0)
        CHECK(cuMemRelease(block->handle));
    else
        CHECK(cuMemFree(block->pointer));
    memset(block, 0, sizeof(*block));
}

/* Handles are never mapped: they count at their call sites from their creation on. */
static void take(struct block *block, unsigned long long random, unsigned phase)
{
    block->bytes = (random % 2048 + 1) * 512;
    block->phase = phase;
    if (random % 16 == 0) {
        block->bytes = STEP;
        block->handle = vmm_create(device, block->bytes);
    } else if (random & 4096) {
        CHECK(cuMemAlloc(&block->pointer, block->bytes));
    } else {
        CHECK(cuMemAllocAsync(&block->pointer, block->bytes, CU_STREAM_PER_THREAD));
        CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    }
}

static void work(unsigned number, unsigned phase, unsigned long long *random)
{
    for (unsigned i = 0; i < OPERATIONS; i++) {
        struct block *block = &blocks[number][next_random(random) % BLOCKS];
        if (block->bytes != 0)
            give_back(block);
        else
            take(block, next_random(random), phase);
    }
}

static void print_live(unsigned phase)
{
    size_t unmapped = 0;
    printf("phase %u:", phase);
    for (unsigned p = 0; p < PHASES; p++) {
        size_t live = 0;
        for (unsigned i = 0; i < THREADS * BLOCKS; i++) {
            const struct block *block = &blocks[i / BLOCKS][i % BLOCKS];
            live += block->phase == p ? block->bytes : 0;
            unmapped += p == 0 && block->handle != 0 ? block->bytes : 0;
        }
        printf(" %zu", live);
    }
    printf(" unmapped %zu\n", unmapped);
    fflush(stdout);
}

static void in_phases(unsigned number)
{
    unsigned long long random = number + 1;
    for (unsigned phase = 0; phase < PHASES; phase++) {
        work(number, phase, &random);
        pthread_barrier_wait(&barrier);
        if (number == 0) {
            print_live(phase);
            program_hold();
        }
        pthread_barrier_wait(&barrier);
    }
}

static void under_load(unsigned number)
{
    unsigned long long random = number + 1;
    time_t end = time(NULL) + 3;
    while (time(NULL) < end)
        work(number, 0, &random);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[number][i].bytes != 0)
            give_back(&blocks[number][i]);
}

int main(int argc, char **argv)
{
    struct thread_arg threads[THREADS];
    is_load = argc > 1 && strcmp(argv[1], "load") == 0;
    device = program_start();
    pthread_barrier_init(&barrier, NULL, THREADS);
    if (is_load)
        program_hold();
    threads_start(threads, THREADS, is_load ? under_load : in_phases);
    threads_join(threads, THREADS);
    return finish();
}
