/* SPDX-License-Identifier: MIT
 * Selftest: several devices, primary and created contexts, the stack, and the memory that ends with a context. */
#include "core_check.h"

static void stack(void)
{
    CUcontext primary = check_begin(0), made = NULL, top = NULL, popped = NULL;
    CUdevice device = -1;
    CHECK_OK(cuCtxCreate(&made, NULL, 0, 1));
    CHECK_OK(cuCtxGetCurrent(&top));
    CHECK(top == made);
    CHECK_OK(cuCtxGetDevice(&device));
    CHECK_EQ(device, 1);
    CHECK_OK(cuCtxPopCurrent(&popped));
    CHECK(popped == made);
    CHECK_OK(cuCtxGetDevice(&device));
    CHECK_EQ(device, 0);
    CHECK_OK(cuCtxPushCurrent(made));
    CHECK_EQ(cuCtxDestroy(primary), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_OK(cuCtxDestroy(made)); /* pops it */
    CHECK_OK(cuCtxGetCurrent(&top));
    CHECK(top == primary);
    CHECK_EQ(cuCtxPushCurrent(made), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuCtxDestroy(made), CUDA_ERROR_INVALID_CONTEXT);
}

static void ownership(void)
{
    CUcontext made;
    CUdeviceptr p;
    void *h;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR descriptor = {64, 64, CU_AD_FORMAT_FLOAT, 1};
    CHECK_OK(cuCtxCreate(&made, NULL, 0, 1));
    CHECK_OK(cuMemAlloc(&p, 3 * CHECK_MIB));
    CHECK_OK(cuMemAlloc(&p, 100));
    CHECK_OK(cuMemHostAlloc(&h, 4096, 0));
    CHECK_OK(cuArrayCreate(&array, &descriptor));
    CHECK_EQ(check_reserved(1, "\"current\":"), 3 * CHECK_MIB + 100 + 16384);
    CHECK_EQ(check_reserved(0, "\"current\":"), 0);
    CHECK_OK(cuCtxDestroy(made));
    CHECK_EQ(check_reserved(1, "\"current\":"), 0);
    CHECK_EQ(check_reserved(1, "\"peak\":"), 3 * CHECK_MIB + 100 + 16384);
    CHECK_EQ(check_kind(-1, "pinned", "current_bytes"), 0);
    CHECK_EQ(check_kind(1, "array", "peak_bytes"), 16384);
    CHECK_EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
}

static void primary(void)
{
    CUcontext first, again;
    CUdeviceptr p;
    unsigned flags;
    int active = -1;
    size_t left, total, fresh;
    CHECK_OK(cuDevicePrimaryCtxRetain(&first, 1));
    CHECK_OK(cuCtxSetCurrent(first));
    CHECK_OK(cuMemGetInfo(&fresh, &total));
    CHECK(fresh < total); /* the context itself costs */
    CHECK_OK(cuMemAlloc(&p, 4 * CHECK_MIB));
    CHECK_OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    CHECK_EQ(active, 1);
    CHECK_OK(cuDevicePrimaryCtxReset(1));
    CHECK_OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    CHECK_EQ(active, 0);
    CHECK_EQ(check_kind(1, "linear", "current_bytes"), 0);
    CHECK_EQ(cuMemAlloc(&p, 512), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_OK(cuDevicePrimaryCtxRetain(&again, 1));
    CHECK(again == first);
    CHECK_OK(cuMemGetInfo(&left, &total)); /* current again, without being set */
    CHECK_EQ(left, fresh);
    CHECK_OK(cuMemAlloc(&p, 4 * CHECK_MIB));
    CHECK_OK(cuDevicePrimaryCtxRetain(&again, 1));
    CHECK_OK(cuDevicePrimaryCtxRelease(1));
    CHECK_EQ(check_kind(1, "linear", "current_bytes"), 4 * CHECK_MIB);
    CHECK_OK(cuDevicePrimaryCtxRelease(1));
    CHECK_EQ(check_kind(1, "linear", "current_bytes"), 0);
    CHECK_EQ(cuDevicePrimaryCtxRelease(1), CUDA_ERROR_INVALID_CONTEXT);
}

static void identity(void)
{
    int count = 0, major = 0;
    char name[64], bus[32];
    CUuuid uuid[2];
    CUdevice device;
    CHECK_OK(cuDeviceGetCount(&count));
    CHECK_EQ(count, 2);
    CHECK_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    CHECK_OK(cuDeviceGetName(name, sizeof name, 0));
    CHECK(!strcmp(name, "Simulated GPU 3")); /* CUDA_VISIBLE_DEVICES=3,1 */
    CHECK_OK(cuDeviceGetUuid(&uuid[0], 0));
    CHECK_OK(cuDeviceGetUuid(&uuid[1], 1));
    CHECK(memcmp(&uuid[0], &uuid[1], sizeof uuid[0]) != 0);
    CHECK_OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    CHECK_EQ(major, 9);
    CHECK_EQ(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuDeviceGetPCIBusId(bus, sizeof bus, 1));
    CHECK_OK(cuDeviceGetByPCIBusId(&device, bus));
    CHECK_EQ(device, 1);
}

static void green(void)
{
    CUdevResource all, part[2];
    CUdevResourceDesc description;
    CUgreenCtx handle;
    CUcontext context, primary = check_begin(0);
    CUdeviceptr p;
    unsigned groups = 2;
    CHECK_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_OK(cuDevSmResourceSplitByCount(part, &groups, &all, NULL, 0, 16));
    CHECK_EQ(groups, 2);
    CHECK_OK(cuDevResourceGenerateDesc(&description, part, 1));
    CHECK_EQ(cuGreenCtxCreate(&handle, description, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuGreenCtxCreate(&handle, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK_OK(cuCtxFromGreenCtx(&context, handle));
    CHECK(context != primary);
    CHECK_OK(cuGreenCtxGetDevResource(handle, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_EQ(all.sm.smCount, 16);
    CHECK_OK(cuCtxGetDevResource(primary, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_EQ(all.sm.smCount, 132);
    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuMemAlloc(&p, 2 * CHECK_MIB));
    CHECK_OK(cuCtxSetCurrent(primary));
    CHECK_OK(cuGreenCtxDestroy(handle));
    CHECK_EQ(check_kind(0, "linear", "current_bytes"), 2 * CHECK_MIB); /* the primary context owns it */
    CHECK_OK(cuMemFree(p));
    CHECK_OK(cuDevicePrimaryCtxRelease(0));
}

static void flags(void)
{
    CUcontext primary = check_begin(0), made;
    unsigned now = 0;
    CHECK_OK(cuCtxCreate(&made, NULL, CU_CTX_SCHED_SPIN, 1));
    CHECK_OK(cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_SYNC_MEMOPS)); /* in the place of the earlier ones */
    CHECK_OK(cuCtxGetFlags(&now));
    CHECK_EQ(now, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_SYNC_MEMOPS);
    CHECK_EQ(cuCtxSetFlags(CU_CTX_FLAGS_MASK + 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuCtxSetFlags(CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuCtxGetFlags(&now));
    CHECK_EQ(now, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_SYNC_MEMOPS);
    CHECK_OK(cuCtxDestroy(made));
    CHECK_OK(cuCtxGetFlags(&now)); /* the primary one has its own */
    CHECK_EQ(now, 0);
    CHECK_OK(cuCtxSetCurrent(NULL));
    CHECK_EQ(cuCtxSetFlags(0), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_OK(cuCtxSetCurrent(primary));
    CHECK_OK(cuDevicePrimaryCtxRelease(0));
}

static void peers(void)
{
    CUcontext a = check_begin(0), b = NULL;
    int can = 0;
    CHECK_OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK_EQ(can, 1);
    CHECK_OK(cuDevicePrimaryCtxRetain(&b, 1));
    CHECK_OK(cuCtxEnablePeerAccess(b, 0));
    CHECK_EQ(cuCtxEnablePeerAccess(b, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    CHECK_OK(cuCtxDisablePeerAccess(b));
    CHECK_EQ(cuCtxDisablePeerAccess(b), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    CHECK_EQ(cuCtxEnablePeerAccess(a, 0), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_OK(cuDevicePrimaryCtxRelease(1));
}

int main(void)
{
    setenv("GPUPROF_SIM", "devices=4,memory=2GiB", 1);
    setenv("CUDA_VISIBLE_DEVICES", "3,1,9,0", 1);
    stack();
    identity();
    ownership();
    primary();
    green();
    flags();
    peers();
    return check_done();
}
