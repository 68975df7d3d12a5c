/* SPDX-License-Identifier: MIT
 *
 * The cost of a call: cudaMalloc/cudaFree, cudaMallocAsync/cudaFreeAsync and kernel launches in
 * loops.  check.py runs it with and without the profiler.  `cost_rt SCALE` repeats everything SCALE
 * times as often.  Prints "name ns" lines.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <time.h>

#include "../programs/finish.h"

/* An empty kernel, old enough for every driver to compile. */
static const char kernel_text[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void cost_malloc(unsigned count)
{
    void *pointer = NULL;
    unsigned i;

    double start = now_ns();
    for (i = 0; i < count; i++) {
        CHECK(cudaMalloc(&pointer, 256 * KIB));
        CHECK(cudaFree(pointer));
    }
    printf("malloc_free %.1f\n", (now_ns() - start) / count);
}

static void cost_async(unsigned count, cudaStream_t stream)
{
    void *pointer = NULL;
    unsigned i;

    double start = now_ns();
    for (i = 0; i < count; i++) {
        CHECK(cudaMallocAsync(&pointer, 256 * KIB, stream));
        CHECK(cudaFreeAsync(pointer, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    printf("malloc_async_free_async %.1f\n", (now_ns() - start) / count);
}

static void cost_launch(unsigned count, cudaStream_t stream)
{
    CUmodule module = NULL;
    CUfunction kernel = NULL;
    unsigned i;

    if (cuModuleLoadData(&module, kernel_text) != CUDA_SUCCESS ||
        cuModuleGetFunction(&kernel, module, "nothing") != CUDA_SUCCESS) {
        printf("launch none\n");
        return;
    }
    for (i = 0; i < count / 10; i++) {
        CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, (CUstream)stream, NULL, NULL));
    }
    CHECK(cudaStreamSynchronize(stream));
    double start = now_ns();
    for (i = 0; i < count; i++) {
        CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, (CUstream)stream, NULL, NULL));
    }
    CHECK(cudaStreamSynchronize(stream));
    printf("launch %.1f\n", (now_ns() - start) / count);
}

int main(int argc, char **argv)
{
    unsigned scale = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    cudaStream_t stream = NULL;
    void *warm = NULL;

    CHECK(cudaMalloc(&warm, MIB));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMallocAsync(&warm, MIB, stream)); /* stays, so that the pool keeps a block */
    cost_malloc(500 * scale);
    cost_async(2000 * scale, stream);
    cost_launch(20000 * scale, stream);
    return finish();
}
