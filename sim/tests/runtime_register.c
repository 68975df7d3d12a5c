/* SPDX-License-Identifier: MIT
 * Selftest: what a CUDA compiler puts into a program (fat binaries, host stubs, launches by them), and the runtime of
 * CUDA 12 beside that of 13. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdint.h>

#include "check.h"

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *entry);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               cudaStream_t stream);
char __cudaInitModule(void **handle);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant,
                       int global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext, size_t size,
                              int constant, int global);
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *tid,
                            void *bid, dim3 *block, dim3 *grid, int *warp);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);

static struct {
    uint32_t magic;
    uint16_t version, header;
    uint64_t size;
    char bytes[48];
} image = {0xba55ed50, 1, 16, 48, {1, 2, 3}};

static struct {
    int magic, version;
    void *image, *more;
} wrapper = {0x466243b1, 1, &image, NULL};

static char stubs[5000];

static void launches(void)
{
    cudaLaunchConfig_t config = {.gridDim = {2, 1, 1}, .blockDim = {64, 1, 1}};
    struct cudaFuncAttributes attributes;
    void **handle = __cudaRegisterFatBinary(&wrapper), *arguments[] = {NULL};
    dim3 one = {1, 1, 1}, grid, block;
    size_t shared;
    void *stream;
    int blocks = 0;

    CHECK(handle != NULL);
    for (size_t i = 0; i < sizeof stubs - 1; i++)
        __cudaRegisterFunction(handle, &stubs[i], &stubs[i], "kernel", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
    /* The arguments are of unknown types: none is read. */
    CHECK_EQ(cudaLaunchKernel(&stubs[0], one, one, arguments, 0, NULL), cudaSuccess);
    CHECK_EQ(cudaLaunchKernel(&stubs[4998], one, one, arguments, 0, NULL), cudaSuccess);
    CHECK_EQ(cudaLaunchKernelExC(&config, &stubs[77], arguments), cudaSuccess);
    CHECK_EQ(cudaLaunchKernel(&stubs[4999], one, one, arguments, 0, NULL), cudaErrorInvalidDeviceFunction);
    CHECK_EQ(cudaFuncGetAttributes(&attributes, &stubs[5]), cudaSuccess);
    CHECK_EQ(attributes.maxThreadsPerBlock, 1024);
    CHECK_EQ(cudaFuncSetAttribute(&stubs[5], cudaFuncAttributeMaxDynamicSharedMemorySize, 65536), cudaSuccess);
    CHECK_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &stubs[5], 256, 0), cudaSuccess);
    CHECK_EQ(blocks, 8);
    CHECK_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &stubs[5], 250, 100000), cudaSuccess);
    CHECK_EQ(blocks, 2);
    CHECK_EQ(__cudaPushCallConfiguration((dim3){3, 4, 5}, one, 6, (void *)7), 0);
    CHECK_EQ(__cudaPopCallConfiguration(&grid, &block, &shared, &stream), cudaSuccess);
    CHECK(grid.x == 3 && grid.z == 5 && block.x == 1 && shared == 6 && stream == (void *)7);
    CHECK_EQ(__cudaPopCallConfiguration(&grid, &block, &shared, &stream), cudaErrorMissingConfiguration);
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
    __cudaUnregisterFatBinary(handle);
    CHECK_EQ(cudaLaunchKernel(&stubs[0], one, one, arguments, 0, NULL), cudaErrorInvalidDeviceFunction);
    cudaGetLastError();
}

/* Variables by their host side, and kernels by handle, as stubs of CUDA 13 launch them. */
static void symbols(void)
{
    void **handle = __cudaRegisterFatBinary(&wrapper), *arguments[] = {NULL}, *at = NULL, *managed = NULL;
    char table, text[16] = "0123456789abcde", back[16] = "";
    dim3 one = {1, 1, 1};
    cudaKernel_t kernel = NULL, same = NULL;
    cudaFunction_t function = NULL;
    const char *name = NULL;
    size_t size = 0;

    __cudaRegisterFunction(handle, &stubs[0], &stubs[0], "kernel", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterVar(handle, &table, &table, "table", 0, sizeof text, 1, 0);
    __cudaRegisterManagedVar(handle, &managed, (char *)&managed, "managed", 0, 64, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
    CHECK_EQ(cudaGetSymbolAddress(&at, text), cudaErrorInvalidSymbol);
    CHECK_EQ(cudaGetSymbolAddress(&at, &table), cudaSuccess);
    CHECK_EQ(cudaGetSymbolSize(&size, &table), cudaSuccess);
    CHECK_EQ(size, sizeof text);
    CHECK_EQ(cudaMemcpyToSymbol(&table, text, sizeof text, 0, cudaMemcpyHostToDevice), cudaSuccess);
    CHECK_EQ(cudaMemcpyToSymbol(&table, text, sizeof text, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpyToSymbol(&table, text, 1, 0, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
    CHECK_EQ(cudaMemcpyFromSymbol(back, &table, 4, 10, cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK(!memcmp(back, "abcd", 4));
    CHECK_EQ(cudaMemcpy(back, at, 4, cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK(!memcmp(back, "0123", 4));
    CHECK_EQ(__cudaInitModule(handle), 1);
    CHECK(managed != NULL);
    memset(managed, 1, 64);
    CHECK_EQ(cudaGetSymbolAddress(&at, managed), cudaSuccess);
    CHECK(at == managed);

    CHECK_EQ(__cudaGetKernel(&kernel, text), cudaErrorInvalidDeviceFunction);
    CHECK_EQ(__cudaGetKernel(&kernel, &stubs[0]), cudaSuccess);
    CHECK_EQ(__cudaLaunchKernel(kernel, one, one, arguments, 0, NULL), cudaSuccess);
    CHECK_EQ(cudaGetKernel(&same, &stubs[0]), cudaSuccess);
    CHECK(same == kernel);
    CHECK_EQ(cudaLaunchKernel(same, one, one, arguments, 0, NULL), cudaSuccess);
    CHECK_EQ(cudaGetFuncBySymbol(&function, &stubs[0]), cudaSuccess);
    CHECK_EQ(cudaFuncGetName(&name, &stubs[0]), cudaSuccess);
    CHECK(name && !strcmp(name, "kernel"));
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
    __cudaUnregisterFatBinary(handle);
    CHECK_EQ(cudaGetSymbolAddress(&at, &table), cudaErrorInvalidSymbol);
    CHECK(__cudaLaunchKernel(kernel, one, one, arguments, 0, NULL) != cudaSuccess);
    cudaGetLastError();
}

/* The structs of CUDA 12 are shorter, or laid out otherwise: nothing behind them may be written. */
static void older(void)
{
    struct {
        int type, device;
        void *on_device, *on_host;
        char after[64];
    } attributes;
    struct {
        char name[256], between[92];
        int clock_rate;
        char more[1032 - 352], after[64];
    } properties;
    void *library = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL), *pointer = NULL;
    int (*version)(int *), (*attributes_of)(void *, const void *), (*properties_of)(void *, int), number = 0;
    int (*advise)(const void *, size_t, int, int), (*prefetch)(const void *, size_t, int, void *);
    cudaError_t (*range)(void *, size_t, int, const void *, size_t);

    CHECK(library != NULL);
    if (!library)
        return;
    *(void **)&version = dlsym(library, "cudaRuntimeGetVersion");
    *(void **)&attributes_of = dlsym(library, "cudaPointerGetAttributes");
    *(void **)&properties_of = dlsym(library, "cudaGetDeviceProperties_v2");
    *(void **)&advise = dlsym(library, "cudaMemAdvise");
    *(void **)&prefetch = dlsym(library, "cudaMemPrefetchAsync");
    *(void **)&range = dlsym(library, "cudaMemRangeGetAttribute");
    CHECK(dlsym(library, "cudaMemAdvise_v2") && dlsym(library, "cudaStreamGetCaptureInfo_v2"));
    CHECK_EQ(version(&number), 0);
    CHECK_EQ(number, 12040);
    memset(&attributes, 0x55, sizeof attributes);
    memset(&properties, 0x55, sizeof properties);
    CHECK_EQ(cudaMallocManaged(&pointer, 1 << 20, cudaMemAttachGlobal), cudaSuccess);
    CHECK_EQ(attributes_of(&attributes, pointer), 0);
    CHECK(attributes.type == cudaMemoryTypeManaged && attributes.on_device == pointer && attributes.after[0] == 0x55);
    CHECK_EQ(properties_of(&properties, 0), 0);
    CHECK(strstr(properties.name, "Simulated") && properties.clock_rate == 1755000 && properties.after[0] == 0x55);
    CHECK_EQ(advise(pointer, 1 << 20, cudaMemAdviseSetPreferredLocation, cudaCpuDeviceId), 0);
    CHECK_EQ(range(&number, sizeof number, cudaMemRangeAttributePreferredLocation, pointer, 1 << 20), 0);
    CHECK_EQ(number, cudaCpuDeviceId);
    CHECK(dlsym(library, "cudaGraphGetEdges_v2") && dlsym(library, "cudaEventElapsedTime_v2") &&
          dlsym(library, "cudaThreadExit") && !dlsym(library, "rt_memcpy_batch_13"));
    CHECK_EQ(prefetch(pointer, 1 << 20, 0, NULL), 0);
    CHECK_EQ(
        cudaMemRangeGetAttribute(&number, sizeof number, cudaMemRangeAttributeLastPrefetchLocation, pointer, 1 << 20),
        cudaSuccess);
    CHECK_EQ(number, 0);
}

int main(void)
{
    launches();
    symbols();
    older();
    return check_done();
}
