/* SPDX-License-Identifier: MIT
 * Hints on managed memory: advice, prefetch, discard, and the answers of cuMemRangeGetAttribute
 * about them. Kept per allocation, not per page: the simulator moves no pages.  Never changes the
 * ledger. */
#include "cuda/sim.h"

#include <stdlib.h>
#include <string.h>

/* Hangs at sim_memory.owner of managed records that were hinted at; freed with the record. */
struct sim_advice {
    bool read_mostly;
    CUmemLocation preferred, prefetched;
    uint64_t accessed_by; /* bit per device */
    bool accessed_by_host;
};

static struct sim_advice *sim_advice_of(CUdeviceptr address, size_t count)
{
    struct sim_memory *memory = sim_memory_find(address);
    if (!memory || memory->type != SIM_MEMORY_MANAGED || count == 0 || count > memory->size - (address - memory->base))
        return NULL;
    if (!memory->owner) {
        struct sim_advice *advice = calloc(1, sizeof *advice);
        if (!advice)
            return NULL;
        advice->preferred.type = advice->prefetched.type = CU_MEM_LOCATION_TYPE_INVALID;
        memory->owner = advice;
    }
    return memory->owner;
}

static bool sim_location_valid(CUmemLocation location)
{
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sim_device_get(location.id) != NULL;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return true;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return location.id == 0; /* one node */
    default:
        return false;
    }
}

/* The old forms name a device or the CPU (-1). */
static CUmemLocation sim_location_of(CUdevice device)
{
    return device == CU_DEVICE_CPU ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
                                   : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

static CUresult sim_advise(CUdeviceptr address, size_t count, CUmem_advise advice, CUmemLocation location)
{
    struct sim_advice *kept = sim_advice_of(address, count);
    bool located = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                   advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (!kept || (located && !sim_location_valid(location)))
        return kept && location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE
                                                                    : CUDA_ERROR_INVALID_VALUE;
    uint64_t bit = location.type == CU_MEM_LOCATION_TYPE_DEVICE && located ? UINT64_C(1) << location.id : 0;
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        kept->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        kept->preferred = location;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        kept->preferred = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        kept->accessed_by |= bit;
        kept->accessed_by_host |= !bit;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        kept->accessed_by &= ~bit;
        kept->accessed_by_host &= bit != 0;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

SIM_API4(457, 8000, cuMemAdvise, CUdeviceptr, devPtr, size_t, count, CUmem_advise, advice, CUdevice, device)
{
    return sim_advise(devPtr, count, advice, sim_location_of(device));
}

SIM_API4(715, 12020, cuMemAdvise_v2, CUdeviceptr, devPtr, size_t, count, CUmem_advise, advice, CUmemLocation, location)
{
    return sim_advise(devPtr, count, advice, location);
}

/* ---- prefetch and discard ---------------------------------------------------------------------------------------- */

static CUresult sim_prefetch_check(CUstream stream)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    return result == CUDA_SUCCESS ? sim_stream_check(sim_stream_default(stream)) : result;
}

static CUresult sim_prefetch(CUdeviceptr address, size_t count, CUmemLocation location, CUstream stream)
{
    CUresult result = sim_prefetch_check(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_location_valid(location))
        return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    struct sim_advice *kept = sim_advice_of(address, count);
    if (!kept)
        return CUDA_ERROR_INVALID_VALUE;
    kept->prefetched = location;
    return CUDA_SUCCESS;
}

SIM_API4_PTSZ(467, 468, 8000, cuMemPrefetchAsync, CUdeviceptr, devPtr, size_t, count, CUdevice, dstDevice, CUstream,
              hStream)
{
    return sim_prefetch(devPtr, count, sim_location_of(dstDevice), hStream);
}

SIM_API5_PTSZ(716, 717, 12020, cuMemPrefetchAsync_v2, CUdeviceptr, devPtr, size_t, count, CUmemLocation, location,
              unsigned int, flags, CUstream, hStream)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : sim_prefetch(devPtr, count, location, hStream);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

/* A location as the old attributes say it: device number, -1 CPU, -2 none. */
static int sim_location_number(CUmemLocation location)
{
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return location.id;
    return location.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

static void sim_accessed_by(const struct sim_advice *kept, int *out, size_t slots)
{
    size_t used = 0;
    if (kept->accessed_by_host && used < slots)
        out[used++] = CU_DEVICE_CPU;
    for (int device = 0; device < sim_device_count && used < slots; device++)
        if (kept->accessed_by >> device & 1)
            out[used++] = device;
    while (used < slots)
        out[used++] = CU_DEVICE_INVALID;
}

static CUresult sim_range_attribute(void *data, size_t size, CUmem_range_attribute attribute,
                                    const struct sim_advice *kept)
{
    if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
        if (size == 0 || size % sizeof(int))
            return CUDA_ERROR_INVALID_VALUE;
        sim_accessed_by(kept, data, size / sizeof(int));
        return CUDA_SUCCESS;
    }
    if (size != sizeof(int))
        return CUDA_ERROR_INVALID_VALUE;
    const CUmemLocation *location = attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION ||
                                            attribute >= CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE
                                        ? &kept->prefetched
                                        : &kept->preferred;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *(int *)data = kept->read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *(int *)data = sim_location_number(*location);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *(int *)data = (int)location->type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *(int *)data = location->id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_API5(471, 8000, cuMemRangeGetAttribute, void *, data, size_t, dataSize, CUmem_range_attribute, attribute,
         CUdeviceptr, devPtr, size_t, count)
{
    const struct sim_advice *kept = sim_advice_of(devPtr, count);
    return kept && data ? sim_range_attribute(data, dataSize, attribute, kept) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API6(472, 8000, cuMemRangeGetAttributes, void **, data, size_t *, dataSizes, CUmem_range_attribute *, attributes,
         size_t, numAttributes, CUdeviceptr, devPtr, size_t, count)
{
    const struct sim_advice *kept = sim_advice_of(devPtr, count);
    if (!kept || !data || !dataSizes || !attributes || numAttributes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < numAttributes && result == CUDA_SUCCESS; i++)
        result = data[i] ? sim_range_attribute(data[i], dataSizes[i], attributes[i], kept) : CUDA_ERROR_INVALID_VALUE;
    return result;
}
