/* SPDX-License-Identifier: MIT
 *
 * runtime.h: cudaMalloc and cudaFree as programs use them; one text for the shared runtime
 * (shim_rt.c) and the one that is linked in (shim_srt.c), which reaches the driver only by dlopen
 * and cuGetProcAddress. Leaves 1 MiB + 3000 B linear.
 */
#ifndef GP_TEST_PROGRAMS_RUNTIME_H
#define GP_TEST_PROGRAMS_RUNTIME_H

static size_t runtime_wrong(const void *at, size_t bytes, unsigned char value)
{
    static unsigned char copy[4 * MIB];
    size_t wrong = 0, i;
    if (CHECK(cudaMemcpy(copy, at, bytes, cudaMemcpyDeviceToHost)) != 0)
        return bytes;
    for (i = 0; i < bytes; i++)
        wrong += copy[i] != value;
    return wrong;
}

/* One stream uses the block, it is freed, and another stream uses the next block. */
static void runtime_streams(void)
{
    static const size_t sizes[] = {700, 64 * KIB, 4 * MIB};
    cudaStream_t streams[2] = {NULL, NULL};
    void *first, *second;
    size_t wrong = 0;
    unsigned i, round;
    CHECK(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking));
    CHECK(cudaStreamCreate(&streams[1]));
    for (round = 0; round < 4; round++) {
        for (i = 0; i < 3; i++) {
            first = second = NULL;
            CHECK(cudaMalloc(&first, sizes[i]));
            CHECK(cudaMemsetAsync(first, 1, sizes[i], streams[round % 2]));
            CHECK(cudaFree(first));
            CHECK(cudaMalloc(&second, sizes[i]));
            CHECK(cudaMemsetAsync(second, 2, sizes[i], streams[1 - round % 2]));
            CHECK(cudaStreamSynchronize(streams[1 - round % 2]));
            wrong += runtime_wrong(second, sizes[i], 2);
            CHECK(cudaFreeAsync(second, streams[1 - round % 2]));
        }
    }
    CHECK(cudaStreamDestroy(streams[0]));
    CHECK(cudaStreamDestroy(streams[1]));
    printf("streams: %zu wrong\n", wrong);
}

static void runtime_kinds(void)
{
    struct cudaPointerAttributes about;
    void *managed = NULL, *pitched = NULL, *async = NULL, *linear = NULL;
    size_t pitch = 0, left = 0, total = 0;
    CHECK(cudaMallocManaged(&managed, 2 * MIB, cudaMemAttachGlobal));
    CHECK(cudaMallocPitch(&pitched, &pitch, 500, 20));
    CHECK(cudaMallocAsync(&async, MIB, NULL));
    CHECK(cudaMalloc(&linear, 5 * MIB));
    memset(&about, 0, sizeof(about));
    CHECK(cudaPointerGetAttributes(&about, (char *)linear + MIB));
    printf("linear: type %d, device %d\n", (int)about.type, about.device);
    CHECK(cudaMemGetInfo(&left, &total));
    printf("info: %d\n", left < total);
    CHECK(cudaFree(managed));
    CHECK(cudaFree(pitched));
    CHECK(cudaFree(async));
    CHECK(cudaFree(linear));
}

static void runtime_errors(void)
{
    void *block = NULL;
    REPORT("no bytes", cudaMalloc(&block, 0));
    REPORT("free of nothing", cudaFree(NULL));
    REPORT("too large", cudaMalloc(&block, (size_t)1 << 50));
    REPORT("last error", cudaGetLastError());
    REPORT("last error", cudaGetLastError());
    CHECK(cudaMalloc(&block, 3 * MIB));
    REPORT("free of the middle", cudaFree((char *)block + MIB));
    REPORT("free", cudaFree(block));
    REPORT("free again", cudaFree(block));
    REPORT("last error", cudaGetLastError());
}

static int runtime_main(void)
{
    void *kept = NULL, *small = NULL;
    CHECK(cudaMalloc(&kept, MIB));
    CHECK(cudaMalloc(&small, 3000));
    CHECK(cudaMemset(small, 9, 3000));
    runtime_streams();
    runtime_kinds();
    runtime_errors();
    printf("kept: %zu wrong\n", runtime_wrong(small, 3000, 9));
    CHECK(cudaDeviceSynchronize());
    return finish();
}

#endif
