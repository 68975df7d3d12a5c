/* SPDX-License-Identifier: MIT
 * machine.c: see collect.h. */
#include <gpuprof/wire.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gp_process *gp_system_add(struct gp_system *system)
{
    int n = system->process_count;
    /* Grows when the count is a power of two: amortised, without a capacity field in a public
     * struct. */
    if ((n & (n - 1)) == 0) {
        struct gp_process *more = realloc(system->processes, (size_t)(n ? 2 * n : 1) * sizeof(*more));
        if (!more)
            return NULL;
        system->processes = more;
    }
    struct gp_process *process = &system->processes[system->process_count++];
    memset(process, 0, sizeof(*process));
    return process;
}

static struct gp_process *machine_find(struct gp_system *system, pid_t pid)
{
    for (int i = 0; i < system->process_count; i++) {
        if (system->processes[i].pid == pid)
            return &system->processes[i];
    }
    return NULL;
}

static int machine_foreign(struct gp_system *system, const struct gp_nvml_gpu *gpu, int index,
                           const struct gp_nvml_process *seen)
{
    struct gp_process *process = machine_find(system, (pid_t)seen->pid);
    if (!process) {
        struct gp_proc proc;
        if (gp_proc_open(&proc, (pid_t)seen->pid) != 0)
            return 0; /* it has exited meanwhile */
        process = gp_system_add(system);
        if (process) {
            process->state = GP_PROCESS_FOREIGN;
            gp_proc_describe(&proc, process);
        }
        gp_proc_close(&proc);
        if (!process)
            return -ENOMEM;
    }
    struct gp_device_view *devices =
        realloc(process->devices, (size_t)(process->device_count + 1) * sizeof(*process->devices));
    if (!devices)
        return -ENOMEM;
    process->devices = devices;
    struct gp_device_view *device = &devices[process->device_count++];
    memset(device, 0, sizeof(*device));
    device->index = device->ordinal = index;
    device->identified = true;
    memcpy(device->uuid, gpu->uuid, sizeof(device->uuid));
    memcpy(device->name, gpu->name, sizeof(device->name));
    device->total_bytes = gpu->total_bytes;
    device->untracked_bytes = seen->bytes;
    return 0;
}

/* Computes NVML's bytes of a profiled process minus the itemised ones. The two are read at
 * different moments, and NVML counts differently from the program, so a negative difference is
 * taken as 0. */
static void machine_untracked(struct gp_process *process, const struct gp_nvml_gpu *gpu, int64_t bytes)
{
    for (int i = 0; i < process->device_count; i++) {
        struct gp_device_view *device = &process->devices[i];
        if (bytes < 0 || !device->identified || strcmp(device->uuid, gpu->uuid) != 0)
            continue;
        int64_t reserved = device->wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current;
        /* What was there before an attach has a number of its own. */
        if (process->attached && device->before.bytes > 0)
            reserved += device->before.bytes;
        device->untracked_bytes = bytes > reserved ? bytes - reserved : 0;
    }
}

static int machine_processes(struct gp_system *system, const struct gp_nvml_gpu *gpu, int index, bool only_profiled)
{
    int rc = 0;
    for (int i = 0; i < gpu->process_count && !rc; i++) {
        if (gpu->processes[i].pid == 0 || gpu->processes[i].pid > INT_MAX)
            continue;
        struct gp_process *process = machine_find(system, (pid_t)gpu->processes[i].pid);
        if (process && process->state != GP_PROCESS_FOREIGN)
            machine_untracked(process, gpu, gpu->processes[i].bytes);
        else if (!only_profiled)
            rc = machine_foreign(system, gpu, index, &gpu->processes[i]);
    }
    return rc;
}

static int machine_gpu(struct gp_system *system, const struct gp_gpu *gpu)
{
    struct gp_gpu *more = realloc(system->gpus, (size_t)(system->gpu_count + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    system->gpus = more;
    more[system->gpu_count] = *gpu;
    more[system->gpu_count].index = system->gpu_count;
    system->gpu_count++;
    return 0;
}

int gp_machine_add_nvml(struct gp_system *system, bool only_profiled)
{
    struct gp_nvml_gpu *gpus = NULL;
    int count = 0;
    int rc = gp_nvml_read(&gpus, &count, system->nvml_problem);
    if (rc)
        return rc == -ENOMEM ? rc : 0;
    system->nvml = true;
    bool host_pids = gp_proc_host_pids();
    if (!host_pids)
        snprintf(system->nvml_problem, sizeof(system->nvml_problem),
                 "in a container: NVML reports pids of the host, which cannot be matched here");
    for (int i = 0; i < count && !rc; i++) {
        struct gp_gpu gpu = {.total_bytes = gpus[i].total_bytes, .used_bytes = gpus[i].used_bytes};
        memcpy(gpu.uuid, gpus[i].uuid, sizeof(gpu.uuid));
        memcpy(gpu.name, gpus[i].name, sizeof(gpu.name));
        rc = machine_gpu(system, &gpu);
        if (!rc && host_pids)
            rc = machine_processes(system, &gpus[i], i, only_profiled);
    }
    gp_nvml_free(gpus, count);
    return rc;
}

/* In a cgroup with a limit, NVML's total is the limit; processes know the device's size. */
static void machine_total(struct gp_gpu *gpu, int64_t device_bytes)
{
    if (gpu->used_bytes < 0 || device_bytes < 0 || gpu->total_bytes >= device_bytes - device_bytes / 64)
        return;
    gpu->limit_bytes = gpu->total_bytes;
    gpu->total_bytes = device_bytes;
}

int gp_machine_add_gpus(struct gp_system *system)
{
    for (int i = 0; i < system->process_count; i++) {
        const struct gp_process *process = &system->processes[i];
        for (int d = 0; d < process->device_count; d++) {
            const struct gp_device_view *device = &process->devices[d];
            bool known = device->index == (int)GP_WIRE_HOST || !device->identified || !device->uuid[0];
            for (int g = 0; g < system->gpu_count && !known; g++) {
                known = strcmp(system->gpus[g].uuid, device->uuid) == 0;
                if (known)
                    machine_total(&system->gpus[g], device->total_bytes);
            }
            if (known)
                continue;
            struct gp_gpu gpu = {.total_bytes = device->total_bytes, .used_bytes = -1};
            memcpy(gpu.uuid, device->uuid, sizeof(gpu.uuid));
            memcpy(gpu.name, device->name, sizeof(gpu.name));
            int rc = machine_gpu(system, &gpu);
            if (rc)
                return rc;
        }
    }
    return 0;
}
