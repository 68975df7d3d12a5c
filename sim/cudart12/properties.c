/* SPDX-License-Identifier: MIT
 * cudaGetDeviceProperties with the struct of CUDA 12: eight fields more than in CUDA 13, and a
 * shorter end. */
#include "cudart/runtime.h"

struct rt_properties_12 {
    char name[256];
    cudaUUID_t uuid;
    char luid[8];
    unsigned int luidDeviceNodeMask;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
    size_t totalConstMem;
    int major, minor;
    size_t textureAlignment, texturePitchAlignment;
    int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
    /* Limits of textures and surfaces, which the simulator leaves 0. */
    int textures[40];
    size_t surfaceAlignment;
    int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount,
        unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize,
        maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported,
        singleToDoublePrecisionPerfRatio, pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported,
        canUseHostPointerForRegisteredMem, cooperativeLaunch, cooperativeMultiDeviceLaunch;
    size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor,
        accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported,
        timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
    unsigned int gpuDirectRDMAFlushWritesOptions;
    int gpuDirectRDMAWritesOrdering;
    unsigned int memoryPoolSupportedHandleTypes;
    int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers, reserved[63];
};
_Static_assert(sizeof(struct rt_properties_12) == 1032, "the size that compiled programs have");
_Static_assert(offsetof(struct rt_properties_12, surfaceAlignment) == 568, "as in NVIDIA's header");

cudaError_t rt_properties_13(struct cudaDeviceProp *prop, int device);

RT_EXPORT cudaError_t cudaGetDeviceProperties_v2(struct rt_properties_12 *prop, int device);
RT_EXPORT cudaError_t cudaGetDeviceProperties_v2(struct rt_properties_12 *prop, int device)
{
    struct cudaDeviceProp all;
    cudaError_t status = rt_properties_13(prop ? &all : NULL, device);
    const struct {
        int *to, attribute;
    } only_12[] = {
        {&prop->clockRate, 13},   {&prop->deviceOverlap, 15},   {&prop->kernelExecTimeoutEnabled, 17},
        {&prop->computeMode, 20}, {&prop->memoryClockRate, 36}, {&prop->singleToDoublePrecisionPerfRatio, 87}};

    if (status != cudaSuccess)
        return status;
    memset(prop, 0, sizeof *prop);
#define SAME(field) memcpy(&prop->field, &all.field, sizeof prop->field)
#define RUN(first, last)                                                                                               \
    do {                                                                                                               \
        const size_t bytes_ =                                                                                          \
            offsetof(struct cudaDeviceProp, last) + sizeof all.last - offsetof(struct cudaDeviceProp, first);          \
                                                                                                                       \
        _Static_assert(offsetof(struct rt_properties_12, last) - offsetof(struct rt_properties_12, first) ==           \
                           offsetof(struct cudaDeviceProp, last) - offsetof(struct cudaDeviceProp, first),             \
                       "fields between the two are the same in both");                                                 \
        memcpy((char *)prop + offsetof(struct rt_properties_12, first),                                                \
               (const char *)&all + offsetof(struct cudaDeviceProp, first), bytes_);                                   \
    } while (0)
    RUN(name, maxGridSize);
    RUN(totalConstMem, texturePitchAlignment);
    SAME(multiProcessorCount);
    RUN(integrated, canMapHostMemory);
    RUN(surfaceAlignment, unifiedAddressing);
    RUN(memoryBusWidth, localL1CacheSupported);
    SAME(sharedMemPerMultiprocessor);
    RUN(regsPerMultiprocessor, hostNativeAtomicSupported);
    RUN(pageableMemoryAccess, cooperativeLaunch);
    RUN(sharedMemPerBlockOptin, unifiedFunctionPointers);
#undef RUN
#undef SAME
    for (size_t i = 0; i < sizeof only_12 / sizeof only_12[0]; i++)
        rt_drivers[0].cuDeviceGetAttribute(only_12[i].to, (CUdevice_attribute)only_12[i].attribute, device);
    prop->cooperativeMultiDeviceLaunch = prop->cooperativeLaunch;
    return cudaSuccess;
}
