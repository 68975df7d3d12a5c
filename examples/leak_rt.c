/* SPDX-License-Identifier: MIT
 * A loop that leaks (runtime API): every step loads its input, allocates and frees a working set of
 * changing size, and remember_metrics() keeps a small buffer.  The changing working set hides the
 * leak in the total; `gpuprof leaks` finds the leak, and its unmarked steps.
 *
 * leak_rt [--steps N] [--seconds S] [--pace MILLISECONDS]     prints one line with the result */
#include <cuda_runtime_api.h>

#include "example.h"

#define BATCHES     6
#define INPUT_BYTES (24u << 20)
#define KEPT_BYTES  (192u << 10)
#define HISTORY     32768 /* most buffers that are kept; the loop ends after as many steps */

/* Kept "for later" and never read again. */
static void *history[HISTORY];

static __attribute__((noinline)) void *load_input(void)
{
    void *input;

    CHECK_RT(cudaMalloc(&input, INPUT_BYTES));
    CHECK_RT(cudaMemset(input, 1, 4096));
    return input;
}

static __attribute__((noinline)) size_t remember_metrics(long step)
{
    CHECK_RT(cudaMalloc(&history[step], KEPT_BYTES));
    CHECK_RT(cudaMemset(history[step], 0, 64));
    return KEPT_BYTES;
}

static __attribute__((noinline)) void process_batches(uint64_t *random)
{
    void *batches[BATCHES];

    for (int i = 0; i < BATCHES; i++) {
        size_t bytes = (size_t)(1 + example_random(random) % 48) << 20;

        CHECK_RT(cudaMalloc(&batches[i], bytes));
        CHECK_RT(cudaMemset(batches[i], i, 4096));
    }
    for (int i = 0; i < BATCHES; i++)
        CHECK_RT(cudaFree(batches[i]));
}

int main(int count, char **arguments)
{
    struct example_limits limits = example_arguments(count, arguments, 10, 20);
    uint64_t random = 7;
    size_t kept = 0;
    long step = 0;

    for (; step < HISTORY && example_goes_on(&limits, step); step++) {
        void *input = load_input();

        process_batches(&random);
        kept += remember_metrics(step);
        CHECK_RT(cudaFree(input));
        example_pause(&limits);
    }
    printf("leak: %ld steps, %zu KiB kept\n", step, kept >> 10);
    return 0;
}
