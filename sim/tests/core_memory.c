/* SPDX-License-Identifier: MIT
 * Selftest: linear, pitched, managed, pinned and registered memory; errors, rounding, reuse, OOM, ownership. */
#include "core_check.h"

static size_t device_free(void)
{
    size_t left = 0, total = 0;
    CHECK_OK(cuMemGetInfo(&left, &total));
    CHECK_EQ(total, 1ll << 30);
    return left;
}

static void errors(void)
{
    CUdeviceptr p = 0, q = 0;
    CUcontext context;
    CHECK_EQ(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAlloc(NULL, 512), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFree(0));
    CHECK_EQ(cuMemFree(0x1234000), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemAlloc(&p, 4096));
    CHECK_EQ(cuMemFree(p + 512), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFree(p));
    CHECK_EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    q = 77;
    CHECK_EQ(cuMemAlloc(&q, 1ull << 40), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(q, 0); /* a failure leaves no pointer */
    CHECK_EQ(cuMemAlloc(&q, ~(size_t)0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_OK(cuCtxPopCurrent(&context));
    CHECK_EQ(cuMemFree(0x1234000), CUDA_ERROR_INVALID_VALUE); /* nobody's memory needs no context */
    CHECK_EQ(cuMemAlloc(&q, 512), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_OK(cuCtxPushCurrent(context));
    CHECK_EQ(check_kind(0, "linear", "current_bytes"), 0);
    CHECK_EQ(check_kind(0, "linear", "peak_bytes"), 4096);
    CHECK_EQ(check_kind(0, "linear", "calls"), 1);
}

static void rounding(void)
{
    CUdeviceptr small[2], large, base;
    size_t size, start = device_free();
    CHECK_OK(cuMemAlloc(&small[0], 1));
    CHECK_EQ(start - device_free(), 2 * CHECK_MIB);
    CHECK_OK(cuMemAlloc(&small[1], 513));
    CHECK_EQ(start - device_free(), 2 * CHECK_MIB); /* the same block */
    CHECK_EQ(small[1] - small[0], 512);
    CHECK_OK(cuMemAlloc(&large, CHECK_MIB + 1));
    CHECK_EQ(start - device_free(), 4 * CHECK_MIB);
    CHECK_EQ(large % (2 * CHECK_MIB), 0);
    CHECK_OK(cuMemGetAddressRange(&base, &size, small[1] + 100));
    CHECK(base == small[1] && size == 513); /* as asked, not as rounded */
    CHECK_EQ(cuMemGetAddressRange(&base, &size, small[1] + 513), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(check_reserved(0, "\"current\":"), 1 + 513 + CHECK_MIB + 1);
    CHECK_OK(cuMemFree(small[0]));
    CHECK_EQ(start - device_free(), 4 * CHECK_MIB); /* a partly used block stays */
    CHECK_OK(cuMemFree(small[1]));
    CHECK_OK(cuMemFree(large));
    CHECK_EQ(device_free(), start);
    CHECK_EQ(check_reserved(0, "\"current\":"), 0);
}

static void reuse(void)
{
    CUdeviceptr p, q, r;
    CHECK_OK(cuMemAlloc(&p, 8 * CHECK_MIB));
    CHECK_OK(cuMemAlloc(&q, 8 * CHECK_MIB));
    CHECK_OK(cuMemFree(p));
    CHECK_OK(cuMemAlloc(&r, 8 * CHECK_MIB));
    CHECK_EQ(r, p);
    CHECK_OK(cuMemFree(q));
    CHECK_OK(cuMemFree(r));
    CHECK_OK(cuMemAlloc(&p, 8 * CHECK_MIB));
    CHECK_EQ(p, r); /* the one freed last */
    CHECK_OK(cuMemFree(p));
}

static void full(void)
{
    CUdeviceptr p[600];
    int count = 0;
    size_t left = device_free();
    CUresult result = CUDA_SUCCESS;
    while (count < 600 && (result = cuMemAlloc(&p[count], 2 * CHECK_MIB)) == CUDA_SUCCESS)
        count++;
    CHECK_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(count, left / (2 * CHECK_MIB));
    CHECK(device_free() < (size_t)(2 * CHECK_MIB));
    for (int i = 0; i < count; i++)
        CHECK_OK(cuMemFree(p[i]));
    CHECK_EQ(device_free(), left);
}

static void pitched_and_managed(void)
{
    CUdeviceptr p, m;
    size_t pitch;
    CHECK_OK(cuMemAllocPitch(&p, &pitch, 1000, 10, 4));
    CHECK_EQ(pitch, 1024);
    CHECK_EQ(check_kind(0, "pitched", "current_bytes"), 10240);
    CHECK_EQ(check_allocated(0, "\"current\":"), 10240);
    CHECK_EQ(cuMemAllocPitch(&p, &pitch, 1000, 10, 3), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFree(p));
    size_t left = device_free();
    CHECK_OK(cuMemAllocManaged(&m, 3 * CHECK_MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQ(device_free(), left);
    CHECK_EQ(check_kind(0, "managed", "current_bytes"), 3 * CHECK_MIB);
    CHECK_EQ(check_reserved(0, "\"current\":"), 0);
    *(volatile int *)m = 7; /* host and device share it */
    int value = 0;
    CHECK_OK(cuMemcpyDtoH(&value, m, sizeof value));
    CHECK_EQ(value, 7);
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    int device = -9;
    CHECK_OK(cuMemAdvise(m, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location));
    CHECK_OK(cuMemRangeGetAttribute(&device, sizeof device, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, m, 4096));
    CHECK_EQ(device, 0);
    CHECK_EQ(cuMemAllocManaged(&p, 64, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFree(m));
    CHECK_EQ(check_kind(0, "managed", "current_bytes"), 0);
}

static void host(void)
{
    static char page[8192];
    void *p;
    CUdeviceptr d;
    unsigned type = 0;
    CHECK_OK(cuMemHostAlloc(&p, 10000, CU_MEMHOSTALLOC_PORTABLE));
    memset(p, 1, 10000);
    CHECK_EQ(check_kind(-1, "pinned", "current_bytes"), 10000);
    CHECK_OK(cuMemHostGetDevicePointer(&d, p, 0));
    CHECK_EQ(d, (CUdeviceptr)p);
    CHECK_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d));
    CHECK_EQ(type, CU_MEMORYTYPE_HOST);
    CHECK_EQ(cuMemFree(d), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFreeHost(p));
    CHECK_EQ(cuMemFreeHost(p), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemAllocHost(&p, 0));
    CHECK(!p);
    CHECK_EQ(check_kind(-1, "pinned", "calls"), 1);
    CHECK_OK(cuMemHostRegister(page, sizeof page, 0));
    CHECK_EQ(cuMemHostRegister(page + 4096, 64, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK_EQ(check_kind(-1, "registered", "current_bytes"), sizeof page);
    CHECK_OK(cuMemHostUnregister(page));
    CHECK_EQ(cuMemHostUnregister(page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CHECK_EQ(check_kind(-1, "registered", "current_bytes"), 0);
    CHECK_EQ(check_kind(-1, "pinned", "peak_bytes"), 10000);
}

static void old_abi(void)
{
    CUresult (*alloc)(unsigned *, unsigned) = (CUresult(*)(unsigned *, unsigned))dlsym(RTLD_DEFAULT, "cuMemAlloc");
    CUresult (*release)(unsigned) = (CUresult(*)(unsigned))dlsym(RTLD_DEFAULT, "cuMemFree");
    unsigned p = 0;
    CHECK(alloc && release);
    CHECK_OK(alloc(&p, 1000));
    CHECK(p != 0);
    CHECK_EQ(check_kind(0, "linear", "current_bytes"), 1000);
    CHECK_OK(release(p));
    CHECK_EQ(check_kind(0, "linear", "current_bytes"), 0);
    CHECK_EQ(release(p), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    CUdeviceptr p;
    setenv("GPUPROF_SIM", "memory=1GiB", 1);
    CHECK_EQ(cuMemAlloc(&p, 512), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_OK(cuInit(0));
    CHECK_EQ(cuMemAlloc(&p, 512), CUDA_ERROR_INVALID_CONTEXT);
    check_begin(0);
    errors();
    rounding();
    reuse();
    full();
    pitched_and_managed();
    host();
    old_abi();
    return check_done();
}
