/* SPDX-License-Identifier: MIT
 * Entry points of devices (device.c). */
#include "cuda/sim.h"

#include <stdio.h>

SIM_API2(3, 2000, cuDeviceGet, CUdevice *, device, int, ordinal)
{
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

SIM_API1(4, 2000, cuDeviceGetCount, int *, count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sim_device_count;
    return CUDA_SUCCESS;
}

SIM_API3(5, 2000, cuDeviceGetName, char *, name, int, len, CUdevice, dev)
{
    const struct sim_device *device = sim_device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_device_name(device->physical, name, (size_t)len);
    return CUDA_SUCCESS;
}

static CUresult sim_uuid_get(CUuuid *uuid, CUdevice dev)
{
    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    sim_device_uuid(dev, uuid);
    return CUDA_SUCCESS;
}

SIM_API2(482, 9020, cuDeviceGetUuid, CUuuid *, uuid, CUdevice, dev)
{
    return sim_uuid_get(uuid, dev);
}

/* Differs from the first one only for MIG instances, which the simulator does not have. */
SIM_API2(647, 11040, cuDeviceGetUuid_v2, CUuuid *, uuid, CUdevice, dev)
{
    return sim_uuid_get(uuid, dev);
}

SIM_API2(259, 3020, cuDeviceTotalMem_v2, size_t *, bytes, CUdevice, dev)
{
    const struct sim_device *device = sim_device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = device->total;
    return CUDA_SUCCESS;
}

SIM_API3(6, 2000, cuDeviceComputeCapability, int *, major, int *, minor, CUdevice, dev)
{
    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    *major = sim_spec.gpu->capability / 10;
    *minor = sim_spec.gpu->capability % 10;
    return CUDA_SUCCESS;
}

SIM_API3(9, 2000, cuDeviceGetAttribute, int *, pi, CUdevice_attribute, attrib, CUdevice, dev)
{
    const struct sim_device *device = sim_device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pi || attrib < CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *pi = sim_device_attribute(device->ordinal, attrib);
    return CUDA_SUCCESS;
}

SIM_API3(332, 4010, cuDeviceGetPCIBusId, char *, pciBusId, int, len, CUdevice, dev)
{
    const struct sim_device *device = sim_device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pciBusId || len < 13)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(pciBusId, (size_t)len, "0000:%02x:00.0", (unsigned)(device->physical + 1) & 0xff);
    return CUDA_SUCCESS;
}

SIM_API2(331, 4010, cuDeviceGetByPCIBusId, CUdevice *, dev, const char *, pciBusId)
{
    unsigned domain, bus, slot, function = 0;
    if (!dev || !pciBusId)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < sim_device_count; i++)
        if (domain == 0 && slot == 0 && function == 0 && (int)bus == sim_devices[i].physical + 1) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

SIM_API3(312, 4000, cuDeviceCanAccessPeer, int *, canAccessPeer, CUdevice, dev, CUdevice, peerDev)
{
    if (!sim_device_get(dev) || !sim_device_get(peerDev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!canAccessPeer)
        return CUDA_ERROR_INVALID_VALUE;
    *canAccessPeer = dev != peerDev;
    return CUDA_SUCCESS;
}

SIM_API4(454, 8000, cuDeviceGetP2PAttribute, int *, value, CUdevice_P2PAttribute, attrib, CUdevice, srcDevice, CUdevice,
         dstDevice)
{
    if (!sim_device_get(srcDevice) || !sim_device_get(dstDevice) || srcDevice == dstDevice)
        return CUDA_ERROR_INVALID_DEVICE;
    switch (attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        if (value)
            *value = 0;
        break;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        if (value)
            *value = 1;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
