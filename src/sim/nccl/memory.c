/* SPDX-License-Identifier: MIT
 *
 * The device memory that NCCL takes for itself: the same amounts, at the same moments, by
 * cuMemAlloc; and the memory that it gives to programs.
 *
 * The amounts are those of NCCL 2.28.9, built from its source and run on the simulated driver with
 * 2 to 8 ranks of compute capability 9.0, once with NVSwitch (without NVLink SHARP, which takes
 * more) and once without NVLink. For other versions, generations and numbers of ranks they are
 * assumed.
 *
 * A communicator of one rank has the 64 channels that NCCL allows, each with three small blocks, and
 * two blocks of its own; NCCL maps every block as a page of 2 MiB.  An H200 showed the sum. */
#include "nccl.h"
#include "report.h"

#include <stdio.h>

#define NCCL_MIB   ((size_t)1 << 20)
#define NCCL_ALONE ((3 * 64 + 2) * 2) /* MiB */

static const struct nccl_table {
    const char *topology;
    size_t start, split, collective, peer; /* MiB of a rank */
} nccl_tables[] = {
    {"without NVLink", 17, 17, 24, 24},
    {"with NVSwitch", 197, 196, 288, 384},
};

static const struct nccl_table *memory_table(const struct nccl_comm *comm)
{
    return &nccl_tables[comm->links > 0];
}

static enum nccl_result memory_take(struct nccl_comm *comm, size_t mib, const char *what)
{
    const struct nccl_driver *driver = nccl_driver();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* this memory belongs to no graph */
    CUdeviceptr buffer = 0;
    if (comm->buffer_count == NCCL_BUFFERS)
        return NCCL_SUCCESS;
    driver->cuCtxPushCurrent(comm->context);
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    CUresult result = driver->cuMemAlloc(&buffer, mib * NCCL_MIB);
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    driver->cuCtxPopCurrent(NULL);
    if (result != CUDA_SUCCESS)
        return nccl_error(NCCL_CUDA_ERROR, "no memory for %s: cuMemAlloc of %zu MiB failed with error %d", what, mib,
                          (int)result);
    comm->buffers[comm->buffer_count++] = buffer;
    return NCCL_SUCCESS;
}

enum nccl_result nccl_memory_init(struct nccl_comm *comm)
{
    const struct nccl_table *table = memory_table(comm);
    bool alone = comm->ranks == 1;
    if (alone)
        sim_report(NCCL_LIBRARY, "assumed", "memory of a communicator of one rank: %d MiB", NCCL_ALONE);
    else
        sim_report(
            NCCL_LIBRARY, "assumed",
            "memory of NCCL 2.28.9 %s, without NVLink SHARP: %zu MiB a communicator, %zu its first collective, %zu a "
            "peer, %zu a split",
            table->topology, table->start, table->collective, table->peer, table->split);
    pthread_mutex_lock(&comm->lock);
    enum nccl_result result = memory_take(comm,
                                          alone         ? NCCL_ALONE
                                          : comm->child ? table->split
                                                        : table->start,
                                          "a communicator");
    pthread_mutex_unlock(&comm->lock);
    return result;
}

enum nccl_result nccl_memory_collective(struct nccl_comm *comm)
{
    enum nccl_result result = NCCL_SUCCESS;
    pthread_mutex_lock(&comm->lock);
    if (comm->ranks > 1 && !comm->connected)
        result = memory_take(comm, memory_table(comm)->collective, "the first collective");
    comm->connected = comm->connected || result == NCCL_SUCCESS;
    pthread_mutex_unlock(&comm->lock);
    return result;
}

enum nccl_result nccl_memory_peer(struct nccl_comm *comm, int peer)
{
    enum nccl_result result = NCCL_SUCCESS;
    pthread_mutex_lock(&comm->lock);
    if (peer != comm->rank && !comm->peers[peer])
        result = memory_take(comm, memory_table(comm)->peer, "a peer of send and receive");
    comm->peers[peer] = comm->peers[peer] || result == NCCL_SUCCESS;
    pthread_mutex_unlock(&comm->lock);
    return result;
}

void nccl_memory_end(struct nccl_comm *comm)
{
    const struct nccl_driver *driver = nccl_driver();
    pthread_mutex_lock(&comm->lock);
    int count = comm->buffer_count;
    comm->buffer_count = 0;
    pthread_mutex_unlock(&comm->lock);
    if (!count || driver->cuCtxPushCurrent(comm->context) != CUDA_SUCCESS)
        return;
    for (int i = 0; i < count; i++)
        driver->cuMemFree(comm->buffers[i]);
    driver->cuCtxPopCurrent(NULL);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

/* As NCCL does: virtual memory that can be exported, open to all devices. */
static CUresult memory_map(const struct nccl_driver *driver, CUdeviceptr *to, size_t size, CUdevice device)
{
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access = {.location = kind.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = 0;
    size_t step = 0;
    int devices = 0;
    CUresult result = driver->cuMemGetAllocationGranularity(&step, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result != CUDA_SUCCESS)
        return result;
    size = (size + step - 1) / step * step;
    result = driver->cuMemCreate(&handle, size, &kind, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemAddressReserve(&base, size, step, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = driver->cuMemMap(base, size, 0, handle, 0);
        driver->cuDeviceGetCount(&devices);
        for (access.location.id = 0; result == CUDA_SUCCESS && access.location.id < devices; access.location.id++)
            result = driver->cuMemSetAccess(base, size, &access, 1);
        if (result != CUDA_SUCCESS) {
            driver->cuMemUnmap(base, size);
            driver->cuMemAddressFree(base, size);
        }
    }
    driver->cuMemRelease(handle); /* the mapping keeps it */
    *to = base;
    return result;
}

NCCL_API(enum nccl_result, ncclMemAlloc, void **memory, size_t size)
{
    const struct nccl_driver *driver = nccl_driver();
    CUdevice device;
    CUdeviceptr base = 0;
    if (!memory || !size)
        return nccl_error(NCCL_INVALID_ARGUMENT, "ncclMemAlloc: no pointer, or no size");
    if (!driver)
        return NCCL_SYSTEM_ERROR;
    CUresult result = driver->cuCtxGetDevice(&device);
    if (result == CUDA_SUCCESS)
        result = memory_map(driver, &base, size, device);
    if (result != CUDA_SUCCESS)
        return nccl_error(NCCL_CUDA_ERROR, "ncclMemAlloc of %zu bytes: CUDA error %d", size, (int)result);
    *memory = (void *)base;
    return NCCL_SUCCESS;
}

NCCL_API(enum nccl_result, ncclMemFree, void *memory)
{
    const struct nccl_driver *driver = nccl_driver();
    CUdeviceptr base;
    size_t size;
    if (!memory)
        return NCCL_SUCCESS;
    if (!driver)
        return NCCL_SYSTEM_ERROR;
    CUresult result = driver->cuMemGetAddressRange(&base, &size, (CUdeviceptr)memory);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemUnmap(base, size);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemAddressFree(base, size);
    return result == CUDA_SUCCESS ? NCCL_SUCCESS
                                  : nccl_error(NCCL_CUDA_ERROR, "ncclMemFree: CUDA error %d", (int)result);
}
