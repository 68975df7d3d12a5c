/* SPDX-License-Identifier: MIT
 * What stand-ins of other libraries ask of the driver (machine.h): what the machine is, before cuInit too and in
 * processes that never call it, and the contents of memory. */
#include "machine.h"
#include "contents.h"
#include "cuda/module.h"
#include "sim.h"
#include "stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

SIM_EXPORT int sim_machine_devices(void);
SIM_EXPORT int sim_machine_node(void);
SIM_EXPORT int sim_machine_device(int physical, struct sim_machine_device *device);
SIM_EXPORT int sim_share_processes(int physical, int *pids, unsigned long long *bytes, int most);
SIM_EXPORT int sim_memory_fetch(void *to, uint64_t from, size_t size);
SIM_EXPORT int sim_memory_store(uint64_t to, const void *from, size_t size);
SIM_EXPORT int sim_library_code(const char *name, size_t bytes);
SIM_EXPORT void sim_memory_computed(uint64_t base, size_t size);

/* Before cuInit the environment may still change, so each call reads it. */
static int sim_machine_read(void)
{
    return sim_initialized ? 0 : sim_spec_read();
}

int sim_machine_devices(void)
{
    sim_lock();
    int error = sim_machine_read();
    int count = error ? error : sim_spec.devices;
    sim_unlock();
    return count;
}

int sim_machine_node(void)
{
    sim_lock();
    int error = sim_machine_read();
    int ranks = error ? error : sim_spec.node;
    sim_unlock();
    return ranks;
}

int sim_machine_device(int physical, struct sim_machine_device *device)
{
    if (!device || device->size != sizeof *device || physical < 0)
        return -EINVAL;
    sim_lock();
    int error = sim_machine_read();
    if (!error && physical >= sim_spec.devices)
        error = -EINVAL;
    if (!error) {
        const struct sim_gpu *gpu = sim_spec.gpu;
        *device = (struct sim_machine_device){
            .size = sizeof *device,
            .bus = physical + 1,
            .capability = gpu->capability,
            .multiprocessors = gpu->multiprocessors,
            .clock = gpu->clock,
            .memory_clock = gpu->memory_clock,
            .bus_width = gpu->bus,
            .ecc = gpu->ecc,
            .total = sim_spec.memory,
            .reserved = sim_spec.memory == gpu->memory ? sim_gpu_board(gpu) - gpu->memory : 0,
        };
        sim_gpu_links(gpu, &device->links, &device->link_version);
        sim_device_name(physical, device->name, sizeof device->name);
        sim_uuid_of(physical, device->uuid);
    }
    sim_unlock();
    return error;
}

static int sim_machine_move(CUdeviceptr memory, void *host, size_t size, bool store)
{
    int error = -EFAULT;
    if (!size)
        return 0;
    sim_lock();
    const struct sim_memory *record = sim_memory_find(memory);
    int device = record && record->device != SIM_HOST ? record->device : 0;
    struct sim_side there = {.base = memory, .pitch = size, .slice = size, .device = device};
    struct sim_side here = {.base = (CUdeviceptr)host, .pitch = size, .slice = size, .host = true, .device = device};
    struct sim_work work = {.type = SIM_WORK_COPY,
                            .destination = store ? there : here,
                            .source = store ? here : there,
                            .width = size,
                            .height = 1,
                            .depth = 1,
                            .device = device,
                            .fill = SIM_FILL_ZEROS};
    if (sim_work_check(&work) == CUDA_SUCCESS) {
        uint64_t read = sim_self.read_bytes; /* a stand-in is not the program */
        sim_work_run(&work);
        sim_self.read_bytes = read;
        error = 0;
    }
    sim_unlock();
    return error;
}

int sim_share_processes(int physical, int *pids, unsigned long long *bytes, int most)
{
    if (physical < 0 || physical >= SIM_MAX_DEVICES)
        return 0;
    sim_lock();
    int count = sim_share_shown(physical, pids, bytes, most), found = count < 0 ? 0 : count;
    for (int i = 0; count < 0 && i < sim_device_count; i++)
        if (sim_devices[i].physical == physical && sim_devices[i].used && ++found <= most) {
            pids[0] = getpid();
            bytes[0] = sim_devices[i].used;
        }
    sim_unlock();
    return found;
}

int sim_memory_fetch(void *to, uint64_t from, size_t size)
{
    return sim_machine_move(from, to, size, false);
}

int sim_memory_store(uint64_t to, const void *from, size_t size)
{
    return sim_machine_move(to, (void *)from, size, true);
}

int sim_library_code(const char *name, size_t bytes)
{
    sim_lock();
    CUresult result = sim_library_stand_in(name, bytes);
    sim_unlock();
    return result == CUDA_SUCCESS ? 0 : -ENOMEM;
}

void sim_memory_computed(uint64_t base, size_t size)
{
    sim_lock();
    const struct sim_memory *record = sim_memory_find(base);
    if (record ? sim_memory_on_device(record) && record->type != SIM_MEMORY_MANAGED : sim_pool_covers(base))
        sim_contents_forget(base, size);
    sim_unlock();
}
