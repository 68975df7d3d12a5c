/* SPDX-License-Identifier: MIT
 * Selftest: access of one device to the memory of another.  Linear memory: copies always, kernels after
 * cuCtxEnablePeerAccess.  Mapped memory: by cuMemSetAccess alone, and by peer copies, where each side does its own. */
#include "core_check.h"

#define BYTES (2 * CHECK_MIB)

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .entry touch(.param .u64 p) { ret; }\n";
static CUcontext contexts[2];
static CUfunction touch;
static CUdeviceptr linear[2], mapped[2];

static CUdeviceptr map(int device)
{
    const CUmemAllocationProp shape = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUmemAccessDesc own = {.location = shape.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr p = 0;

    CHECK_OK(cuMemAddressReserve(&p, BYTES, 0, 0, 0));
    CHECK_OK(cuMemCreate(&handle, BYTES, &shape, 0));
    CHECK_OK(cuMemMap(p, BYTES, 0, handle, 0));
    CHECK_OK(cuMemSetAccess(p, BYTES, &own, 1));
    return p;
}

static long long hazards(void)
{
    return check_number(0, "\"hazards\"", "\"hazards\":");
}

/* How many hazards a kernel on device 0 adds with this pointer. */
static long long kernel(CUdeviceptr p)
{
    long long before = hazards();
    void *params[] = {&p};

    CHECK_OK(cuLaunchKernel(touch, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    CHECK_OK(cuCtxSynchronize());
    return hazards() - before;
}

static void before_access(void)
{
    CHECK_OK(cuMemcpyDtoD(linear[0], linear[1], 4096)); /* staged through the host */
    CHECK_OK(cuMemcpyPeer(linear[0], contexts[0], linear[1], contexts[1], 4096));
    CHECK_EQ(kernel(linear[0]), 0);
    CHECK_EQ(kernel(mapped[0]), 0);
    CHECK_EQ(kernel(linear[1]), 1);
    CHECK_EQ(kernel(mapped[1]), 1);
    CHECK_EQ(cuMemcpyDtoD(mapped[0], mapped[1], 4096), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD8(mapped[1], 1, 4096), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemcpyPeer(mapped[0], contexts[0], mapped[1], contexts[1], 4096));
    CHECK_OK(cuMemcpyPeer(mapped[1], contexts[1], linear[0], contexts[0], 4096));
}

/* Peer access is for linear memory, whatever its age; a mapping asks for its own. */
static void after_access(void)
{
    const CUmemAccessDesc peer = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr later = 0;

    CHECK_OK(cuCtxEnablePeerAccess(contexts[1], 0));
    CHECK_OK(cuCtxSetCurrent(contexts[1]));
    CHECK_OK(cuMemAlloc(&later, BYTES));
    CHECK_OK(cuCtxSetCurrent(contexts[0]));
    CHECK_EQ(kernel(linear[1]), 0);
    CHECK_EQ(kernel(later), 0);
    CHECK_EQ(kernel(mapped[1]), 1);
    CHECK_OK(cuMemSetAccess(mapped[1], BYTES, &peer, 1));
    CHECK_EQ(kernel(mapped[1]), 0);
    CHECK_OK(cuMemcpyDtoD(mapped[0], mapped[1], 4096));
    CHECK_OK(cuCtxDisablePeerAccess(contexts[1]));
    CHECK_EQ(kernel(later), 1);
    CHECK_OK(cuMemFree(later));
}

int main(void)
{
    CUmodule module;

    setenv("GPUPROF_SIM", "devices=2", 1);
    for (int i = 1; i >= 0; i--) {
        contexts[i] = check_begin(i);
        CHECK_OK(cuMemAlloc(&linear[i], BYTES));
        mapped[i] = map(i);
    }
    CHECK_OK(cuModuleLoadData(&module, ptx));
    CHECK_OK(cuModuleGetFunction(&touch, module, "touch"));
    before_access();
    after_access();
    return check_done();
}
