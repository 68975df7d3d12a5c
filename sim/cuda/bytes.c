/* SPDX-License-Identifier: MIT
 * Addresses with zeroed bytes behind them, taken from a device or from the host.  Called by the files of owned memory. */
#include "cuda/memory.h"

#include <sys/mman.h>

CUresult sim_bytes_take(struct sim_memory *memory, size_t mapped, size_t align, size_t footprint)
{
    if (footprint && sim_device_take(memory->device, footprint) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->base = sim_space_reserve(mapped, align, 0);
    if (memory->base && sim_space_back(mapped, &memory->offset) == 0) {
        memory->footprint = footprint;
        if (sim_space_map(memory->base, mapped, sim_space_fd(), memory->offset, PROT_READ | PROT_WRITE) == 0)
            return CUDA_SUCCESS;
        sim_space_unback(memory->offset, mapped);
    }
    if (memory->base)
        sim_space_release(memory->base, mapped);
    if (footprint)
        sim_device_give(memory->device, footprint);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_bytes_give(struct sim_memory *memory, size_t mapped)
{
    sim_space_release(memory->base, mapped);
    sim_space_unback(memory->offset, mapped);
    if (memory->footprint)
        sim_device_give(memory->device, memory->footprint);
}
