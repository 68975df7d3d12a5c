/* SPDX-License-Identifier: MIT
 * What is used of a device and by whom: sums over the processes that the simulated driver sees. */
#define _GNU_SOURCE
#include "nvml.h"

#define NVML_MOST_PROCESSES 512 /* as many as share the simulated devices */

NVML_API nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *memory);
NVML_API nvmlDeviceGetMemoryInfo_v2(struct nvml_device *device, struct nvml_memory_v2 *memory);
NVML_API nvmlDeviceGetUtilizationRates(struct nvml_device *device, struct nvml_utilization *rates);
NVML_API nvmlDeviceGetComputeRunningProcesses(struct nvml_device *device, unsigned *count,
                                              struct nvml_process_v1 *list);
NVML_API nvmlDeviceGetGraphicsRunningProcesses(struct nvml_device *device, unsigned *count,
                                               struct nvml_process_v1 *list);
NVML_API nvmlDeviceGetMPSComputeRunningProcesses(struct nvml_device *device, unsigned *count,
                                                 struct nvml_process_v1 *list);

/* The lists in their later form: _v2, and _v3, which differs in nothing. */
#define NVML_LISTS(_version)                                                                                           \
    NVML_API nvmlDeviceGetComputeRunningProcesses_##_version(struct nvml_device *device, unsigned *count,              \
                                                             struct nvml_process_v2 *list);                            \
    NVML_API nvmlDeviceGetGraphicsRunningProcesses_##_version(struct nvml_device *device, unsigned *count,             \
                                                              struct nvml_process_v2 *list);                           \
    NVML_API nvmlDeviceGetMPSComputeRunningProcesses_##_version(struct nvml_device *device, unsigned *count,           \
                                                                struct nvml_process_v2 *list);                         \
    NVML_API nvmlDeviceGetComputeRunningProcesses_##_version(struct nvml_device *device, unsigned *count,              \
                                                             struct nvml_process_v2 *list)                             \
    {                                                                                                                  \
        return sim_nvml_list_v2(device, count, list);                                                                  \
    }                                                                                                                  \
    NVML_API nvmlDeviceGetGraphicsRunningProcesses_##_version(struct nvml_device *device, unsigned *count,             \
                                                              struct nvml_process_v2 *list)                            \
    {                                                                                                                  \
        (void)list;                                                                                                    \
        return sim_nvml_none(device, count);                                                                           \
    }                                                                                                                  \
    NVML_API nvmlDeviceGetMPSComputeRunningProcesses_##_version(struct nvml_device *device, unsigned *count,           \
                                                                struct nvml_process_v2 *list)                          \
    {                                                                                                                  \
        (void)list;                                                                                                    \
        return sim_nvml_none(device, count);                                                                           \
    }

struct sim_nvml_users {
    int count;
    int pids[NVML_MOST_PROCESSES];
    unsigned long long bytes[NVML_MOST_PROCESSES];
};

static void sim_nvml_users_read(const struct nvml_device *device, struct sim_nvml_users *users)
{
    int count = sim_nvml_processes(device, users->pids, users->bytes, NVML_MOST_PROCESSES);
    users->count = count < NVML_MOST_PROCESSES ? count : NVML_MOST_PROCESSES;
}

/* The total has what the driver reserves, and so has what is used in the first form, not in the second. */
static enum nvml_return sim_nvml_memory(struct nvml_device *device, struct nvml_memory *memory)
{
    struct sim_nvml_users users;
    enum nvml_return result = sim_nvml_check(device);
    if (result != NVML_SUCCESS)
        return result;
    sim_nvml_users_read(device, &users);
    *memory = (struct nvml_memory){.total = device->is.total};
    for (int i = 0; i < users.count; i++)
        memory->used += users.bytes[i];
    if (memory->used > memory->total) /* read while a process moved */
        memory->used = memory->total;
    memory->free = memory->total - memory->used;
    memory->total += device->is.reserved;
    memory->used += device->is.reserved;
    return NVML_SUCCESS;
}

NVML_API nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *memory)
{
    return memory ? sim_nvml_memory(device, memory) : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_API nvmlDeviceGetMemoryInfo_v2(struct nvml_device *device, struct nvml_memory_v2 *memory)
{
    struct nvml_memory sum;
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != NVML_VERSION(*memory, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    enum nvml_return result = sim_nvml_memory(device, &sum);
    if (result == NVML_SUCCESS)
        *memory = (struct nvml_memory_v2){memory->version, sum.total, device->is.reserved, sum.free,
                                          sum.used - device->is.reserved};
    return result;
}

/* Simulated kernels take no time of any device. */
NVML_API nvmlDeviceGetUtilizationRates(struct nvml_device *device, struct nvml_utilization *rates)
{
    enum nvml_return result = sim_nvml_check(device);
    if (result == NVML_SUCCESS && !rates)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *rates = (struct nvml_utilization){0, 0};
    return result;
}

/* *count is the room of the list, and afterwards the number of processes. */
static enum nvml_return sim_nvml_list(struct nvml_device *device, unsigned *count, bool list,
                                      struct sim_nvml_users *users)
{
    enum nvml_return result = sim_nvml_check(device);
    if (result != NVML_SUCCESS)
        return result;
    if (!count || (*count && !list))
        return NVML_ERROR_INVALID_ARGUMENT;
    sim_nvml_users_read(device, users);
    bool fits = (unsigned)users->count <= *count;
    *count = (unsigned)users->count;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static enum nvml_return sim_nvml_list_v2(struct nvml_device *device, unsigned *count, struct nvml_process_v2 *list)
{
    struct sim_nvml_users users;
    enum nvml_return result = sim_nvml_list(device, count, list != NULL, &users);
    for (int i = 0; result == NVML_SUCCESS && i < users.count; i++) /* all ones: no part of a divided GPU */
        list[i] = (struct nvml_process_v2){(unsigned)users.pids[i], users.bytes[i], ~0u, ~0u};
    return result;
}

NVML_API nvmlDeviceGetComputeRunningProcesses(struct nvml_device *device, unsigned *count, struct nvml_process_v1 *list)
{
    struct sim_nvml_users users;
    enum nvml_return result = sim_nvml_list(device, count, list != NULL, &users);
    for (int i = 0; result == NVML_SUCCESS && i < users.count; i++)
        list[i] = (struct nvml_process_v1){(unsigned)users.pids[i], users.bytes[i]};
    return result;
}

static enum nvml_return sim_nvml_none(struct nvml_device *device, unsigned *count)
{
    enum nvml_return result = sim_nvml_check(device);
    if (result == NVML_SUCCESS && !count)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *count = 0;
    return result;
}

NVML_API nvmlDeviceGetGraphicsRunningProcesses(struct nvml_device *device, unsigned *count,
                                               struct nvml_process_v1 *list)
{
    (void)list;
    return sim_nvml_none(device, count);
}

NVML_API nvmlDeviceGetMPSComputeRunningProcesses(struct nvml_device *device, unsigned *count,
                                                 struct nvml_process_v1 *list)
{
    (void)list;
    return sim_nvml_none(device, count);
}

NVML_LISTS(v2)
NVML_LISTS(v3)
