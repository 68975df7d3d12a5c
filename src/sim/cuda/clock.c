/* SPDX-License-Identifier: MIT
 * The virtual clock: with latency=typical every call adds what it costs on a real machine, to the order of magnitude.
 * Called by every wrapper and by stream.c.  Never sleeps; any thread, no lock. */
#include "sim.h"

#include <string.h>

static uint64_t sim_clock;

/* Orders of magnitude that the field reports: allocation calls that change page tables take 50 us and more and a free
 * waits for the device; pinning pays per page; pool and launch calls are a few us; attribute queries below 1 us.
 * First match of the prefix wins. */
static const struct {
    const char *prefix;
    uint32_t ns;
} sim_costs[] = {
    {"cuInit", 100000000},
    {"cuDevicePrimaryCtxRetain", 1000},
    {"cuCtxCreate", 100000000},
    {"cuMemAllocAsync", 1000},
    {"cuMemAllocFromPoolAsync", 1000},
    {"cuMemAllocHost", 300000},
    {"cuMemAllocManaged", 30000},
    {"cuMemAlloc", 70000},
    {"cuMemFreeAsync", 1000},
    {"cuMemFreeHost", 150000},
    {"cuMemFree", 90000},
    {"cuMemHostAlloc", 300000},
    {"cuMemHostRegister", 200000},
    {"cuMemHostUnregister", 100000},
    {"cuMemCreate", 120000},
    {"cuMemRelease", 20000},
    {"cuMemMap", 10000},
    {"cuMemUnmap", 40000},
    {"cuMemSetAccess", 60000},
    {"cuMemAddressReserve", 3000},
    {"cuMemAddressFree", 3000},
    {"cuMemPoolTrimTo", 100000},
    {"cuMemGetInfo", 15000},
    {"cuIpcOpenMemHandle", 100000},
    {"cuArray", 80000},
    {"cuMipmappedArray", 80000},
    {"cuModuleLoad", 500000},
    {"cuLibraryLoad", 100000},
    {"cuGraphInstantiate", 50000},
    {"cuGraphLaunch", 5000},
    {"cuLaunch", 3000},
    {"cuMemcpy", 3000},
    {"cuMemset", 3000},
    {"cuStreamCreate", 10000},
    {"cuStream", 1000},
    {"cuEvent", 1000},
    {"cu", 200},
};

void sim_clock_setup(struct sim_entry *entry)
{
    for (size_t i = 0; i < sizeof sim_costs / sizeof *sim_costs; i++)
        if (strncmp(entry->name, sim_costs[i].prefix, strlen(sim_costs[i].prefix)) == 0) {
            entry->latency = sim_costs[i].ns;
            return;
        }
}

uint64_t sim_clock_now(void)
{
    return __atomic_load_n(&sim_clock, __ATOMIC_RELAXED);
}

void sim_clock_add(uint64_t ns)
{
    if (ns && sim_spec.latency)
        __atomic_add_fetch(&sim_clock, ns, __ATOMIC_RELAXED);
}

uint64_t sim_clock_copy_ns(size_t bytes, bool host)
{
    /* 20 bytes a ns = 20 GB/s, a PCIe 4 x16 link in practice; 1000 = 1 TB/s, device memory read and written. */
    return sim_spec.latency ? bytes / (host ? 20 : 1000) : 0;
}
