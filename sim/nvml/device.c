/* SPDX-License-Identifier: MIT
 * Devices: their handles, identity and properties. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NVML_PCI_VENDOR 0x10deu /* NVIDIA; the id of the model is not known, and reads as 0 */
#define NVML_PCI_CLASS  3u      /* display controller, */
#define NVML_PCI_SUB    2u      /* without a display */

NVML_API nvmlDeviceGetCount(unsigned *count);
NVML_API nvmlDeviceGetCount_v2(unsigned *count);
NVML_API nvmlDeviceGetHandleByIndex(unsigned index, struct nvml_device **device);
NVML_API nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **device);
NVML_API nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **device);
NVML_API nvmlDeviceGetHandleByUUIDV(const struct nvml_uuid *uuid, struct nvml_device **device);
NVML_API nvmlDeviceGetHandleByPciBusId(const char *bus_id, struct nvml_device **device);
NVML_API nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct nvml_device **device);
NVML_API nvmlDeviceGetIndex(struct nvml_device *device, unsigned *index);
NVML_API nvmlDeviceGetMinorNumber(struct nvml_device *device, unsigned *minor);
NVML_API nvmlDeviceGetName(struct nvml_device *device, char *name, unsigned length);
NVML_API nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned length);
NVML_API nvmlDeviceGetBrand(struct nvml_device *device, int *brand);
NVML_API nvmlDeviceGetPciInfo(struct nvml_device *device, struct nvml_pci_v1 *pci);
NVML_API nvmlDeviceGetPciInfo_v2(struct nvml_device *device, struct nvml_pci_v1 *pci);
NVML_API nvmlDeviceGetPciInfo_v3(struct nvml_device *device, struct nvml_pci *pci);
NVML_API nvmlDeviceGetPciInfoExt(struct nvml_device *device, struct nvml_pci_ext *pci);
NVML_API nvmlDeviceGetCudaComputeCapability(struct nvml_device *device, int *major, int *minor);
NVML_API nvmlDeviceGetArchitecture(struct nvml_device *device, unsigned *architecture);
NVML_API nvmlDeviceGetMemoryBusWidth(struct nvml_device *device, unsigned *width);
NVML_API nvmlDeviceGetMaxClockInfo(struct nvml_device *device, int type, unsigned *clock);
NVML_API nvmlDeviceGetEccMode(struct nvml_device *device, int *current, int *pending);
NVML_API nvmlDeviceGetComputeMode(struct nvml_device *device, int *mode);
NVML_API nvmlDeviceGetMigMode(struct nvml_device *device, unsigned *current, unsigned *pending);
NVML_API nvmlDeviceIsMigDeviceHandle(struct nvml_device *device, unsigned *is);
NVML_API nvmlDeviceGetMaxMigDeviceCount(struct nvml_device *device, unsigned *count);
NVML_API nvmlDeviceGetMigDeviceHandleByIndex(struct nvml_device *device, unsigned index, struct nvml_device **mig);
NVML_API nvmlUnitGetCount(unsigned *count);

/* What every query of a device begins with. */
#define NVML_ENTER(_device, _output)                                                                                   \
    do {                                                                                                               \
        enum nvml_return entered_ = sim_nvml_check(_device);                                                           \
        if (entered_ != NVML_SUCCESS)                                                                                  \
            return entered_;                                                                                           \
        if (!(_output))                                                                                                \
            return NVML_ERROR_INVALID_ARGUMENT;                                                                        \
    } while (0)

NVML_API nvmlDeviceGetCount_v2(unsigned *count)
{
    if (!sim_nvml_begun())
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned)sim_nvml_count();
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

NVML_API nvmlUnitGetCount(unsigned *count)
{
    if (!sim_nvml_begun())
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **device)
{
    if (!sim_nvml_begun())
        return NVML_ERROR_UNINITIALIZED;
    struct nvml_device *found = index < (unsigned)sim_nvml_count() ? sim_nvml_device((int)index) : NULL;
    if (!found || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = found;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetHandleByIndex(unsigned index, struct nvml_device **device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static void sim_nvml_uuid(const struct nvml_device *device, char text[41])
{
    const unsigned char *b = device->is.uuid;
    snprintf(text, 41, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
             b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

NVML_API nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **device)
{
    char text[41];
    if (!sim_nvml_begun())
        return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < sim_nvml_count(); i++) {
        sim_nvml_uuid(sim_nvml_device(i), text);
        if (!strcasecmp(uuid, text)) {
            *device = sim_nvml_device(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

NVML_API nvmlDeviceGetHandleByUUIDV(const struct nvml_uuid *uuid, struct nvml_device **device)
{
    if (!sim_nvml_begun())
        return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (uuid->version != NVML_VERSION(*uuid, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type == 1) {
        char text[42];
        snprintf(text, sizeof text, "%.41s", uuid->value.text);
        return nvmlDeviceGetHandleByUUID(text, device);
    }
    if (uuid->type != 2)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < sim_nvml_count(); i++)
        if (!memcmp(sim_nvml_device(i)->is.uuid, uuid->value.bytes, 16)) {
            *device = sim_nvml_device(i);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

/* domain:bus:device.function or bus:device.function, hexadecimal */
NVML_API nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct nvml_device **device)
{
    unsigned domain = 0, bus, slot, function = 0;
    if (!sim_nvml_begun())
        return NVML_ERROR_UNINITIALIZED;
    if (!bus_id || !device ||
        (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3 &&
         (domain = 0, sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function)) < 2))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < sim_nvml_count() && !domain && !slot && !function; i++)
        if ((unsigned)sim_nvml_device(i)->is.bus == bus) {
            *device = sim_nvml_device(i);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

NVML_API nvmlDeviceGetHandleByPciBusId(const char *bus_id, struct nvml_device **device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

NVML_API nvmlDeviceGetIndex(struct nvml_device *device, unsigned *index)
{
    NVML_ENTER(device, index);
    *index = (unsigned)device->physical;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetMinorNumber(struct nvml_device *device, unsigned *minor)
{
    return nvmlDeviceGetIndex(device, minor);
}

static enum nvml_return sim_nvml_answer(char *to, unsigned length, const char *text)
{
    if (length <= strlen(text))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetName(struct nvml_device *device, char *name, unsigned length)
{
    NVML_ENTER(device, name);
    return sim_nvml_answer(name, length, device->is.name);
}

NVML_API nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned length)
{
    char text[41];
    NVML_ENTER(device, uuid);
    sim_nvml_uuid(device, text);
    return sim_nvml_answer(uuid, length, text);
}

NVML_API nvmlDeviceGetBrand(struct nvml_device *device, int *brand)
{
    NVML_ENTER(device, brand);
    *brand = 0; /* unknown */
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetPciInfo_v3(struct nvml_device *device, struct nvml_pci *pci)
{
    NVML_ENTER(device, pci);
    *pci = (struct nvml_pci){.bus = (unsigned)device->is.bus, .pci_device = NVML_PCI_VENDOR};
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "0000:%02X:00.0", pci->bus & 0xff);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus & 0xff);
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetPciInfo_v2(struct nvml_device *device, struct nvml_pci_v1 *pci)
{
    NVML_ENTER(device, pci);
    *pci = (struct nvml_pci_v1){.bus = (unsigned)device->is.bus, .pci_device = NVML_PCI_VENDOR};
    snprintf(pci->bus_id, sizeof pci->bus_id, "0000:%02X:00.0", pci->bus & 0xff);
    return NVML_SUCCESS;
}

/* The first form's record ends before the subsystem. */
NVML_API nvmlDeviceGetPciInfo(struct nvml_device *device, struct nvml_pci_v1 *pci)
{
    struct nvml_pci_v1 whole;
    NVML_ENTER(device, pci);
    nvmlDeviceGetPciInfo_v2(device, &whole);
    memcpy(pci, &whole, offsetof(struct nvml_pci_v1, pci_subsystem));
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetPciInfoExt(struct nvml_device *device, struct nvml_pci_ext *pci)
{
    NVML_ENTER(device, pci);
    if (pci->version != NVML_VERSION(*pci, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *pci = (struct nvml_pci_ext){.version = pci->version,
                                 .bus = (unsigned)device->is.bus,
                                 .pci_device = NVML_PCI_VENDOR,
                                 .base_class = NVML_PCI_CLASS,
                                 .sub_class = NVML_PCI_SUB};
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus & 0xff);
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetCudaComputeCapability(struct nvml_device *device, int *major, int *minor)
{
    NVML_ENTER(device, major && minor);
    *major = device->is.capability / 10;
    *minor = device->is.capability % 10;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetArchitecture(struct nvml_device *device, unsigned *architecture)
{
    static const struct {
        int from;
        unsigned architecture;
    } rows[] = {{100, 10}, {90, 9}, {89, 8}, {80, 7}, {75, 6}, {70, 5}, {60, 4}};
    NVML_ENTER(device, architecture);
    *architecture = 0xffffffffu;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && *architecture == 0xffffffffu; i++)
        if (device->is.capability >= rows[i].from)
            *architecture = rows[i].architecture;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetMemoryBusWidth(struct nvml_device *device, unsigned *width)
{
    NVML_ENTER(device, width);
    *width = (unsigned)device->is.bus_width;
    return NVML_SUCCESS;
}

/* 0 graphics, 1 multiprocessors, 2 memory, in MHz */
NVML_API nvmlDeviceGetMaxClockInfo(struct nvml_device *device, int type, unsigned *clock)
{
    NVML_ENTER(device, clock);
    if (type < 0 || type > 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (type == 3)
        return sim_nvml_absent("nvmlDeviceGetMaxClockInfo of the video clock");
    *clock = (unsigned)(type == 2 ? device->is.memory_clock : device->is.clock) / 1000;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetEccMode(struct nvml_device *device, int *current, int *pending)
{
    NVML_ENTER(device, current && pending);
    *current = *pending = device->is.ecc;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetComputeMode(struct nvml_device *device, int *mode)
{
    NVML_ENTER(device, mode);
    *mode = 0; /* any number of contexts */
    return NVML_SUCCESS;
}

/* GPUs that can be divided are not; the others know no such mode. */
static bool sim_nvml_divisible(const struct nvml_device *device)
{
    int capability = device->is.capability;
    return capability == 80 || capability == 90 || capability == 100 || capability == 103;
}

NVML_API nvmlDeviceGetMigMode(struct nvml_device *device, unsigned *current, unsigned *pending)
{
    NVML_ENTER(device, current && pending);
    if (!sim_nvml_divisible(device))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = 0;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceIsMigDeviceHandle(struct nvml_device *device, unsigned *is)
{
    NVML_ENTER(device, is);
    *is = 0;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetMaxMigDeviceCount(struct nvml_device *device, unsigned *count)
{
    NVML_ENTER(device, count);
    *count = 0;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetMigDeviceHandleByIndex(struct nvml_device *device, unsigned index, struct nvml_device **mig)
{
    (void)index;
    NVML_ENTER(device, mig);
    return sim_nvml_divisible(device) ? NVML_ERROR_NOT_FOUND : NVML_ERROR_NOT_SUPPORTED;
}
