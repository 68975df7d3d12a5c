/* SPDX-License-Identifier: MIT
 * Runtime calls about the runtime itself and its devices: last error, versions, device choice and
 * properties, limits, peer access, driver entry points.  Called by programs; each goes through the
 * bracket of runtime.h. */
#include "cudart/runtime.h"

/* Both initialise too: without a driver the real ones answer "insufficient driver" every time,
 * cleared or not. */
RT_API0(RT_INIT | RT_QUIET, 10, cudaGetLastError)
{
    return rt_last_error(true);
}

RT_API0(RT_INIT | RT_QUIET, 11, cudaPeekAtLastError)
{
    return rt_last_error(false);
}

RT_API(RT_NOTHING, 2, cudaRuntimeGetVersion, int *, runtimeVersion)
{
    if (!runtimeVersion)
        return cudaErrorInvalidValue;
    *runtimeVersion = rt_version;
    return cudaSuccess;
}

/* Without a driver this is a success with version 0. */
RT_API(RT_NOTHING, 1, cudaDriverGetVersion, int *, driverVersion)
{
    if (!driverVersion)
        return cudaErrorInvalidValue;
    *driverVersion = 0;
    return rt_load() == cudaSuccess ? rt_error_from(D->cuDriverGetVersion(driverVersion)) : cudaSuccess;
}

RT_API(RT_INIT, 3, cudaGetDeviceCount, int *, count)
{
    return rt_error_from(D->cuDeviceGetCount(count));
}

RT_API(RT_INIT, 16, cudaSetDevice, int, device)
{
    return rt_device_select(device);
}

RT_API(RT_INIT, 17, cudaGetDevice, int *, device)
{
    return device ? rt_device_current(device) : cudaErrorInvalidValue;
}

RT_API(RT_INIT, 444, cudaInitDevice, int, device, unsigned int, deviceFlags, unsigned int, flags)
{
    CUcontext context;

    if (flags & ~cudaInitDeviceFlagsAreValid)
        return cudaErrorInvalidValue;
    if (flags & cudaInitDeviceFlagsAreValid) {
        CUresult result = D->cuDevicePrimaryCtxSetFlags(device, deviceFlags & cudaDeviceMask);

        if (result)
            return rt_error_from(result);
    }
    return rt_device_context(device, &context);
}

RT_API(RT_INIT, 19, cudaSetDeviceFlags, unsigned int, flags)
{
    int device;
    cudaError_t status = rt_device_current(&device);

    if (flags & ~(unsigned)cudaDeviceMask)
        return cudaErrorInvalidValue;
    return status == cudaSuccess ? rt_error_from(D->cuDevicePrimaryCtxSetFlags(device, flags)) : status;
}

RT_API(RT_INIT, 212, cudaGetDeviceFlags, unsigned int *, flags)
{
    int device, active;
    cudaError_t status = rt_device_current(&device);

    if (!flags)
        return cudaErrorInvalidValue;
    return status == cudaSuccess ? rt_error_from(D->cuDevicePrimaryCtxGetState(device, flags, &active)) : status;
}

RT_API0(RT_INIT, 164, cudaDeviceReset)
{
    return rt_device_reset();
}

RT_API0(RT_CONTEXT, 165, cudaDeviceSynchronize)
{
    return rt_error_from(D->cuCtxSynchronize());
}

/* Limits have the driver's numbers. */
RT_API(RT_CONTEXT, 167, cudaDeviceSetLimit, enum cudaLimit, limit, size_t, value)
{
    return rt_error_from(D->cuCtxSetLimit((CUlimit)limit, value));
}

RT_API(RT_CONTEXT, 166, cudaDeviceGetLimit, size_t *, pValue, enum cudaLimit, limit)
{
    return rt_error_from(D->cuCtxGetLimit(pValue, (CUlimit)limit));
}

RT_API(RT_CONTEXT, 205, cudaDeviceGetStreamPriorityRange, int *, leastPriority, int *, greatestPriority)
{
    return rt_error_from(D->cuCtxGetStreamPriorityRange(leastPriority, greatestPriority));
}

RT_API(RT_CONTEXT, 168, cudaDeviceGetCacheConfig, int *, pCacheConfig)
{
    return rt_error_from(D->cuCtxGetCacheConfig((CUfunc_cache *)pCacheConfig));
}

RT_API(RT_CONTEXT, 169, cudaDeviceSetCacheConfig, int, cacheConfig)
{
    return rt_error_from(D->cuCtxSetCacheConfig((CUfunc_cache)cacheConfig));
}

RT_API(RT_CONTEXT, 183, cudaDeviceGetSharedMemConfig, int *, pConfig)
{
    return rt_error_from(D->cuCtxGetSharedMemConfig((CUsharedconfig *)pConfig));
}

RT_API(RT_CONTEXT, 184, cudaDeviceSetSharedMemConfig, int, config)
{
    return rt_error_from(D->cuCtxSetSharedMemConfig((CUsharedconfig)config));
}

RT_API(RT_INIT, 255, cudaDeviceGetP2PAttribute, int *, value, int, attr, int, srcDevice, int, dstDevice)
{
    return rt_error_from(D->cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)attr, srcDevice, dstDevice));
}

RT_API(RT_INIT, 200, cudaDeviceGetAttribute, int *, value, enum cudaDeviceAttr, attr, int, device)
{
    return rt_error_from(D->cuDeviceGetAttribute(value, (CUdevice_attribute)attr, device));
}

RT_API(RT_INIT, 173, cudaDeviceGetByPCIBusId, int *, device, const char *, pciBusId)
{
    return rt_error_from(D->cuDeviceGetByPCIBusId(device, pciBusId));
}

RT_API(RT_INIT, 174, cudaDeviceGetPCIBusId, char *, pciBusId, int, len, int, device)
{
    return rt_error_from(D->cuDeviceGetPCIBusId(pciBusId, len, device));
}

RT_API(RT_INIT, 154, cudaDeviceCanAccessPeer, int *, canAccessPeer, int, device, int, peerDevice)
{
    return rt_error_from(D->cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice));
}

RT_API(RT_CONTEXT, 155, cudaDeviceEnablePeerAccess, int, peerDevice, unsigned int, flags)
{
    CUcontext peer;
    cudaError_t status = rt_device_context(peerDevice, &peer);

    return status == cudaSuccess ? rt_error_from(D->cuCtxEnablePeerAccess(peer, flags)) : status;
}

RT_API(RT_CONTEXT, 156, cudaDeviceDisablePeerAccess, int, peerDevice)
{
    CUcontext peer;
    cudaError_t status = rt_device_context(peerDevice, &peer);

    return status == cudaSuccess ? rt_error_from(D->cuCtxDisablePeerAccess(peer)) : status;
}

/* Where each property comes from: the ones that a driver attribute answers.  All others stay 0. */
static const struct {
    size_t offset;
    int attribute;
} rt_int_properties[] = {
#define P(field, attribute)                                                                                            \
    {                                                                                                                  \
        offsetof(struct cudaDeviceProp, field), attribute                                                              \
    }
    P(maxThreadsPerBlock, 1),
    P(maxThreadsDim[0], 2),
    P(maxThreadsDim[1], 3),
    P(maxThreadsDim[2], 4),
    P(maxGridSize[0], 5),
    P(maxGridSize[1], 6),
    P(maxGridSize[2], 7),
    P(warpSize, 10),
    P(regsPerBlock, 12),
    P(multiProcessorCount, 16),
    P(integrated, 18),
    P(canMapHostMemory, 19),
    P(concurrentKernels, 31),
    P(ECCEnabled, 32),
    P(pciBusID, 33),
    P(pciDeviceID, 34),
    P(memoryBusWidth, 37),
    P(l2CacheSize, 38),
    P(maxThreadsPerMultiProcessor, 39),
    P(asyncEngineCount, 40),
    P(unifiedAddressing, 41),
    P(pciDomainID, 50),
    P(major, 75),
    P(minor, 76),
    P(streamPrioritiesSupported, 78),
    P(globalL1CacheSupported, 79),
    P(localL1CacheSupported, 80),
    P(regsPerMultiprocessor, 82),
    P(managedMemory, 83),
    P(pageableMemoryAccess, 88),
    P(concurrentManagedAccess, 89),
    P(computePreemptionSupported, 90),
    P(canUseHostPointerForRegisteredMem, 91),
    P(cooperativeLaunch, 95),
    P(hostRegisterSupported, 99),
    P(maxBlocksPerMultiProcessor, 106),
    P(sparseCudaArraySupported, 112),
    P(memoryPoolsSupported, 115),
    P(memoryPoolSupportedHandleTypes, 119),
    P(deferredMappingCudaArraySupported, 121),
    P(clusterLaunch, 120),
    P(ipcEventSupported, 125),
#undef P
};

/* The same for the properties that are sizes. */
static const struct {
    size_t offset;
    int attribute;
} rt_size_properties[] = {
    {offsetof(struct cudaDeviceProp, sharedMemPerBlock), 8},
    {offsetof(struct cudaDeviceProp, totalConstMem), 9},
    {offsetof(struct cudaDeviceProp, memPitch), 11},
    {offsetof(struct cudaDeviceProp, textureAlignment), 14},
    {offsetof(struct cudaDeviceProp, texturePitchAlignment), 51},
    {offsetof(struct cudaDeviceProp, sharedMemPerMultiprocessor), 81},
    {offsetof(struct cudaDeviceProp, sharedMemPerBlockOptin), 97},
    {offsetof(struct cudaDeviceProp, reservedSharedMemPerBlock), 111},
};

static void rt_properties_fill(const struct rt_driver *D, struct cudaDeviceProp *prop, int device)
{
    int value;

    for (size_t i = 0; i < sizeof rt_int_properties / sizeof rt_int_properties[0]; i++)
        if (!D->cuDeviceGetAttribute(&value, (CUdevice_attribute)rt_int_properties[i].attribute, device))
            memcpy((char *)prop + rt_int_properties[i].offset, &value, sizeof value);
    for (size_t i = 0; i < sizeof rt_size_properties / sizeof rt_size_properties[0]; i++)
        if (!D->cuDeviceGetAttribute(&value, (CUdevice_attribute)rt_size_properties[i].attribute, device))
            memcpy((char *)prop + rt_size_properties[i].offset, &(size_t){(size_t)value}, sizeof(size_t));
}

RT_API(RT_INIT, 440, cudaGetDeviceProperties, struct cudaDeviceProp *, prop, int, device)
{
    CUresult result;

    if (!prop)
        return cudaErrorInvalidValue;
    memset(prop, 0, sizeof *prop);
    if ((result = D->cuDeviceGetName(prop->name, sizeof prop->name, device)) ||
        (result = D->cuDeviceGetUuid(&prop->uuid, device)) ||
        (result = D->cuDeviceTotalMem(&prop->totalGlobalMem, device)))
        return rt_error_from(result);
    rt_properties_fill(D, prop, device);
    return cudaSuccess;
}

/* Flags 0 means the mode that the program was compiled for, so the per-thread twin asks for
 * per-thread functions. */
static cudaError_t rt_entry_point(const struct rt_driver *D, const char *symbol, void **function, int version,
                                  unsigned long long flags, enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found;
    CUresult result;

    if (!symbol || !function || flags & ~(cudaEnableLegacyStream | cudaEnablePerThreadDefaultStream))
        return cudaErrorInvalidValue;
    if (flags == cudaEnableDefault && D == &rt_drivers[1])
        flags = cudaEnablePerThreadDefaultStream;
    result = rt_getproc()(symbol, function, version, flags, &found);
    /* The three outcomes have the same numbers in both APIs. */
    if (!result && status)
        *status = (enum cudaDriverEntryPointQueryResult)found;
    return rt_error_from(result);
}

RT_TWINS(RT_INIT, 406, 407, _ptsz, cudaGetDriverEntryPoint, const char *, symbol, void **, funcPtr, unsigned long long,
         flags, enum cudaDriverEntryPointQueryResult *, driverStatus)
{
    return rt_entry_point(D, symbol, funcPtr, rt_version, flags, driverStatus);
}

RT_TWINS(RT_INIT, 468, 469, _ptsz, cudaGetDriverEntryPointByVersion, const char *, symbol, void **, funcPtr,
         unsigned int, cudaVersion, unsigned long long, flags, enum cudaDriverEntryPointQueryResult *, driverStatus)
{
    return rt_entry_point(D, symbol, funcPtr, (int)cudaVersion, flags, driverStatus);
}
