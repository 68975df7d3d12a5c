/* SPDX-License-Identifier: MIT
 * The functions of the simulated driver, found in the process or in the folder above the stand-in's own. */
#define _GNU_SOURCE
#include "nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static struct nccl_driver nccl_functions;
static bool nccl_driver_there;

static const struct {
    const char *name;
    size_t at;
} nccl_names[] = {
#define NCCL_NAME(_field, _name)                                                                                       \
    {                                                                                                                  \
        _name, offsetof(struct nccl_driver, _field)                                                                    \
    }
    NCCL_NAME(cuInit, "cuInit"),
    NCCL_NAME(cuCtxGetDevice, "cuCtxGetDevice"),
    NCCL_NAME(cuCtxGetCurrent, "cuCtxGetCurrent"),
    NCCL_NAME(cuCtxPushCurrent, "cuCtxPushCurrent_v2"),
    NCCL_NAME(cuCtxPopCurrent, "cuCtxPopCurrent_v2"),
    NCCL_NAME(cuDeviceGetAttribute, "cuDeviceGetAttribute"),
    NCCL_NAME(cuDeviceGetCount, "cuDeviceGetCount"),
    NCCL_NAME(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"),
    NCCL_NAME(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId"),
    NCCL_NAME(cuLaunchHostFunc, "cuLaunchHostFunc"),
    NCCL_NAME(cuStreamQuery, "cuStreamQuery"),
    NCCL_NAME(cuStreamIsCapturing, "cuStreamIsCapturing"),
    NCCL_NAME(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode"),
    NCCL_NAME(cuMemcpyAsync, "cuMemcpyAsync"),
    NCCL_NAME(cuMemAlloc, "cuMemAlloc_v2"),
    NCCL_NAME(cuMemFree, "cuMemFree_v2"),
    NCCL_NAME(cuMemCreate, "cuMemCreate"),
    NCCL_NAME(cuMemRelease, "cuMemRelease"),
    NCCL_NAME(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity"),
    NCCL_NAME(cuMemAddressReserve, "cuMemAddressReserve"),
    NCCL_NAME(cuMemAddressFree, "cuMemAddressFree"),
    NCCL_NAME(cuMemMap, "cuMemMap"),
    NCCL_NAME(cuMemUnmap, "cuMemUnmap"),
    NCCL_NAME(cuMemSetAccess, "cuMemSetAccess"),
    NCCL_NAME(cuMemGetAddressRange, "cuMemGetAddressRange_v2"),
    NCCL_NAME(sim_machine_devices, "sim_machine_devices"),
    NCCL_NAME(sim_machine_device, "sim_machine_device"),
    NCCL_NAME(sim_machine_node, "sim_machine_node"),
    NCCL_NAME(sim_memory_fetch, "sim_memory_fetch"),
    NCCL_NAME(sim_memory_store, "sim_memory_store"),
    NCCL_NAME(sim_memory_computed, "sim_memory_computed"),
    NCCL_NAME(sim_host_waits, "sim_host_waits"),
    NCCL_NAME(sim_library_code, "sim_library_code"),
};

static bool nccl_driver_bind(void *library)
{
    for (size_t i = 0; library && i < sizeof nccl_names / sizeof *nccl_names; i++) {
        void *symbol = dlsym(library, nccl_names[i].name);
        if (!symbol)
            return false;
        memcpy((char *)&nccl_functions + nccl_names[i].at, &symbol, sizeof symbol);
    }
    return library != NULL;
}

static void nccl_driver_find(void)
{
    char path[4096];
    Dl_info own;
    if (nccl_driver_bind(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD))) {
        nccl_driver_there = true;
    } else if (dladdr((void *)nccl_driver_find, &own) && own.dli_fname) {
        const char *slash = strrchr(own.dli_fname, '/');
        int length = slash ? (int)(slash - own.dli_fname) : 1;
        snprintf(path, sizeof path, "%.*s/../libcuda.so.1", length, slash ? own.dli_fname : ".");
        nccl_driver_there = nccl_driver_bind(dlopen(path, RTLD_NOW | RTLD_LOCAL));
    }
    nccl_driver_there = nccl_driver_there || nccl_driver_bind(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
    if (!nccl_driver_there)
        fprintf(stderr,
                "gpuprof: sim: NCCL: this process has no simulated driver (libcuda.so.1): the stand-in for NCCL "
                "works on the simulated GPU alone\n");
}

const struct nccl_driver *nccl_driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, nccl_driver_find);
    return nccl_driver_there ? &nccl_functions : NULL;
}

/* The driver's own numbers begin after CUDA_VISIBLE_DEVICES; the bus says which device of the machine it is. */
int nccl_device(CUdevice device, struct sim_machine_device *is)
{
    const struct nccl_driver *driver = nccl_driver();
    char bus[16];
    unsigned number;
    if (driver->cuDeviceGetPCIBusId(bus, sizeof bus, device) != CUDA_SUCCESS || sscanf(bus, "%*x:%x", &number) != 1)
        return -1;
    for (int i = 0; i < driver->sim_machine_devices(); i++) {
        *is = (struct sim_machine_device){.size = sizeof *is};
        if (driver->sim_machine_device(i, is) == 0 && (unsigned)is->bus == number)
            return i;
    }
    return -1;
}
