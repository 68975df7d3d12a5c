/* SPDX-License-Identifier: MIT
 * What connects devices: NVLinks to the board's switches, and access to each other's memory, which
 * any two devices of the simulated driver have. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdio.h>

/* Values of NVML. */
enum { NVML_LINK_SWITCH = 2 };
enum { NVML_CAP_P2P = 0, NVML_CAP_ATOMICS = 2, NVML_CAP_VALID = 5, NVML_CAP_COUNT = 6 };
enum { NVML_P2P_OK = 0, NVML_P2P_NOT_SUPPORTED = 5 };
enum { NVML_P2P_READ = 0, NVML_P2P_WRITE = 1, NVML_P2P_LINK = 2, NVML_P2P_ATOMICS = 3, NVML_P2P_PCI = 4 };

#define NVML_SWITCHES   4     /* links go to the board's switches in turn */
#define NVML_SWITCH_BUS 0xc0u /* beyond the buses of the devices */

NVML_API nvmlDeviceGetNvLinkState(struct nvml_device *device, unsigned link, int *active);
NVML_API nvmlDeviceGetNvLinkVersion(struct nvml_device *device, unsigned link, unsigned *version);
NVML_API nvmlDeviceGetNvLinkCapability(struct nvml_device *device, unsigned link, int capability, unsigned *result);
NVML_API nvmlDeviceGetNvLinkRemotePciInfo(struct nvml_device *device, unsigned link, struct nvml_pci_v1 *pci);
NVML_API nvmlDeviceGetNvLinkRemotePciInfo_v2(struct nvml_device *device, unsigned link, struct nvml_pci *pci);
NVML_API nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_device *device, unsigned link, int *type);
NVML_API nvmlDeviceGetP2PStatus(struct nvml_device *one, struct nvml_device *two, int index, int *status);
NVML_API nvmlDeviceGetGpuFabricInfo(struct nvml_device *device, struct nvml_fabric *fabric);
NVML_API nvmlDeviceGetGpuFabricInfoV(struct nvml_device *device, struct nvml_fabric_v2 *fabric);

/* As on hardware, a GPU without links knows no link. */
static enum nvml_return sim_nvml_link(const struct nvml_device *device, unsigned link, const void *output)
{
    enum nvml_return result = sim_nvml_check(device);
    if (result != NVML_SUCCESS)
        return result;
    if (!output)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!device->is.links)
        return NVML_ERROR_NOT_SUPPORTED;
    return link < (unsigned)device->is.links ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_API nvmlDeviceGetNvLinkState(struct nvml_device *device, unsigned link, int *active)
{
    enum nvml_return result = sim_nvml_link(device, link, active);
    if (result == NVML_SUCCESS)
        *active = 1;
    return result;
}

NVML_API nvmlDeviceGetNvLinkVersion(struct nvml_device *device, unsigned link, unsigned *version)
{
    enum nvml_return result = sim_nvml_link(device, link, version);
    if (result == NVML_SUCCESS)
        *version = (unsigned)device->is.link_version;
    return result;
}

NVML_API nvmlDeviceGetNvLinkCapability(struct nvml_device *device, unsigned link, int capability, unsigned *result)
{
    enum nvml_return checked = sim_nvml_link(device, link, result);
    if (checked != NVML_SUCCESS)
        return checked;
    if (capability < 0 || capability >= NVML_CAP_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    *result = capability == NVML_CAP_P2P || capability == NVML_CAP_ATOMICS || capability == NVML_CAP_VALID;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetNvLinkRemotePciInfo_v2(struct nvml_device *device, unsigned link, struct nvml_pci *pci)
{
    enum nvml_return result = sim_nvml_link(device, link, pci);
    if (result != NVML_SUCCESS)
        return result;
    *pci = (struct nvml_pci){.bus = NVML_SWITCH_BUS + link % NVML_SWITCHES};
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "0000:%02X:00.0", pci->bus & 0xff);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus & 0xff);
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetNvLinkRemotePciInfo(struct nvml_device *device, unsigned link, struct nvml_pci_v1 *pci)
{
    enum nvml_return result = sim_nvml_link(device, link, pci);
    if (result != NVML_SUCCESS)
        return result;
    *pci = (struct nvml_pci_v1){.bus = NVML_SWITCH_BUS + link % NVML_SWITCHES};
    snprintf(pci->bus_id, sizeof pci->bus_id, "0000:%02X:00.0", pci->bus & 0xff);
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_device *device, unsigned link, int *type)
{
    enum nvml_return result = sim_nvml_link(device, link, type);
    if (result == NVML_SUCCESS)
        *type = NVML_LINK_SWITCH;
    return result;
}

/* The simulated driver's answers: any two devices reach each other, without atomics.  Of a device and itself
 * NCCL asks too, and gives up if it gets no answer. */
NVML_API nvmlDeviceGetP2PStatus(struct nvml_device *one, struct nvml_device *two, int index, int *status)
{
    enum nvml_return result = sim_nvml_check(one);
    if (result == NVML_SUCCESS)
        result = sim_nvml_check(two);
    if (result != NVML_SUCCESS)
        return result;
    if (!status || index < NVML_P2P_READ || index > NVML_P2P_PCI)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool linked = one->is.links && two->is.links;
    bool works = index == NVML_P2P_READ || index == NVML_P2P_WRITE || (index == NVML_P2P_LINK && linked) ||
                 (index == NVML_P2P_PCI && !linked);
    *status = works ? NVML_P2P_OK : NVML_P2P_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* No device belongs to a fabric of several machines: state 0.  PyTorch's symmetric memory fails if
 * it gets no answer. */
NVML_API nvmlDeviceGetGpuFabricInfo(struct nvml_device *device, struct nvml_fabric *fabric)
{
    enum nvml_return result = sim_nvml_check(device);
    if (result == NVML_SUCCESS && !fabric)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *fabric = (struct nvml_fabric){0};
    return result;
}

NVML_API nvmlDeviceGetGpuFabricInfoV(struct nvml_device *device, struct nvml_fabric_v2 *fabric)
{
    enum nvml_return result = sim_nvml_check(device);
    if (result != NVML_SUCCESS)
        return result;
    if (!fabric)
        return NVML_ERROR_INVALID_ARGUMENT;
    const unsigned version = fabric->version;
    if (version == NVML_VERSION(struct nvml_fabric_v3, 3))
        *(struct nvml_fabric_v3 *)fabric = (struct nvml_fabric_v3){0};
    else if (version == NVML_VERSION(*fabric, 2))
        *fabric = (struct nvml_fabric_v2){0};
    else
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    fabric->version = version;
    return NVML_SUCCESS;
}
