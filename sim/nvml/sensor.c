/* SPDX-License-Identifier: MIT
 * What a board's sensors say: power, energy, temperatures, traffic and the window of PCIe.  The simulated GPU computes
 * nothing, so they are those of an idle board, in round numbers of no card in particular: tools that read them run
 * (docs/simulator.md). */
#define _GNU_SOURCE
#include "nvml.h"

#include <time.h>

#define NVML_IDLE_MW    50000u
#define NVML_LOWEST_MW  100000u
#define NVML_LIMIT_MW   350000u
#define NVML_IDLE_C     35u
#define NVML_SENSOR_GPU 0 /* the only one that NVIDIA documents */
#define NVML_SAMPLE_US  167000u

struct nvml_bar1 {
    unsigned long long total, free, used;
};
struct nvml_temperature {
    unsigned version;
    int sensor, degrees;
};

NVML_API nvmlDeviceGetPowerUsage(struct nvml_device *device, unsigned *milliwatts);
NVML_API nvmlDeviceGetTotalEnergyConsumption(struct nvml_device *device, unsigned long long *millijoules);
NVML_API nvmlDeviceGetPowerManagementMode(struct nvml_device *device, int *mode);
NVML_API nvmlDeviceGetPowerManagementLimit(struct nvml_device *device, unsigned *milliwatts);
NVML_API nvmlDeviceGetPowerManagementDefaultLimit(struct nvml_device *device, unsigned *milliwatts);
NVML_API nvmlDeviceGetEnforcedPowerLimit(struct nvml_device *device, unsigned *milliwatts);
NVML_API nvmlDeviceGetPowerManagementLimitConstraints(struct nvml_device *device, unsigned *low, unsigned *high);
NVML_API nvmlDeviceGetPowerState(struct nvml_device *device, int *state);
NVML_API nvmlDeviceGetPerformanceState(struct nvml_device *device, int *state);
NVML_API nvmlDeviceGetTemperature(struct nvml_device *device, int sensor, unsigned *degrees);
NVML_API nvmlDeviceGetTemperatureV(struct nvml_device *device, struct nvml_temperature *temperature);
NVML_API nvmlDeviceGetTemperatureThreshold(struct nvml_device *device, int threshold, unsigned *degrees);
NVML_API nvmlDeviceGetBAR1MemoryInfo(struct nvml_device *device, struct nvml_bar1 *bar1);
NVML_API nvmlDeviceGetPcieThroughput(struct nvml_device *device, int counter, unsigned *kilobytes);
NVML_API nvmlDeviceGetEncoderUtilization(struct nvml_device *device, unsigned *percent, unsigned *period);
NVML_API nvmlDeviceGetDecoderUtilization(struct nvml_device *device, unsigned *percent, unsigned *period);

static enum nvml_return sensor_says(const struct nvml_device *device, unsigned *to, unsigned value)
{
    enum nvml_return result = sim_nvml_check(device);
    if (result == NVML_SUCCESS && !to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *to = value;
    return result;
}

NVML_API nvmlDeviceGetPowerUsage(struct nvml_device *device, unsigned *milliwatts)
{
    return sensor_says(device, milliwatts, NVML_IDLE_MW);
}

/* Since the driver was loaded, which was when the machine started. */
NVML_API nvmlDeviceGetTotalEnergyConsumption(struct nvml_device *device, unsigned long long *millijoules)
{
    struct timespec up = {0, 0};
    enum nvml_return result = sim_nvml_check(device);
    if (result != NVML_SUCCESS)
        return result;
    if (!millijoules)
        return NVML_ERROR_INVALID_ARGUMENT;
    clock_gettime(CLOCK_BOOTTIME, &up);
    *millijoules =
        (unsigned long long)up.tv_sec * NVML_IDLE_MW + (unsigned long long)up.tv_nsec / 1000 * NVML_IDLE_MW / 1000000;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetPowerManagementMode(struct nvml_device *device, int *mode)
{
    return sensor_says(device, (unsigned *)mode, 1);
}

NVML_API nvmlDeviceGetPowerManagementLimit(struct nvml_device *device, unsigned *milliwatts)
{
    return sensor_says(device, milliwatts, NVML_LIMIT_MW);
}

NVML_API nvmlDeviceGetPowerManagementDefaultLimit(struct nvml_device *device, unsigned *milliwatts)
{
    return sensor_says(device, milliwatts, NVML_LIMIT_MW);
}

NVML_API nvmlDeviceGetEnforcedPowerLimit(struct nvml_device *device, unsigned *milliwatts)
{
    return sensor_says(device, milliwatts, NVML_LIMIT_MW);
}

NVML_API nvmlDeviceGetPowerManagementLimitConstraints(struct nvml_device *device, unsigned *low, unsigned *high)
{
    enum nvml_return result = sensor_says(device, low, NVML_LOWEST_MW);
    return result != NVML_SUCCESS ? result : sensor_says(device, high, NVML_LIMIT_MW);
}

/* P0: boards for computing stay in it when they are idle. */
NVML_API nvmlDeviceGetPowerState(struct nvml_device *device, int *state)
{
    return sensor_says(device, (unsigned *)state, 0);
}

NVML_API nvmlDeviceGetPerformanceState(struct nvml_device *device, int *state)
{
    return sensor_says(device, (unsigned *)state, 0);
}

NVML_API nvmlDeviceGetTemperature(struct nvml_device *device, int sensor, unsigned *degrees)
{
    if (sensor != NVML_SENSOR_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    return sensor_says(device, degrees, NVML_IDLE_C);
}

NVML_API nvmlDeviceGetTemperatureV(struct nvml_device *device, struct nvml_temperature *temperature)
{
    enum nvml_return result = sim_nvml_check(device);
    if (result != NVML_SUCCESS)
        return result;
    if (!temperature || temperature->sensor != NVML_SENSOR_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (temperature->version != NVML_VERSION(*temperature, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    temperature->degrees = (int)NVML_IDLE_C;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetTemperatureThreshold(struct nvml_device *device, int threshold, unsigned *degrees)
{
    static const unsigned degrees_of[] = {95, 90, 95, 85}; /* shutdown, slowdown, most of the memory and of the GPU */
    if (threshold < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    if ((unsigned)threshold >= sizeof degrees_of / sizeof degrees_of[0])
        return sim_nvml_absent("nvmlDeviceGetTemperatureThreshold of the acoustic thresholds");
    return sensor_says(device, degrees, degrees_of[threshold]);
}

/* A window for all of the memory, as boards for computing have, of which the driver itself uses little. */
NVML_API nvmlDeviceGetBAR1MemoryInfo(struct nvml_device *device, struct nvml_bar1 *bar1)
{
    enum nvml_return result = sim_nvml_check(device);
    if (result != NVML_SUCCESS)
        return result;
    if (!bar1)
        return NVML_ERROR_INVALID_ARGUMENT;
    *bar1 = (struct nvml_bar1){.total = 1ull << 28, .used = 1ull << 20};
    while (bar1->total < device->is.total + device->is.reserved)
        bar1->total *= 2;
    bar1->free = bar1->total - bar1->used;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetPcieThroughput(struct nvml_device *device, int counter, unsigned *kilobytes)
{
    (void)counter;
    return sensor_says(device, kilobytes, 0);
}

NVML_API nvmlDeviceGetEncoderUtilization(struct nvml_device *device, unsigned *percent, unsigned *period)
{
    enum nvml_return result = sensor_says(device, percent, 0);
    return result != NVML_SUCCESS ? result : sensor_says(device, period, NVML_SAMPLE_US);
}

NVML_API nvmlDeviceGetDecoderUtilization(struct nvml_device *device, unsigned *percent, unsigned *period)
{
    return nvmlDeviceGetEncoderUtilization(device, percent, period);
}
