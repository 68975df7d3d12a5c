/* SPDX-License-Identifier: MIT
 * Selftest of the simulated runtime: every way to get memory and give it back, pointers' attributes, copies and sets
 * that move the right bytes, errors and the last error. */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"

static size_t free_bytes(void)
{
    size_t free_now = 0, total = 0;

    CHECK_EQ(cudaMemGetInfo(&free_now, &total), cudaSuccess);
    return free_now;
}

static void errors(void)
{
    void *pointer = (void *)1;

    CHECK_EQ(cudaGetLastError(), cudaSuccess);
    CHECK_EQ(cudaMalloc(NULL, 10), cudaErrorInvalidValue);
    CHECK_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
    CHECK_EQ(cudaMalloc(&pointer, 0), cudaSuccess);
    CHECK(pointer == NULL);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaSuccess);
    CHECK_EQ(cudaFree(NULL), cudaSuccess);
    CHECK_EQ(cudaSetDevice(1000), cudaErrorInvalidDevice);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
    CHECK(!strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation"));
    CHECK(!strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory"));
    CHECK(!strcmp(cudaGetErrorName((cudaError_t)12345), "unrecognized error code"));
    CHECK_EQ(cudaMallocManaged(&pointer, 0, cudaMemAttachGlobal), cudaErrorInvalidValue);
    CHECK_EQ(cudaLaunchKernel((void *)errors, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL),
             cudaErrorInvalidDeviceFunction);
    cudaGetLastError();
}

static void linear(void)
{
    size_t before = free_bytes();
    char host[1000], back[1000];
    void *one, *two;

    for (size_t i = 0; i < sizeof host; i++)
        host[i] = (char)(i * 7);
    CHECK_EQ(cudaMalloc(&one, 1000), cudaSuccess);
    CHECK_EQ(cudaMalloc(&two, 5 << 20), cudaSuccess);
    CHECK(before - free_bytes() >= 5 << 20);
    CHECK_EQ(cudaMemcpy(one, host, 1000, cudaMemcpyHostToDevice), cudaSuccess);
    CHECK_EQ(cudaMemcpy(two, one, 1000, cudaMemcpyDeviceToDevice), cudaSuccess);
    CHECK_EQ(cudaMemset((char *)two + 10, 0x5a, 20), cudaSuccess);
    CHECK_EQ(cudaMemcpy(back, two, 1000, cudaMemcpyDefault), cudaSuccess);
    CHECK(!memcmp(back, host, 10) && !memcmp(back + 30, host + 30, 970) && back[10] == 0x5a && back[29] == 0x5a);
    CHECK_EQ(cudaMemcpy(one, host, 1000, (enum cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    CHECK_EQ(cudaFree(one), cudaSuccess);
    CHECK_EQ(cudaFree(one), cudaErrorInvalidValue);
    CHECK_EQ(cudaFree(two), cudaSuccess);
    CHECK_EQ(free_bytes(), before);
    cudaGetLastError();
}

static void pitched(void)
{
    struct cudaPitchedPtr cube = {0};
    unsigned char host[8][100], back[8][100];
    size_t pitch = 0;
    void *plane = NULL;

    CHECK_EQ(cudaMallocPitch(&plane, &pitch, 100, 8), cudaSuccess);
    CHECK(pitch >= 100 && pitch % 32 == 0);
    memset(host, 3, sizeof host);
    CHECK_EQ(cudaMemcpy2D(plane, pitch, host, 100, 100, 8, cudaMemcpyHostToDevice), cudaSuccess);
    CHECK_EQ(cudaMemset2D(plane, pitch, 9, 50, 4), cudaSuccess);
    CHECK_EQ(cudaMemcpy2D(back, 100, plane, pitch, 100, 8, cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK(back[0][0] == 9 && back[3][49] == 9 && back[3][50] == 3 && back[4][0] == 3 && back[7][99] == 3);
    CHECK_EQ(cudaMemcpy2D(plane, 50, host, 100, 100, 8, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
    CHECK_EQ(cudaFree(plane), cudaSuccess);
    CHECK_EQ(cudaMalloc3D(&cube, (struct cudaExtent){60, 5, 3}), cudaSuccess);
    CHECK(cube.ptr && cube.pitch >= 60 && cube.xsize == 60 && cube.ysize == 5);
    CHECK_EQ(cudaMemset3D(cube, 1, (struct cudaExtent){60, 5, 3}), cudaSuccess);
    CHECK_EQ(cudaFree(cube.ptr), cudaSuccess);
    CHECK_EQ(cudaMallocPitch(&plane, &pitch, 0, 8), cudaSuccess);
    CHECK(plane == NULL && pitch == 0);
}

static void arrays(void)
{
    struct cudaChannelFormatDesc desc = cudaCreateChannelDesc(32, 32, 0, 0, cudaChannelFormatKindFloat), found;
    struct cudaChannelFormatDesc bad = cudaCreateChannelDesc(32, 16, 0, 0, cudaChannelFormatKindFloat);
    struct cudaExtent extent;
    cudaArray_t array = NULL, level = NULL;
    cudaMipmappedArray_t mipmap = NULL;
    unsigned int flags = 9;
    float host[6][10][2], back[6][10][2];

    CHECK_EQ(cudaMallocArray(&array, &bad, 10, 6, 0), cudaErrorInvalidChannelDescriptor);
    CHECK_EQ(cudaMallocArray(&array, &desc, 10, 6, 0), cudaSuccess);
    CHECK_EQ(cudaArrayGetInfo(&found, &extent, &flags, array), cudaSuccess);
    CHECK(!memcmp(&found, &desc, sizeof desc) && extent.width == 10 && extent.height == 6 && extent.depth == 0);
    for (int i = 0; i < 120; i++)
        (&host[0][0][0])[i] = (float)i;
    CHECK_EQ(cudaMemcpy2DToArray(array, 0, 0, host, 80, 80, 6, cudaMemcpyHostToDevice), cudaSuccess);
    memset(back, 0, sizeof back);
    CHECK_EQ(cudaMemcpy2DFromArray(back, 80, array, 0, 0, 80, 6, cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK(!memcmp(back, host, sizeof host));
    memset(back, 0, sizeof back);
    /* With an array the width counts elements of 8 bytes: columns 2 and 3 of row 1. */
    struct cudaMemcpy3DParms copy = {.srcArray = array,
                                     .srcPos = {2, 1, 0},
                                     .dstPtr = {back, 80, 10, 6},
                                     .extent = {2, 1, 1},
                                     .kind = cudaMemcpyDeviceToHost};
    CHECK_EQ(cudaMemcpy3D(&copy), cudaSuccess);
    CHECK(back[0][0][0] == host[1][2][0] && back[0][1][1] == host[1][3][1] && back[0][2][0] == 0);
    CHECK_EQ(cudaFreeArray(array), cudaSuccess);
    CHECK_EQ(cudaMalloc3DArray(&array, &desc, (struct cudaExtent){4, 4, 4}, 0), cudaSuccess);
    CHECK_EQ(cudaFreeArray(array), cudaSuccess);
    CHECK_EQ(cudaMallocMipmappedArray(&mipmap, &desc, (struct cudaExtent){16, 16, 0}, 3, 0), cudaSuccess);
    CHECK_EQ(cudaGetMipmappedArrayLevel(&level, mipmap, 1), cudaSuccess);
    CHECK_EQ(cudaArrayGetInfo(NULL, &extent, NULL, level), cudaSuccess);
    CHECK_EQ(extent.width, 8);
    CHECK_EQ(cudaFreeMipmappedArray(mipmap), cudaSuccess);
    cudaGetLastError();
}

static void host_memory(void)
{
    struct cudaPointerAttributes attributes;
    static char registered[8192];
    void *pinned = NULL, *seen_by_device = NULL, *managed = NULL, *device = NULL;
    unsigned int flags = 0;

    CHECK_EQ(cudaMallocHost(&pinned, 4096), cudaSuccess);
    CHECK_EQ(cudaPointerGetAttributes(&attributes, pinned), cudaSuccess);
    CHECK_EQ(attributes.type, cudaMemoryTypeHost);
    CHECK_EQ(cudaFreeHost(pinned), cudaSuccess);
    CHECK_EQ(cudaHostAlloc(&pinned, 4096, cudaHostAllocMapped), cudaSuccess);
    CHECK_EQ(cudaHostGetDevicePointer(&seen_by_device, pinned, 0), cudaSuccess);
    CHECK(seen_by_device != NULL);
    CHECK_EQ(cudaHostGetFlags(&flags, pinned), cudaSuccess);
    CHECK(flags & cudaHostAllocMapped);
    CHECK_EQ(cudaFreeHost(pinned), cudaSuccess);
    CHECK_EQ(cudaHostRegister(registered, sizeof registered, cudaHostRegisterDefault), cudaSuccess);
    CHECK_EQ(cudaHostRegister(registered, sizeof registered, 0), cudaErrorHostMemoryAlreadyRegistered);
    CHECK_EQ(cudaHostUnregister(registered), cudaSuccess);
    CHECK_EQ(cudaHostUnregister(registered), cudaErrorHostMemoryNotRegistered);
    CHECK_EQ(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal), cudaSuccess);
    CHECK_EQ(cudaPointerGetAttributes(&attributes, managed), cudaSuccess);
    CHECK_EQ(attributes.type, cudaMemoryTypeManaged);
    CHECK_EQ(cudaFree(managed), cudaSuccess);
    CHECK_EQ(cudaMalloc(&device, 4096), cudaSuccess);
    CHECK_EQ(cudaPointerGetAttributes(&attributes, (char *)device + 100), cudaSuccess);
    CHECK_EQ(attributes.type, cudaMemoryTypeDevice);
    CHECK_EQ(attributes.device, 0);
    CHECK_EQ(cudaFree(device), cudaSuccess);
    CHECK_EQ(cudaPointerGetAttributes(&attributes, registered), cudaSuccess);
    CHECK_EQ(attributes.type, cudaMemoryTypeUnregistered);
    CHECK_EQ(attributes.device, cudaInvalidDeviceId);
    cudaGetLastError();
}

static void pools(void)
{
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {cudaMemLocationTypeDevice, 0}};
    cudaMemPool_t pool = NULL, current = NULL, usual = NULL;
    cudaStream_t stream = NULL;
    unsigned long long used = 99;
    void *one = NULL, *two = NULL;

    CHECK_EQ(cudaStreamCreate(&stream), cudaSuccess);
    CHECK_EQ(cudaMallocAsync(&one, 1 << 20, stream), cudaSuccess);
    CHECK_EQ(cudaMemPoolCreate(&pool, &props), cudaSuccess);
    CHECK_EQ(cudaMallocFromPoolAsync(&two, 4096, pool, stream), cudaSuccess);
    CHECK_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used), cudaSuccess);
    CHECK(one && two && one != two);
    CHECK_EQ(used, 4096);
    CHECK_EQ(cudaFreeAsync(two, stream), cudaSuccess);
    CHECK_EQ(cudaFreeAsync(one, stream), cudaSuccess);
    CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    CHECK_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used), cudaSuccess);
    CHECK_EQ(used, 0);
    CHECK_EQ(cudaDeviceGetDefaultMemPool(&usual, 0), cudaSuccess);
    CHECK_EQ(cudaDeviceSetMemPool(0, pool), cudaSuccess);
    CHECK_EQ(cudaDeviceGetMemPool(&current, 0), cudaSuccess);
    CHECK(current == pool && usual != pool);
    CHECK_EQ(cudaDeviceSetMemPool(0, usual), cudaSuccess);
    CHECK_EQ(cudaMemPoolTrimTo(pool, 0), cudaSuccess);
    CHECK_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
    CHECK_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

int main(void)
{
    errors();
    linear();
    pitched();
    arrays();
    host_memory();
    pools();
    CHECK_EQ(cudaGetLastError(), cudaSuccess);
    return check_done();
}
