/* SPDX-License-Identifier: MIT
 * Entry points of the memory of graphs (graphmem.c). */
#include "cuda/graph.h"

/* ---- the device's account ---------------------------------------------------------------------------------------- */

SIM_API1(640, 11040, cuDeviceGraphMemTrim, CUdevice, device)
{
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_graph_reclaim(device);
    return CUDA_SUCCESS;
}

SIM_API3(641, 11040, cuDeviceGetGraphMemAttribute, CUdevice, device, CUgraphMem_attribute, attr, void *, value)
{
    const struct sim_graph_memory *g;

    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    g = sim_graph_memory(device);
    switch (attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = g->used;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = g->used_high;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = g->reserved;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = g->reserved_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Only high-water marks can be set, and only to the current value. */
SIM_API3(642, 11040, cuDeviceSetGraphMemAttribute, CUdevice, device, CUgraphMem_attribute, attr, void *, value)
{
    struct sim_graph_memory *g;

    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || *(const cuuint64_t *)value)
        return CUDA_ERROR_INVALID_VALUE;
    g = sim_graph_memory(device);
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        g->used_high = g->used;
    else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        g->reserved_high = g->reserved;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
