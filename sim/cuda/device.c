/* SPDX-License-Identifier: MIT
 * The devices: their number, identity, attributes and physical bytes. Called by cuInit and by every
 * file that takes device memory; does not know the users of the memory. */
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_device sim_devices[SIM_MAX_DEVICES];
int sim_device_count;

void sim_uuid_of(int physical, unsigned char uuid[16])
{
    static const unsigned char stem[15] = {0x51, 0xb7, 0x0d, 0x3e, 0x9a, 0x42, 0x4c, 0x66,
                                           0x8f, 0x10, 0x5e, 0xed, 0xc0, 0xde, 0x00};
    memcpy(uuid, stem, sizeof stem);
    for (int i = 0; sim_spec.machine && i < 6; i++)
        uuid[i] = (unsigned char)(sim_spec.machine >> 8 * i);
    uuid[15] = (unsigned char)physical;
}

void sim_device_uuid(int device, CUuuid *uuid)
{
    sim_uuid_of(sim_devices[device].physical, (unsigned char *)uuid->bytes);
}

static void sim_uuid_text(int physical, char text[48])
{
    unsigned char b[16];
    sim_uuid_of(physical, b);
    snprintf(text, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
             b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* One entry of CUDA_VISIBLE_DEVICES: a number or the beginning of a UUID; -1 when it names no
 * device. */
static int sim_visible_entry(const char *entry)
{
    char *end;
    long number = strtol(entry, &end, 10);
    if (end != entry && !*end)
        return number >= 0 && number < sim_spec.devices ? (int)number : -1;
    for (int physical = 0; physical < sim_spec.devices && !strncmp(entry, "GPU-", 4); physical++) {
        char text[48];
        sim_uuid_text(physical, text);
        if (strncasecmp(text, entry, strlen(entry)) == 0)
            return physical;
    }
    return -1;
}

void sim_device_name(int physical, char *name, size_t size)
{
    if (sim_spec.gpu->name)
        snprintf(name, size, "%s", sim_spec.gpu->name);
    else
        snprintf(name, size, "Simulated GPU %d", physical);
}

static void sim_device_add(int physical)
{
    struct sim_device *device = &sim_devices[sim_device_count];
    *device = (struct sim_device){.ordinal = sim_device_count, .physical = physical, .total = sim_spec.memory};
    sim_device_count++;
}

/* The list ends at the first entry that names no device or one that is named already. */
static int sim_visible_devices(const char *list)
{
    char *copy = strdup(list), *rest = copy, *entry;
    if (!copy)
        return -ENOMEM;
    uint64_t seen = 0;
    while ((entry = strsep(&rest, ","))) {
        int physical = sim_visible_entry(entry);
        if (physical < 0 || seen & UINT64_C(1) << physical)
            break;
        seen |= UINT64_C(1) << physical;
        sim_device_add(physical);
    }
    free(copy);
    return 0;
}

int sim_device_setup(void)
{
    for (struct sim_entry *const *at = __start_sim_entries; at < __stop_sim_entries; at++)
        sim_clock_setup(*at);
    sim_device_count = 0;
    const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");
    if (visible && sim_visible_devices(visible) != 0)
        return -ENOMEM;
    for (int physical = 0; !visible && physical < sim_spec.devices; physical++)
        sim_device_add(physical);
    return sim_device_count ? 0 : -ENODEV;
}

struct sim_device *sim_device_get(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < sim_device_count ? &sim_devices[ordinal] : NULL;
}

uint64_t sim_device_most(const struct sim_device *device)
{
    return sim_spec.limit && sim_spec.limit < device->total ? sim_spec.limit : device->total;
}

uint64_t sim_device_left(const struct sim_device *device)
{
    uint64_t own = sim_device_most(device) - device->used;
    uint64_t all = device->used + sim_share_elsewhere(device->physical);
    all = all < device->total ? device->total - all : 0;
    return own < all ? own : all;
}

static bool sim_device_fits(struct sim_device *device, uint64_t bytes)
{
    if (device->used + bytes > sim_device_most(device) ||
        !sim_share_take(device->physical, device->used, bytes, device->total))
        return false;
    device->used += bytes;
    return true;
}

void (*sim_device_reclaim)(int device);

CUresult sim_device_take(int ordinal, uint64_t bytes)
{
    struct sim_device *device = &sim_devices[ordinal];
    if (bytes > sim_device_most(device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (sim_device_fits(device, bytes))
        return CUDA_SUCCESS;
    if (sim_device_reclaim)
        sim_device_reclaim(ordinal);
    return sim_device_fits(device, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_device_give(int ordinal, uint64_t bytes)
{
    struct sim_device *device = &sim_devices[ordinal];
    device->used -= bytes;
    sim_share_used(device->physical, device->used);
}

/* ---- entry points ------------------------------------------------------------------------------------------------ */

/* What is the same for all GPUs since compute capability 6.0; gpu.c has the rest.  Attributes named
 * in neither are 0: the feature is absent here (compression, sparse and deferred arrays, fabric handles, GPUDirect RDMA
 * and 64-bit waits of streams, which an H200 has, too: a program that was told so would use them). */
static const struct {
    CUdevice_attribute attribute;
    int value;
} sim_attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER, 1},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 2046},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 268435456},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65000},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2097120},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32768},
};

int sim_device_attribute(int ordinal, CUdevice_attribute attribute)
{
    int value;
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
        return sim_devices[ordinal].physical + 1;
    if (sim_gpu_attribute(sim_spec.gpu, attribute, &value))
        return value;
    for (size_t i = 0; i < sizeof sim_attributes / sizeof *sim_attributes; i++)
        if (sim_attributes[i].attribute == attribute)
            return sim_attributes[i].value;
    return 0;
}
