/* SPDX-License-Identifier: MIT
 * The machine as machine.h describes it to stand-ins of other libraries, which may ask before cuInit and
 * in processes that never call it. */
#include "machine.h"
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

SIM_EXPORT int sim_machine_devices(void);
SIM_EXPORT int sim_machine_device(int physical, struct sim_machine_device *device);

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
        };
        sim_gpu_links(gpu, &device->links, &device->link_version);
        sim_device_name(physical, device->name, sizeof device->name);
        sim_uuid_of(physical, device->uuid);
    }
    sim_unlock();
    return error;
}
